package ipmisim

import (
	"context"
	"net"
	"sync"
)

// Direction of a datagram through a relay.
type Direction int

// The directions.
const (
	ToBMC Direction = iota
	FromBMC
)

// Relay passes datagrams between clients and one BMC.
type Relay struct {
	server net.PacketConn
	target string

	mu      sync.Mutex
	clients map[string]net.Conn
	tamper  func(Direction, []byte) [][]byte
	counts  map[byte]int
	closed  bool
}

// RMCP+ payload types that the relay counts (IPMI 2.0, table 13-16).
const (
	payloadOpenSession = 0x10
	payloadRAKP1       = 0x12
	payloadRAKP3       = 0x14
)

// StartRelay listens on a port of 127.0.0.1 for the BMC at target. Stop it
// with Close.
func StartRelay(ctx context.Context, target string) (*Relay, error) {
	server, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{server: server, target: target, clients: map[string]net.Conn{}, counts: map[byte]int{}}
	go r.serve()
	return r, nil
}

// Address is where clients reach the BMC through the relay.
func (r *Relay) Address() string { return r.server.LocalAddr().String() }

// Tamper decides what becomes of each datagram: nothing, it, another, several.
// nil passes all on.
func (r *Relay) Tamper(f func(Direction, []byte) [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tamper = f
}

// Logins counts the login attempts: handshakes that named a user (RAKP 1).
func (r *Relay) Logins() int { return r.count(payloadRAKP1) }

// Proofs counts the logins that went on to prove the password (RAKP 3), which
// are those that a BMC counts towards a lockout.
func (r *Relay) Proofs() int { return r.count(payloadRAKP3) }

// Sessions counts the sessions that were asked for.
func (r *Relay) Sessions() int { return r.count(payloadOpenSession) }

func (r *Relay) count(payload byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[payload]
}

func (r *Relay) serve() {
	buf := make([]byte, 4096)
	for {
		n, from, err := r.server.ReadFrom(buf)
		if err != nil {
			return
		}
		d := append([]byte(nil), buf[:n]...)
		c := r.client(from)
		if c == nil {
			return
		}
		for _, out := range r.apply(ToBMC, d) {
			_, _ = c.Write(out)
		}
	}
}

// client is the socket towards the BMC for one client.
func (r *Relay) client(from net.Addr) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[from.String()]; c != nil {
		return c
	}
	if r.closed {
		return nil
	}
	c, err := net.Dial("udp", r.target)
	if err != nil {
		return nil
	}
	r.clients[from.String()] = c
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			for _, out := range r.apply(FromBMC, append([]byte(nil), buf[:n]...)) {
				_, _ = r.server.WriteTo(out, from)
			}
		}
	}()
	return c
}

func (r *Relay) apply(d Direction, packet []byte) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == ToBMC && len(packet) > 5 && packet[4] == 6 {
		r.counts[packet[5]&0x3f]++
	}
	if r.tamper == nil {
		return [][]byte{packet}
	}
	return r.tamper(d, packet)
}

// Close ends the relay.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_ = r.server.Close()
	for _, c := range r.clients {
		_ = c.Close()
	}
}
