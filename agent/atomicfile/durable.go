// Package atomicfile writes files of a node so that a crash leaves the old one or
// the new one, whole, and so that what was written is on the disk when it says
// so: the file is synced before it takes its name, its directory afterwards.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// unnamed is what a file is called before it takes its name. Its dot keeps it
// from programs that read each file of a directory, such as cron.
const unnamed = ".slipway-*"

// Replace writes the file at path whole, with exactly this mode, in a directory
// that is there. Who reads path meanwhile reads the old file or the new one; a
// link at path is replaced, not followed. After an error path is one of the two.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return replace(path, content, func(tmp *os.File) error { return tmp.Chmod(mode) })
}

// ReplaceLike is Replace with the mode and, for root, the owner of the file that
// is replaced, which a link at path leads to; mode is for where there is none.
func ReplaceLike(path string, content []byte, mode fs.FileMode) error {
	return replace(path, content, func(tmp *os.File) error {
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return tmp.Chmod(mode)
		}
		if err != nil {
			return err
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			err = tmp.Chown(int(sys.Uid), int(sys.Gid))
		}
		return errors.Join(err, tmp.Chmod(st.Mode().Perm())) // after the owner, whose change takes bits away
	})
}

func replace(path string, content []byte, prepare func(*os.File) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), unnamed)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, prepare(tmp), tmp.Sync(), tmp.Close())
	if err == nil {
		err = Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // it is not there where only the directory could not be synced
	}
	return err
}

// Rename gives a file that is on the disk its name, for good, within one
// directory.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir puts what a directory names on the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
