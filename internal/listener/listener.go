// Package listener makes the HTTP servers of the product. Each of them bounds what one request may
// send and how slowly, so that no route has to think of it.
package listener

import (
	"io"
	"net/http"
	"time"
)

// Bounds are what a server takes from one request. A zero field has its default.
type Bounds struct {
	// HeaderTime is how long the header may take; default 10 s.
	HeaderTime time.Duration
	// HeaderBytes is the largest header; default 24 KiB, which has room for the longest token.
	HeaderBytes int
	// BodyBytes is the largest body as it is sent; default 8 MiB. The unpacked size of a compressed
	// body is bounded where it is unpacked: the gRPC API is the only place that unpacks one.
	BodyBytes int64
	// BodyTime is how long the body may take in all; default 25 s.
	BodyTime time.Duration
	// BodyRate is the least speed of a body in bytes a second; default 4 KiB. A body may be behind
	// it by BodyGrace; default 8 s.
	BodyRate  int64
	BodyGrace time.Duration
	// WriteTime is how long a request may take from its header to the end of its answer; 0 has no
	// bound, for servers with streams.
	WriteTime time.Duration
	// Streams is how many requests one HTTP/2 connection may have at once; default 128.
	Streams int
	// AddressConns is how many connections one address may have open; default 1024. An IPv6 address
	// counts as its /64.
	AddressConns int
	// Proxies are trusted to name the addresses of their clients, and may have any number of
	// connections.
	Proxies Proxies
}

// idleTime is how long a connection without a request stays open.
const idleTime = 2 * time.Minute

// An HTTP/2 connection that is silent for pingAfter is asked whether it is there, and is closed
// after pingTime without an answer, or when it takes no byte of what is written for stallTime.
const (
	pingAfter = 30 * time.Second
	pingTime  = 15 * time.Second
	stallTime = 30 * time.Second
)

// An HTTP/2 connection holds at most one frame of frameBytes and windowBytes of bodies that no
// handler has read. The defaults of net/http are 1 MiB each, and one address may have many
// connections.
const (
	frameBytes  = 32 << 10
	windowBytes = 256 << 10
)

func (b Bounds) withDefaults() Bounds {
	setDefault(&b.HeaderTime, 10*time.Second)
	setDefault(&b.HeaderBytes, 24<<10)
	setDefault(&b.BodyBytes, 8<<20)
	setDefault(&b.BodyTime, 25*time.Second)
	setDefault(&b.BodyRate, 4<<10)
	setDefault(&b.BodyGrace, 8*time.Second)
	setDefault(&b.Streams, 128)
	setDefault(&b.AddressConns, 1024)
	return b
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Server returns a server that serves h within the bounds.
func (b Bounds) Server(h http.Handler) *http.Server {
	b = b.withDefaults()
	return &http.Server{
		Handler: b.Proxies.Handler(b.Handler(h)), ReadHeaderTimeout: b.HeaderTime, MaxHeaderBytes: b.HeaderBytes, IdleTimeout: idleTime,
		WriteTimeout: b.WriteTime,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: b.Streams, MaxReadFrameSize: frameBytes,
			MaxReceiveBufferPerConnection: windowBytes, MaxReceiveBufferPerStream: windowBytes,
			SendPingTimeout: pingAfter, PingTimeout: pingTime, WriteByteTimeout: stallTime,
		},
	}
}

// Handler serves next within the bounds of bodies.
func (b Bounds) Handler(next http.Handler) http.Handler {
	b = b.withDefaults()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			timed := &timedBody{ReadCloser: r.Body, bounds: b, began: time.Now(), control: http.NewResponseController(w)}
			timed.setDeadline() // a server reads a part of a body that its handler has left
			r.Body = http.MaxBytesReader(w, timed, b.BodyBytes)
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a body whose next bytes must come in time.
type timedBody struct {
	io.ReadCloser

	bounds   Bounds
	began    time.Time
	read     int64
	deadline time.Time
	control  *http.ResponseController
}

// Read implements io.Reader.
func (t *timedBody) Read(p []byte) (int, error) {
	t.setDeadline()
	n, err := t.ReadCloser.Read(p)
	t.read += int64(n)
	if err == io.EOF { //nolint:errorlint // readers return it unwrapped
		// From now on the server reads only to notice that the client has gone: a deadline would
		// end the request. After another error it stays, since the server may read on.
		_ = t.control.SetReadDeadline(time.Time{}) // a writer without deadlines has none to take back
	}
	return n, err
}

// setDeadline moves the deadline by what was read. It leaves out small moves, since HTTP/2 passes
// each one to the goroutine of the connection.
func (t *timedBody) setDeadline() {
	allowed := t.bounds.BodyGrace + time.Duration(float64(t.read)/float64(t.bounds.BodyRate)*float64(time.Second))
	deadline := t.began.Add(min(allowed, t.bounds.BodyTime))
	if deadline.Sub(t.deadline) < t.bounds.BodyGrace/8 {
		return
	}
	t.deadline = deadline
	_ = t.control.SetReadDeadline(deadline) // a writer without deadlines has its own
}
