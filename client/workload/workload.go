// Package workload makes the keys and values that a benchmark writes and reads back, for people who must be able to
// repeat a run to the byte: everything follows from a seed, and every value can be told from its key and its generation: how often
// the key was written before. So a lost overwrite and a stale read are wrong values, not right ones of some time before.
//
// The classic data are those of okuyama's own test client:
//
//	key    DataSaveKey123456789ABC_<worker>_<prefix>_<n>
//	value  DataSaveValue_0987654321DEFGHIJKLMN0123456789_<worker>_<prefix>_<n>
//
// with n in the worker's own key space 0..Keys-1; of later generations the last digit of "0123456789" is another one, in turn, so
// that ten can be told from each other. With a [Config.ValueSize] the value is instead as long as asked, and
// as compressible as asked:
//
//	+------------------------------------------+----------------------------+
//	| random bytes from seed, worker, n and    | filler, the same for all   |
//	| generation (of 250)                      |                            |
//	| about (1-compressibility) x size, min 8  | the rest                   |
//	+------------------------------------------+----------------------------+
//
// The random part comes first and in one piece, so a compressor's output is near to its length; its first bytes keep any
// two values apart even when all the rest is filler. What a codec adds of its own differs from one to the next, so
// [Config.Calibrate] finds how much must be random for the codec in use to give what was asked.
package workload

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// Op is one kind of request.
type Op uint8

// The operations of a workload.
const (
	Set Op = iota
	Get
)

func (o Op) String() string {
	if o == Set {
		return "set"
	}
	return "get"
}

// Limits of a workload. A worker's key space must fit a bitmap that remembers which keys were written, and a value
// must fit the server's own limit.
const (
	MaxWorkers   = 1 << 16
	MaxKeys      = 1 << 30
	MaxValueSize = 64 << 20
)

const (
	keyHead   = "DataSaveKey123456789ABC_"
	valueHead = "DataSaveValue_0987654321DEFGHIJKLMN0123456789_"
)

// Config says what the data look like. Its zero value is not usable: Workers and Keys have no default.
type Config struct {
	Seed            uint64
	Workers         int          // key spaces 0..Workers-1, which never overlap
	Keys            int          // keys of each worker
	Prefix          string       // third part of key and value; no spaces needed, any bytes allowed; "" means "0"
	ValueSize       Size         // zero: the classic value
	Compressibility float64      // 0 (random bytes) .. 1 (all filler); only with ValueSize
	Distribution    Distribution // which n comes next; zero: uniform
	Mix             Mix          // share of Sets in a mixed phase; zero: phases are not mixed

	random *float64 // share of a value that is random, found by Calibrate; nil: 1-Compressibility
}

// Validate reports the first option that cannot work, with its value.
func (c Config) Validate() error {
	switch {
	case c.Workers < 1 || c.Workers > MaxWorkers:
		return fmt.Errorf("workers %d: want 1..%d", c.Workers, MaxWorkers)
	case c.Keys < 1 || c.Keys > MaxKeys:
		return fmt.Errorf("keys %d: want 1..%d for each worker", c.Keys, MaxKeys)
	case !(c.Compressibility >= 0 && c.Compressibility <= 1): // also catches NaN
		return fmt.Errorf("compressibility %v: want 0..1", c.Compressibility)
	case c.Compressibility != 0 && c.ValueSize.Classic():
		return fmt.Errorf("compressibility %v has no effect on the classic value: give a value size too", c.Compressibility)
	}
	if err := c.ValueSize.validate(); err != nil {
		return err
	}
	return c.Distribution.validate()
}

// Generator is the stream of one worker. It allocates nothing once made and is not safe for concurrent use.
type Generator struct {
	rng     *rand.Rand
	chooser chooser
	mix     Mix

	keyHead   []byte // all of the key but n
	valueHead []byte // all of the classic value but n
	size      Size
	random    float64 // share of a sized value that is random
	seed      uint64  // of the contents; differs from worker to worker
	scratch   []byte  // the value that Verify expects
}

