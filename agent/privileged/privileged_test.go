package privileged

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// askEnv names a socket to which this program is to say something, as another
// user.
const askEnv = "SLIPWAY_TEST_ASK"

func TestMain(m *testing.M) {
	path := os.Getenv(askEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println("no connection:", err)
		os.Exit(1)
	}
	_, _ = conn.Write([]byte(`{"op":"drop","task_id":"t"}` + "\n"))
	_, _ = io.Copy(os.Stdout, conn)
}

// other is an Executor that does what the test says.
type other struct {
	mu      sync.Mutex
	asked   []string
	execute func(context.Context, protocol.SignedTask, int64, task.Control) (lifecycle.TaskResult, error)
	err     error
	pending []task.Entry
}

func (o *other) note(what string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, what)
	return o.err
}

func (o *other) heard() []string { o.mu.Lock(); defer o.mu.Unlock(); return slices.Clone(o.asked) }

func (o *other) Pending(context.Context) ([]task.Entry, error) { return o.pending, o.note("pending") }
func (o *other) Execute(ctx context.Context, s protocol.SignedTask, g int64, c task.Control) (lifecycle.TaskResult, error) {
	return o.execute(ctx, s, g, c)
}
func (o *other) Acknowledge(_ context.Context, id string) error { return o.note("acknowledge " + id) }
func (o *other) Drop(_ context.Context, id string) error        { return o.note("drop " + id) }
func (o *other) Trust(_ context.Context, k []protocol.TaskKey) error {
	return o.note("trust " + k[0].KeyID)
}
func (o *other) InService(_ context.Context, drain string) (string, error) {
	return "t9", o.note("in service " + drain)
}
func (o *other) Healthy(_ context.Context, v string) error { return o.note("healthy " + v) }

// serve runs a server over e and gives its socket and what Serve answered.
func serve(t *testing.T, e task.Executor, change func(*Server)) (path string, ended <-chan error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s") // short: a socket's path has at most 107 bytes
	l, err := Listen(path, -1)
	require.NoError(t, err)
	s := &Server{Executor: e, AllowUIDs: []int{os.Getuid()}, Version: "v1", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	over := make(chan struct{})
	go func() { defer close(over); done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-over:
		case <-time.After(runenv.Patience(10 * time.Second)):
			t.Error(runenv.Deadline + "the server did not stop")
		}
	})
	return path, done
}

func TestWhatIsAskedIsDoneOnTheOtherSide(t *testing.T) {
	t.Parallel()
	o := &other{pending: []task.Entry{{TaskID: "t1", Phase: task.Begun, Result: &lifecycle.TaskResult{Message: strings.Repeat("m", 1<<20)}}}}
	o.execute = func(ctx context.Context, s protocol.SignedTask, g int64, c task.Control) (lifecycle.TaskResult, error) {
		c.Progress("one")
		path, err := c.Fetch(ctx, task.File{URL: "https://x", Size: 7})
		if err != nil {
			return lifecycle.TaskResult{}, err
		}
		_, err = c.Fetch(ctx, task.File{URL: "https://gone"})
		return lifecycle.TaskResult{OK: true, Message: path + " " + err.Error() + " " + string(s.Payload), Steps: []lifecycle.StepResult{{Name: "one"}}}, nil
	}
	path, _ := serve(t, o, nil)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	c := &Client{Path: path}
	got, err := c.Pending(t.Context())
	require.NoError(t, err)
	require.Equal(t, o.pending, got)
	require.NoError(t, c.Acknowledge(t.Context(), "t1"))
	require.NoError(t, c.Drop(t.Context(), "t2"))
	require.NoError(t, c.Trust(t.Context(), []protocol.TaskKey{{KeyID: "k"}}))
	require.NoError(t, c.Healthy(t.Context(), "v1"))
	mark, err := c.InService(t.Context(), "t8")
	require.NoError(t, err)
	require.Equal(t, "t9", mark)
	require.Equal(t, []string{"pending", "acknowledge t1", "drop t2", "trust k", "healthy v1", "in service t8"}, o.heard())
	steps := make(chan string, 4)
	res, err := c.Execute(t.Context(), protocol.SignedTask{Payload: []byte("p")}, 3, task.Control{
		Progress: func(s string) { steps <- s },
		Fetch: func(_ context.Context, f task.File) (string, error) {
			if f.URL == "https://gone" {
				return "", errors.New("404")
			}
			return "/staged", nil
		}})
	require.NoError(t, err)
	require.Equal(t, "/staged 404 p", res.Message)
	require.Equal(t, "one", <-steps)
	for _, known := range coded() {
		if errors.Is(known, task.ErrRestart) || errors.Is(known, task.ErrUninstalled) {
			continue // they end the server, below
		}
		o.err = known
		require.ErrorIs(t, c.Drop(t.Context(), "t"), known)
	}
	o.err = errors.New("disk full")
	require.ErrorContains(t, c.Drop(t.Context(), "t"), "disk full")
}

