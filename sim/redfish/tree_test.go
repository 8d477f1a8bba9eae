package redfishsim_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

func ask(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

func TestTreeInBothLayouts(t *testing.T) {
	t.Parallel()
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, prefix := range map[string]string{"long": "redfish/v1/", "short": ""} {
		tree := fstest.MapFS{
			prefix + "index.json":                  file(`{"Id":"RootService"}`),
			prefix + "Systems/index.json":          file(`{"Name":"Systems"}`),
			prefix + "$metadata/index.xml":         file(`<Edmx/>`),
			prefix + "Systems/1/secret.txt":        file(`hidden`),
			prefix + "Systems?$skip=50/index.json": file(`{"Name":"second page"}`),
		}
		if prefix != "" {
			tree["redfish/index.json"] = file(`{"v1":"/redfish/v1/"}`)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := redfishsim.Tree(tree)
			for path, want := range map[string]string{
				"/redfish": `{"v1":"/redfish/v1/"}`, "/redfish/v1": `{"Id":"RootService"}`, "/redfish/v1/": `{"Id":"RootService"}`,
				"/redfish/v1/Systems?$expand=.": `{"Name":"Systems"}`, "/redfish/v1/$metadata": `<Edmx/>`,
				"/redfish/v1/Systems?$skip=50": `{"Name":"second page"}`,
			} {
				status, body := ask(t, h, "GET", path)
				require.Equal(t, 200, status, path)
				require.Equal(t, want, body, path)
			}
			for _, path := range []string{"/redfish/v1/Systems/1", "/redfish/v1/Systems/1/secret.txt", "/", "/other", "/redfish/v1/../../etc/passwd"} {
				status, _ := ask(t, h, "GET", path)
				require.Equal(t, 404, status, path)
			}
			for _, method := range []string{"POST", "PATCH", "PUT", "DELETE"} {
				status, _ := ask(t, h, method, "/redfish/v1/Systems")
				require.Equal(t, 405, status, method)
			}
		})
	}
}

func TestOpenTreeReadsFoldersAndArchives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "tree.tar.gz")
	f, err := os.Create(name)
	require.NoError(t, err)
	zw := gzip.NewWriter(f)
	tw := tar.NewWriter(zw)
	for _, e := range []struct{ name, body string }{
		{"capture/redfish/v1/index.json", `{"Id":"RootService"}`}, {"../outside", "no"}, {"capture/redfish/v1/Systems/index.json", `{}`},
	} {
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.body)), Typeflag: tar.TypeReg}))
		_, err = io.WriteString(tw, e.body)
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	require.NoError(t, f.Close())
	tree, err := redfishsim.OpenTree(name)
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(tree, "redfish/v1/index.json", "redfish/v1/Systems/index.json"))
	status, body := ask(t, redfishsim.Tree(tree), "GET", "/redfish/v1")
	require.Equal(t, 200, status, body)

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "t", "redfish", "v1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t", "redfish", "v1", "index.json"), []byte(`{}`), 0o644))
	tree, err = redfishsim.OpenTree(filepath.Join(dir, "t"))
	require.NoError(t, err)
	status, _ = ask(t, redfishsim.Tree(tree), "GET", "/redfish/v1")
	require.Equal(t, 200, status)

	for _, bad := range []string{filepath.Join(dir, "absent"), filepath.Join(dir, "t", "redfish", "v1", "index.json"), t.TempDir()} {
		_, err := redfishsim.OpenTree(bad)
		require.ErrorContains(t, err, "tree")
	}
}

// The recorded systems are third-party data outside the repository.
func TestRecordedTreesServeEveryResource(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("SLIPWAY_FIXTURES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "fixtures")
	}
	for _, name := range []string{"dell_poweredge_r750", "lenovo_thinksystem_sr670"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(dir, "redfish", name+".tar.gz")
			if _, err := os.Stat(file); err != nil {
				peerMissing(t, "the recorded tree "+name+" is not under SLIPWAY_FIXTURES")
			}
			tree, err := redfishsim.OpenTree(file)
			require.NoError(t, err)
			h, n := redfishsim.Tree(tree), 0
			require.NoError(t, walk(tree, func(path string, data []byte) {
				status, body := ask(t, h, "GET", "/"+strings.ReplaceAll(path, "#", "%23"))
				require.Equal(t, 200, status, path)
				require.Equal(t, string(data), body)
				require.True(t, json.Valid(data), path)
				n++
			}))
			require.Greater(t, n, 500)
		})
	}
}

// walk visits each resource below Systems, Managers and Chassis.
func walk(tree fs.FS, visit func(path string, data []byte)) error {
	for _, top := range []string{"Systems", "Managers", "Chassis"} {
		err := fs.WalkDir(tree, "redfish/v1/"+top, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() != "index.json" {
				return err
			}
			data, err := fs.ReadFile(tree, p)
			if err == nil {
				visit(strings.TrimSuffix(p, "/index.json"), data)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
