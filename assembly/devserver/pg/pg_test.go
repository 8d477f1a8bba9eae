package pg

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// childVar makes this test binary start a server and then wait to be killed; see
// TestADeadParentLeavesNothingBehind.
const childVar = "SLIPWAY_PG_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		srv, err := Start(context.Background(), Options{})
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		fmt.Println("started", srv.proc.cmd.Process.Pid, srv.Dir())
		select {}
	}
	os.Exit(m.Run())
}

func exec1(t *testing.T, srv *Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), srv.DSN("postgres"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func count(t *testing.T, srv *Server) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), srv.DSN("postgres"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n))
	return n
}

func TestATemporaryServerKeepsCommitsOverACrashAndIsGoneAfterStop(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	srv, err := Start(t.Context(), Options{Log: &log})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	require.False(t, srv.External())
	require.Contains(t, log.String(), "serves on 127.0.0.1:")
	exec1(t, srv, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1), (2)")

	open, err := pgx.Connect(t.Context(), srv.DSN("postgres"))
	require.NoError(t, err)
	dsn := srv.DSN("postgres")
	require.NoError(t, srv.Pause(t.Context()))
	require.NoError(t, srv.Pause(t.Context()), "pausing twice is no error")
	require.Error(t, open.Ping(t.Context()), "open connections break")
	require.Error(t, ping(t.Context(), dsn), "nobody answers while paused")

	require.NoError(t, srv.Resume(t.Context()))
	require.NoError(t, srv.Resume(t.Context()), "resuming a running server does nothing")
	require.Equal(t, dsn, srv.DSN("postgres"), "same port, same password")
	require.Equal(t, 2, count(t, srv))

	require.NoError(t, srv.Stop())
	require.NoDirExists(t, srv.Dir())
	require.Error(t, ping(t.Context(), dsn))
}

func TestAFolderKeepsItsDataAndPassword(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pg")
	first, err := Start(t.Context(), Options{Dir: dir, Durable: true})
	require.NoError(t, err)
	exec1(t, first, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	_, err = Start(t.Context(), Options{Dir: dir, Durable: true})
	require.ErrorContains(t, err, "postmaster.pid", "a second server on the same folder is refused, with the server's own words")
	require.NoError(t, first.Stop())

	again, err := Start(t.Context(), Options{Dir: dir, Port: first.opts.Port, Durable: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, again.Stop()) }()
	require.Equal(t, first.DSN("x"), again.DSN("x"))
	require.Equal(t, 1, count(t, again))
}

func TestADeadParentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	words := strings.Fields(line)
	require.Len(t, words, 3, line)
	require.Equal(t, "started", words[0], line)
	pid, err := strconv.Atoi(words[1])
	require.NoError(t, err)
	require.DirExists(t, words[2])

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "killed")
	require.Eventually(t, func() bool {
		_, statErr := os.Stat(words[2])
		return os.IsNotExist(statErr) && syscall.Kill(pid, 0) != nil
	}, 20*time.Second, 50*time.Millisecond, "the guard ends the server and removes its folder")
}

func TestCreateDatabaseMayBeRepeatedAndRaced(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	const callers = 4
	errs := make(chan error, callers)
	for range callers {
		go func() { errs <- srv.CreateDatabase(t.Context(), `odd "name"`) }()
	}
	for range callers {
		require.NoError(t, <-errs)
	}
	require.NoError(t, ping(t.Context(), srv.DSN(`odd "name"`)))
}

func TestAPortInUseIsSaid(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	_, err = Start(t.Context(), Options{Port: srv.opts.Port})
	require.ErrorContains(t, err, "could not bind")
	require.ErrorContains(t, err, strconv.Itoa(srv.opts.Port))
}

func TestAnExternalServerIsUsedAndNeverStopped(t *testing.T) {
	own, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, own.Stop()) }()
	const env = "SLIPWAY_PG_TEST_URL"
	for _, dsn := range []string{
		own.DSN("postgres"),
		fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s dbname=postgres", own.opts.Port, User, own.cluster.password),
	} {
		t.Setenv(env, dsn)
		srv, err := Acquire(t.Context(), env, Options{})
		require.NoError(t, err)
		require.True(t, srv.External())
		require.NoError(t, srv.CreateDatabase(t.Context(), "it's"))
		require.NoError(t, ping(t.Context(), srv.DSN("it's")))
		require.ErrorIs(t, srv.Pause(t.Context()), ErrExternal)
		require.ErrorIs(t, srv.Resume(t.Context()), ErrExternal)
		require.NoError(t, srv.Stop())
		require.NoError(t, ping(t.Context(), own.DSN("postgres")))
	}

	t.Setenv(env, "postgres://me:hunter2@127.0.0.1:1/x?connect_timeout=1")
	_, err = Acquire(t.Context(), env, Options{})
	require.ErrorContains(t, err, env)
	require.NotContains(t, err.Error(), "hunter2")
	t.Setenv(env, "postgres://me:hunter2@[broken")
	_, err = Acquire(t.Context(), env, Options{})
	require.ErrorContains(t, err, "want postgres://")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestDataOfAnotherVersionIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	c := cluster{root: t.TempDir()}
	require.NoError(t, os.Mkdir(c.data(), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(c.data(), "PG_VERSION"), []byte("12\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(c.root, "complete"), nil, 0o600))
	err := c.ensure(t.Context(), Binaries{Major: 15, Version: "PostgreSQL 15"}, false, func(string, ...any) {})
	require.ErrorContains(t, err, "made by PostgreSQL 12")
	require.ErrorContains(t, err, "PGBIN")
}
