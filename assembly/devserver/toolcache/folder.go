package toolcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// DirVar names a folder to use instead of the one in the user's cache folder.
const DirVar = "SLIPWAY_CACHE_DIR"

// folders are where the entries of one kind are kept.
type folders struct {
	read  []string // the folders that may have an entry, the best first
	write string   // the one for new entries
	// fallback is why write is in the checkout: this user cannot write to the user's cache folder.
	fallback error
}

// findFolders returns the folders of the cache by their name. When the user's cache folder cannot
// be used for writing, new entries go to bin/cache-UID of the checkout: what root has left there
// does not stop the user. A folder that SLIPWAY_CACHE_DIR names is not replaced in this way.
func findFolders(root, name string) (folders, error) {
	if dir := os.Getenv(DirVar); dir != "" {
		if !filepath.IsAbs(dir) {
			return folders{}, fmt.Errorf("%s=%q: write an absolute path", DirVar, dir)
		}
		dir, err := prepare(filepath.Join(dir, name))
		if dir == "" {
			return folders{}, fmt.Errorf("%s: %w", DirVar, err)
		}
		return folders{read: []string{dir}, write: dir}, nil
	}
	var found folders
	dir, err := os.UserCacheDir()
	if err == nil {
		if dir, err = prepare(filepath.Join(dir, "slipway", name)); dir != "" {
			found.read = append(found.read, dir)
		}
		if err == nil {
			found.write = dir
			return found, nil
		}
	}
	// A user who may write to the checkout can change the sources too, so its owner is not checked.
	found.write = filepath.Join(root, "bin", fmt.Sprintf("cache-%d", os.Getuid()), name)
	found.read, found.fallback = append(found.read, found.write), err
	return found, nil
}

// makeWritable makes the folder for new entries when it is missing.
func (f folders) makeWritable() error {
	if err := os.MkdirAll(f.write, 0o755); err != nil {
		return errors.Join(f.fallback, fmt.Errorf("make the cache folder: %w", err))
	}
	return nil
}

// access is replaced by tests: root may write everywhere.
var access = syscall.Access

// prepare makes the folder when it is missing, and returns it without symbolic links. It returns an
// error alone when another user can change the folder or can replace it or one above it. It makes
// nothing below a folder of another user: root would leave there what that user cannot change. When
// this user can read the folder but not write to it, prepare returns it with an error.
func prepare(dir string) (string, error) {
	there, missing := dir, ""
	for {
		_, err := os.Lstat(there)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			return "", fmt.Errorf("find the cache folder: %w", err)
		}
		there, missing = filepath.Dir(there), filepath.Join(filepath.Base(there), missing)
	}
	there, err := filepath.EvalSymlinks(there)
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	if err := trust(there, missing != ""); err != nil {
		return "", err
	}
	if missing != "" {
		there = filepath.Join(there, missing)
		if err := os.MkdirAll(there, 0o700); err != nil {
			return "", fmt.Errorf("make the cache folder: %w", err)
		}
		if err := trust(there, false); err != nil { // another process may have made it
			return "", err
		}
	}
	const writable = 2
	if err := access(there, writable); err != nil {
		return there, fmt.Errorf("the cache folder %s: %w", there, err)
	}
	return there, nil
}

// trust returns an error when another user can change the folder, or can replace it or a folder
// above it. In a sticky folder, as /tmp is, other users cannot replace what is not theirs; so one
// above the folder may be sticky, and with above the folder itself too.
func trust(dir string, above bool) error {
	for at := dir; ; at = filepath.Dir(at) {
		var sticky fs.FileMode
		if above || at != dir {
			sticky = fs.ModeSticky
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if reason := distrust(info, sticky); reason != "" {
			return fmt.Errorf("the cache folder %s is not used: %s %s", dir, at, reason)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// distrust returns why another user could have changed the file, or "". A file with one of the mode
// bits in except may be writable for others.
func distrust(info fs.FileInfo, except fs.FileMode) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "has no known owner"
	}
	return distrustOf(info.Mode(), int(stat.Uid), os.Getuid(), except)
}

func distrustOf(mode fs.FileMode, owner, user int, except fs.FileMode) string {
	switch {
	case owner != user && owner != 0:
		return fmt.Sprintf("belongs to user %d", owner)
	case mode&0o022 != 0 && mode&except == 0:
		return fmt.Sprintf("may be written by other users (mode %v): chmod go-w it", mode)
	default:
		return ""
	}
}

// usable reports whether the file at path is a program that only this user or root can have put
// there, in a folder of which the same is true.
func usable(path string) bool {
	dir, err := os.Lstat(filepath.Dir(path))
	if err != nil || !dir.IsDir() || distrust(dir, 0) != "" {
		return false
	}
	file, err := os.Lstat(path)
	return err == nil && file.Mode().IsRegular() && file.Mode()&0o100 != 0 && file.Size() > 0 &&
		distrust(file, 0) == ""
}

// removeOld removes all but the most recently used of the folder's entries that match.
func removeOld(dir string, keep int, match func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var found []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && match(entry.Name()) { // an error: another process has removed it
			found = append(found, info)
		}
	}
	slices.SortFunc(found, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	var errs []error
	for _, info := range found[min(keep, len(found)):] {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, info.Name())))
	}
	return errors.Join(errs...)
}

// Folder returns the folder of the cache for files of one kind, such as a package that a test
// fetches. It makes the folder when it is missing.
func Folder(kind string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	found, err := findFolders(root, kind)
	if err != nil {
		return "", err
	}
	return found.write, found.makeWritable()
}
