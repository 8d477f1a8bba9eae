package bmcsim

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// memoryFS is a read-only tree of files by path.
type memoryFS map[string][]byte

type memoryFile struct {
	*bytes.Reader
	entry memoryEntry
}

// memoryEntry describes a file, or a directory when dir is set.
type memoryEntry struct {
	name string
	size int64
	dir  bool
}

func (m memoryFS) Open(name string) (fs.File, error) {
	data, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return memoryFile{bytes.NewReader(data), memoryEntry{name: path.Base(name), size: int64(len(data))}}, nil
}

// ReadDir lists a directory; it walks all paths and is for opening a tree, not
// for serving it.
func (m memoryFS) ReadDir(name string) ([]fs.DirEntry, error) {
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	seen := map[string]fs.DirEntry{}
	for p, data := range m {
		rest, ok := strings.CutPrefix(p, prefix)
		if !ok {
			continue
		}
		first, _, deeper := strings.Cut(rest, "/")
		seen[first] = fs.FileInfoToDirEntry(memoryEntry{name: first, size: int64(len(data)), dir: deeper})
	}
	if len(seen) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	out := make([]fs.DirEntry, 0, len(seen))
	for _, e := range seen {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

func (f memoryFile) Stat() (fs.FileInfo, error) { return f.entry, nil }
func (f memoryFile) Close() error               { return nil }

func (e memoryEntry) Name() string       { return e.name }
func (e memoryEntry) Size() int64        { return e.size }
func (e memoryEntry) ModTime() time.Time { return time.Time{} }
func (e memoryEntry) IsDir() bool        { return e.dir }
func (e memoryEntry) Sys() any           { return nil }
func (e memoryEntry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}
