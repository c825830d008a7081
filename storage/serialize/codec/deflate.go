package codec

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zip"
	"github.com/klauspost/compress/zlib"
)

// maxDeflate is how many bytes one compressed byte can stand for at most: a
// length code of one bit and a distance code of one bit give 258 bytes.
const maxDeflate = 1032

// encoders are kept for reuse, as many as were in use at once but no more than
// 16. A sync.Pool would give them up when the collector runs, and each is up to
// a megabyte: how often that happens would then show in what is measured.
type encoders[T any] struct {
	free  chan T
	fresh func() T
}

func newEncoders[T any](fresh func() T) encoders[T] {
	return encoders[T]{free: make(chan T, 16), fresh: fresh}
}

func (p *encoders[T]) get() T {
	select {
	case e := <-p.free:
		return e
	default:
		return p.fresh()
	}
}

func (p *encoders[T]) put(e T) {
	select {
	case p.free <- e:
	default:
	}
}

// stream is deflate or zlib.
type stream struct {
	name    string
	writers encoders[*encoder]
	readers sync.Pool // of *decoder
	open    func(io.Reader) (io.ReadCloser, error)
}

type decoder struct {
	in bytes.Reader
	r  io.ReadCloser // also a flate.Resetter; nil until there was something to read

	spare [1]byte
}

type encoder struct {
	out appender
	w   interface {
		io.WriteCloser
		Reset(io.Writer)
	}
}

// appender is an io.Writer that appends.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func newDeflate(level int) (Codec, error) {
	return &stream{
		name: "deflate",
		writers: newEncoders(func() *encoder {
			w, _ := flate.NewWriter(nil, level) // fails on a bad level only
			return &encoder{w: w}
		}),
		readers: sync.Pool{New: func() any { return new(decoder) }},
		open:    func(r io.Reader) (io.ReadCloser, error) { return flate.NewReader(r), nil },
	}, nil
}

func newZlib(level int) (Codec, error) {
	return &stream{
		name: "zlib",
		writers: newEncoders(func() *encoder {
			w, _ := zlib.NewWriterLevel(nil, level) // fails on a bad level only
			return &encoder{w: w}
		}),
		readers: sync.Pool{New: func() any { return new(decoder) }},
		open:    zlib.NewReader,
	}, nil
}

func (s *stream) Encode(dst, src []byte) ([]byte, error) {
	e := s.writers.get()
	defer s.writers.put(e)
	e.out.b = dst
	e.w.Reset(&e.out)
	_, err := e.w.Write(src)
	if err == nil {
		err = e.w.Close()
	}
	out := e.out.b
	e.out.b = nil
	if err != nil {
		return dst, fmt.Errorf("codec: %s: %w", s.name, err)
	}
	return out, nil
}

func (s *stream) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	if rawLen/maxDeflate > len(src) {
		return dst, fmt.Errorf("%w: %s: %d bytes cannot hold %d", ErrCorrupt, s.name, len(src), rawLen)
	}
	d := s.readers.Get().(*decoder)
	defer s.readers.Put(d)
	out, err := d.decode(dst, src, rawLen, s.open)
	if err != nil {
		return dst, fmt.Errorf("%w: %s: %w", ErrCorrupt, s.name, err)
	}
	return out, nil
}

func (d *decoder) decode(dst, src []byte, rawLen int, open func(io.Reader) (io.ReadCloser, error)) (out []byte, err error) {
	d.in.Reset(src)
	defer d.in.Reset(nil)
	if d.r == nil {
		d.r, err = open(&d.in)
	} else {
		err = d.r.(flate.Resetter).Reset(&d.in, nil)
	}
	if err != nil {
		return dst, err
	}
	if out, err = readExactly(dst, d.r, rawLen, d.spare[:]); err == nil && d.in.Len() > 0 {
		err = fmt.Errorf("%d bytes after the end", d.in.Len())
	}
	return out, err
}

// readExactly appends the n bytes that r has, no less and no more. spare is for
// one byte.
func readExactly(dst []byte, r io.Reader, n int, spare []byte) ([]byte, error) {
	start := len(dst)
	dst = slices.Grow(dst, n)
	if m, err := io.ReadFull(r, dst[start:start+n]); err != nil {
		return dst[:start], fmt.Errorf("%d of %d bytes: %w", m, n, err)
	}
	// Reading on to the end makes r verify its checksum, where it has one.
	switch m, err := io.ReadFull(r, spare); {
	case m > 0:
		return dst[:start], fmt.Errorf("more than %d bytes", n)
	case err != io.EOF:
		return dst[:start], err
	}
	return dst[:start+n], nil
}

// zipCodec makes true archives with one nameless member.
type zipCodec struct {
	flate    encoders[*pooledWriter]
	inflate  sync.Pool // of flate readers
	compress zip.Compressor
}

func newZip(level int) (Codec, error) {
	c := &zipCodec{}
	c.flate = newEncoders(func() *pooledWriter {
		w, _ := flate.NewWriter(nil, level) // fails on a bad level only
		return &pooledWriter{w, &c.flate}
	})
	c.inflate.New = func() any { return &pooledReader{flate.NewReader(nil), &c.inflate} }
	c.compress = func(w io.Writer) (io.WriteCloser, error) {
		p := c.flate.get()
		p.Reset(w)
		return p, nil
	}
	return c, nil
}

// pooledWriter and pooledReader go back to their pool when the archive closes them.
type pooledWriter struct {
	*flate.Writer
	pool *encoders[*pooledWriter]
}

func (p *pooledWriter) Close() error {
	err := p.Writer.Close()
	p.Reset(io.Discard)
	p.pool.put(p)
	return err
}

type pooledReader struct {
	io.ReadCloser
	pool *sync.Pool
}

func (p *pooledReader) Close() error {
	err := p.ReadCloser.Close()
	p.pool.Put(p)
	return err
}

func (c *zipCodec) Encode(dst, src []byte) ([]byte, error) {
	out := appender{dst}
	w := zip.NewWriter(&out)
	w.RegisterCompressor(zip.Deflate, c.compress)
	f, err := w.CreateHeader(&zip.FileHeader{Method: zip.Deflate})
	if err == nil {
		_, err = f.Write(src)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return dst, fmt.Errorf("codec: zip: %w", err)
	}
	return out.b, nil
}

func (c *zipCodec) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	if rawLen/maxDeflate > len(src) {
		return dst, fmt.Errorf("%w: zip: %d bytes cannot hold %d", ErrCorrupt, len(src), rawLen)
	}
	out, err := c.decode(dst, src, rawLen)
	if err != nil {
		return dst, fmt.Errorf("%w: zip: %w", ErrCorrupt, err)
	}
	return out, nil
}

func (c *zipCodec) decode(dst, src []byte, rawLen int) ([]byte, error) {
	r, err := zip.NewReader(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		return nil, err
	}
	if len(r.File) != 1 || r.File[0].UncompressedSize64 != uint64(rawLen) {
		return nil, fmt.Errorf("not one member of %d bytes", rawLen)
	}
	r.RegisterDecompressor(zip.Deflate, func(in io.Reader) io.ReadCloser {
		p := c.inflate.Get().(*pooledReader)
		// Resetting a reader fails on a bad dictionary only; there is none.
		_ = p.ReadCloser.(flate.Resetter).Reset(in, nil)
		return p
	})
	f, err := r.File[0].Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readExactly(dst, f, rawLen, make([]byte, 1))
}
