package op

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/docs"
)

// docsPage shows /openapi.json. It loads nothing from other servers, so that it works offline.
//
//go:embed docs.html
var docsPage []byte

// viewer has the unchanged files of Swagger UI, and the script that starts it. The file VERSION has
// the version and the hashes.
//
//go:embed swagger
var viewer embed.FS

// docsPolicy allows the viewer to load files of this server, and its own pictures, which are data
// URLs. A call that a user tries out goes to this server with the session of the portal.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func serveDocs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", docsPolicy)
	_, _ = w.Write(docsPage) // a broken connection is the reader's to notice
}

// registerDocument serves the OpenAPI document in its four forms. The first request for a form
// renders it, and later requests get the same bytes. The library would render it with a data race
// between two first requests.
func (a *API) registerDocument() {
	for suffix, form := range map[string]func() ([]byte, error){
		".json":     func() ([]byte, error) { return json.Marshal(a.huma.OpenAPI()) },
		"-3.0.json": func() ([]byte, error) { return a.huma.OpenAPI().Downgrade() },
		".yaml":     func() ([]byte, error) { return a.huma.OpenAPI().YAML() },
		"-3.0.yaml": func() ([]byte, error) { return a.huma.OpenAPI().DowngradeYAML() },
	} {
		once := sync.OnceValues(form)
		a.router.Get("/openapi"+suffix, func(w http.ResponseWriter, r *http.Request) {
			text, err := once()
			if err != nil {
				a.WriteError(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/openapi+"+path.Ext(suffix)[1:])
			_, _ = w.Write(text) // a broken connection is the reader's to notice
		})
	}
}

// viewerFiles returns the files of the viewer by name. It reads them once for all requests, since
// each read copies megabytes. Callers need no token for these files, so that many slow ones could
// otherwise fill the memory.
var viewerFiles = sync.OnceValue(func() map[string][]byte {
	files := map[string][]byte{}
	all, err := fs.Glob(viewer, "swagger/*")
	for _, name := range all {
		if files[path.Base(name)], err = viewer.ReadFile(name); err != nil {
			break
		}
	}
	if err != nil {
		panic("the embedded viewer cannot be read: " + err.Error()) // it is part of this program
	}
	return files
})

// serveViewer answers with a file of the viewer.
func (a *API) serveViewer(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "file")
	kind := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}[path.Ext(name)]
	data, found := viewerFiles()[name]
	if !found || kind == "" {
		a.WriteError(w, r, problem.New(problem.NotFound, "there is no such file; /docs is the API reference"))
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(data) // a broken connection is the reader's to notice
}

// servePage answers with a page of docs/, a runbook for example, or with a picture of one.
func (a *API) servePage(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "*")
	if image, err := docs.Image(name); err == nil {
		w.Header().Set("Content-Type", map[string]string{".png": "image/png", ".svg": "image/svg+xml; charset=utf-8"}[path.Ext(name)])
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = w.Write(image) // a broken connection is the reader's to notice
		return
	}
	page, err := docs.Page(name)
	if err != nil {
		a.WriteError(w, r, problem.New(problem.NotFound, "there is no such page; /docs/operations is a good start"))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'")
	_, _ = w.Write(page)
}

// DocURL returns the URL of the page of a file such as "docs/pxe.md#migrating".
func (a *API) DocURL(file string) string { return docs.URL(a.publicURL, file) }
