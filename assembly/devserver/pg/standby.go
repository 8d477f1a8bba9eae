package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyName is the name under which a standby connects to its primary.
const standbyName = "standby"

// ErrNoReplicas answers Standby on a server that was started without Options.Replicated.
var ErrNoReplicas = errors.New("this PostgreSQL was started without Options.Replicated and has no standby")

// Standby starts a second private server that follows this one, by pg_basebackup and streaming
// replication. From then on a commit of this server waits until the standby has written it, so that
// nothing is lost when the standby is promoted. Stop ends it like any server.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	if s.External() || !s.opts.Replicated {
		return nil, ErrNoReplicas
	}
	b := &Server{opts: Options{Replicated: true, Log: s.opts.Log}, binaries: s.binaries, temp: true}
	if err := b.prepareRoot(ctx); err != nil {
		return nil, errors.Join(err, b.cleanUp())
	}
	b.cluster.password = s.cluster.password
	if err := b.copyFrom(ctx, s); err != nil {
		return nil, errors.Join(err, b.cleanUp())
	}
	if err := b.launch(ctx); err != nil {
		return nil, errors.Join(err, b.cleanUp())
	}
	if err := s.waitForStandby(ctx); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// copyFrom makes the standby's data of the primary's.
func (s *Server) copyFrom(ctx context.Context, primary *Server) error {
	ctx, cancel := context.WithTimeout(ctx, initLimit)
	defer cancel()
	source := fmt.Sprintf("host=%s port=%d user=%s application_name=%s", loopback, primary.opts.Port, User, standbyName)
	cmd := s.cluster.command(exec.CommandContext(ctx, filepath.Join(s.binaries.Dir, "pg_basebackup"),
		"--pgdata="+s.cluster.data(), "--dbname="+source, "--wal-method=stream", "--checkpoint=fast", "--write-recovery-conf", "--no-sync"))
	cmd.Env = append(cmd.Env, "PGPASSWORD="+s.cluster.password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup failed: %w:\n%s", err, tail(out))
	}
	return nil
}

// waitForStandby makes commits wait for the standby, once it follows.
func (s *Server) waitForStandby(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.adminDSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for streams := false; !streams; {
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')").Scan(&streams); err != nil {
			return fmt.Errorf("wait for the standby: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the standby: %w", ctx.Err())
		case <-time.After(pollEvery):
		}
	}
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + standbyName + "'", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("wait for the standby at each commit: %w", err)
		}
	}
	return nil
}

// Promote makes a standby the primary, and returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.adminDSN())
	if err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "SELECT pg_promote(true, 60)"); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	return nil
}

// Address returns the server's host and port, for a URL that names several servers.
func (s *Server) Address() string { return net.JoinHostPort(loopback, strconv.Itoa(s.opts.Port)) }

// SeveralHosts returns dsn with the address of another server behind its own.
func SeveralHosts(dsn string, other *Server) string {
	head, path, _ := strings.Cut(strings.TrimPrefix(dsn, "postgres://"), "/")
	if !strings.Contains(path, "?") {
		path += "?"
	}
	return "postgres://" + head + "," + other.Address() + "/" + path + "&target_session_attrs=read-write"
}
