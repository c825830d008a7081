package result

import (
	"bytes"
	"debug/elf"
	"regexp"
)

// The go command notes the commit of a build in the program only where the work tree is a plain clone, and gives every commit another
// pseudo-version. The recipe of kvmark's builds therefore leaves that out, and has the linker write a stamp of fixed
// length per kind of hash:
//
//	kvmark-commit=<hash of the commit, in hex><+ if files differ from it, else ->
//
// It is in kvserver too; see package stats there.

// stamp is set by the linker (-X kvmark/client/result.stamp=...).
var stamp string

var stampForm = regexp.MustCompile(`kvmark-commit=([0-9a-f]{40,64})([+-])`)

// commit is what a stamp, or a program that has one, says, in the words of the go command's own build settings; nil: nothing.
func commit(program []byte) []string {
	m := stampForm.FindSubmatch(program)
	if m == nil {
		return nil
	}
	modified := "false"
	if m[2][0] == '+' {
		modified = "true"
	}
	return []string{"vcs.revision=" + string(m[1]), "vcs.modified=" + modified}
}

// Anonymous clears in a program what names its build and does nothing: the stamp, and the ids that the linker makes from it. Builds
// of two commits with the same code are then equal.
func Anonymous(program []byte) {
	for _, at := range stampForm.FindAllIndex(program, -1) {
		clear(program[at[0]:at[1]])
	}
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return // of another system, where they stay different
	}
	defer f.Close()
	for _, s := range f.Sections {
		if end := s.Offset + s.FileSize; s.Type == elf.SHT_NOTE && s.Offset <= end && end <= uint64(len(program)) {
			clear(program[s.Offset:end])
		}
	}
}
