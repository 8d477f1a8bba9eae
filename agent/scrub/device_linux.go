package scrub

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

const (
	// From linux/fs.h, 64-bit machines.
	getFlags  = 0x80086601
	setFlags  = 0x40086602
	immutable = 0x10

	direct = syscall.O_DIRECT
)

// mutable takes away the immutable flag that efivarfs puts on variables. A file
// system without flags has none to take away.
func mutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var flags int
	if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getFlags, uintptr(unsafe.Pointer(&flags))); no != 0 {
		if errors.Is(no, syscall.ENOTTY) || errors.Is(no, syscall.ENOTSUP) {
			return nil
		}
		return no
	}
	if flags&immutable == 0 {
		return nil
	}
	flags &^= immutable
	if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), setFlags, uintptr(unsafe.Pointer(&flags))); no != 0 {
		return no
	}
	return nil
}

// number is that of the block device which a file stands for, "" for a file of another kind.
func number(st os.FileInfo) string {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode()&os.ModeType != os.ModeDevice {
		return ""
	}
	dev := uint64(sys.Rdev) //nolint:unconvert // 32 bits wide on some machines
	return fmt.Sprintf("%d:%d", dev>>8&0xfff|dev>>32&^uint64(0xfff), dev&0xff|dev>>12&^uint64(0xff)&0xffffffff)
}

// pages is memory that starts at a page, as direct reads need it.
func pages(n int) ([]byte, error) {
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func freePages(b []byte) { _ = syscall.Munmap(b) }
