package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// notes are the files that runs themselves write; they change no hash and no seed.
var notes = []string{flakesFile, stampsFile, knownCases}

// tree is the content of a checkout: every file that git tracks or would track.
type tree struct {
	root  string
	files []string // relative, sorted, without notes
}

func readTree(ctx context.Context, root string) (tree, error) {
	cmd := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	t := tree{root: root}
	out, err := cmd.Output()
	if err != nil { // no git, or no repository: an unpacked archive
		if out, err = walk(root); err != nil {
			return tree{}, fmt.Errorf("list the files of the checkout: %w", err)
		}
	}
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if len(name) > 0 && !slices.Contains(notes, string(name)) {
			t.files = append(t.files, string(name))
		}
	}
	slices.Sort(t.files)
	t.files = slices.Compact(t.files)
	return t, nil
}

// walk lists the regular files below root as git ls-files -z does, without hidden folders and what
// is built.
func walk(root string) ([]byte, error) {
	var out []byte
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || name == "bin"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			out = append(append(out, filepath.ToSlash(name)...), 0)
		}
		return nil
	})
	return out, err
}

// hash is the SHA-256 of names and contents of the files that keep holds for.
func (t tree) hash(keep func(string) bool) (string, error) {
	sum := sha256.New()
	for _, name := range t.files {
		if !keep(name) {
			continue
		}
		if err := addFile(sum, t.root, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// addFile adds one file. A file that git lists and that is gone counts as absent.
func addFile(sum io.Writer, root, name string) error {
	path := filepath.Join(root, name)
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var content []byte
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		content = []byte(target)
	} else if info.Mode().IsRegular() {
		if content, err = os.ReadFile(path); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(sum, "%s\x00%d\x00%s", name, len(content), content)
	return err
}

// seedOfHash draws a seed from the hash of the whole tree: the same tree plays the same cases.
func seedOfHash(hash string) (uint64, error) {
	raw, err := hex.DecodeString(hash)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(raw) >> 1, nil // fits a signed integer too
}

// always are the folders that every area depends on: the Temporal server and the versions of the
// pinned tools.
var always = []string{"dev/", "tools/"}

// covered reports which files belong to the packages in the given folders: a file belongs to the
// nearest folder above it that holds Go files. go.mod, go.sum and what is in always count too.
func (t tree) covered(folders []string) func(string) bool {
	packages := map[string]bool{}
	for _, name := range t.files {
		if strings.HasSuffix(name, ".go") {
			packages[filepath.Dir(name)] = true
		}
	}
	return func(name string) bool {
		if name == "go.mod" || name == "go.sum" || below(name, always) {
			return true
		}
		for folder := filepath.Dir(name); ; folder = filepath.Dir(folder) {
			if packages[folder] {
				return slices.Contains(folders, folder)
			}
			if folder == "." || folder == "/" {
				return false
			}
		}
	}
}

func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// below reports whether the file is in one of the folders, which end with a slash.
func below(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(name, folder) })
}
