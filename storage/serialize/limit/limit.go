// Package limit says what the serialize mode can be asked for. It is apart from the mode and its codecs for programs that only ask:
// a client that starts servers.
package limit

import (
	"fmt"
	"strings"
)

// MaxBucketEntries bounds the mean number of entries in a bucket: one is decoded for every Get.
const MaxBucketEntries = 1 << 16

// DefaultCodec is the codec of an empty name.
const DefaultCodec = "deflate"

// Codec is a row of the table of codecs.
type Codec struct {
	Name        string
	Default     int // level
	Least, Most int // allowed levels; both 0 = the codec has none
	meaning     string
}

// Codecs returns the table.
func Codecs() []Codec {
	return []Codec{
		{"deflate", 1, 1, 9, "1 fastest, 9 smallest"},
		{"zlib", 1, 1, 9, "1 fastest, 9 smallest"},
		{"zip", 1, 1, 9, "1 fastest, 9 smallest"},
		{"zstd", 1, 1, 4, "1 fastest, 4 smallest"},
		{"s2", 1, 1, 3, "1 fastest, 3 smallest"},
		{"shared", 0, 0, 0, ""},
		{"none", 0, 0, 0, ""},
	}
}

// CodecNames returns the names of all codecs.
func CodecNames() []string {
	var names []string
	for _, c := range Codecs() {
		names = append(names, c.Name)
	}
	return names
}

// Level returns the level that a codec compresses with where one is asked for; 0 asks for its default.
func Level(name string, level int) (int, error) {
	if name == "" {
		name = DefaultCodec
	}
	for _, c := range Codecs() {
		if c.Name != name {
			continue
		}
		switch {
		case level == 0:
			return c.Default, nil
		case c.Most == 0:
			return 0, fmt.Errorf("codec: %s has no level, got %d (use 0)", name, level)
		case level < c.Least || level > c.Most:
			return 0, fmt.Errorf("codec: level %d of %s is out of range (use %d..%d: %s; 0 = default, %d)",
				level, name, c.Least, c.Most, c.meaning, c.Default)
		}
		return level, nil
	}
	return 0, fmt.Errorf("codec: unknown codec %q (use one of %s)", name, strings.Join(CodecNames(), ", "))
}
