package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/internal/temporaltls"
)

// receiver is the endpoint of a customer's webhook, on this machine.
type receiver struct {
	local  *server.LocalReceiver
	srv    *http.Server
	dir    string
	events chan string // what it has received, in words

	mu       sync.Mutex
	verifier *standardwebhooks.Webhook // nil until the webhook is known
}

// startReceiver starts an HTTPS server with an authority of its own.
func startReceiver(ctx context.Context) (*receiver, error) {
	dir, err := os.MkdirTemp("", "slipway-receiver-")
	if err != nil {
		return nil, err
	}
	r := &receiver{dir: dir, events: make(chan string, 100)}
	if err := r.listen(ctx); err != nil {
		r.close()
		return nil, fmt.Errorf("the endpoint of the demo's webhook: %w", err)
	}
	return r, nil
}

func (r *receiver) listen(ctx context.Context) error {
	for _, part := range []string{"ca", "server", "client"} {
		if err := os.Mkdir(filepath.Join(r.dir, part), 0o700); err != nil {
			return err
		}
	}
	if err := temporaltls.Ensure(r.dir, []string{"127.0.0.1"}, time.Now()); err != nil {
		return err
	}
	leaf := filepath.Join(r.dir, "server")
	authority, err := os.ReadFile(filepath.Join(leaf, temporaltls.CAFile))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("the authority cannot be read")
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(leaf, temporaltls.CertFile), filepath.Join(leaf, temporaltls.KeyFile))
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	r.local = &server.LocalReceiver{Address: address, Roots: roots}
	r.srv = &http.Server{Handler: r, ReadHeaderTimeout: callTimeout, ReadTimeout: callTimeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() {
		_ = r.srv.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}})) // it ends when it is closed
	}()
	return nil
}

func (r *receiver) close() {
	if r.srv != nil {
		_ = r.srv.Close()
	}
	_ = os.RemoveAll(r.dir)
}

// expect sets the secret with which requests must be signed.
func (r *receiver) expect(secret string) error {
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return errors.New("the secret of the webhook is none of Standard Webhooks")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verifier = v
	return nil
}

// ServeHTTP accepts events that are signed.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	verifier := r.verifier
	r.mu.Unlock()
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err != nil || verifier == nil || verifier.Verify(body, req.Header) != nil {
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	var e struct{ Type, Subject, Sequence string }
	if json.Unmarshal(body, &e) != nil {
		http.Error(w, "this is no event", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	select {
	case r.events <- fmt.Sprintf("%s  %s  sequence %s", e.Type, e.Subject, e.Sequence):
	default: // nobody reads any more
	}
}

// receiveLimit bounds the wait for an event.
const receiveLimit = time.Minute

// receiveEvents adds a webhook to the project and prints the next events as its endpoint receives
// them.
func (c *customer) receiveEvents(ctx context.Context, out io.Writer, project string) error {
	fmt.Fprintln(out, "\nAda has events of the project sent to an HTTPS endpoint of acme. (On this machine, which only the demo allows.)")
	args := []string{"webhook", "create", project, "acme", "https://" + c.hooks.local.Address.String() + "/slipway"}
	fmt.Fprintf(out, "\n%s$ slipway webhook create %s acme %s\n", c.Name, project, args[len(args)-1])
	var made struct{ Secret string }
	if err := read(ctx, c.operator, c.home, &made, args...); err != nil {
		return err
	}
	if err := c.hooks.expect(made.Secret); err != nil {
		return err
	}
	if err := c.show(ctx, out, "project", "rename", project, "--name", "training-2"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, receiveLimit)
	defer cancel()
	for range 2 { // the webhook's own creation, and the new name
		select {
		case e := <-c.hooks.events:
			fmt.Fprintln(out, "acme's endpoint received, with a good signature:  "+e)
		case <-ctx.Done():
			return fmt.Errorf("acme's endpoint has received no event within %s", receiveLimit)
		}
	}
	return nil
}
