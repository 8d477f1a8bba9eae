package cuda

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/slipway-cloud/slipway/agent/gpupattern"
)

// session is the use of one GPU's primary context by one thread.
type session struct {
	l       *Library
	device  int32
	blocks  []uint64
	buffers []unsafe.Pointer
}

// Buffer implements gpupattern.Session: memory that the GPU reads without a
// copy in between.
func (s *session) Buffer(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := s.l.err("cuMemHostAlloc", s.l.hostAlloc(&p, uint64(bytes), hostPortable)); err != nil {
		return nil, err
	}
	s.buffers = append(s.buffers, p)
	return unsafe.Slice((*byte)(p), bytes), nil
}

// Take implements gpupattern.Session.
func (s *session) Take(bytes int64) (gpupattern.Block, error) {
	var p uint64
	code := s.l.alloc(&p, uint64(bytes))
	if code == outOfMemory {
		return gpupattern.Block{}, gpupattern.ErrNoMemory
	}
	if err := s.l.err("cuMemAlloc", code); err != nil {
		return gpupattern.Block{}, err
	}
	s.blocks = append(s.blocks, p)
	return gpupattern.Block{Address: p, Bytes: bytes}, nil
}

// Read implements gpupattern.Session.
func (s *session) Read(dst []byte, from gpupattern.Block, at int64) (int, error) {
	err := s.l.err("cuMemcpyDtoH", s.l.toHost(unsafe.Pointer(unsafe.SliceData(dst)), from.Address+uint64(at), uint64(len(dst))))
	runtime.KeepAlive(dst)
	if err != nil {
		return 0, err
	}
	return len(dst), nil
}

// Write implements gpupattern.Session.
func (s *session) Write(to gpupattern.Block, at int64, src []byte) error {
	err := s.l.err("cuMemcpyHtoD", s.l.toDevice(to.Address+uint64(at), unsafe.Pointer(unsafe.SliceData(src)), uint64(len(src))))
	runtime.KeepAlive(src)
	return err
}

// Zero implements gpupattern.Session. Blocks are a multiple of a word long.
func (s *session) Zero(b gpupattern.Block) error {
	return errors.Join(s.l.err("cuMemsetD32", s.l.set(b.Address, 0, uint64(b.Bytes/4))), s.l.err("cuCtxSynchronize", s.l.synchronize()))
}

// Close implements gpupattern.Session.
func (s *session) Close() error {
	var errs []error
	for _, p := range s.blocks {
		errs = append(errs, s.l.err("cuMemFree", s.l.free(p)))
	}
	for _, p := range s.buffers {
		errs = append(errs, s.l.err("cuMemFreeHost", s.l.hostFree(p)))
	}
	s.blocks, s.buffers = nil, nil
	errs = append(errs, s.l.err("cuCtxSetCurrent", s.l.contextSet(0)), s.l.err("cuDevicePrimaryCtxRelease", s.l.contextRelease(s.device)))
	return errors.Join(errs...)
}
