package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// wire is a path to the outside that can be cut: connections to its address
// reach the target, unless it is cut.
type wire struct {
	ctx    context.Context //nolint:containedctx // the wire's own life
	end    context.CancelFunc
	target string

	mu       sync.Mutex
	addr     string
	listener net.Listener
	conns    map[net.Conn]bool
	until    time.Time     // cut until then
	deaf     time.Time     // answers are lost until then
	healed   chan struct{} // closed when what hangs goes on
}

// newWire lays a wire to host:port.
func newWire(ctx context.Context, target string) (*wire, error) {
	ctx, end := context.WithCancel(ctx)
	w := &wire{ctx: ctx, end: end, target: target, conns: map[net.Conn]bool{}, healed: make(chan struct{})}
	close(w.healed)
	// Not 127.0.0.1: while the wire refuses, nobody else is to get its port.
	if err := w.listen(fmt.Sprintf("127.11.%d.%d:0", rand.IntN(250)+1, rand.IntN(250)+1)); err != nil { //nolint:gosec // no secret
		end()
		return nil, err
	}
	return w, nil
}

func (w *wire) listen(addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(w.ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("lay a wire to %s: %w", w.target, err)
	}
	w.mu.Lock()
	w.listener, w.addr = l, l.Addr().String()
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	return nil
}

// Address is host:port of this end.
func (w *wire) Address() string { w.mu.Lock(); defer w.mu.Unlock(); return w.addr }

// cut takes the wire out of order for a while. Refused, new connections are
// refused and old ones reset; else all hang, and go on afterwards.
func (w *wire) cut(refuse bool, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(d)
	w.until = until
	if refuse {
		_ = w.listener.Close()
		for c := range w.conns {
			hangUp(c)
		}
	}
	select {
	case <-w.healed:
		w.healed = make(chan struct{})
	default: // a longer cut
	}
	time.AfterFunc(d, func() { w.heal(until) })
}

// silence loses, for a while, every answer that comes back over the wire: what
// was asked is done, and its connection breaks afterwards.
func (w *wire) silence(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = time.Now().Add(d)
}

// lost is for how long answers are lost yet.
func (w *wire) lost() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.deaf)
}

// heal ends the cut unless a later one lasts.
func (w *wire) heal(of time.Time) {
	w.mu.Lock()
	if !w.until.Equal(of) || w.ctx.Err() != nil {
		w.mu.Unlock()
		return
	}
	addr := w.addr
	close(w.healed)
	w.mu.Unlock()
	var lc net.ListenConfig
	l, err := lc.Listen(w.ctx, "tcp", addr)
	if err != nil {
		return // in use by this wire: it only hung
	}
	_ = l.Close()
	for w.ctx.Err() == nil && w.listen(addr) != nil {
		pause(w.ctx, 50*time.Millisecond)
	}
}

// whole waits while the wire hangs; false when it is gone.
func (w *wire) whole() bool {
	w.mu.Lock()
	healed := w.healed
	w.mu.Unlock()
	select {
	case <-healed:
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (w *wire) carry(c net.Conn) {
	if !w.keep(c) {
		return
	}
	defer w.drop(c)
	if !w.whole() {
		return
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	t, err := d.DialContext(w.ctx, "tcp", w.target)
	if err != nil || !w.keep(t) {
		return
	}
	defer w.drop(t)
	done := make(chan struct{}, 2)
	for i, pair := range [2][2]net.Conn{{t, c}, {c, t}} {
		go func() {
			w.copy(pair[0], pair[1], i == 1)
			done <- struct{}{}
		}()
	}
	<-done
}

func (w *wire) copy(dst, src net.Conn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if left := w.lost(); n > 0 && answers && left > 0 {
			pause(w.ctx, left)
			return
		}
		if n > 0 {
			if !w.whole() {
				return
			}
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		_ = c.Close()
		return false
	}
	w.conns[c] = true
	return true
}

func (w *wire) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	_ = c.Close()
}

func (w *wire) close() {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.listener.Close()
	for c := range w.conns {
		_ = c.Close()
	}
}

// hangUp resets a connection instead of ending it in order.
func hangUp(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
