package result

import "testing"

func TestMountFindsTheDeepestFileSystem(t *testing.T) {
	const info = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1g
31 22 8:17 / /mnt/my\040data rw,noatime shared:2 master:3 - xfs /dev/sdb1 rw,logbsize=32k
32 22 0:40 / /tmp rw - btrfs /dev/sdc rw,subvol=/
broken line
`
	tests := []struct{ dir, kind, options string }{
		{"/home/x", "ext4", "rw,relatime,rw,errors=remount-ro"},
		{"/mnt/my data/kv", "xfs", "rw,noatime,rw,logbsize=32k"},
		{"/tmp/a", "btrfs", "rw,rw,subvol=/"}, // mounted over the first
		{"/tmpfile", "ext4", "rw,relatime,rw,errors=remount-ro"},
	}
	for _, tt := range tests {
		if kind, options := mount(info, tt.dir); kind != tt.kind || options != tt.options {
			t.Errorf("%s: %s %s, want %s %s", tt.dir, kind, options, tt.kind, tt.options)
		}
	}
	if kind, _ := mount("", "/"); kind != "" {
		t.Errorf("without any mounts: %s", kind)
	}
}
