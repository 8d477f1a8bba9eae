// Package pg gives development and tests a PostgreSQL of their own, whoever runs them: an ordinary
// user, or root in a container.
//
// Where the server comes from, first match wins (see Acquire and FindBinaries):
//
//  1. the server that an environment variable names (DATABASE_URL, TEST_DATABASE_URL);
//  2. binaries in $PGBIN, the newest /usr/lib/postgresql/*/bin, or $PATH, with a private data directory;
//  3. the binaries of the npm package that `make pg` installs into tools/pg/node_modules;
//  4. an error of one line that says what to install.
//
// A private server listens on 127.0.0.1 only, has no Unix socket, asks for a random password, and
// dies with the process that started it.
package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/assembly/devserver/freeport"
)

const (
	// User is the superuser of a private server.
	User = "postgres"

	startLimit = 60 * time.Second // a cold disk and crash recovery included
	stopLimit  = 30 * time.Second
	pollEvery  = 25 * time.Millisecond
	portTries  = 3
)

// ErrExternal answers Pause and Resume on a server that is not ours to stop.
var ErrExternal = errors.New("this PostgreSQL was named by the environment and is not ours to stop; unset the variable to get a private one")

// Options says what private server to start.
type Options struct {
	// Dir holds the data, the password and the log (postgres.log), and survives Stop. Empty: a
	// temporary folder that Stop removes.
	Dir string
	// Port on 127.0.0.1; 0 picks a free one.
	Port int
	// Durable keeps what a power cut would lose, as production does. Tests leave it off: commits
	// still survive a killed server process.
	Durable bool
	// Replicated lets the server have a Standby.
	Replicated bool
	// Log receives progress, one line a step; nil for silence.
	Log io.Writer
}

// Server is a running PostgreSQL: a private one (Start), or one named by the environment (Acquire).
// Its methods may be called from any goroutine.
type Server struct {
	external string // DSN when not ours
	opts     Options
	binaries Binaries
	cluster  cluster
	temp     bool // cluster.root is ours to remove

	mu   sync.Mutex
	proc *process // nil while paused or stopped
}

// Acquire returns the server that the environment variable env names (a URL or a key=value string),
// after one successful connection, or starts a private one when it is empty. Tests pass
// TEST_DATABASE_URL, `slipway-dev up` passes DATABASE_URL.
func Acquire(ctx context.Context, env string, opts Options) (*Server, error) {
	dsn := os.Getenv(env)
	if dsn == "" {
		return Start(ctx, opts)
	}
	if _, err := pgx.ParseConfig(dsn); err != nil {
		return nil, fmt.Errorf("%s is not a PostgreSQL address; want postgres://user:password@host:port/database", env)
	}
	if err := ping(ctx, dsn); err != nil {
		return nil, fmt.Errorf("the PostgreSQL that %s names does not answer: %w", env, err)
	}
	return &Server{external: dsn}, nil
}

// Start runs a private server and returns when it accepts connections. On an existing Dir it
// continues with that data; the server must not be running there already. It works as root too: the
// server then runs as user postgres or nobody, or in a user namespace.
func Start(ctx context.Context, opts Options) (*Server, error) {
	bin, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, binaries: bin, temp: opts.Dir == ""}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.cleanUp())
	}
	if err := s.launch(ctx); err != nil {
		return nil, errors.Join(err, s.cleanUp())
	}
	return s, nil
}

// DSN returns the connection URL of the named database on this server; it holds the password. The
// database need not exist: see CreateDatabase.
func (s *Server) DSN(database string) string {
	if s.external == "" {
		u := url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword(User, s.cluster.password),
			Host:     net.JoinHostPort(loopback, strconv.Itoa(s.opts.Port)),
			Path:     "/" + database,
			RawQuery: "sslmode=disable",
		}
		return u.String()
	}
	if strings.HasPrefix(s.external, "postgres://") || strings.HasPrefix(s.external, "postgresql://") {
		if u, err := url.Parse(s.external); err == nil {
			u.Path = "/" + database
			return u.String()
		}
	}
	return s.external + " dbname='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(database) + "'" // in a key=value string the last one counts
}

// External tells whether the server was named by the environment.
func (s *Server) External() bool { return s.external != "" }

// Dir is the folder of a private server, which holds postgres.log; empty for an external one.
func (s *Server) Dir() string { return s.cluster.root }

// Version is PostgreSQL's own version line; empty for an external server.
func (s *Server) Version() string { return s.binaries.Version }

