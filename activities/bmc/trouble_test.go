package bmc_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trouble stands between a worker and everything outside it. When it cuts,
// the worker's process is as good as dead: what it writes from then on, to the
// BMC or to the database, arrives nowhere, until it is started again.
type trouble struct {
	mu    sync.Mutex
	armed bool
	left  int  // messages that still pass
	after bool // the last one arrives and only its answer is lost
	dead  bool
	cut   int
	conns map[net.Conn]bool
}

type fate int

const (
	passes fate = iota
	lostBefore
	answerLost
)

// arm cuts the worker off at the n-th message from now.
func (x *trouble) arm(rng *rand.Rand, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.armed, x.left, x.after = true, rng.IntN(n), rng.IntN(2) == 0
}

// restart starts the process again and reports whether it had been cut off.
func (x *trouble) restart() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.dead
	x.armed, x.dead = false, false
	return was
}

func (x *trouble) message() fate {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.dead:
		return lostBefore
	case !x.armed:
		return passes
	case x.left > 0:
		x.left--
		return passes
	}
	x.armed, x.cut = false, x.cut+1
	if x.after {
		return answerLost
	}
	return lostBefore
}

// die ends every connection of the process.
func (x *trouble) die() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dead = true
	for c := range x.conns {
		_ = c.Close()
	}
	clear(x.conns)
}

func (x *trouble) keep(c net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return false
	}
	if x.conns == nil {
		x.conns = map[net.Conn]bool{}
	}
	x.conns[c] = true
	return true
}

func (x *trouble) forget(c net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.conns, c)
}

// proxy listens for the process in place of target.
func (x *trouble) proxy(t *testing.T, target string) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go x.serve(c, target)
		}
	}()
	return ln.Addr().String()
}

func (x *trouble) serve(client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	if !x.keep(client) {
		return
	}
	defer x.forget(client)
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	swallow := make(chan struct{})
	go func() {
		defer func() { _ = client.Close() }()
		back(client, server, swallow, x.die)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		switch x.message() {
		case lostBefore:
			x.die()
			return
		case answerLost:
			close(swallow)
			if _, err := server.Write(buf[:n]); err == nil {
				_ = server.SetReadDeadline(time.Now().Add(2 * time.Second))
				_, _ = client.Read(buf) // until back has seen the answer and closed
			}
			x.die()
			return
		default:
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// back copies answers, until one is to be lost: it has arrived here, so what it
// answers has taken effect.
func back(client, server net.Conn, swallow <-chan struct{}, lost func()) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		select {
		case <-swallow:
			lost()
			return
		default:
		}
		if n > 0 {
			if _, werr := client.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
