// Package atomicfile replaces files so that a crash leaves either the old or the new file complete,
// and so that the new one is on the disk when the call returns: the file is synced before it is
// renamed, its directory afterwards. The library google/renameio (v2.0.0) is no replacement: it
// does not sync the directory and does not keep the owner.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// temporaryPrefix begins a file's name before the rename. Because of the dot, programs that read
// every file of a directory, such as cron, ignore it.
const temporaryPrefix = ".slipway-"

// Replace writes the file at path with exactly this mode. The directory must exist. A concurrent
// reader sees the old file or the new one. A symbolic link at path is replaced, not followed. After
// an error path is one of the two files.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return replace(path, content, func(tmp *os.File) error { return tmp.Chmod(mode) })
}

// ReplaceLike is Replace with the mode of the file that it replaces and, when run by root, with its
// owner. For a symbolic link these are the target's. It uses mode when there is no file.
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

// ReplaceIn writes the file name, which may have no directory, in an open directory, with exactly
// this mode and, where uid is not negative, this owner. Nothing outside of the directory is
// touched, whatever links somebody makes meanwhile.
func ReplaceIn(dir *os.Root, name string, content []byte, mode fs.FileMode, uid, gid int) error {
	return replaceIn(dir, name, content, func(tmp *os.File) error {
		var err error
		if uid >= 0 {
			err = tmp.Chown(uid, gid)
		}
		return errors.Join(err, tmp.Chmod(mode)) // after the owner, whose change takes bits away
	})
}

func replace(path string, content []byte, prepare func(*os.File) error) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return replaceIn(dir, filepath.Base(path), content, prepare)
}

func replaceIn(dir *os.Root, name string, content []byte, prepare func(*os.File) error) error {
	temporary := temporaryPrefix + rand.Text()
	tmp, err := dir.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, prepare(tmp), tmp.Sync(), tmp.Close())
	if err == nil {
		err = dir.Rename(temporary, name)
	}
	if err != nil {
		_ = dir.Remove(temporary)
		return err
	}
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Rename renames a synced file within one directory and syncs the directory.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir writes the entries of a directory to the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
