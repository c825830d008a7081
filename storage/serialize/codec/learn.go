package codec

import (
	"bytes"
	"encoding/binary"
	"slices"
)

const (
	maxDictionary = 2048
	// ownCode is the longest code, in bits, that is made here: four of them are written at once.
	ownCode = 12

	maxSamples  = 128
	sampleBytes = 1024    // of a piece at most
	learnAll    = 64      // pieces from all of which is learned
	learnEvery  = 32      // and then from one in so many;
	judgeEvery  = 1 << 14 // one in so many asks for a better code, about 1 ms (BenchmarkJudge), and before every one at a power of two

	// Another code is used if it takes less by one part in so many. Dictionaries of the same data differ by up to three
	// hundredths, and that is worth it only as long as there is little to be encoded anew.
	worthAtFirst = 50 // up to the first of judgeEvery
	worthLater   = 20
	maxCodes     = 64 // of about 12 KiB each; with that many, the best of them is used
)

// learn takes a sample of what is to be encoded now and then, and now and then looks for a better code. There is a code
// afterwards.
func (p *Pieces) learn(piece []byte) {
	i := p.encoded.Add(1)
	judge := i%judgeEvery == 0 || i < judgeEvery && i&(i-1) == 0 || len(p.codes.Load().all) == 0
	switch {
	case judge:
		p.mu.Lock()
	case i > learnAll && i%learnEvery != 0 || !p.mu.TryLock():
		return // without waiting for who judges
	}
	defer p.mu.Unlock()
	piece = piece[:min(len(piece), sampleBytes)]
	if len(p.samples) < maxSamples {
		p.samples = append(p.samples, bytes.Clone(piece))
	} else {
		// Any of them, so that some are from long ago.
		at := &p.samples[i*0x9e3779b97f4a7c15>>32%maxSamples]
		*at = append((*at)[:0], piece...)
	}
	if judge {
		worth := uint64(worthLater)
		if i <= judgeEvery {
			worth = worthAtFirst
		}
		p.codes.Store(p.choose(p.codes.Load(), worth))
	}
}

// choose returns c, or with another code in use if that takes less for the samples by one part in worth: one that there is, or
// a new one. REQUIRES: mu held.
func (p *Pieces) choose(c *codes, worth uint64) *codes {
	var w pieceWriter
	fresh, rest := w.newCode(p.samples)
	if len(c.all) == 0 {
		return &codes{all: []*Code{fresh}}
	}
	size := func(code *Code) uint64 { return w.tally(code, rest).bits(code) }
	enough := size(fresh) / (worth - 1) * worth
	least := size(c.all[c.number])
	if least <= enough {
		return c
	}
	best := &codes{all: c.all, number: c.number}
	for i, code := range c.all {
		if n := size(code); n < least {
			best.number, least = i, n
		}
	}
	if least > enough && len(c.all) < maxCodes {
		best.all, best.number = append(slices.Clone(c.all), fresh), len(c.all)
	}
	return best
}

// newCode returns the best code for samples that is found, and those of them that are in no dictionary that was tried. A
// dictionary is samples back to back: none, one, twice as many and so on.
func (w *pieceWriter) newCode(samples [][]byte) (best *Code, rest [][]byte) {
	rest = samples[len(samples)/4:]
	least := uint64(0)
	for n := 0; ; n = max(1, 2*n) {
		var dictionary []byte
		for _, s := range samples[:min(n, len(samples)/4)] {
			dictionary = append(dictionary, s...)
		}
		more := len(dictionary) < maxDictionary && n < len(samples)/4
		dictionary = dictionary[:min(len(dictionary), maxDictionary)]
		c := &Code{dictionary: padded(dictionary)}
		c.known.remember(dictionary)
		seen := w.tally(c, rest)
		c.assign(seen)
		if size := seen.bits(c); best == nil || size < least {
			best, least = c, size
		}
		if !more {
			break
		}
	}
	return best, rest
}

// tally is how often symbols occur, and how many extra bits there are.
type tally struct {
	literals  [literalSymbols]uint32
	distances [distanceSymbols]uint32
	extra     uint64
}

// tally counts what pieces are with the dictionary of a code.
func (w *pieceWriter) tally(c *Code, pieces [][]byte) *tally {
	t := &tally{}
	for _, piece := range pieces {
		w.find(c, piece)
		for _, s := range w.sequences {
			for _, b := range piece[:s.literals] {
				t.literals[b]++
			}
			piece = piece[int(s.literals)+int(s.length):]
			if s.length == 0 {
				break
			}
			symbol, _, n := lengthSymbol(int(s.length))
			t.literals[symbol]++
			t.extra += uint64(n)
			symbol, _, n = distanceSymbol(int(s.distance))
			t.distances[symbol]++
			t.extra += uint64(n)
		}
		t.literals[endOfBlock]++
	}
	return t
}

// bits returns what is counted takes with a code.
func (t *tally) bits(c *Code) uint64 {
	sum := t.extra
	for i, n := range t.literals {
		if i <= endOfBlock {
			sum += uint64(n) * uint64(c.literals[i].len())
		} else {
			base := lengthBase[i-endOfBlock-1]
			sum += uint64(n) * uint64(c.lengths[base].len()-uint(lengthBits[i-endOfBlock-1]))
		}
	}
	for i, n := range t.distances {
		sum += uint64(n) * uint64(c.distances[i].len())
	}
	return sum
}

// assign makes the codes that are best for what is counted. All symbols have one.
func (c *Code) assign(t *tally) {
	lens := func(counts []uint32) []uint8 {
		all := make([]uint32, len(counts))
		for i, n := range counts {
			all[i] = 8*n + 1
		}
		return codeLengths(all, ownCode)
	}
	literals, distances := lens(t.literals[:]), lens(t.distances[:])
	header := blockHeader(literals, distances)
	_ = c.open(header) // its own header: no error
	c.text = binary.AppendUvarint(nil, uint64(len(c.dictionary)))
	c.text = append(append(c.text, c.dictionary...), header...)
	symbols := canonical(literals)
	copy(c.literals[:], symbols)
	copy(c.distances[:], canonical(distances))
	for n := minMatch; n <= maxMatch; n++ {
		symbol, extra, bits := lengthSymbol(n)
		s := symbols[symbol]
		c.lengths[n] = newSymbolCode(s.bits()|uint32(extra)<<s.len(), s.len()+bits)
	}
}