// CreateDatabase creates the database unless it is there. It is safe to call from several processes
// at once.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.adminDSN())
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	const find = `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`
	if err := conn.QueryRow(ctx, find, name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	_, createErr := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	if createErr == nil {
		return nil
	}
	if err := conn.QueryRow(ctx, find, name).Scan(&exists); err == nil && exists {
		return nil // another process was faster
	}
	return fmt.Errorf("create database %s: %w", name, createErr)
}

// Pause stops a private server at once, as a crash of it would (immediate mode): open connections
// break, committed data stays. Resume brings it back. Pausing twice is no error.
func (s *Server) Pause(ctx context.Context) error {
	if s.External() {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halt(ctx, immediately)
}

// Resume starts a paused or stopped server again on the same data and the same port, and returns
// when it accepts connections. On a running server it does nothing.
func (s *Server) Resume(ctx context.Context) error {
	if s.External() {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.ended() {
		return nil
	}
	return s.run(ctx)
}

// Stop ends a private server in an orderly way, rolling back open transactions, and removes a
// temporary folder. On an external server it does nothing. It may be repeated.
func (s *Server) Stop() error {
	if s.External() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	how := orderly
	if s.temp {
		how = immediately // nobody will read the data again
	}
	return errors.Join(s.halt(ctx, how), s.cleanUp())
}

func (s *Server) halt(ctx context.Context, how stopMode) error {
	if s.proc == nil {
		return nil
	}
	err := s.proc.stop(ctx, how)
	s.proc = nil
	return err
}

func (s *Server) cleanUp() error {
	if !s.temp || s.cluster.root == "" {
		return nil
	}
	if err := os.RemoveAll(s.cluster.root); err != nil {
		return fmt.Errorf("remove the temporary PostgreSQL folder: %w", err)
	}
	return nil
}

// launch starts the server; when the port was ours to choose and somebody took it in between, it
// chooses again.
func (s *Server) launch(ctx context.Context) error {
	chosen := s.opts.Port != 0
	for try := 1; ; try++ {
		if !chosen {
			port, err := freeport.Find(ctx)
			if err != nil {
				return err
			}
			s.opts.Port = port
		}
		err := s.run(ctx)
		if err == nil || chosen || try == portTries || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
}

func (s *Server) run(ctx context.Context) error {
	began := time.Now()
	proc, err := s.cluster.start(ctx, s.binaries, s.opts, s.temp)
	if err != nil {
		return err
	}
	if err := s.awaitAnswer(ctx, proc); err != nil {
		return errors.Join(err, proc.stop(context.WithoutCancel(ctx), immediately))
	}
	s.proc = proc
	s.say("%s serves on %s:%d after %s", s.binaries.Version, loopback, s.opts.Port, time.Since(began).Round(time.Millisecond))
	return nil
}

func (s *Server) awaitAnswer(ctx context.Context, proc *process) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := ping(ctx, s.DSN("postgres"))
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("PostgreSQL ended while starting; its log says:\n%s", s.cluster.logTail())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not answer on %s:%d: %w; its log says:\n%s", loopback, s.opts.Port, err, s.cluster.logTail())
		case <-time.After(pollEvery):
		}
	}
}

func (s *Server) say(format string, args ...any) {
	if s.opts.Log != nil {
		_, _ = fmt.Fprintf(s.opts.Log, format+"\n", args...)
	}
}

func ping(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err // pgx leaves the password out
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Ping(ctx)
}

const loopback = "127.0.0.1"

// prepare settles the folder and the user that the server runs as, and makes the cluster if there
// is none.
func (s *Server) prepare(ctx context.Context) error {
	if err := s.prepareRoot(ctx); err != nil {
		return err
	}
	return s.cluster.ensure(ctx, s.binaries, s.opts.Durable, s.say)
}

func (s *Server) prepareRoot(ctx context.Context) error {
	root := s.opts.Dir
	if s.temp {
		dir, err := os.MkdirTemp("", "slipway-pg-")
		if err != nil {
			return fmt.Errorf("make a folder for PostgreSQL: %w", err)
		}
		root = dir
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return fmt.Errorf("the PostgreSQL folder: %w", err)
	}
	s.cluster.root = root
	who, err := chooseIdentity(ctx, s.binaries.Dir, root)
	if err != nil {
		return err
	}
	s.cluster.who = who
	return who.own(root)
}
