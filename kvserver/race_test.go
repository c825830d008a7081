//go:build race

package kvserver

const raceEnabled = true
