package dbtest

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// Cuttable opens an empty database whose connections can be cut: after cut, every open connection
// is broken and new ones are refused.
func Cuttable(t testing.TB) (store *db.Store, cut func()) {
	t.Helper()
	dsn, cut := new(proxy).before(t, Database(t))
	return Open(t, dsn), cut
}

// Counted opens the database of a store once more, and counts the statements of the new store and
// of its login for customers.
func Counted(t testing.TB, store *db.Store) (counted *db.Store, statements func() int64) {
	t.Helper()
	src, err := ofProcess()
	require.NoError(t, err, "a PostgreSQL for the tests")
	var name string
	require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	p := &proxy{}
	dsn, _ := p.before(t, src.appDSN(t, name))
	customers, _ := p.before(t, CustomerDSN(t, src.appDSN(t, name)))
	counted, err = db.Open(t.Context(), withOption(dsn, "pool_max_conns", poolSize), db.CustomerLogin(withOption(customers, "pool_max_conns", customerPoolSize)))
	require.NoError(t, err)
	t.Cleanup(counted.Close)
	return counted, p.statements.Load
}

// proxy passes connections on to the server, and counts the statements.
type proxy struct {
	statements atomic.Int64

	mu    sync.Mutex
	over  bool
	conns []net.Conn
}

// before returns the DSN of a proxy of the server of a DSN. cut ends the proxy, as the test's end
// does.
func (p *proxy) before(t testing.TB, dsn string) (proxied string, cut func()) {
	t.Helper()
	to, err := url.Parse(dsn)
	require.NoError(t, err)
	server := to.Host
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	to.Host = l.Addr().String()
	go p.serve(t, l, server)
	cut = func() { _ = l.Close(); p.closeAll() }
	t.Cleanup(cut)
	return to.String(), cut
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
		go func() {
			defer out.Close()
			p.passStatements(out, in)
		}()
	}
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

// passStatements forwards the messages of a client. Each simple query and each execution of a
// prepared statement counts. The first messages have no type: a question about TLS, and the
// parameters.
func (p *proxy) passStatements(to io.Writer, from io.Reader) {
	const startup = 3 << 16 // the version of the protocol
	head := make([]byte, 8)
	for begun := false; ; {
		n := 4
		if begun {
			n = 5
		}
		if _, err := io.ReadFull(from, head[:n]); err != nil {
			return
		}
		length := int64(binary.BigEndian.Uint32(head[n-4:n])) - 4
		if begun && (head[0] == 'Q' || head[0] == 'E') {
			p.statements.Add(1)
		}
		if !begun {
			if _, err := io.ReadFull(from, head[4:]); err != nil {
				return
			}
			n, length = 8, length-4
			begun = binary.BigEndian.Uint32(head[4:]) == startup
		}
		if _, err := to.Write(head[:n]); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, length); err != nil {
			return
		}
	}
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
