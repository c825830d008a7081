package descriptors_test

import (
	"testing"

	"kvmark/storage/descriptors"
)

func TestAStoreLeavesMostOfTheDescriptors(t *testing.T) {
	files, all := descriptors.Files(), descriptors.Store()
	if files < 4 || files > 512 || all <= int64(files) {
		t.Errorf("%d files, %d descriptors", files, all)
	}
	if limit, ok := descriptors.Limit(); ok && limit >= 64 && all > limit/2 {
		t.Errorf("a store takes %d of %d descriptors", all, limit)
	}
}
