package browser

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestOpenAxe_RefusesAnotherArchive(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), axeArchive)
	_, err := openAxe(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("something else"), 0o600))
	_, err = openAxe(file)
	require.ErrorContains(t, err, "remove it")
}

// The checker finds what it is for, in the theme in which it is wrong, and says nothing of a page
// that is right.
func TestPage_Violations(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	axe := ReadAxe(t)
	themed, err := os.ReadFile(filepath.Join("testdata", "themed.html"))
	require.NoError(t, err)
	themes := Themes(string(themed))
	require.Len(t, themes, 2)
	pages := map[string]string{
		"/right":  `<h1>Right</h1><label>Name <input></label>`,
		"/label":  `<h1>Wrong</h1><input>`,
		"/themed": string(themed),
		"/icon":   "",
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>t</title><link rel="icon" href="/icon"><main>` + pages[r.URL.Path] + `</main></html>`))
	}))
	t.Cleanup(srv.Close)
	p := Start(t).Open(t, srv.URL)
	p.UseTheme(themes[0])
	for _, path := range []string{"/right", "/themed"} {
		p.Go(path)
		require.Empty(t, p.Violations(axe), path)
	}
	p.UseTheme(themes[1])
	require.Contains(t, strings.Join(p.Violations(axe), "\n"), "color-contrast")
	p.Go("/label")
	require.Contains(t, strings.Join(p.Violations(axe), "\n"), "label")
}
