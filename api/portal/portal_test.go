package portal_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPages_HaveTheirHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	b.headers["Accept"] = "text/html"
	for _, path := range []string{"/portal/", "/portal/jobs/job_x", "/portal/index.html"} {
		a := b.do("GET", path, nil)
		require.Equal(t, http.StatusOK, a.StatusCode, path)
		require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"))
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", a.Header.Get("Referrer-Policy"))
		require.Equal(t, "same-origin", a.Header.Get("Cross-Origin-Opener-Policy"))
		policy := a.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.NotContains(t, policy, "unsafe")
		require.NotEmpty(t, a.Header.Get("ETag"))
	}
	for from, to := range map[string]string{"/portal": "/portal/", "/": "/portal/"} {
		a := b.do("GET", from, nil)
		require.Equal(t, http.StatusSeeOther, a.StatusCode)
		require.Equal(t, to, a.Header.Get("Location"))
	}
	b.headers["Accept"] = "*/*"
	require.Equal(t, http.StatusNotFound, b.do("GET", "/portal/app-gone.js", nil).StatusCode)
	require.Equal(t, "/docs", b.do("GET", "/", nil).Header.Get("Location"))
}

// The files that the first page names stay small, and every file of the build can be served.
func TestPages_StayWithinBudget(t *testing.T) {
	t.Parallel()
	const budget = 200 << 10
	page, err := os.ReadFile("dist/index.html")
	require.NoError(t, err)
	w := newWorld(t)
	b := w.browser()
	sum := len(gzipped(t, page))
	for _, m := range regexp.MustCompile(`(?:src|href)="/portal/([^"]+)"`).FindAllSubmatch(page, -1) {
		data, err := os.ReadFile(filepath.Join("dist", string(m[1])))
		require.NoError(t, err)
		sum += len(gzipped(t, data))
		a := b.do("GET", "/portal/"+string(m[1]), nil)
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Contains(t, a.Header.Get("Cache-Control"), "immutable")
		if strings.HasSuffix(string(m[1]), ".js") {
			require.Equal(t, "text/javascript; charset=utf-8", a.Header.Get("Content-Type"))
		}
		b.headers["If-None-Match"] = a.Header.Get("ETag")
		require.Contains(t, []int{http.StatusNotModified, http.StatusOK}, b.do("GET", "/portal/"+string(m[1]), nil).StatusCode)
		delete(b.headers, "If-None-Match")
	}
	require.LessOrEqual(t, sum, budget)
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}
