package storage_test

import (
	"fmt"

	"kvmark/storage"
)

func ExampleOpen() {
	s, err := storage.Open(storage.Serialize, storage.Options{Codec: "deflate"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if err := s.Set([]byte("greeting"), []byte("hello")); err != nil {
		fmt.Println(err)
	}
	value, ok, err := s.Get(nil, []byte("greeting"))
	fmt.Printf("%s %v %v\n", value, ok, err)
	fmt.Println(s.Count())
	// Output:
	// hello true <nil>
	// 1
}
