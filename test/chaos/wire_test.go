package chaos

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers each byte with itself.
func echo(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// says sends a byte and waits for it to come back.
func says(c net.Conn, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestWire_RefusesThenRecovers(t *testing.T) {
	t.Parallel()
	w, err := newWire(t.Context(), echo(t))
	require.NoError(t, err)
	t.Cleanup(w.close)
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", w.Address())
	require.NoError(t, err)
	require.NoError(t, says(c, 5*time.Second))
	addr := w.Address()
	w.cut(true, 300*time.Millisecond)
	require.Error(t, says(c, 5*time.Second), "what was open is cut")
	_, err = d.DialContext(t.Context(), "tcp", addr)
	require.Error(t, err, "nobody listens")
	require.Eventually(t, func() bool {
		c, err := d.DialContext(t.Context(), "tcp", addr)
		return err == nil && says(c, time.Second) == nil
	}, 10*time.Second, 20*time.Millisecond)
}

func TestWire_HangsThenGoesOn(t *testing.T) {
	t.Parallel()
	w, err := newWire(t.Context(), echo(t))
	require.NoError(t, err)
	t.Cleanup(w.close)
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", w.Address())
	require.NoError(t, err)
	require.NoError(t, says(c, 5*time.Second))
	w.cut(false, 500*time.Millisecond)
	began := time.Now()
	require.NoError(t, says(c, 10*time.Second), "what was sent arrives when the wire is whole again")
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
}

// A wire that loses answers delivers each request; the caller gets no answer.
func TestWire_LosesAnswers(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{}, 8)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					heard <- struct{}{}
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	w, err := newWire(t.Context(), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(w.close)
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", w.Address())
	require.NoError(t, err)
	require.NoError(t, says(c, 5*time.Second))
	<-heard
	w.silence(300 * time.Millisecond)
	require.Error(t, says(c, 10*time.Second), "the connection breaks without an answer")
	<-heard // and yet it was done
	require.Eventually(t, func() bool {
		c, err := d.DialContext(t.Context(), "tcp", w.Address())
		return err == nil && says(c, time.Second) == nil
	}, 10*time.Second, 20*time.Millisecond)
}
