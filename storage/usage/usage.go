// Package usage is what all storage modes have in common: what a store says
// about its size, which the server prints, and how long a position of a scan is.
package usage

// ScanBits is the length of a position among the keys of a partition.
const ScanBits = 45

// Stats is a snapshot of a store. Fields that a mode has nothing to say about
// are zero. Counters are exact when nothing is being written and otherwise at
// most a few operations apart from each other.
type Stats struct {
	Keys       int64 // entries
	KeyBytes   int64 // sum of the lengths of the keys, as the clients sent them
	ValueBytes int64 // sum of the lengths of the values, as the clients sent them

	StoredBytes int64 // keys and values as the mode keeps them (compressed, framed)
	IndexBytes  int64 // estimate of the memory that finds them
	DiskBytes   int64 // bytes of the mode's own files
	DeadBytes   int64 // the part of DiskBytes that no entry refers to any more
	Buckets     int64 // serialize: number of buckets

	Extra []Field // what only this mode has, in printing order
}

// Field is one mode-specific line: `name:value`.
type Field struct{ Name, Value string }
