// Package gpupattern looks into the memory of GPUs: it takes nearly all of it,
// looks for what somebody left, fills it with a pattern, reads that back, and
// leaves zeros. It is what the program slipway-gpu-pattern does, which the scrub
// calls, and knows the driver by an interface only.
package gpupattern

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// ErrNoMemory is what Session.Take answers when that much is not free.
var ErrNoMemory = errors.New("the GPU has not that much memory free")

// Driver is a GPU driver. GPUs are numbered from 0.
type Driver interface {
	Count() (int, error)
	UUID(gpu int) (string, error) // as nvidia-smi writes it: GPU-...
	Total(gpu int) (int64, error) // bytes
	// Open begins to use a GPU. The session belongs to the calling thread.
	Open(gpu int) (Session, error)
}

// Session is the use of one GPU. Close gives all of it back.
type Session interface {
	// Buffer gives host memory that copies are quick with.
	Buffer(bytes int) ([]byte, error)
	// Take allocates memory, as it is; ErrNoMemory where there is not enough.
	Take(bytes int64) (Block, error)
	// Read copies from the GPU and says how many bytes it copied.
	Read(dst []byte, from Block, at int64) (int, error)
	Write(to Block, at int64, src []byte) error
	Zero(b Block) error
	Close() error
}

// Block is a piece of a GPU's memory.
type Block struct {
	Address uint64
	Bytes   int64
}

// Mode is what is done.
type Mode string

// The modes.
const (
	Check Mode = "check" // look, fill, read back, leave zeros
	Plant Mode = "plant" // fill, and leave the pattern
	Look  Mode = "look"  // look and change nothing
)

// Report is what is written as JSON; agent/scrub reads it.
type Report struct {
	Version string `json:"version"`
	Mode    Mode   `json:"mode"`
	GPUs    []GPU  `json:"gpus"`
}

// GPU is what was found on one. Residue and Match are nil where it is not known.
type GPU struct {
	UUID    string `json:"uuid"`
	Total   int64  `json:"bytes_total"`
	Checked int64  `json:"bytes_checked"`
	Residue *bool  `json:"residue,omitempty"` // something other than zero was there
	Match   *bool  `json:"match,omitempty"`   // all that was written was read back
	// PatternPages counts pages of 4 KiB that held the pattern of an earlier run.
	PatternPages int64  `json:"pattern_pages"`
	Error        string `json:"error,omitempty"`
}

// Run does the mode on all GPUs at once. A GPU that fails does not keep the
// others from being done; the error is for what keeps all of them from it.
func Run(d Driver, m Mode, version string) (Report, error) { return run(d, m, version, chunk) }

func run(d Driver, m Mode, version string, chunk int) (Report, error) {
	if m != Check && m != Plant && m != Look {
		return Report{}, fmt.Errorf("there is no mode %q; use check, plant or look", m)
	}
	n, err := d.Count()
	if err != nil {
		return Report{}, fmt.Errorf("count the GPUs: %w", err)
	}
	if n == 0 {
		return Report{}, errors.New("the driver shows no GPU")
	}
	r := Report{Version: version, Mode: m, GPUs: make([]GPU, n)}
	var all sync.WaitGroup
	for i := range r.GPUs {
		all.Go(func() {
			runtime.LockOSThread() // a session belongs to its thread
			defer runtime.UnlockOSThread()
			r.GPUs[i] = one(d, i, m, chunk)
		})
	}
	all.Wait()
	return r, nil
}

func one(d Driver, i int, m Mode, chunk int) (g GPU) {
	fail := func(what string, err error) GPU {
		g.Error = fmt.Sprintf("%s: %v", what, err)
		return g
	}
	var err error
	if g.UUID, err = d.UUID(i); err != nil {
		return fail(fmt.Sprintf("read the name of GPU %d", i), err)
	}
	if g.Total, err = d.Total(i); err != nil {
		return fail("read how much memory it has", err)
	}
	s, err := d.Open(i)
	if err != nil {
		return fail("open the GPU", err)
	}
	w := work{s: s, chunk: chunk}
	err = w.do(m, &g)
	if e := s.Close(); e != nil && err == nil {
		err = fmt.Errorf("give the memory back: %w", e)
	}
	if err != nil {
		g.Match = nil // what was seen of it is not all
		return fail("look at its memory", err)
	}
	return g
}
