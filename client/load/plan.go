package load

import (
	"cmp"
	"fmt"
	"time"

	"kvmark/client"
	"kvmark/client/result"
	"kvmark/client/workload"
)

// Plan is the configuration as the result file records it.
func (c Config) Plan() result.Plan {
	w := c.Workload
	p := result.Plan{
		Modes: c.Modes, Workers: w.Workers, DurationSeconds: c.Duration.Seconds(), WarmupSeconds: c.Warmup.Seconds(),
		Keys: w.Keys, Repeat: c.Repeat, Seed: w.Seed, WALSync: c.WALSync, Codec: c.Codec, Level: c.Level, BucketEntries: c.BucketEntries,
		ValueSize: w.ValueSize.String(), ValueBytes: w.MeanValueBytes(), Compressibility: w.Compressibility,
		Distribution: w.Distribution.String(), Mix: w.Mix.String(), Pipeline: c.Pipeline,
		Server: c.Server, ServerArgs: c.ServerArgs, ServerEnv: c.ServerEnv, Dir: c.Dir, SecondOpinion: c.SecondOpinion, Cold: c.Cold,
		Target: c.Target.String(), AllowData: c.AllowData, IO: c.IO, ServerCPUs: c.ServerCPUs.String(), ClientCPUs: c.ClientCPUs.String(),
	}
	if t := c.Target.TLS; t != (client.TLS{On: t.On}) {
		p.TargetTLS = &result.TLS{CA: t.CA, Cert: t.Cert, Key: t.Key, SkipVerify: t.SkipVerify}
	}
	if c.Rate.Open() {
		p.Rate = c.Rate.String()
	}
	if c.SLO.Set() {
		p.SLO = c.SLO.String()
	}
	if p.Rate != "" || p.SLO != "" {
		p.Arrivals = cmp.Or(c.Arrivals, Constant)
	}
	if c.Target.Addr != "" {
		p.Modes, p.WALSync = []string{targetMode}, "" // what it does, it says itself
	}
	return p
}

// FromPlan is the configuration that a plan records. Of what it cannot hold, the password of a target, nothing is known.
func FromPlan(p result.Plan) (Config, error) {
	c := Config{
		Modes: p.Modes, Duration: seconds(p.DurationSeconds), Warmup: seconds(p.WarmupSeconds), Repeat: p.Repeat, Pipeline: p.Pipeline,
		Server: p.Server, ServerArgs: p.ServerArgs, ServerEnv: p.ServerEnv, WALSync: p.WALSync, Codec: p.Codec, Level: p.Level, BucketEntries: p.BucketEntries,
		IO: p.IO, Dir: p.Dir, Arrivals: p.Arrivals, SecondOpinion: p.SecondOpinion, Cold: p.Cold, AllowData: p.AllowData,
		Workload: workload.Config{Seed: p.Seed, Workers: p.Workers, Keys: p.Keys, Compressibility: p.Compressibility},
	}
	var err error
	take := func(e error) {
		if err == nil {
			err = e
		}
	}
	var e error
	c.Workload.ValueSize, e = workload.ParseSize(p.ValueSize)
	take(e)
	c.Workload.Distribution, e = workload.ParseDistribution(p.Distribution)
	take(e)
	c.Workload.Mix, e = workload.ParseMix(p.Mix)
	take(e)
	c.Rate, e = ParseRate(p.Rate)
	take(e)
	c.ServerCPUs, e = ParseCPUs(p.ServerCPUs)
	take(e)
	c.ClientCPUs, e = ParseCPUs(p.ClientCPUs)
	take(e)
	if p.SLO != "" {
		c.SLO, e = ParseSLO(p.SLO)
		take(e)
	}
	if p.Target != "" {
		c.Target, e = ParseTarget(p.Target)
		take(e)
		if t := p.TargetTLS; t != nil {
			c.Target.TLS = client.TLS{On: true, CA: t.CA, Cert: t.Cert, Key: t.Key, SkipVerify: t.SkipVerify}
		}
		c.Modes, c.WALSync = nil, Default().WALSync
	}
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("load: the plan cannot be repeated: %w", err)
	}
	return c, nil
}

func seconds(s float64) time.Duration { return time.Duration(s*1e9 + 0.5) }
