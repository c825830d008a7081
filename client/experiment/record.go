package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"kvmark/client/report"
	"kvmark/client/result"
)

// record is what a result keeps of an experiment beside its cells, so that the analysis can be made again from the file
// alone: the plan, and of each sample all but its cells, which are in the result in the same order, one for each operation.
type record struct {
	Plan    Plan     `json:"plan"`
	Base    int      `json:"base"`
	Blocks  int      `json:"blocks"`
	Ended   string   `json:"ended"`
	Metrics []string `json:"metrics"`
	Margin  float64  `json:"margin"`
	Within  float64  `json:"within"`
	Samples []Sample `json:"samples"`
}

// record makes that of a.
func (a *Analysis) record() (json.RawMessage, error) {
	r := record{Plan: a.Plan, Base: a.Base, Blocks: a.Blocks, Ended: a.Ended, Margin: a.Margin, Within: a.Within}
	for _, m := range a.Metrics {
		r.Metrics = append(r.Metrics, m.Name)
	}
	for _, s := range a.Samples {
		s.Cells = nil
		r.Samples = append(r.Samples, s)
	}
	return json.Marshal(r)
}

// ErrNoRecord is returned for a result that holds no experiment: one of another command, or of an older kvmark.
var ErrNoRecord = errors.New("the result holds no experiment")

// FromResult makes the analysis of a comparison's result anew.
func FromResult(f *result.File) (*Analysis, error) {
	if f.Command != "compare" || len(f.Experiment) == 0 {
		return nil, ErrNoRecord
	}
	var r record
	if err := json.Unmarshal(f.Experiment, &r); err != nil {
		return nil, fmt.Errorf("the result's experiment: %w", err)
	}
	ops := len(r.Plan.Ops)
	if r.Base < 0 || r.Base >= len(r.Plan.Variants) || ops == 0 || len(f.Cells) != len(r.Samples)*ops {
		return nil, fmt.Errorf("the result's experiment: base %d of %d variants, %d cells for %d samples of %d operations",
			r.Base, len(r.Plan.Variants), len(f.Cells), len(r.Samples), ops)
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Failed == "" {
			s.Cells = f.Cells[i*ops : (i+1)*ops]
		}
		if err := r.Plan.admits(*s); err != nil {
			return nil, fmt.Errorf("the result's experiment: sample %d: %w", i+1, err)
		}
	}
	o := &Outcome{Plan: r.Plan, Base: r.Base, Samples: r.Samples, Blocks: r.Blocks, Ended: r.Ended, Interrupted: f.Interrupted}
	return Analyze(o, r.Metrics, r.Margin, r.Within)
}

// Study is the report for a page.
func (a *Analysis) Study() *report.Study {
	s := &report.Study{}
	for _, part := range a.sections() {
		s.Sections = append(s.Sections, report.Section{Heading: part.heading, Columns: part.columns, Rows: part.rows, Lines: part.lines})
	}
	s.Cheapest = func(mode, op string, config map[string]string) bool {
		return slices.ContainsFunc(a.GC, func(v GCView) bool {
			i := slices.IndexFunc(v.Points, func(p GCPoint) bool { return p.Name == v.Cheapest })
			return i >= 0 && cmp.Or(v.Mode, mode) == mode && v.Op == op && maps.Equal(a.Plan.Variants[v.Points[i].Variant].config(), config)
		})
	}
	for _, v := range a.Plan.Variants {
		config := v.config()
		s.Variants = append(s.Variants, func(other map[string]string) bool { return maps.Equal(config, other) })
	}
	return s
}

// config are the settings of v as the cells of a result carry them.
func (v Variant) config() map[string]string {
	config := map[string]string{}
	for _, setting := range v.Settings {
		if setting.Name != "mode" {
			config[setting.Name] = setting.Value
		}
	}
	if v.Control != "" {
		config["control"] = v.Control
	}
	return config
}
