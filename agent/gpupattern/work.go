package gpupattern

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// The sizes of copies and allocations, bytes.
const (
	chunk     = 8 << 20
	page      = 4096
	smallest  = 2 << 20 // what the driver allocates by
	firstTake = 1 << 40
)

// magic begins each page of the pattern. After it come where the page is and
// the run's own number, so that a page that shows up elsewhere, or of an earlier
// run, is not taken for the right one.
var magic = [16]byte{'S', 'L', 'I', 'P', 'W', 'A', 'Y', '-', 'G', 'P', 'U', '-', 'P', 'A', 'T', 1}

// work is one GPU's.
type work struct {
	s      Session
	chunk  int // the most that is copied at once
	blocks []Block
	host   []byte // what is copied, at most a chunk
	want   []byte // the pattern of a chunk
	zero   []byte
	run    [8]byte
}

func (w *work) do(m Mode, g *GPU) error {
	if err := w.prepare(); err != nil {
		return err
	}
	size, err := w.takeAll()
	if err != nil {
		return err
	}
	if m != Plant {
		if err := w.look(g); err != nil {
			return err
		}
	}
	if m == Look {
		g.Checked = size
		return nil
	}
	match, err := w.fill(false)
	if err == nil && m == Check && match {
		match, err = w.fill(true) // each bit both ways
	}
	if err != nil {
		return err
	}
	if m == Check {
		if err := w.clear(); err != nil {
			return err
		}
	}
	g.Checked, g.Match = size, &match
	return nil
}

func (w *work) prepare() (err error) {
	if w.host, err = w.s.Buffer(w.chunk); err != nil {
		return fmt.Errorf("take memory of the host: %w", err)
	}
	w.want, w.zero = make([]byte, w.chunk), make([]byte, w.chunk)
	_, err = rand.Read(w.want)
	if err == nil {
		_, err = rand.Read(w.run[:])
	}
	return err
}

// takeAll takes block after block, each half as big once that much is not free.
func (w *work) takeAll() (total int64, err error) {
	for size := int64(firstTake); size >= smallest; {
		b, err := w.s.Take(size)
		if errors.Is(err, ErrNoMemory) {
			size /= 2
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("take memory: %w", err)
		}
		w.blocks = append(w.blocks, b)
		total += b.Bytes
	}
	if total == 0 {
		return 0, errors.New("no memory is free; does another process use the GPU?")
	}
	return total, nil
}

// each calls fn for each piece of the memory, at most a chunk long.
func (w *work) each(fn func(b Block, at int64, n int) error) error {
	for _, b := range w.blocks {
		for at := int64(0); at < b.Bytes; at += int64(w.chunk) {
			if err := fn(b, at, int(min(int64(w.chunk), b.Bytes-at))); err != nil {
				return err
			}
		}
	}
	return nil
}

// read copies a whole piece, however short the single copies are.
func (w *work) read(b Block, at int64, n int) ([]byte, error) {
	for done := 0; done < n; {
		got, err := w.s.Read(w.host[done:n], b, at+int64(done))
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		if got <= 0 || got > n-done {
			return nil, errors.New("the driver reads nothing and says that all is well")
		}
		done += got
	}
	return w.host[:n], nil
}

// look finds what is not zero, and in it pages of the pattern.
func (w *work) look(g *GPU) error {
	residue := false
	err := w.each(func(b Block, at int64, n int) error {
		got, err := w.read(b, at, n)
		if err != nil || bytes.Equal(got, w.zero[:n]) {
			return err
		}
		residue = true
		for p := 0; p+page <= n; p += page {
			if bytes.Equal(got[p:p+len(magic)], magic[:]) {
				g.PatternPages++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	g.Residue = &residue
	return nil
}

// fill writes the pattern everywhere and only then reads it back, since a place
// may show what was written to another one. It reads on after what is wrong: the
// answer is about all of the memory.
func (w *work) fill(inverse bool) (match bool, err error) {
	if inverse {
		for i := range w.want {
			w.want[i] = ^w.want[i]
		}
	}
	err = w.each(func(b Block, at int64, n int) error {
		w.stamp(b, at, n)
		copy(w.host, w.want[:n])
		if err := w.s.Write(b, at, w.host[:n]); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	clear(w.host) // what is read must come from the GPU
	match = true
	err = w.each(func(b Block, at int64, n int) error {
		w.stamp(b, at, n)
		got, err := w.read(b, at, n)
		match = match && err == nil && bytes.Equal(got, w.want[:n])
		return err
	})
	return match, err
}

// stamp makes a chunk's pattern that of a place.
func (w *work) stamp(b Block, at int64, n int) {
	for p := 0; p+page <= n; p += page {
		copy(w.want[p:], magic[:])
		binary.LittleEndian.PutUint64(w.want[p+16:], b.Address+uint64(at)+uint64(p))
		copy(w.want[p+24:], w.run[:])
	}
}

// clear leaves zeros, and looks whether it did.
func (w *work) clear() error {
	for _, b := range w.blocks {
		if err := w.s.Zero(b); err != nil {
			return fmt.Errorf("write zeros: %w", err)
		}
	}
	return w.each(func(b Block, at int64, n int) error {
		got, err := w.read(b, at, n)
		if err == nil && !bytes.Equal(got, w.zero[:n]) {
			err = errors.New("the zeros that were written at the end do not read back")
		}
		return err
	})
}
