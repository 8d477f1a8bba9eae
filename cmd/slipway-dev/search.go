package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/test/secretscan"
	"github.com/slipway-cloud/slipway/test/stack"
)

// secretSearch searches all that a demo leaves behind for the secrets of its run: every workflow
// history, every column of the database, the logs, and what the demo printed. It is nil without
// --search-secrets, and most of its methods then do nothing.
type secretSearch struct {
	stack   *stack.Stack
	conn    *pgx.Conn
	log     *os.File // Slipway's own log
	printed *os.File // what the demo printed
	keys    []secretscan.Secret
	agents  int // how many logs of agents were searched
}

func newSecretSearch() (*secretSearch, error) {
	dir, err := os.MkdirTemp("", "slipway-secret-search-")
	if err != nil {
		return nil, err
	}
	c := &secretSearch{}
	c.log, err = os.Create(filepath.Join(dir, "log"))
	if err == nil {
		c.printed, err = os.Create(filepath.Join(dir, "printed"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

// close removes the files and ends the connection.
func (c *secretSearch) close() {
	if c == nil {
		return
	}
	_, _ = c.log.Close(), c.printed.Close()
	_ = os.RemoveAll(filepath.Dir(c.log.Name()))
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
	}
}

// begin makes the database keep a copy of every sealed secret and of every hash of a token: Slipway
// deletes most of them before the demo ends.
func (c *secretSearch) begin(ctx context.Context, s *stack.Stack) (err error) {
	if c == nil {
		return nil
	}
	c.stack = s
	if c.conn, err = pgx.Connect(ctx, s.Postgres.DSN(s.Database)); err != nil {
		return err
	}
	if _, err = c.conn.Exec(ctx, keepCopies); err != nil {
		return fmt.Errorf("keep copies of sealed secrets: %w", err)
	}
	return nil
}

// betweenActs replaces the password of a BMC and notes the private keys of the nodes, which are
// still in service.
func (c *secretSearch) betweenActs(ctx context.Context, o *operator, out io.Writer, host string) error {
	if c == nil {
		return nil
	}
	fmt.Fprintln(out, "\nFor the search for secrets, the password of a BMC is replaced:")
	if err := o.show(ctx, out, "bmc", "rotate", host, "--reason", "the demo", "--watch"); err != nil {
		return err
	}
	return c.notePrivateKeys()
}

// maxKeyFile bounds the files that are read for private keys.
const maxKeyFile = 64 << 10

// notePrivateKeys reads every private key in the stack's folder: of the agents, of the nodes' SSH
// servers and of the certificate authority.
func (c *secretSearch) notePrivateKeys() error {
	return c.eachFile(func(path string, size int64) error {
		if size > maxKeyFile {
			return nil
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // of a node that was just started again
		}
		if err == nil && strings.Contains(string(raw), secretscan.PrivateKeyMark) {
			c.keys = append(c.keys, secretscan.Secret{Kind: kindNodeKey, Value: string(raw)})
		}
		return err
	})
}

// eachFile calls do for each regular file in the stack's folder.
func (c *secretSearch) eachFile(do func(path string, size int64) error) error {
	return filepath.WalkDir(c.stack.Dir, func(path string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil && entry.Type().IsRegular() {
			info, err = entry.Info()
		}
		if err != nil || info == nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		return do(path, info.Size())
	})
}

// searchLimit bounds the search, with the wait until Temporal lists all workflows.
const searchLimit = 3 * time.Minute

// run searches. It returns an error when a secret is found, when a canary is not found, or when a
// kind of secret that a demo always makes is missing.
func (c *secretSearch) run(ctx context.Context, o *operator, out io.Writer) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, searchLimit)
	defer cancel()
	fmt.Fprintln(out, "\nSearching histories, database, logs and this output for the secrets of the run ...")
	began := time.Now()
	if err := c.notePrivateKeys(); err != nil {
		return err
	}
	secrets, hashes, err := c.planted(ctx, o)
	if err != nil {
		return fmt.Errorf("collect the secrets of the run: %w", err)
	}
	canaries, remove, err := c.plantCanaries(ctx, o)
	if err != nil {
		return fmt.Errorf("plant the canaries: %w", err)
	}
	defer remove()
	jobs, err := c.listed(ctx)
	if err != nil {
		return err
	}
	s := secretscan.New(append(secrets, canaries.secrets()...), append(hashes, canaries.hashes()...))
	s.Payloads = c.stack.App.Payloads
	if err := allLong(s.LeftOut); err != nil {
		return err
	}
	if err := c.search(ctx, s); err != nil {
		return err
	}
	n := s.Counts
	fmt.Fprintf(out, "secret search: %d histories, %d events, %d payloads; %d rows, %d columns; %d log lines, %d log bytes, %d logs of agents; %d secrets, %d forms; in %s\n",
		n.Histories, n.Events, n.Payloads, n.Rows, n.Columns, n.LogLines, n.LogBytes, c.agents, n.Secrets, n.Forms, time.Since(began).Round(10*time.Millisecond))
	if missing := s.Searched.Missing(jobs); len(missing) > 0 {
		return fmt.Errorf("%d jobs have a history that was not searched: %v", len(missing), missing)
	}
	if err := c.allAgents(ctx); err != nil {
		return err
	}
	leaks, err := canaries.check(s.Findings())
	if err != nil {
		return err
	}
	for _, f := range leaks {
		fmt.Fprintln(out, "  SECRET FOUND  ", f)
	}
	if len(leaks) > 0 {
		return fmt.Errorf("the search found secrets in %d places; they are listed above", len(leaks))
	}
	fmt.Fprintln(out, "No secret was found, and each canary was.")
	return nil
}

func (c *secretSearch) search(ctx context.Context, s *secretscan.Searcher) error {
	temporal := c.stack.Config.Temporal
	if err := s.Histories(ctx, c.stack.App.Temporal, temporal.Namespace); err != nil {
		return err
	}
	if err := s.Histories(ctx, c.stack.App.Maintenance, temporal.PassNamespace()); err != nil {
		return err
	}
	if err := s.Database(ctx, c.conn); err != nil {
		return err
	}
	if err := searchFile(s, slipwayLog, c.log.Name()); err != nil {
		return err
	}
	if err := searchFile(s, printedCopy, c.printed.Name()); err != nil {
		return err
	}
	return c.eachFile(func(path string, size int64) error {
		if filepath.Ext(path) != ".log" { // of an agent, or of the script that installs it
			return nil
		}
		name, err := filepath.Rel(c.stack.Dir, path)
		if err != nil {
			return err
		}
		if size > 0 && filepath.Base(path) == agentLog {
			c.agents++
		}
		return searchFile(s, "log "+name, path)
	})
}

func searchFile(s *secretscan.Searcher, place, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	return s.Log(place, f)
}

// agentLog is the name of the log of an agent.
const agentLog = "agent.log"

// allAgents compares the logs of agents that were searched with the nodes whose agent has enrolled.
func (c *secretSearch) allAgents(ctx context.Context) error {
	var nodes int
	if err := c.conn.QueryRow(ctx, "SELECT count(DISTINCT node_id) FROM agent_certificates").Scan(&nodes); err != nil {
		return err
	}
	if nodes == 0 || c.agents < nodes {
		return fmt.Errorf("%d logs of agents were searched, and %d nodes have had an agent", c.agents, nodes)
	}
	return nil
}

// mayBeLeftOut are the secrets that are too short to be searched for and are public anyway.
func mayBeLeftOut() []secretscan.Secret {
	return []secretscan.Secret{{Kind: kindMAAS, Value: "sim"}} // the consumer's name in the simulator's key
}

// allLong returns an error when a secret is not searched for that should be.
func allLong(leftOut []secretscan.Secret) error {
	for _, s := range leftOut {
		if !slices.Contains(mayBeLeftOut(), s) {
			return fmt.Errorf("a secret is too short to be searched for: %s, of %d bytes", s.Kind, len(s.Value))
		}
	}
	return nil
}

// listed waits until Temporal lists the canary's workflow and the run of each job, and returns
// these.
func (c *secretSearch) listed(ctx context.Context) ([]secretscan.Run, error) {
	jobs, err := c.jobs(ctx)
	if err != nil {
		return nil, err
	}
	want := append(slices.Clone(jobs), secretscan.Run{Workflow: canaryWorkflow})
	for {
		runs, err := secretscan.List(ctx, c.stack.App.Temporal, c.stack.Config.Temporal.Namespace)
		missing := runs.Missing(want)
		if err == nil && len(missing) == 0 {
			return jobs, nil
		}
		if poll.Sleep(ctx, 200*time.Millisecond) != nil {
			return nil, errors.Join(fmt.Errorf("temporal does not list %d workflows: %v", len(missing), missing), err, ctx.Err())
		}
	}
}

// jobs returns the run of each job. Its id is empty when the job has not noted one.
func (c *secretSearch) jobs(ctx context.Context) ([]secretscan.Run, error) {
	rows, err := c.conn.Query(ctx, "SELECT workflow_id, run_id FROM jobs")
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[secretscan.Run])
	if err == nil && len(jobs) == 0 {
		err = errors.New("the run has no jobs")
	}
	return jobs, err
}
