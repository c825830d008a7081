package main

import (
	"fmt"

	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
)

// checkSize refuses data that clearly exceed this machine: a server that is killed for its memory after minutes of filling,
// or a full disk, is no measurement. It counts but what cannot be avoided, so that what passes may still be too much.
func checkSize(cfg load.Config, room result.Room) error {
	keys := float64(cfg.Workload.Workers) * float64(cfg.Workload.Keys)
	data := fmt.Sprintf("%.0f keys (%s x %s) with values of %.0f bytes", keys, report.Plural(cfg.Workload.Workers, "worker"), report.Plural(cfg.Workload.Keys, "key"), cfg.Workload.MeanValueBytes())
	const do = "use fewer --keys, smaller values, or --workers"
	own := keys / 8 // a bit for each key that was written
	modes := cfg.Modes
	if cfg.Target.Addr != "" {
		modes = []string{""}
	}
	for _, mode := range modes {
		memory, disk := footprint(cfg, mode, keys)
		if memory += own; room.Memory > 0 && memory > float64(room.Memory) {
			return fmt.Errorf("%s take at least %s of memory%s, %s are available: %s", data, bytesWords(memory), inMode(mode), bytesWords(float64(room.Memory)), do)
		}
		if room.Disk > 0 && disk > float64(room.Disk) {
			return fmt.Errorf("%s take at least %s of disk%s, %s are free in %s: %s, or another --dir", data, bytesWords(disk), inMode(mode), bytesWords(float64(room.Disk)), dataDir(cfg.Dir), do)
		}
	}
	return nil
}

// fileIndexEntry is what mode file keeps of a key beside its bytes: a string header and a number in a map, and the value's location.
const fileIndexEntry = 16 + 4 + 16

// footprint is what all keys take at least in a mode, in bytes: of memory, and of disk with the log.
func footprint(cfg load.Config, mode string, keys float64) (memory, disk float64) {
	key := cfg.Workload.MeanKeyBytes()
	value := cfg.Workload.MeanValueBytes()
	packed := value * (1 - cfg.Workload.Compressibility)
	if cfg.Workload.ValueSize.Classic() {
		packed = value / 8 // these compress well
	}
	log := keys * (key + value)
	switch mode {
	case "memory", "map":
		return keys * (key + value), log
	case "serialize":
		if cfg.Codec == "none" {
			packed = value
		}
		return keys * packed, log
	case "file":
		return keys * (key + fileIndexEntry), log + keys*value
	case "lsm":
		return 0, log + keys*packed
	}
	return 0, 0 // a target's
}

func inMode(mode string) string {
	if mode == "" {
		return " here, to remember which were written"
	}
	return " in mode " + mode
}

// bytesWords is a number of bytes for people.
func bytesWords(n float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB", "TiB"} {
		if n < 1024 || unit == "TiB" {
			if unit == "bytes" {
				return fmt.Sprintf("%.0f bytes", n)
			}
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return ""
}
