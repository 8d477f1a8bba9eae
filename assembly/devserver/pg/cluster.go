package pg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cluster is the folder of a private server:
//
//	root/data          what initdb made
//	root/password      of User, readable by its owner only
//	root/postgres.log  the server's log
type cluster struct {
	root     string
	who      identity
	password string
}

const (
	initLimit  = 2 * time.Minute
	tailOfLog  = 4 << 10 // bytes of the server's log that an error quotes
	maxPWBytes = 1 << 10
)

func (c *cluster) data() string         { return filepath.Join(c.root, "data") }
func (c *cluster) passwordFile() string { return filepath.Join(c.root, "password") }
func (c *cluster) logFile() string      { return filepath.Join(c.root, "postgres.log") }

// ensure makes the cluster unless it is there. An initdb that was killed half-way is started over:
// PG_VERSION alone does not count, the marker file does.
func (c *cluster) ensure(ctx context.Context, bin Binaries, durable bool, say func(string, ...any)) error {
	if err := os.MkdirAll(c.root, 0o700); err != nil {
		return fmt.Errorf("make the PostgreSQL folder: %w", err)
	}
	if err := c.who.own(c.root); err != nil {
		return err
	}
	complete := filepath.Join(c.root, "complete")
	switch _, err := os.Stat(complete); {
	case err == nil:
		return c.reopen(bin)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look at the PostgreSQL folder: %w", err)
	}
	if err := os.RemoveAll(c.data()); err != nil {
		return fmt.Errorf("clear the half-made PostgreSQL cluster: %w", err)
	}
	say("making a PostgreSQL cluster with %s in %s", bin.Version, c.root)
	c.password = rand.Text()
	if err := c.write(c.passwordFile(), c.password); err != nil {
		return err
	}
	if err := c.initdb(ctx, bin, durable); err != nil {
		return err
	}
	return c.write(complete, bin.Version+"\n")
}

func (c *cluster) reopen(bin Binaries) error {
	version, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	if err != nil {
		return fmt.Errorf("the PostgreSQL data in %s is damaged; delete that folder to start over: %w", c.root, err)
	}
	if made := strings.TrimSpace(string(version)); made != strconv.Itoa(bin.Major) {
		return fmt.Errorf("the data in %s was made by PostgreSQL %s and this is %s: set PGBIN to that version's bin folder, or delete the data to start over",
			c.root, made, bin.Version)
	}
	password, err := os.ReadFile(c.passwordFile())
	if err != nil {
		return fmt.Errorf("read the password of the private PostgreSQL: %w", err)
	}
	if len(password) == 0 || len(password) > maxPWBytes {
		return fmt.Errorf("the password file in %s is damaged; delete that folder to start over", c.root)
	}
	c.password = string(password)
	return nil
}

func (c *cluster) initdb(ctx context.Context, bin Binaries, durable bool) error {
	ctx, cancel := context.WithTimeout(ctx, initLimit)
	defer cancel()
	args := []string{
		"--pgdata=" + c.data(), "--username=" + User, "--pwfile=" + c.passwordFile(), "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", // sorts the same on every machine
	}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := c.command(exec.CommandContext(ctx, filepath.Join(bin.Dir, "initdb"), args...))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb failed: %w:\n%s", err, tail(out))
	}
	return nil
}

// command lets cmd run as the chosen user, from a folder which that user can enter, in a language
// we can match in errors.
func (c *cluster) command(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = c.root
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "HOME=" + c.root, "PATH=/usr/local/bin:/usr/bin:/bin"}
	c.who.apply(cmd)
	return cmd
}

// start runs the server on the cluster, its log appended to the log file.
func (c *cluster) start(ctx context.Context, bin Binaries, opts Options, temp bool) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the PostgreSQL log: %w", err)
	}
	defer func() { _ = log.Close() }() // the server keeps its own handle
	args := []string{"-D", c.data()}
	for _, setting := range settings(opts) {
		args = append(args, "-c", setting)
	}
	cmd := c.command(exec.Command(filepath.Join(bin.Dir, "postgres"), args...)) //nolint:forbidigo // outlives this call; process.stop or the guard ends it
	// A backend keeps the memory of a statement for the next one. By its defaults, glibc gives it
	// back to the kernel after each statement: 5 % of the processor time of PostgreSQL in the
	// tests.
	cmd.Env = append(cmd.Environ(), "MALLOC_TOP_PAD_=4194304", "MALLOC_TRIM_THRESHOLD_=8388608")
	cmd.Stdout, cmd.Stderr = log, log
	doomed := ""
	if temp {
		doomed = c.root
	}
	return startProcess(cmd, doomed)
}

func settings(opts Options) []string {
	common := []string{
		"listen_addresses=" + loopback,
		"port=" + strconv.Itoa(opts.Port),
		"unix_socket_directories=", // none: its path would have to be short, and reachable for two users
		"max_connections=300",
		"timezone=UTC",
		"log_timezone=UTC",
		"jit=off", // our statements are short
		"logging_collector=off",
	}
	if opts.Durable {
		return append(common, "shared_buffers=256MB", "fsync=on", "synchronous_commit=on")
	}
	// synchronous_commit stays on: with it off a killed server loses its last commits, and tests
	// kill it on purpose. Without fsync it costs nothing. A worker of autovacuum starts for each
	// database in each period; databases of tests are emptied often, and are small.
	common = append(common, "shared_buffers=128MB", "fsync=off", "synchronous_commit=on", "max_wal_size=2GB", "autovacuum_naptime=10min")
	if opts.Replicated {
		return append(common, "wal_level=replica", "hot_standby=on")
	}
	return append(common, "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")
}

func (c *cluster) write(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return c.who.own(path)
}

func (c *cluster) logTail() string {
	content, err := os.ReadFile(c.logFile())
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	return tail(content)
}

func tail(text []byte) string {
	if len(text) > tailOfLog {
		text = text[len(text)-tailOfLog:]
	}
	return strings.TrimSpace(string(text))
}
