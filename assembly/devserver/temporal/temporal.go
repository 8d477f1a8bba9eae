// Package temporal gives development and tests a Temporal server of their own: it builds the
// program of the dev module when needed and runs it as a child process that dies with its parent.
package temporal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/config"
)

// Namespace is the one that is registered when Options names none.
const Namespace = "slipway"

const (
	startLimit = 90 * time.Second
	stopLimit  = 20 * time.Second
	startTries = 3
)

// ErrExternal answers Pause and Resume on a server that is not ours to stop.
var ErrExternal = errors.New("this Temporal server was named by the environment and is not ours to stop; unset the variable to get a private one")

// ErrForgets answers Pause on a server without a database file: it would come back empty.
var ErrForgets = errors.New("this Temporal server keeps everything in memory and would come back empty: start it with Options.DB to pause it")

// Options says what private server to start.
type Options struct {
	// Binary is what to run; empty means EnsureBuilt.
	Binary string
	// FrontendPort on 127.0.0.1; 0 picks a free one, which stays the same over Pause and Resume.
	FrontendPort int
	// UIPort on 127.0.0.1; 0 means no Web UI.
	UIPort int
	// DB is the SQLite file that keeps everything; empty means memory.
	DB string
	// Namespaces to register; empty means Namespace and that of the passes.
	Namespaces []string
	// SearchAttributes maps name to type (Keyword, Bool, Int ...); nil means SearchAttributes().
	SearchAttributes map[string]string
	// Log receives the server's own log; nil drops it, save for the end of it in errors.
	Log io.Writer
	// Progress receives one line a step; nil for silence.
	Progress io.Writer
}

// SearchAttributes are what Slipway's workflows set, and what an operator filters by in the Web UI:
// name to type.
func SearchAttributes() map[string]string {
	attributes := map[string]string{}
	for _, key := range []sdk.SearchAttributeKey{
		contract.NodeIDAttribute, contract.HostnameAttribute, contract.SiteIDAttribute, contract.JobKindAttribute, contract.JobStatusAttribute, contract.StageAttribute,
		contract.NeedsHumanAttribute,
	} {
		attributes[key.GetName()] = key.GetValueType().String()
	}
	return attributes
}

// Server is a running Temporal server: a private one (Start), or one named by the environment
// (Acquire). Its methods may be called from any goroutine.
type Server struct {
	opts     Options
	external string

	mu    sync.Mutex
	child *child // nil while paused or stopped
	ready readiness
}

// Acquire returns the server that the environment variable env names (host:port), after a
// successful health check, with Options' namespaces and search attributes registered; or starts a
// private one when the variable is empty. Tests pass SLIPWAY_TEMPORAL_ADDRESS.
func Acquire(ctx context.Context, env string, opts Options) (*Server, error) {
	address := os.Getenv(env)
	if address == "" {
		return Start(ctx, opts)
	}
	s := &Server{opts: opts.withDefaults(), external: address}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, name := range s.opts.Namespaces {
		if err := s.EnsureNamespace(ctx, name); err != nil {
			return nil, fmt.Errorf("the Temporal server that %s names (%s): %w", env, address, err)
		}
	}
	return s, nil
}

// Start runs a private server and returns when it serves, with every namespace and search attribute
// usable.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if opts.Binary == "" {
		path, err := EnsureBuilt(ctx, opts.Progress)
		if err != nil {
			return nil, err
		}
		opts.Binary = path
	}
	s := &Server{opts: opts}
	for try := 1; ; try++ {
		err := s.run(ctx)
		if err == nil {
			return s, nil
		}
		// The server picks its inner ports by asking the kernel; on a busy machine another process
		// may take one before it binds.
		if try == startTries || ctx.Err() != nil || !errors.Is(err, errEndedEarly) {
			return nil, err
		}
	}
}

func (o Options) withDefaults() Options {
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{Namespace, config.Temporal{Namespace: Namespace}.PassNamespace()}
	}
	if o.SearchAttributes == nil {
		o.SearchAttributes = SearchAttributes()
	}
	return o
}

// Address is host:port of the gRPC frontend; it stays the same over Pause and Resume.
func (s *Server) Address() string {
	if s.external != "" {
		return s.external
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready.Frontend
}

// UI is the URL of the Web UI; empty without one.
func (s *Server) UI() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.UI == "" {
		return ""
	}
	return "http://" + s.ready.UI
}

// External tells whether the server was named by the environment.
func (s *Server) External() bool { return s.external != "" }

// Dial connects an SDK client to the namespace; the caller closes it.
func (s *Server) Dial(ctx context.Context, namespace string) (client.Client, error) {
	c, err := client.DialContext(ctx, client.Options{HostPort: s.Address(), Namespace: namespace, Logger: quiet{}})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal at %s: %w", s.Address(), err)
	}
	return c, nil
}

// Pause kills a private server, as a crash would. It needs a database file, without which Resume
// would bring back an empty server.
func (s *Server) Pause(ctx context.Context) error {
	if s.External() {
		return ErrExternal
	}
	if s.opts.DB == "" {
		return ErrForgets
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return nil
	}
	err := s.child.kill(ctx)
	s.child = nil
	return err
}

// Resume starts a paused server again on the same ports and the same database file, and returns
// when it serves. On a running server it does nothing.
func (s *Server) Resume(ctx context.Context) error {
	if s.External() {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil && !s.child.ended() {
		return nil
	}
	return s.run(ctx)
}

// Restart is Pause and Resume.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Pause(ctx); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Stop ends a private server in an orderly way. On an external server it does nothing. It may be
// repeated.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	err := s.child.stop(ctx)
	s.child = nil
	return err
}

// run starts the program; the caller holds mu, or is the only one who knows s.
func (s *Server) run(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c, ready, err := startChild(ctx, s.opts)
	if err != nil {
		return err
	}
	port, err := portOf(ready.Frontend)
	if err != nil {
		return errors.Join(err, c.kill(ctx))
	}
	s.child, s.ready, s.opts.FrontendPort = c, ready, port
	if s.opts.Progress != nil {
		_, _ = fmt.Fprintf(s.opts.Progress, "Temporal serves on %s after %s\n", ready.Frontend, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// quiet keeps the SDK's chatter out of the output of tests and of the demo.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
