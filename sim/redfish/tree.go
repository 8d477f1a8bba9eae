package redfishsim

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
)

// Bounds of an archive that is read into memory.
const (
	maxTreeFile  = 32 << 20
	maxTreeTotal = 512 << 20
)

// Tree serves a recorded mockup read-only and without any login, in the layout
// of DMTF mockups: one directory a resource, holding index.json (or index.xml).
// The tree may start at redfish/ or, in the short form, at the service root.
// Any other method than GET and HEAD is answered 405.
func Tree(tree fs.FS) http.Handler {
	prefix := "/"
	if _, err := fs.Stat(tree, "redfish/v1/index.json"); err != nil {
		prefix = root + "/"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("OData-Version", "4.0")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, `{"error":{"code":"Base.1.8.OperationNotAllowed","message":"A recorded tree is read-only."}}`, http.StatusMethodNotAllowed)
			return
		}
		p := path.Clean("/" + r.URL.Path)
		if p == "/redfish" && prefix != "/" {
			h.Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"v1":"/redfish/v1/"}`)
			return
		}
		dir, ok := strings.CutPrefix(p+"/", prefix)
		dir = strings.TrimSuffix(dir, "/")
		data, ctype, err := readResource(tree, dir+"?"+r.URL.RawQuery) // later pages of a collection were recorded so
		if err != nil {
			data, ctype, err = readResource(tree, dir)
		}
		if !ok || err != nil {
			h.Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":{"code":"Base.1.8.ResourceMissingAtURI","message":"The tree holds no such resource."}}`)
			return
		}
		h.Set("Content-Type", ctype)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
}

func readResource(tree fs.FS, dir string) (data []byte, ctype string, err error) {
	for _, f := range []struct{ name, ctype string }{{"index.json", "application/json; charset=utf-8"}, {"index.xml", "application/xml"}} {
		name := path.Join(dir, f.name)
		if !fs.ValidPath(name) {
			return nil, "", fs.ErrInvalid
		}
		if data, err = fs.ReadFile(tree, name); err == nil {
			return data, f.ctype, nil
		}
	}
	return nil, "", err
}

// OpenTree opens a directory or a .tar.gz of a recorded tree; an archive is
// read into memory. A single folder around the tree is looked through.
func OpenTree(name string) (fs.FS, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("open the recorded tree: %w", err)
	}
	tree := os.DirFS(name)
	if !info.IsDir() {
		if tree, err = openArchive(name); err != nil {
			return nil, fmt.Errorf("read the recorded tree %s: %w", name, err)
		}
	}
	return findTree(tree, name)
}

func findTree(tree fs.FS, name string) (fs.FS, error) {
	for _, pattern := range []string{"redfish/v1/index.json", "index.json", "*/redfish/v1/index.json", "*/index.json"} {
		hits, err := fs.Glob(tree, pattern)
		if err != nil || len(hits) == 0 {
			continue
		}
		if !strings.HasPrefix(pattern, "*/") {
			return tree, nil
		}
		return fs.Sub(tree, hits[0][:strings.IndexByte(hits[0], '/')])
	}
	return nil, fmt.Errorf("%s holds no redfish/v1/index.json: is it a Redfish mockup tree?", name)
}

func openArchive(name string) (fs.FS, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("not a gzip archive: %w", err)
	}
	files, total := newMemoryFS(), int64(0)
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		clean := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(clean) {
			continue
		}
		if total += h.Size; h.Size > maxTreeFile || total > maxTreeTotal {
			return nil, fmt.Errorf("%s makes the tree too large", h.Name)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			return nil, err
		}
		files.add(clean, data)
	}
}