// New returns the stream of one worker, 0..Workers-1.
func (c Config) New(worker int) (*Generator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if worker < 0 || worker >= c.Workers {
		return nil, fmt.Errorf("worker %d: want 0..%d", worker, c.Workers-1)
	}
	prefix := c.Prefix
	if prefix == "" {
		prefix = "0"
	}
	random := 1 - c.Compressibility
	if c.random != nil {
		random = *c.random
	}
	rng := rand.New(rand.NewPCG(c.Seed, uint64(worker)))
	tail := strconv.Itoa(worker) + "_" + prefix + "_"
	return &Generator{
		rng:       rng,
		chooser:   c.Distribution.chooser(c.Keys),
		mix:       c.Mix,
		keyHead:   []byte(keyHead + tail),
		valueHead: []byte(valueHead + tail),
		size:      c.ValueSize,
		random:    random,
		seed:      splitmix(c.Seed ^ splitmix(uint64(worker))),
	}, nil
}

// NextOp draws the operation of a mixed phase.
func (g *Generator) NextOp() Op {
	if g.rng.IntN(g.mix.Sets+g.mix.Gets) < g.mix.Sets {
		return Set
	}
	return Get
}

// Next draws the n of the next request.
func (g *Generator) Next(op Op) int { return g.chooser.next(op, g.rng) }

// AppendKey appends the key of n.
func (g *Generator) AppendKey(dst []byte, n int) []byte {
	return strconv.AppendInt(append(dst, g.keyHead...), int64(n), 10)
}

// AppendValue appends the first value that the key of n has.
func (g *Generator) AppendValue(dst []byte, n int) []byte { return g.AppendGeneration(dst, n, 0) }

// Generations is how many generations of a value differ from each other: the next is as the first.
func (g *Generator) Generations() uint8 {
	if g.size.Classic() {
		return classicGenerations
	}
	return sizedGenerations
}

const (
	classicGenerations = 10
	sizedGenerations   = 250
)

// AppendGeneration appends the value that the key of n has once it was written that often before. All generations are as long and, since
// they differ where values of different keys do, as compressible.
func (g *Generator) AppendGeneration(dst []byte, n int, generation uint8) []byte {
	if g.size.Classic() {
		at := len(dst) + len(valueHead) - len("9_")
		dst = strconv.AppendInt(append(dst, g.valueHead...), int64(n), 10)
		dst[at] = '0' + (9+generation)%10
		return dst
	}
	x := splitmix(g.seed ^ uint64(n))
	size := g.size.length(x)
	random := min(size, max(8, int(float64(size)*g.random)))
	x ^= uint64(generation) << 32
	for random >= 8 {
		x = splitmix(x)
		dst = append(dst, byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56))
		random, size = random-8, size-8
	}
	x = splitmix(x)
	for ; random > 0; random, size = random-1, size-1 {
		dst = append(dst, byte(x))
		x >>= 8
	}
	for size > 0 {
		n := min(size, len(filler))
		dst = append(dst, filler[:n]...)
		size -= n
	}
	return dst
}

// Verify reports whether value is the first one of the key of n.
func (g *Generator) Verify(value []byte, n int) bool { return g.VerifyGeneration(value, n, 0) }

// VerifyGeneration reports whether value is that of the key of n and its generation.
func (g *Generator) VerifyGeneration(value []byte, n int, generation uint8) bool {
	g.scratch = g.AppendGeneration(g.scratch[:0], n, generation)
	return bytes.Equal(value, g.scratch)
}

const filler = "kvmark-filler---kvmark-filler---kvmark-filler---kvmark-filler---"

// splitmix is the output function of SplitMix64: a bijection on 64 bits that spreads neighbouring inputs.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// MeanKeyBytes is the average length of a key.
func (c Config) MeanKeyBytes() float64 {
	return float64(len(keyHead)) + meanDigits(c.Workers) + meanDigits(c.Keys) + float64(max(1, len(c.Prefix))+2)
}

// MeanValueBytes is the average length of a value over the key spaces of all workers.
func (c Config) MeanValueBytes() float64 {
	if !c.ValueSize.Classic() {
		return c.ValueSize.mean()
	}
	prefix := max(1, len(c.Prefix))
	return float64(len(valueHead)) + meanDigits(c.Workers) + meanDigits(c.Keys) + float64(prefix+2)
}

// meanDigits is the mean number of decimal digits of 0..n-1.
func meanDigits(n int) float64 {
	sum := n // one each, and one more from every power of ten on
	for power := 10; power < n; power *= 10 {
		sum += n - power
	}
	return float64(sum) / float64(n)
}
