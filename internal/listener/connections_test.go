package listener_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/slipway-cloud/slipway/internal/listener"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(said)
}

// conn is a connection from an address.
type conn struct {
	net.Conn

	from   string
	closed int
}

func (c *conn) RemoteAddr() net.Addr { return from(c.from) }
func (c *conn) Close() error         { c.closed++; return nil }

type from string

func (from) Network() string  { return "tcp" }
func (f from) String() string { return string(f) }

// queue is a listener that accepts connections one after the other.
type queue struct {
	net.Listener

	next []*conn
}

var errEmpty = errors.New("no connection is left")

func (q *queue) Accept() (net.Conn, error) {
	if len(q.next) == 0 {
		return nil, errEmpty
	}
	c := q.next[0]
	q.next = q.next[1:]
	return c, nil
}

// TestBound_ConnectionsOfOneAddress: one address has a number of connections, also by many
// addresses of its /64. Other addresses have theirs, and a trusted proxy is not bounded.
func TestBound_ConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	const each = 100
	bounds := listener.Bounds{AddressConns: each, Proxies: listener.Proxies{netip.MustParsePrefix("10.30.0.0/28")}}
	for name, c := range map[string]struct {
		address func(i int) string
		want    int
	}{
		"IPv4":         {func(int) string { return "198.51.100.7:1" }, each},
		"IPv4 as IPv6": {func(int) string { return "[::ffff:198.51.100.7]:1" }, each},
		"IPv6, one /64": {func(i int) string {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}), 1).String()
		}, each},
		"IPv6, many /64": {func(i int) string {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 7: byte(i)}), 1).String()
		}, 2 * each},
		"a proxy": {func(int) string { return "10.30.0.2:1" }, 2 * each},
	} {
		q, log := &queue{}, &bytes.Buffer{}
		var all []*conn
		for i := range 2 * each {
			all = append(all, &conn{from: c.address(i)})
		}
		q.next = all
		l := bounds.Bound(q, slog.New(slog.NewTextHandler(log, nil)))
		var open []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				require.ErrorIs(t, err, errEmpty)
				break
			}
			open = append(open, conn)
		}
		require.Len(t, open, c.want, name)
		closed := 0
		for _, c := range all {
			closed += c.closed
		}
		require.Equal(t, 2*each-c.want, closed, "%s: what is over the bound is closed", name)
		require.Equal(t, c.want < 2*each, log.Len() > 0, name)
		require.LessOrEqual(t, bytes.Count(log.Bytes(), []byte("\n")), 1, "%s: a flood does not fill the log", name)

		require.NoError(t, open[0].Close())
		require.NoError(t, open[0].Close(), "net/http closes some connections twice")
		q.next = []*conn{{from: c.address(0)}, {from: c.address(0)}}
		again := 0
		for {
			if _, err := l.Accept(); err != nil {
				break
			}
			again++
		}
		if c.want == each {
			require.Equal(t, 1, again, "%s: a connection that has ended makes room for one", name)
		}
	}
}

// TestBound_ManyConnections opens connections of one address to a server until one is closed.
func TestBound_ManyConnections(t *testing.T) {
	t.Parallel()
	const each = 20
	address := serve(t, listener.Bounds{AddressConns: each}, func(http.ResponseWriter, *http.Request) {})
	for i := range each + 1 {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		if i < each {
			continue
		}
		require.NoError(t, c.SetDeadline(time.Now().Add(runenv.Patience(20*time.Second))))
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}

// TestBounds_HTTP2Settings reads what a server allows on an HTTP/2 connection.
func TestBounds_HTTP2Settings(t *testing.T) {
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
	settings, ok := f.(*http2.SettingsFrame)
	require.True(t, ok, "%v", f)
	streams, _ := settings.Value(http2.SettingMaxConcurrentStreams)
	require.EqualValues(t, 128, streams)
	header, _ := settings.Value(http2.SettingMaxHeaderListSize)
	require.LessOrEqual(t, header, uint32(25<<10))
}

// TestBounds_EndAnAnswerThatIsNotRead: a client that reads nothing does not hold a request of a
// server with a bound.
func TestBounds_EndAnAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	address := serve(t, listener.Bounds{WriteTime: 100 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				ended <- err
				return
			}
		}
	})
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(runenv.Patience(20 * time.Second)):
		t.Fatal("the request goes on")
	}
}
