// Command devtemporal is a complete Temporal server in one process, for development and tests: all
// four services, the Web UI, and SQLite (in memory or in a file) underneath. It exists so that
// nobody has to install anything to run Slipway or its tests, and it is a Go module of its own so
// that the server's dependencies stay out of the product's go.mod.
//
// It listens on 127.0.0.1 only. When the frontend serves, every namespace is registered and every
// search attribute is usable, it prints one line on standard output:
//
//	ready {"frontend":"127.0.0.1:7233","ui":"127.0.0.1:8233","namespaces":["default"],"pid":4711}
//
// and nothing else there, ever; the log goes to standard error. It ends on SIGTERM or SIGINT, and,
// with --exit-on-stdin-close, when whoever holds the other end of its standard input is gone, so
// that a killed parent never leaves a server behind.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/server/temporal"
)

// stopLimit bounds a graceful stop. The server's own limit is five minutes a service, which is far
// more than a developer or a test will wait; what is cut short is recovered from SQLite at the next
// start like after any crash.
const stopLimit = 10 * time.Second

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "devtemporal: "+err.Error())
		os.Exit(1)
	}
}

// readiness is the document behind the word ready.
type readiness struct {
	Frontend   string   `json:"frontend"`     // host:port of the gRPC frontend
	UI         string   `json:"ui,omitempty"` // host:port of the Web UI; absent when --ui-port is 0
	Namespaces []string `json:"namespaces"`   // registered and usable
	PID        int      `json:"pid"`
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	opts, err := parseFlags(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if opts.exitOnStdinClose {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // blocks for as long as the parent holds the pipe
			cancel()
		}()
	}

	if err := requireFree(ctx, opts.frontendPort, opts.uiPort); err != nil {
		return err
	}
	cfg, hosts, err := serverConfig(opts)
	if err != nil {
		return err
	}
	if err := prepareStore(opts, cfg); err != nil {
		return err
	}
	srv, err := newServer(opts, cfg, hosts)
	if err != nil {
		return err
	}
	if err := srv.Start(); err != nil {
		return fmt.Errorf("the Temporal server did not start: %w", err)
	}
	err = serve(ctx, opts, stdout)
	return errors.Join(err, stopWithin(srv, stopLimit))
}

// serve announces readiness and waits until ctx ends. A stop that arrives while still starting is
// not an error.
func serve(ctx context.Context, opts options, stdout io.Writer) error {
	front := address(opts.frontendPort)
	if err := awaitReady(ctx, front, opts); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ready := readiness{Frontend: front, Namespaces: opts.namespaces, PID: os.Getpid()}
	if opts.uiPort != 0 {
		ui := startUI(front, opts)
		defer ui.Stop()
		ready.UI = address(opts.uiPort)
		if err := awaitUI(ctx, ready.UI); err != nil {
			return err
		}
	}
	line, err := json.Marshal(ready)
	if err != nil {
		return fmt.Errorf("write the ready line: %w", err)
	}
	if _, err := fmt.Fprintf(stdout, "ready %s\n", line); err != nil {
		return fmt.Errorf("write the ready line: %w", err)
	}
	<-ctx.Done()
	return nil
}

func stopWithin(srv temporal.Server, limit time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- srv.Stop() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		fmt.Fprintf(os.Stderr, "devtemporal: still stopping after %s, exiting now; the next start recovers\n", limit)
		return nil
	}
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
