package lsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// sum is the number of entries and the bytes in them, or a difference of it.
//
//	+---------+-----------+-------------+
//	| keys    | key bytes | value bytes |    each a signed varint
//	+---------+-----------+-------------+
//
// A batch that changes the totals carries the difference as a merge operand of
// one key; Pebble adds them up when it reads or compacts. A flush holds whole
// batches, so the totals on disk always count exactly the entries on disk. This
// is part of the disk format and must not change.
type sum struct{ keys, keyBytes, valueBytes int64 }

const maxSumBytes = 3 * binary.MaxVarintLen64

func (t sum) append(dst []byte) []byte {
	dst = binary.AppendVarint(dst, t.keys)
	dst = binary.AppendVarint(dst, t.keyBytes)
	return binary.AppendVarint(dst, t.valueBytes)
}

var errSum = errors.New("damaged totals")

func parseSum(b []byte) (t sum, err error) {
	for _, f := range []*int64{&t.keys, &t.keyBytes, &t.valueBytes} {
		v, n := binary.Varint(b)
		if n <= 0 {
			return sum{}, errSum
		}
		*f, b = v, b[n:]
	}
	if len(b) > 0 {
		return sum{}, errSum
	}
	return t, nil
}

func (t *sum) merge(b []byte) error {
	o, err := parseSum(b)
	if err != nil {
		return err
	}
	t.keys += o.keys
	t.keyBytes += o.keyBytes
	t.valueBytes += o.valueBytes
	return nil
}

// totalsMerger adds sums. Its name is kept by Pebble and checked at open.
func totalsMerger() *pebble.Merger {
	return &pebble.Merger{
		Name: "kvmark.sum",
		Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			m := new(sumMerger)
			return m, m.sum.merge(value)
		},
	}
}

type sumMerger struct{ sum sum }

func (m *sumMerger) MergeNewer(value []byte) error { return m.sum.merge(value) }
func (m *sumMerger) MergeOlder(value []byte) error { return m.sum.merge(value) }
func (m *sumMerger) Finish(bool) ([]byte, io.Closer, error) {
	return m.sum.append(nil), nil, nil
}

// totals is the sum in memory.
type totals struct{ keys, keyBytes, valueBytes atomic.Int64 }

func (t *totals) add(by sum) {
	t.keys.Add(by.keys)
	t.keyBytes.Add(by.keyBytes)
	t.valueBytes.Add(by.valueBytes)
}

func (t *totals) reset() {
	t.keys.Store(0)
	t.keyBytes.Store(0)
	t.valueBytes.Store(0)
}

func (s *Store) loadTotals() error {
	v, c, err := s.get([]byte{totalsByte})
	if c == nil {
		return err
	}
	t, err := parseSum(v)
	if err != nil {
		err = fmt.Errorf("totals: %w", err)
	}
	s.totals.add(t)
	return errors.Join(err, c.Close())
}
