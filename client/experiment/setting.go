package experiment

import (
	"strconv"

	"kvmark/client/load"
	"kvmark/client/workload"
)

// setServerArg enters a flag of kvserver: into the field that load has for it, or as a flag of its own.
func setServerArg(l *load.Config, s Setting) (extra []string, err error) {
	if s.Value == Default {
		return nil, nil
	}
	switch s.Name {
	case "mode":
		l.Modes = []string{s.Value}
	case "wal-sync":
		l.WALSync = s.Value
	case "io":
		l.IO = s.Value
	case "codec":
		l.Codec = s.Value
	case "level":
		var n int
		n, err = strconv.Atoi(s.Value)
		l.Level = &n
	case "bucket-entries":
		l.BucketEntries, err = strconv.Atoi(s.Value)
	default:
		return []string{"--" + s.Name + "=" + s.Value}, nil
	}
	return nil, err
}

// setWorkload enters an option of the client.
func setWorkload(l *load.Config, s Setting) (err error) {
	if s.Value == Default {
		return nil
	}
	switch s.Name {
	case "workers":
		l.Workload.Workers, err = strconv.Atoi(s.Value)
	case "pipeline":
		l.Pipeline, err = strconv.Atoi(s.Value)
	case "keys":
		l.Workload.Keys, err = strconv.Atoi(s.Value)
	case "value-size":
		l.Workload.ValueSize, err = workload.ParseSize(s.Value)
	case "compressibility":
		l.Workload.Compressibility, err = strconv.ParseFloat(s.Value, 64)
	case "distribution":
		l.Workload.Distribution, err = workload.ParseDistribution(s.Value)
	case "rate":
		l.Rate, err = load.ParseRate(s.Value)
	case "mix":
		l.Workload.Mix, err = workload.ParseMix(s.Value)
	}
	return err
}
