package listener_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/slipway-cloud/slipway/internal/listener"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// serve serves h within the bounds and returns the address.
func serve(t *testing.T, b listener.Bounds, h http.HandlerFunc) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := b.Server(h)
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = srv.Serve(b.Bound(l, slog.New(slog.DiscardHandler))) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

// send writes the beginning of a request and returns its answer.
func send(t *testing.T, address, text string) (*http.Response, error) {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(runenv.Patience(20*time.Second))))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // the connection is closed
}

// A body that does not come in time ends, whether its handler reads it or not.
func TestBounds_EndABodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"read": func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			fmt.Fprint(w, err != nil)
		},
		"left": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, true) },
	} {
		address := serve(t, listener.Bounds{BodyGrace: 100 * time.Millisecond}, h)
		res, err := send(t, address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
		require.NoError(t, err, name)
		said, err := io.ReadAll(res.Body)
		require.NoError(t, err, name)
		require.Equal(t, "true", string(said), name)
	}
}

// A body over the limit ends, and one within it is whole.
func TestBounds_EndABodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	address := serve(t, listener.Bounds{BodyBytes: 10}, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(got), err != nil)
	})
	for size, want := range map[int]string{10: "10 false", 11: "10 true"} {
		res, err := send(t, address, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
		require.NoError(t, err)
		said, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, want, string(said))
	}
}

// An HTTP/2 client is told of small frames and windows, so a connection costs little memory.
func TestBounds_KeepHTTP2ConnectionsSmall(t *testing.T) {
	t.Parallel()
	address := serve(t, listener.Bounds{}, func(http.ResponseWriter, *http.Request) {})
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(runenv.Patience(20*time.Second))))
	_, err = io.WriteString(c, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(c, c)
	require.NoError(t, framer.WriteSettings())
	f, err := framer.ReadFrame()
	require.NoError(t, err)
	require.IsType(t, &http2.SettingsFrame{}, f)
	told := f.(*http2.SettingsFrame) //nolint:errcheck,forcetypeassert // checked above
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxFrameSize: 32 << 10, http2.SettingInitialWindowSize: 256 << 10} {
		got, ok := told.Value(id)
		require.True(t, ok, id)
		require.Equal(t, want, got, id)
	}
}

// A header that does not come closes the connection.
func TestBounds_EndAHeaderThatDoesNotCome(t *testing.T) {
	t.Parallel()
	address := serve(t, listener.Bounds{HeaderTime: 100 * time.Millisecond}, func(http.ResponseWriter, *http.Request) {})
	_, err := send(t, address, "GET / HTTP/1.1\r\nHost: x\r\n")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A request that lasts longer than a body may take goes on, once its body is there.
func TestBounds_LeaveAStreamAlone(t *testing.T) {
	t.Parallel()
	const grace = 50 * time.Millisecond
	address := serve(t, listener.Bounds{BodyGrace: grace, BodyTime: grace}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		ctx, cancel := context.WithTimeout(r.Context(), 5*grace)
		defer cancel()
		<-ctx.Done()
		fmt.Fprint(w, r.Context().Err())
	})
	res, err := send(t, address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	require.NoError(t, err)
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "<nil>", string(said))
}
