package load_test

import (
	"fmt"

	"kvmark/client/load"
)

func ExampleParseTarget() {
	for _, text := range []string{"redis://127.0.0.1:6379", "http://127.0.0.1"} {
		target, err := load.ParseTarget(text)
		if err != nil {
			fmt.Println("refused")
			continue
		}
		fmt.Println(target)
	}
	// Output:
	// redis://127.0.0.1:6379
	// refused
}
