package simnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// SystemMark is on a disk that holds an installed system, until it is erased.
const SystemMark = "SIMULATED-SYSTEM"

const disksDir = "disks"

// image is the file that stands for a disk. It lies outside the root, so that it
// outlives the installation of another system, as a disk does.
func (n *Node) image(disk string) string { return filepath.Join(n.dir, disksDir, disk) }

// shareDisks lets the tools, which look beside themselves, find the disks of
// another node of the same machine.
func (n *Node) shareDisks() error {
	if n.opt.Disks == "" {
		return nil
	}
	to, err := filepath.Abs(n.opt.Disks)
	if err != nil {
		return fmt.Errorf("find the machine's disks: %w", err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("make the machine's disks: %w", err)
	}
	if err := os.Symlink(to, filepath.Join(n.dir, disksDir)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("share the machine's disks: %w", err)
	}
	return nil
}

// makeDisk makes a disk's image, or leaves the one that is there.
func (n *Node) makeDisk(d simhw.Disk) error {
	img := n.image(d.Name)
	if err := os.MkdirAll(filepath.Dir(img), 0o700); err != nil {
		return fmt.Errorf("make the node's disks: %w", err)
	}
	f, err := os.OpenFile(img, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make the disk %s: %w", d.Name, err)
	}
	if err := errors.Join(f.Truncate(d.Bytes/512*512), f.Close()); err != nil {
		return fmt.Errorf("make the disk %s: %w", d.Name, err)
	}
	return nil
}

// eraseDisks empties the images of the machine's disks.
func (n *Node) eraseDisks() error {
	var errs []error
	for _, d := range n.opt.Machine.Spec().Disks {
		if err := os.Truncate(n.image(d.Name), 0); err == nil {
			errs = append(errs, n.makeDisk(d))
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("erase the disk %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

// WriteSystem marks a disk as one that a system was installed on.
func (n *Node) WriteSystem(d simhw.Disk) error {
	if err := n.makeDisk(d); err != nil {
		return err
	}
	return n.write(d.Name, SystemMark, d.Bytes/512*512)
}

// MoveDisks takes the images of these disks, and the system that was installed
// on them, from one machine's node to another's. Neither may be up.
func MoveDisks(from, to *Node, disks []simhw.Disk) error {
	if err := os.MkdirAll(filepath.Join(to.dir, disksDir), 0o700); err != nil {
		return fmt.Errorf("make the machine's disks: %w", err)
	}
	for _, d := range disks {
		if err := os.Rename(from.image(d.Name), to.image(d.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("move the disk %s: %w", d.Name, err)
		}
	}
	for old, now := range map[string]string{from.root: to.root, from.state: to.state} {
		if err := os.RemoveAll(now); err != nil {
			return fmt.Errorf("make room for the system on the disks: %w", err)
		}
		if err := os.Rename(old, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("move the system on the disks: %w", err)
		}
	}
	return nil
}
