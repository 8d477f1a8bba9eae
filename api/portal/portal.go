// Package portal serves the portal: the built front end for operators and the one for customers,
// which are embedded, and the sessions of the browsers that use them. The front end calls the
// public API and nothing else.
package portal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/portal/session"
	"github.com/slipway-cloud/slipway/api/problem"
)

//go:embed dist
var built embed.FS

// policy lets a page load and call this server alone, run no inline script, and be framed by
// nobody.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; worker-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// Config is how browsers sign in.
type Config = session.Config

// Register adds the portal to the API's router, and lets requests of its sessions through. It is
// called before the operations are served.
func Register(api *op.API, cfg Config) error {
	files, err := loadBuilt()
	if err != nil {
		return err
	}
	for name := range files {
		if stylesheet.MatchString(name) {
			cfg.Stylesheet = "/portal/" + name
		}
	}
	sessions := session.New(api, cfg)
	api.UseSessions(sessions)
	sessions.Register(api)
	r := api.Router()
	r.Get("/portal", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/portal/", http.StatusSeeOther) })
	serve := func(w http.ResponseWriter, r *http.Request) { files.serve(api, w, r) }
	r.Get("/portal/*", serve)
	r.Head("/portal/*", serve)
	return nil
}

// asset is one file as it is sent.
type asset struct {
	plain, zipped []byte
	kind          string
	tag           string
	immutable     bool
}

// assets are the files of the front end by name.
type assets map[string]asset

const index = "index.html"

// stylesheet matches the name of the operators' styles, which the page of a refused sign-in uses.
var stylesheet = regexp.MustCompile(`^app-[0-9a-f]{16}\.css$`)

// hashed matches names that hold a hash of the content: what has such a name never changes.
var hashed = regexp.MustCompile(`-[0-9A-Za-z]{8,}\.[a-z0-9.]+$`)

// kinds are the media types of files by extension. Text states its encoding: a script in another
// one would not run.
func kinds() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
		".svg": "image/svg+xml; charset=utf-8", ".json": "application/json", ".png": "image/png", ".woff2": "font/woff2", ".ico": "image/x-icon",
		"": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".map": "application/json",
	}
}

// loadBuilt loads the embedded files once for each process, however many listeners serve them.
// Nobody changes them afterwards.
var loadBuilt = sync.OnceValues(func() (assets, error) {
	sub, err := fs.Sub(built, "dist")
	if err != nil {
		return nil, err
	}
	return load(sub)
})

// load reads and compresses every file.
func load(files fs.FS) (assets, error) {
	all := assets{}
	err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		kind, known := kinds()[path.Ext(name)]
		if !known {
			return fmt.Errorf("the portal's file %s has no media type; add it to kinds", name)
		}
		sum := sha256.Sum256(data)
		a := asset{plain: data, kind: kind, tag: hex.EncodeToString(sum[:16]), immutable: hashed.MatchString(path.Base(name))}
		if a.zipped, err = zip(data); err != nil {
			return err
		}
		all[name] = a
		return nil
	})
	if err == nil && all[index].plain == nil {
		err = fmt.Errorf("the portal has no %s; build it with make portal", index)
	}
	return all, err
}

// zip returns data compressed, or nil where that saves nothing.
func zip(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil || b.Len() >= len(data) {
		return nil, err
	}
	return b.Bytes(), nil
}

// serve answers with a file. An unknown path is a page of the front end where a browser asks for a
// page, and nothing otherwise.
func (f assets) serve(api *op.API, w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/portal/")
	a, found := f[name]
	if !found && (name == "" || op.AcceptsHTML(r)) {
		a, found = f[index], true
	}
	if !found {
		api.WriteError(w, r, problem.New(problem.NotFound, "the portal has no such file; load the page again"))
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Vary", "Accept-Encoding, Accept")
	if a.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	a.send(w, r)
}

// send writes the file in the encoding that the browser takes.
func (a asset) send(w http.ResponseWriter, r *http.Request) {
	body, tag := a.plain, `"`+a.tag+`"`
	if a.zipped != nil && acceptsGzip(r) {
		body, tag = a.zipped, `"`+a.tag+`-gzip"`
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("ETag", tag)
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.Header().Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a broken connection is the browser's to notice
	}
}

func acceptsGzip(r *http.Request) bool {
	for _, coding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if name == "gzip" && strings.ReplaceAll(quality, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
