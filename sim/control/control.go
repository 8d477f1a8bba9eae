// Package simcontrol is what simulators share that have a control port: how they listen, how the
// control port reads and answers, and the script of faults. It knows no protocol that is simulated.
package simcontrol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// ErrNoEffect is an act that the simulated system refuses in the present state. The control port
// answers 409.
var ErrNoEffect = errors.New("the act has no effect")

// maxBody bounds the body of a request to a control port, in bytes.
const maxBody = 1 << 20

// ReadJSON decodes the body of a request, one JSON object without unknown fields.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body must be one JSON object")
	}
	return nil
}

// Answer writes v, or the error: 409 for ErrNoEffect and 400 for any other.
func Answer(w http.ResponseWriter, v any, err error) {
	code := http.StatusOK
	if err != nil {
		code, v = http.StatusBadRequest, map[string]string{"error": err.Error()}
		if errors.Is(err, ErrNoEffect) {
			code = http.StatusConflict
		}
	}
	Respond(w, code, v)
}

// Respond writes v as JSON with a status.
func Respond(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a client that went away is the client's matter
}

// Port is one address with what answers there.
type Port struct {
	Address string // host:port, ":0" picks a port; "" leaves the port out
	Handler http.Handler
}

// Listener serves ports until it is stopped.
type Listener struct {
	servers []*http.Server
}

// Listen opens all ports and serves them. It returns the addresses in the order of the ports, ""
// for one that is left out. name is that of the simulator, for errors; failed is called when a port
// stops by itself.
func Listen(ctx context.Context, name string, failed func(), ports ...Port) (*Listener, []string, error) {
	l, addresses := &Listener{}, make([]string, len(ports))
	for i, p := range ports {
		if p.Address == "" {
			continue
		}
		var lc net.ListenConfig
		on, err := lc.Listen(ctx, "tcp", p.Address)
		if err != nil {
			l.Stop()
			return nil, nil, fmt.Errorf("simulated %s cannot listen on %s: %w", name, p.Address, err)
		}
		srv := &http.Server{Addr: on.Addr().String(), Handler: p.Handler, ReadHeaderTimeout: 10 * time.Second}
		l.servers, addresses[i] = append(l.servers, srv), srv.Addr
		go func() {
			if err := srv.Serve(on); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed()
			}
		}()
	}
	return l, addresses, nil
}

// Stop waits at most five seconds for open requests and cuts the others. It may be called again.
func (l *Listener) Stop() {
	limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, srv := range l.servers {
		if err := srv.Shutdown(limit); err != nil {
			_ = srv.Close() // what did not end in time is cut
		}
	}
}
