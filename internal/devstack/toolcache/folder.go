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

// folder returns a folder of the cache by its name, and makes it when it is missing. When the user's
// cache folder cannot be used, it returns a folder in bin/cache of the checkout, and why as
// fallback. A folder that SLIPWAY_CACHE_DIR names is not replaced in this way.
func folder(root, name string) (dir string, fallback, err error) {
	if dir = os.Getenv(DirVar); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", nil, fmt.Errorf("%s=%q: write an absolute path", DirVar, dir)
		}
		if dir, err = prepare(filepath.Join(dir, name)); err != nil {
			return "", nil, fmt.Errorf("%s: %w", DirVar, err)
		}
		return dir, nil, nil
	}
	dir, fallback = os.UserCacheDir()
	if fallback == nil {
		if dir, fallback = prepare(filepath.Join(dir, "slipway", name)); fallback == nil {
			return dir, nil, nil
		}
	}
	// A user who may write to the checkout can change the sources too, so its owner is not checked.
	dir = filepath.Join(root, "bin", "cache", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, errors.Join(fallback, fmt.Errorf("make the cache folder: %w", err))
	}
	return dir, fallback, nil
}

// prepare makes the folder. It returns an error when this user cannot write to it, and when another
// user can change it or replace it or a folder above it.
func prepare(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	const writable = 2
	if err := syscall.Access(dir, writable); err != nil {
		return "", fmt.Errorf("the cache folder %s: %w", dir, err)
	}
	for at, sticky := dir, fs.FileMode(0); ; at, sticky = filepath.Dir(at), fs.ModeSticky {
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		// In a sticky folder, as /tmp is, other users cannot replace what is not theirs.
		if reason := distrust(info, sticky); reason != "" {
			return "", fmt.Errorf("the cache folder %s is not used: %s %s", dir, at, reason)
		}
		if at == filepath.Dir(at) {
			return dir, nil
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
