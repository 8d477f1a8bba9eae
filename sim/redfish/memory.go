package redfishsim

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// memoryFS is a read-only tree of files held in memory.
type memoryFS struct {
	files map[string][]byte
	dirs  map[string]map[string]memoryEntry // by path, "." the top
}

// memoryEntry describes a file, or a directory when dir is set.
type memoryEntry struct {
	name string
	size int64
	dir  bool
}

func newMemoryFS() *memoryFS {
	return &memoryFS{files: map[string][]byte{}, dirs: map[string]map[string]memoryEntry{".": {}}}
}

// add puts a file and its directories into the tree.
func (m *memoryFS) add(name string, data []byte) {
	m.files[name] = data
	for e := (memoryEntry{name: path.Base(name), size: int64(len(data))}); ; {
		dir := path.Dir(name)
		known := m.dirs[dir] != nil
		if !known {
			m.dirs[dir] = map[string]memoryEntry{}
		}
		m.dirs[dir][e.name] = e
		if known {
			return
		}
		name, e = dir, memoryEntry{name: path.Base(dir), dir: true}
	}
}

func (m *memoryFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if data, ok := m.files[name]; ok {
		return memoryFile{bytes.NewReader(data), memoryEntry{name: path.Base(name), size: int64(len(data))}}, nil
	}
	entries, ok := m.dirs[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	list := make([]fs.DirEntry, 0, len(entries))
	for _, e := range entries {
		list = append(list, fs.FileInfoToDirEntry(e))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return &memoryDir{entry: memoryEntry{name: path.Base(name), dir: true}, left: list}, nil
}

type memoryFile struct {
	*bytes.Reader
	entry memoryEntry
}

func (f memoryFile) Stat() (fs.FileInfo, error) { return f.entry, nil }
func (f memoryFile) Close() error               { return nil }

type memoryDir struct {
	entry memoryEntry
	left  []fs.DirEntry
}

func (d *memoryDir) Stat() (fs.FileInfo, error) { return d.entry, nil }
func (d *memoryDir) Close() error               { return nil }
func (d *memoryDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.entry.name, Err: fs.ErrInvalid}
}

func (d *memoryDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(d.left) {
		if n > 0 && len(d.left) == 0 {
			return nil, io.EOF
		}
		n = len(d.left)
	}
	out := d.left[:n]
	d.left = d.left[n:]
	return out, nil
}

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
