package workload

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"kvmark/storage/serialize/codec"
)

// Each codec of the server itself, given the values of a bucket, must leave as many bytes as asked, within 2 %.
func TestCompressibilityIsExactForTheCodecInUse(t *testing.T) {
	for _, name := range codec.Names() {
		if name == "none" {
			continue // it leaves everything, whatever is asked
		}
		for _, size := range []string{"1KiB", "4KiB", "512-8KiB", "lognormal:2KiB:0.6", "256KiB"} {
			for _, want := range []float64{0.2, 0.5, 0.8} {
				if size == "256KiB" && want != 0.5 {
					continue // they take their time
				}
				t.Run(fmt.Sprintf("%s of %s to %v", name, size, want), func(t *testing.T) {
					const entries = 8
					law, err := ParseSize(size)
					if err != nil {
						t.Fatal(err)
					}
					config, err := Config{Seed: 9, Workers: 2, Keys: 5000, ValueSize: law, Compressibility: want}.Calibrate(name, nil, entries)
					if err != nil {
						t.Fatal(err)
					}
					c, err := codec.New(name, 0)
					if err != nil {
						t.Fatal(err)
					}
					g, err := config.New(1) // another worker than the one that was calibrated with
					if err != nil {
						t.Fatal(err)
					}
					blockOf, n := entries, 1000
					if name == "shared" {
						blockOf = 1
						for range 64 { // it learns, as a server does while it is filled
							if _, err := c.Encode(nil, g.AppendValue(nil, n)); err != nil {
								t.Fatal(err)
							}
							n++
						}
					}
					raw, packed := 0, 0
					for raw < 1<<19 {
						var bucket []byte
						for range blockOf {
							bucket = g.AppendValue(bucket, n)
							n++
						}
						out, err := c.Encode(nil, bucket)
						if err != nil {
							t.Fatal(err)
						}
						raw, packed = raw+len(bucket), packed+len(out)
					}
					if left := float64(packed) / float64(raw); math.Abs(left/(1-want)-1) > 0.02 {
						t.Errorf("%.4f of the values is left, want %v", left, 1-want)
					}
				})
			}
		}
	}
}

func TestCalibrationOfWhatCannotBeHadComesNear(t *testing.T) {
	// Eight bytes keep values apart: nothing compresses them away.
	c, err := Config{Seed: 1, Workers: 1, Keys: 1000, ValueSize: Size{Min: 16, Max: 16}, Compressibility: 1}.Calibrate("deflate", nil, 8)
	if err != nil {
		t.Fatal(err)
	}
	left, err := c.Leaves("deflate", nil, 8)
	if err != nil || left < 0.5 || left > 1 {
		t.Errorf("%v left, %v; want what is random", left, err)
	}
}

func TestCalibrationOfUnknownCodecsIsRefused(t *testing.T) {
	c := Config{Workers: 1, Keys: 1, ValueSize: Size{Min: 9, Max: 9}, Compressibility: 0.5}
	nine := 99
	for _, tt := range []struct {
		codec string
		level *int
	}{{"rar", nil}, {"deflate", &nine}, {"zlib", &nine}, {"s2", &nine}} {
		if _, err := c.Calibrate(tt.codec, tt.level, 8); err == nil {
			t.Errorf("%s level %v was accepted", tt.codec, tt.level)
		}
	}
}

func TestLognormalSizesFollowTheirLaw(t *testing.T) {
	law, err := ParseSize("lognormal:1KiB:0.8")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Config{Seed: 3, Workers: 1, Keys: 1 << 20, ValueSize: law}.New(0)
	if err != nil {
		t.Fatal(err)
	}
	// The logarithm, standardized, falls into each tenth of the normal law equally often.
	const draws, bins = 50_000, 10
	var count [bins]int
	sum := 0
	for n := range draws {
		size := len(g.AppendValue(nil, n))
		sum += size
		z := math.Log(float64(size)/1024) / 0.8
		count[min(bins-1, int(bins*0.5*math.Erfc(-z/math.Sqrt2)))]++
	}
	chi := 0.0
	for _, c := range count {
		chi += math.Pow(float64(c)-draws/bins, 2) / (draws / bins)
	}
	if chi > 27.9 { // 9 degrees of freedom, p = 0.001
		t.Errorf("chi-square %.1f over %v", chi, count)
	}
	if mean, want := float64(sum)/draws, law.mean(); math.Abs(mean/want-1) > 0.02 {
		t.Errorf("mean %v, MeanValueBytes says %v", mean, want)
	}
	if !bytes.Equal(g.AppendValue(nil, 7), g.AppendValue(nil, 7)) {
		t.Error("a key has two values")
	}
}
