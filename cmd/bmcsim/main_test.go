package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// screen is what the command printed so far.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.b.Write(p) }
func (s *screen) text() string                { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// start runs the command until the test ends and returns the URLs it printed.
func start(t *testing.T, urls int, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, done := &screen{}, make(chan error, 1)
	go func() { done <- run(ctx, append(args, "--listen", "127.0.0.1:0"), out, io.Discard) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	var found []string
	require.Eventually(t, func() bool {
		found = regexp.MustCompile(`http://[^\s]+`).FindAllString(out.text(), -1)
		return len(found) == urls
	}, runenv.Patience(10*time.Second), 5*time.Millisecond, "it never listened: %s", out.text())
	return found
}

func get(t *testing.T, url, user, password string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	require.NoError(t, err)
	req.SetBasicAuth(user, password)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}

func TestMachineWithAdminPort(t *testing.T) {
	t.Parallel()
	urls := start(t, 2, "--personality", "hpe", "--user", "admin", "--password", "given-password", "--admin", "127.0.0.1:0")
	status, body := get(t, urls[0]+"/Systems/1", "admin", "given-password")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"HPE"`)
	status, body = get(t, urls[1]+"/counters", "", "")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"basic_logins":1`)
}

func TestRecordedTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "redfish", "v1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redfish", "v1", "index.json"), []byte(`{"Vendor":"Recorded"}`), 0o644))
	urls := start(t, 1, "--tree", dir)
	status, body := get(t, urls[0], "", "")
	require.Equal(t, 200, status)
	require.Equal(t, `{"Vendor":"Recorded"}`, body)
}

func TestWrongUseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no BMC personality":      {"--personality", "Acme"},
		"every setting is a flag": {"serve"},
		"open the recorded tree":  {"--tree", "/nonexistent"},
		"leave --tls":             {"--tree", ".", "--tls"},
		"listen on":               {"--listen", "127.0.0.1:notaport"},
	} {
		require.ErrorContains(t, run(t.Context(), args, io.Discard, io.Discard), want)
	}
}
