package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
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

// The command serves the API with the key that it prints, and the admin port.
func TestRun_ServesAccount(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	out, done := &screen{}, make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--webhook", "http://127.0.0.1:1/"}, out, io.Discard)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { return strings.Contains(out.text(), "Admin:") }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	urls := regexp.MustCompile(`http://\S+`).FindAllString(out.text(), -1)
	require.Len(t, urls, 2)
	require.Contains(t, out.text(), "whsec_")
	req, err := http.NewRequest("GET", urls[0]+"/v1/events", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+regexp.MustCompile(`sk_test_\w+`).FindString(out.text()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
	res, err = http.Get(urls[1] + "counters")
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
}

func TestRun_WrongUseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"every setting is a flag":      {"serve"},
		"begins with sk_test_":         {"--key", "pk_test_12345"},
		"name their receiver":          {"--webhook-secret", "whsec_x"},
		"no URL of a webhook endpoint": {"--webhook", "ftp://x"},
		"cannot listen on":             {"--listen", "127.0.0.1:notaport"},
	} {
		require.ErrorContains(t, run(t.Context(), args, io.Discard, io.Discard), want)
	}
}
