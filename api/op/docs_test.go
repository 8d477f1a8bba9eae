package op_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
)

// docsServer returns a function that gets a page of an API without a login.
func docsServer(t *testing.T) func(path string) *httptest.ResponseRecorder {
	t.Helper()
	api, err := op.New(op.Config{Store: &db.Store{}})
	require.NoError(t, err)
	return func(path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		api.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return rec
	}
}

func TestDocs_LoadTheirOwnFilesOnly(t *testing.T) {
	t.Parallel()
	get := docsServer(t)
	page := get("/docs")
	require.NotContains(t, page.Header().Get("Content-Security-Policy"), "unsafe")
	for _, path := range []string{"/docs/ui/swagger-ui-bundle.js", "/docs/ui/swagger-ui.css", "/docs/ui/start.js"} {
		require.Contains(t, page.Body.String(), path)
		file := get(path)
		require.Equal(t, http.StatusOK, file.Code, path)
		require.Contains(t, file.Header().Get("Content-Type"), "charset=utf-8")
	}
	require.Equal(t, http.StatusNotFound, get("/docs/ui/VERSION").Code)
	version, err := os.ReadFile("swagger/VERSION")
	require.NoError(t, err)
	for line := range strings.Lines(strings.SplitN(string(version), "\n", 2)[1]) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile("swagger/" + name)
		require.NoError(t, err)
		got := sha256.Sum256(data)
		require.Equal(t, sum, hex.EncodeToString(got[:]), name)
	}
}

// discard is a response that counts its bytes and drops them.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.bytes += len(p); return len(p), nil }

// Requests for these files need no token. So no request may render or copy its answer.
func TestDocs_AreMadeOnce(t *testing.T) { //nolint:paralleltest // it measures what is allocated
	api, err := op.New(op.Config{Store: &db.Store{}, AddressRate: 1_000_000})
	require.NoError(t, err)
	for _, path := range []string{"/docs/ui/swagger-ui-bundle.js", "/docs/operations", "/docs/operations.md", "/docs/images/portal-plan.png", "/openapi.json"} {
		get := func() int {
			w := &discard{header: http.Header{}}
			api.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.bytes
		}
		size := get()
		const times = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			get()
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(times*max(size/4, 12<<10)), path)
	}
	get := docsServer(t)
	for _, path := range []string{"/docs/operations", "/docs/operations.md"} {
		require.Contains(t, get(path).Header().Get("Content-Type"), "text/html", path)
	}
}

// Every page has the icon of the portal. Otherwise a browser requests /favicon.ico, which does not
// exist.
func TestDocs_HaveAnIcon(t *testing.T) {
	t.Parallel()
	get := docsServer(t)
	link := regexp.MustCompile(`<link rel="icon" href="([^"]+)"`)
	for _, path := range []string{"/docs", "/docs/operations", "/docs/runbooks/bmc_unreachable"} {
		page := get(path)
		found := link.FindStringSubmatch(page.Body.String())
		require.NotNil(t, found, path)
		require.Contains(t, page.Header().Get("Content-Security-Policy"), "img-src 'self'", path)
		icon := get(found[1])
		require.Equal(t, "image/svg+xml; charset=utf-8", icon.Header().Get("Content-Type"))
		want, err := os.ReadFile("../portal/web/src/icon.svg")
		require.NoError(t, err)
		require.Equal(t, string(want), icon.Body.String())
	}
}

// A picture of a page is served where the page links to it, and the page may show it.
func TestDocs_ServePictures(t *testing.T) {
	t.Parallel()
	get := docsServer(t)
	page := get("/docs/portal")
	require.Contains(t, page.Header().Get("Content-Security-Policy"), "img-src 'self'")
	links := regexp.MustCompile(`(?:src|href)="(images/[^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		picture := get("/docs/" + link[1])
		require.Equal(t, http.StatusOK, picture.Code, link[1])
		require.Equal(t, "image/png", picture.Header().Get("Content-Type"))
		require.Less(t, picture.Body.Len(), 120_000, "%s is large: reduce its colours", link[1])
	}
	require.Equal(t, http.StatusNotFound, get("/docs/images/none.png").Code)
	require.Equal(t, http.StatusNotFound, get("/docs/images/").Code)
}

// Two first requests at the same time get the same document. The race detector finds a data race.
func TestDocument_IsMadeOnceForAll(t *testing.T) {
	t.Parallel()
	api, err := op.New(op.Config{Store: &db.Store{}})
	require.NoError(t, err)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for _, form := range []string{".json", ".yaml", "-3.0.json", "-3.0.yaml"} {
				got := httptest.NewRecorder()
				api.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/openapi"+form, nil))
				assert.Equal(t, http.StatusOK, got.Code)
				assert.Contains(t, got.Body.String(), "openapi", form)
			}
		})
	}
	both.Wait()
}
