package dbtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// Cuttable opens an empty database whose connections can be cut: after cut, every open connection
// is broken and new ones are refused.
func Cuttable(t testing.TB) (store *db.Store, cut func()) {
	t.Helper()
	dsn, err := url.Parse(Database(t))
	require.NoError(t, err)
	server := dsn.Host
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dsn.Host = l.Addr().String()
	p := &proxy{}
	go p.serve(t, l, server)
	cut = func() { _ = l.Close(); p.closeAll() }
	t.Cleanup(cut)
	return Open(t, dsn.String()), cut
}

// proxy passes connections on to the server.
type proxy struct {
	mu    sync.Mutex
	over  bool
	conns []net.Conn
}

func (p *proxy) serve(t testing.TB, l net.Listener, server string) {
	var d net.Dialer
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := d.DialContext(t.Context(), "tcp", server)
		if err != nil || !p.keep(in, out) {
			_ = in.Close()
			continue
		}
		go pipe(in, out)
		go pipe(out, in)
	}
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conns...)
	return !p.over
}

func (p *proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}
