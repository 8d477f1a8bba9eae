package scrub

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/slipway-cloud/slipway/agent/task"
)

const (
	blockSize = 4096
	// samples is how many blocks are looked at over the whole disk; edge is what
	// is read whole at both ends, where partition tables and volume headers lie.
	samples = 128
	edge    = 1 << 20
	// labels is what gets canaries at both ends: the labels of RAIDs, volume managers and
	// encryption, and partition tables, lie there.
	labels = 128 << 10
	// canaryMark starts every block that a scrub writes before it erases.
	canaryMark = "SLIPWAY-SCRUB-CANARY-V1 "
)

// offsets returns where a run samples a disk. The offsets are spread over the disk, and a tenant
// cannot predict them, since the run id is made after the tenant has left.
func offsets(runID, serial string, size int64) []int64 {
	blocks := size / blockSize
	n := min(int64(samples), blocks)
	out := make([]int64, 0, n+1)
	for i := range n {
		first, last := i*blocks/n, (i+1)*blocks/n-1
		h := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", runID, serial, i))
		width := uint64(last-first) + 1
		out = append(out, (first+int64(binary.BigEndian.Uint64(h[:8])%width))*blockSize) //nolint:gosec // smaller than the disk
	}
	if blocks > 0 {
		out = append(out, 0, (blocks-1)*blockSize)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// places are the sampled blocks of a disk and so many bytes at both ends. With canaries there, no
// label of a RAID, a volume manager or a partition table is left by which the system would put a
// layer together again while the drive is about to be erased.
func places(runID, serial string, size, ends int64) []int64 {
	out := offsets(runID, serial, size)
	for at := int64(0); at+blockSize <= min(ends, size); at += blockSize {
		out = append(out, at, size/blockSize*blockSize-blockSize-at)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func canary(runID, serial string, at int64) []byte {
	b := make([]byte, blockSize)
	head := fmt.Appendf(nil, "%s%s %s %d\n", canaryMark, task.Clip(runID, 100), task.Clip(serial, 100), at)
	for n := 0; n < len(b); {
		n += copy(b[n:], head)
	}
	return b
}

// disk is an open device. Reads and writes go round the page cache, which knows
// nothing of what a drive erases by itself.
type disk struct {
	f    *os.File
	buf  []byte
	size int64
}

// openDisk opens a device for one user alone: the kernel refuses when it is
// mounted or belongs to another (swap, RAID, device mapper).
func (h Host) openDisk(name string, size int64, write bool) (*disk, error) {
	mode := os.O_RDONLY
	if write {
		mode = os.O_RDWR
	}
	path := h.path("/dev", name)
	f, err := os.OpenFile(path, mode|syscall.O_EXCL|direct, 0)
	if errors.Is(err, syscall.EINVAL) { // a file system without direct access, below a made-up root
		f, err = os.OpenFile(path, mode|syscall.O_EXCL, 0)
	}
	if errors.Is(err, syscall.EBUSY) {
		return nil, fmt.Errorf("%s is in use", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if err := h.rightFile(name, f.Stat); err != nil {
		_ = f.Close()
		return nil, err
	}
	buf, err := pages(blockSize)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("get memory to read %s: %w", name, err)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end < blockSize || size > 0 && end != size {
		freePages(buf)
		_ = f.Close()
		return nil, fmt.Errorf("%s has %d bytes and the kernel says %d", name, end, size)
	}
	return &disk{f, buf, end}, nil
}

func (d *disk) close() error {
	freePages(d.buf)
	return d.f.Close()
}

func (d *disk) block(at int64) ([]byte, error) {
	if _, err := d.f.ReadAt(d.buf, at); err != nil {
		return nil, fmt.Errorf("read at %d: %w", at, err)
	}
	return d.buf, nil
}

// rightFile returns an error for a file below /dev that is not the kernel's device of this name.
func (h Host) rightFile(name string, stat func() (os.FileInfo, error)) error {
	want := h.text(blockClass, name, "dev")
	if want == "" && h.simulated() {
		return nil
	}
	st, err := stat()
	if err != nil {
		return fmt.Errorf("look at /dev/%s: %w", name, err)
	}
	if got := number(st); got == "" || got != want {
		return fmt.Errorf("/dev/%s is not %s: the kernel gives that drive the number %q, and the file has %q", name, name, want, got)
	}
	return nil
}

// plant writes the canary to the sampled blocks and reads it back: only what
// was there before can be seen to be gone.
func (h Host) plant(name, runID, serial string, size int64) (err error) {
	d, err := h.openDisk(name, size, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	where := places(runID, serial, d.size, labels)
	for _, at := range where {
		copy(d.buf, canary(runID, serial, at))
		if _, err := d.f.WriteAt(d.buf, at); err != nil {
			return fmt.Errorf("write the canary to %s at %d: %w", name, at, err)
		}
	}
	if err := d.f.Sync(); err != nil {
		return fmt.Errorf("write the canary to %s: %w", name, err)
	}
	for _, at := range where {
		b, err := d.block(at)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(b, canary(runID, serial, at)) {
			return fmt.Errorf("%s does not keep what is written to it", name)
		}
	}
	return nil
}

// look is what samples of a disk show.
type look struct {
	blocks, canaries, full int
	firstFull              int64
}

func (l look) err(name string) error {
	switch {
	case l.canaries > 0:
		return fmt.Errorf("%s still holds %d of the blocks that were written before it was erased", name, l.canaries)
	case l.full > 0:
		return fmt.Errorf("%s is not blank: %d of %d blocks hold something, the first at byte %d", name, l.full, l.blocks, l.firstFull)
	}
	return nil
}

// sample reads both ends of a disk and the sampled blocks. A block is blank when
// all its bytes are 00 or all are FF.
func (h Host) sample(name, runID, serial string, size int64) (l look, err error) {
	d, err := h.openDisk(name, size, false)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, at := range places(runID, serial, d.size, edge) {
		b, err := d.block(at)
		if err != nil {
			return l, fmt.Errorf("%s: %w", name, err)
		}
		l.blocks++
		if bytes.Contains(b, []byte(canaryMark)) {
			l.canaries++
		}
		if !blank(b) {
			if l.full == 0 {
				l.firstFull = at
			}
			l.full++
		}
	}
	return l, nil
}

func blank(b []byte) bool {
	first := b[0]
	return (first == 0 || first == 0xff) && bytes.Count(b, []byte{first}) == len(b)
}
