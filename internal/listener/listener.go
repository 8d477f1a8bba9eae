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
	// HeaderBytes is the largest header; default 64 KiB.
	HeaderBytes int
	// BodyBytes is the largest body as it is sent; default 8 MiB. What a compressed body becomes is
	// bounded where it is unpacked: the gRPC API is the only place that unpacks one.
	BodyBytes int64
	// BodyTime is how long the body may take in all; default 25 s.
	BodyTime time.Duration
	// BodyRate is the least speed of a body in bytes a second; default 4 KiB. A body may be behind it
	// by BodyGrace; default 8 s.
	BodyRate  int64
	BodyGrace time.Duration
}

// idleTime is how long a connection without a request stays open.
const idleTime = 2 * time.Minute

func (b Bounds) withDefaults() Bounds {
	setDefault(&b.HeaderTime, 10*time.Second)
	setDefault(&b.HeaderBytes, 64<<10)
	setDefault(&b.BodyBytes, 8<<20)
	setDefault(&b.BodyTime, 25*time.Second)
	setDefault(&b.BodyRate, 4<<10)
	setDefault(&b.BodyGrace, 8*time.Second)
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
	return &http.Server{Handler: b.Handler(h), ReadHeaderTimeout: b.HeaderTime, MaxHeaderBytes: b.HeaderBytes, IdleTimeout: idleTime}
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
		// From now on the server reads only to notice that the client has gone: a deadline would end
		// the request. After another error it stays, since the server may read on.
		_ = t.control.SetReadDeadline(time.Time{}) // a writer without deadlines has none to take back
	}
	return n, err
}

// setDeadline moves the deadline by what was read. It leaves out small moves, since HTTP/2 passes each
// one to the goroutine of the connection.
func (t *timedBody) setDeadline() {
	allowed := t.bounds.BodyGrace + time.Duration(float64(t.read)/float64(t.bounds.BodyRate)*float64(time.Second))
	deadline := t.began.Add(min(allowed, t.bounds.BodyTime))
	if deadline.Sub(t.deadline) < t.bounds.BodyGrace/8 {
		return
	}
	t.deadline = deadline
	_ = t.control.SetReadDeadline(deadline) // a writer without deadlines has its own
}