func TestALostLeaseAndALostPeerHaltTheTask(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(halt chan struct{}, cancel func()){
		"halt": func(halt chan struct{}, _ func()) { close(halt) },
		"gone": func(_ chan struct{}, cancel func()) { cancel() },
	} {
		begun, halted := make(chan struct{}), make(chan struct{})
		o := &other{execute: func(_ context.Context, _ protocol.SignedTask, _ int64, c task.Control) (lifecycle.TaskResult, error) {
			close(begun)
			<-c.Halt
			close(halted)
			return lifecycle.TaskResult{}, task.ErrInterrupted
		}}
		path, _ := serve(t, o, nil)
		ctx, cancel := context.WithCancel(t.Context())
		halt := make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			_, err := (&Client{Path: path}).Execute(ctx, protocol.SignedTask{}, 1, task.Control{Halt: halt})
			failed <- err
		}()
		<-begun
		lose(halt, cancel)
		<-halted
		require.ErrorIs(t, <-failed, task.ErrInterrupted, name)
		cancel()
	}
}

func TestATaskMayEndTheProcess(t *testing.T) {
	t.Parallel()
	for _, end := range []error{task.ErrRestart, task.ErrUninstalled} {
		o := &other{err: end}
		path, ended := serve(t, o, nil)
		require.ErrorIs(t, (&Client{Path: path}).Acknowledge(t.Context(), "t1"), end, "the other half hears of it first")
		require.ErrorIs(t, <-ended, end)
	}
}

func TestTheOtherHalfFollowsAChangeOfVersion(t *testing.T) {
	t.Parallel()
	path, _ := serve(t, &other{}, nil)
	newer, _ := serve(t, &other{}, func(s *Server) { s.Version = "v2" })
	c := &Client{Path: path}
	require.NoError(t, c.Drop(t.Context(), "t"))
	c.Path = newer
	require.ErrorIs(t, c.Drop(t.Context(), "t"), task.ErrRestart)
}

func TestNonsenseOnTheSocket(t *testing.T) {
	t.Parallel()
	o := &other{}
	path, _ := serve(t, o, func(s *Server) { s.RequestTime = 50 * time.Millisecond })
	say := func(text string) (answer, error) {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer conn.Close()
		_, _ = conn.Write([]byte(text)) // the other end may have had enough
		var a answer
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		return a, newLine(conn, maxAnswer).read(&a)
	}
	for _, text := range []string{"", "x\n", `{"op":"drop"`, strings.Repeat("x", maxRequest+10) + "\n"} {
		_, err := say(text)
		require.Error(t, err, "%.20s", text)
	}
	for _, text := range []string{`{"op":"shell"}` + "\n", `{}` + "\n", `{"op":"execute"}` + "\n"} {
		a, err := say(text)
		require.NoError(t, err)
		require.Error(t, a.err(), text)
	}
	require.Empty(t, o.heard())
	require.NoError(t, (&Client{Path: path}).Drop(t.Context(), "t"), "it goes on")
	_, err := Listen(path, -1)
	require.ErrorContains(t, err, "listens on")
}

// The kernel's credentials of the peer decide who may connect.
func TestPeer_OtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root: it connects as another user")
	}
	t.Parallel()
	o := &other{}
	dir, err := os.MkdirTemp("", "slipway-socket-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "s")
	l, err := Listen(path, -1)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o666)) // so that only the peer's uid stands in the way
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	server := &Server{Executor: o, AllowUIDs: []int{64001}, Version: "v1", Log: slog.New(slog.DiscardHandler)}
	go func() { done <- server.Serve(ctx, l) }()
	as := func(uid uint32) string {
		cmd := exec.CommandContext(ctx, "/proc/self/exe") // this program, which asks and ends
		cmd.Env = []string{askEnv + "=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	require.Empty(t, as(64002))
	require.Empty(t, o.heard())
	require.Contains(t, as(64001), `"final":true`)
	cancel()
	require.NoError(t, <-done)
}
