package toolcache

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// keptChecks bounds how many hashes MarkChecked remembers.
const keptChecks = 100

// Checked reports whether MarkChecked was called with the hash, which is one that Hash returned, by a
// program of the same Go version. Without a usable cache nothing is checked.
func Checked(hash string) bool {
	path, err := checkedPath(hash)
	if err != nil {
		return false
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || distrust(info, 0) != "" {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // keeps it among the newest
	return true
}

// MarkChecked remembers that a check passed for the inputs with the hash.
func MarkChecked(hash string) error {
	path, err := checkedPath(hash)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("remember a check: %w", err)
	}
	return removeOld(filepath.Dir(path), keptChecks, func(string) bool { return true })
}

func checkedPath(hash string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, _, err := folder(root, "checked")
	if err != nil {
		return "", err
	}
	// Another compiler may check more.
	return filepath.Join(dir, filepath.Base(hash)+"-"+runtime.Version()), nil
}
