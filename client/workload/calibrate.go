package workload

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	sampleBytes = 256 << 10 // of values, compressed bucket by bucket, in each step of the calibration
	bucketBytes = 4 << 20   // at most, of the values of one bucket: what a codec adds to more is nothing
	steps       = 12        // of bisection: to a part in 4096

	dictionaryBytes = 16 << 10 // of codec shared
	sharedMost      = 48 << 10 // the largest entry that it uses a dictionary for
)

// Calibrate returns c with the share of random bytes that makes the values as compressible as asked: a codec at that
// level (nil: its default), given the values of a bucket of so many entries at once, leaves (1-Compressibility) of
// them; codec shared is given one value at a time and a dictionary of others. Without a value size, or for codec none, there is nothing to find. The codecs are those of mode serialize, made
// with the same library.
func (c Config) Calibrate(codec string, level *int, entries int) (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	if c.ValueSize.Classic() || codec == "none" || c.Compressibility == 0 {
		return c, nil
	}
	low, high := 0.0, 1.0
	for range steps {
		middle := (low + high) / 2
		left, err := c.leaves(middle, codec, level, entries)
		if err != nil {
			return c, err
		}
		if left > 1-c.Compressibility {
			high = middle
		} else {
			low = middle
		}
	}
	share := (low + high) / 2
	c.random = &share
	return c, nil
}

// Leaves is the part of the values that the codec leaves of them, compressed as [Config.Calibrate] has it.
func (c Config) Leaves(codec string, level *int, entries int) (float64, error) {
	share := 1 - c.Compressibility
	if c.random != nil {
		share = *c.random
	}
	return c.leaves(share, codec, level, entries)
}

// leaves compresses a sample of buckets of values of which that share is random.
func (c Config) leaves(share float64, codec string, level *int, entries int) (float64, error) {
	c.random = &share
	g, err := c.New(0)
	if err != nil {
		return 0, err
	}
	var out counter
	var bucket []byte
	raw, n := 0, 0
	var compress func(io.Writer, []byte) error
	if codec == "shared" {
		entries = 1
		for ; len(bucket) < dictionaryBytes; n++ {
			bucket = g.AppendValue(bucket, n%c.Keys)
		}
		compress = withDictionary(bucket[:dictionaryBytes])
	} else if compress, err = compressor(codec, level); err != nil {
		return 0, err
	}
	for raw < sampleBytes {
		bucket = bucket[:0]
		for i := 0; i < max(entries, 1) && len(bucket) < bucketBytes; i++ {
			bucket = g.AppendValue(bucket, n%c.Keys)
			n++
		}
		if err := compress(&out, bucket); err != nil {
			return 0, fmt.Errorf("calibrate compressibility: %w", err)
		}
		raw += len(bucket)
	}
	return float64(out) / float64(raw), nil
}

type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// compressor compresses one block at a time as mode serialize does.
func compressor(codec string, level *int) (func(io.Writer, []byte) error, error) {
	l := 1
	if level != nil && *level != 0 {
		l = *level
	}
	switch codec {
	case "deflate":
		w, err := flate.NewWriter(nil, l)
		return blocks(w), err
	case "zlib":
		w, err := zlib.NewWriterLevel(nil, l)
		return blocks(w), err
	case "zip":
		deflate, err := flate.NewWriter(nil, l)
		if err != nil {
			return nil, err
		}
		return func(out io.Writer, block []byte) error {
			archive := zip.NewWriter(out)
			archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
				deflate.Reset(w)
				return deflate, nil
			})
			w, err := archive.CreateHeader(&zip.FileHeader{Method: zip.Deflate})
			if err != nil {
				return err
			}
			if _, err := w.Write(block); err != nil {
				return err
			}
			return archive.Close()
		}, nil
	case "zstd":
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevel(l)), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			return nil, err
		}
		return func(out io.Writer, block []byte) error {
			_, err := out.Write(e.EncodeAll(block, nil))
			return err
		}, nil
	case "s2":
		encode := map[int]func(dst, src []byte) []byte{1: s2.Encode, 2: s2.EncodeBetter, 3: s2.EncodeBest}[l]
		if encode == nil {
			return nil, fmt.Errorf("codec s2 has no level %d: use 1..3", l)
		}
		return func(out io.Writer, block []byte) error {
			_, err := out.Write(encode(nil, block))
			return err
		}, nil
	case "none":
		return func(out io.Writer, block []byte) error {
			_, err := out.Write(block)
			return err
		}, nil
	}
	return nil, fmt.Errorf("codec %q is unknown", codec)
}

// withDictionary compresses as codec shared does.
func withDictionary(dictionary []byte) func(io.Writer, []byte) error {
	d := s2.MakeDict(bytes.Clone(dictionary), nil)
	return func(out io.Writer, block []byte) error {
		encode := d.Encode
		if len(block) > sharedMost {
			encode = s2.Encode
		}
		_, err := out.Write(encode(nil, block))
		return err
	}
}

// blocks compresses with one writer, reset for each block.
func blocks(w interface {
	io.WriteCloser
	Reset(io.Writer)
},
) func(io.Writer, []byte) error {
	return func(out io.Writer, block []byte) error {
		w.Reset(out)
		if _, err := w.Write(block); err != nil {
			return err
		}
		return w.Close()
	}
}
