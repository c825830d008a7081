package compare_test

import (
	"fmt"

	"kvmark/client/compare"
)

func ExampleFamily() {
	qps, _ := compare.LookupMetric("qps")
	p99, _ := compare.LookupMetric("p99")
	// One value per round; a round runs both toolchains once, so run i of one belongs to run i of the other.
	set := compare.Question{
		Mode: "memory", Op: "set", Metric: qps, Paired: true,
		Base:  compare.Sample{Name: "go1.26.8", Values: []float64{81200, 64100, 79800, 80300, 71900, 80900, 78800, 80100}},
		Other: compare.Sample{Name: "go1.27.3", Values: []float64{83900, 65800, 82200, 82700, 74600, 83100, 81600, 82500}},
	}
	get := compare.Question{
		Mode: "memory", Op: "get", Metric: p99, Paired: true,
		Base:  compare.Sample{Name: "go1.26.8", Values: []float64{310, 405, 322, 318, 371, 309, 330, 325}},
		Other: compare.Sample{Name: "go1.27.3", Values: []float64{322, 389, 341, 305, 380, 311, 318, 338}},
	}
	answers := compare.Family([]compare.Question{set, get}, compare.DefaultMargin)
	for _, a := range answers {
		fmt.Println(a)
	}
	limits, err := compare.ParseLimits("qps<-3%,p99>10%")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range compare.CheckLimits(limits, answers) {
		fmt.Println(f.Limit, f.Outcome)
	}
	// Output:
	// memory/set: go1.27.3 is 3.1 % faster than go1.26.8 (95 % CI 2.8..3.5 %, n = 8 pairs, p = 0.016 after Holm over 2)
	// memory/get p99 latency: inconclusive: ±4.1 %; 25 more rounds would give ±2.0 %
	// qps<-3% not met
	// p99>10% not met
}

func ExampleFindDrift() {
	fmt.Println(compare.FindDrift([]float64{8651, 9195, 8876, 9088, 8945, 8940, 8410, 8377, 8402, 8390, 8425, 8371}))
	// Output:
	// drift: the level falls by 6.1 % after run 6 of 12 (Pettitt p = 0.002)
}
