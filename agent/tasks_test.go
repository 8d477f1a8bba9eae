package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The agent as a process of its own is this program, told by its environment.
const agentEnv = "SLIPWAY_TEST_AGENT"

func TestMain(m *testing.M) {
	path := os.Getenv(agentEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	cfg, err := agentconfig.Load(path, nil)
	if err == nil {
		var a *agent.Agent
		if a, err = agent.New(cfg, "test", slog.New(slog.NewTextHandler(os.Stderr, nil)), deadly(cfg.Root)); err == nil {
			err = a.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, "the agent ended:", err)
	os.Exit(1)
}

// deadly are handlers whose process kills itself where the file kill-at says.
// Their effects are lines of the file effects.
func deadly(root string) task.Registry {
	die := func(point string) {
		at := filepath.Join(root, "kill-at")
		if raw, err := os.ReadFile(at); err == nil && string(raw) == point {
			_ = os.Remove(at)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal is here
		}
	}
	effect := func(line string, check bool) error {
		path := filepath.Join(root, "effects")
		if raw, err := os.ReadFile(path); check && err == nil && strings.Contains(string(raw), line+"\n") {
			return nil
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line + "\n")
		return errors.Join(err, f.Close())
	}
	steps := func(check bool) task.Func {
		return func(ctx context.Context, r task.Request, rec *task.Recorder) lifecycle.TaskResult {
			var err error
			for _, name := range []string{"one", "two", "three"} {
				if err = rec.Do(ctx, name, func(context.Context) (string, error) {
					die("before " + name)
					err := effect(fmt.Sprintf("%s %d %s", r.Task.ID, map[bool]int{true: 0, false: r.Task.Attempt}[check], name), check)
					die("after " + name)
					return "", err
				}); err != nil {
					break
				}
			}
			return rec.End(err)
		}
	}
	return task.Registry{lifecycle.TaskKindDrain: steps(true), lifecycle.TaskKindScrub: steps(false)}
}

// process keeps an agent running as a process of its own, as systemd does.
func (n *node) process() {
	n.s.Helper()
	raw, err := yaml.Marshal(n.cfg)
	require.NoError(n.s, err)
	path := filepath.Join(n.cfg.Root, "agent.yaml")
	require.NoError(n.s, os.WriteFile(path, raw, 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = []string{agentEnv + "=" + path}
			var said bytes.Buffer
			cmd.Stderr = &said
			_ = cmd.Run() // it is killed, by itself or in the end
			if strings.Contains(said.String(), "the agent ended") {
				n.s.Error(said.String())
				return
			}
		}
	}()
	n.s.Cleanup(func() { cancel(); <-over })
}

func (n *node) file(name string) string {
	raw, _ := os.ReadFile(filepath.Join(n.cfg.Root, name)) // missing is empty
	return string(raw)
}

func (n *node) taskWait() *node {
	n.cfg.TaskWait = 300 * time.Millisecond
	return n
}

func TestATaskIsDoneOnceHoweverOftenTheAgentIsKilled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	d.lease = time.Second
	n := s.node("n1").taskWait()
	n.process()
	count := 0
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
		for _, point := range []string{"before one", "after one", "before two", "after three"} {
			count++
			id := fmt.Sprintf("task-%d", count)
			require.NoError(t, os.WriteFile(filepath.Join(n.cfg.Root, "kill-at"), []byte(point), 0o600))
			d.put("n1", id, kind, map[lifecycle.TaskKind]string{lifecycle.TaskKindDrain: `{"grace_seconds":0}`, lifecycle.TaskKindScrub: `{"run_id":"r"}`}[kind])
			if kind == lifecycle.TaskKindScrub { // the server sends it again only when an operator decides so
				require.Eventually(t, func() bool { return d.last(id).Code == lifecycle.TaskCodeUncertain }, runenv.Patience(20*time.Second), 5*time.Millisecond)
				require.Equal(t, lifecycle.TaskUncertain, d.status(id))
				d.with(id, func(t *fakeTask) { t.status = lifecycle.TaskQueued })
			}
			d.becomes(id, lifecycle.TaskSucceeded)
			require.Empty(t, n.file("kill-at"), "it was killed")
			d.with(id, func(dt *fakeTask) {
				for _, results := range dt.results {
					for _, r := range results {
						require.Equal(t, results[0], r, "one story about one delivery")
					}
				}
			})
		}
	}
	lines := strings.Split(strings.TrimSpace(n.file("effects")), "\n")
	seen := map[string]bool{}
	for _, l := range lines {
		require.False(t, seen[l], "%q was done twice", l)
		seen[l] = true
	}
	for i := 1; i <= 4; i++ {
		require.True(t, seen[fmt.Sprintf("task-%d 0 three", i)])
	}
}

func TestAResultOutlivesTheAgentThatHasIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	n := s.node("n1").taskWait()
	lost := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	deaf := true
	d.onResult = func(protocol.ResultRequest) bool {
		mu.Lock()
		defer mu.Unlock()
		once.Do(func() { close(lost) })
		return deaf
	}
	stop := n.run()
	d.put("n1", "t1", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	<-lost
	stop()
	marker := n.file("var/lib/slipway-agent/drained.json")
	require.Contains(t, marker, "t1")
	mu.Lock()
	deaf = false
	mu.Unlock()
	n.run()
	d.becomes("t1", lifecycle.TaskSucceeded)
	require.Equal(t, marker, n.file("var/lib/slipway-agent/drained.json"), "it was not done again")
	require.True(t, d.last("t1").Simulated)
	require.Equal(t, "refuse_new", d.last("t1").Steps[0].Name)
}

// gate is a handler whose second step waits to be let on.
type gate struct {
	begun, open chan struct{}
	ended       chan struct{} // closed when a run of it has
	once, over  sync.Once
	mu          sync.Mutex
	ran         []string
}

func newGate() *gate {
	return &gate{begun: make(chan struct{}), open: make(chan struct{}), ended: make(chan struct{})}
}

func (g *gate) Run(ctx context.Context, _ task.Request, steps *task.Recorder) lifecycle.TaskResult {
	defer g.over.Do(func() { close(g.ended) })
	err := steps.Do(ctx, "one", func(ctx context.Context) (string, error) {
		g.once.Do(func() { close(g.begun) })
		select {
		case <-g.open:
			return "", nil
		case <-steps.Halt():
			return "", task.ErrHalted
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	if err == nil {
		err = steps.Do(ctx, "two", func(context.Context) (string, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.ran = append(g.ran, "two")
			return "", nil
		})
	}
	return steps.End(err)
}

func (n *node) with(h task.Handler, kind lifecycle.TaskKind) (stop func()) {
	n.s.Helper()
	a, err := agent.New(n.cfg, "test", slog.New(slog.NewTextHandler(testWriter{n.s.T}, nil)), task.Registry{kind: h})
	require.NoError(n.s, err)
	return n.start(a)
}

func TestANetworkCutForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
		s := serve(t)
		d := newFakeTasks(t, s)
		d.lease = 300 * time.Millisecond
		n := s.node("n1").taskWait()
		g := newGate()
		stop := n.with(g, kind)
		d.put("n1", "t1", kind, map[lifecycle.TaskKind]string{lifecycle.TaskKindDrain: `{"grace_seconds":0}`, lifecycle.TaskKindScrub: `{"run_id":"r"}`}[kind])
		<-g.begun
		d.cut(true)
		until := time.Now().Add(2 * d.lease)
		require.Eventually(t, func() bool { return time.Now().After(until) }, runenv.Patience(10*time.Second), 10*time.Millisecond)
		close(g.open)
		before, _ := s.store.Identity(t.Context(), "n1")
		d.cut(false)
		d.becomes("t1", lifecycle.TaskSucceeded)
		after, _ := s.store.Identity(t.Context(), "n1")
		require.Equal(t, before.Status, after.Status, "a lease that ends changes no node")
		stop()
		require.Equal(t, []string{"two"}, g.ran, "%s", kind)
	}
}

func TestAServerThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	n := s.node("n1").taskWait()
	g := newGate()
	n.with(g, lifecycle.TaskKindDrain)
	d.put("n1", "t1", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	<-g.begun
	d.cut(true) // shorter than the lease
	d.cut(false)
	close(g.open)
	d.becomes("t1", lifecycle.TaskSucceeded)
	d.with("t1", func(dt *fakeTask) { require.Equal(t, 1, dt.Attempt) })
}

func TestTheOlderOfTwoAgentsWithOneIdentityIsShutOut(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	d.lease = 300 * time.Millisecond
	older := s.node("n1").taskWait()
	held := newGate()
	older.with(held, lifecycle.TaskKindDrain)
	older.waitForHeartbeats(1)
	d.put("n1", "t1", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	<-held.begun
	// The node was installed again, and an old disk still runs somewhere.
	newer := s.node("n1").taskWait()
	next := newGate()
	close(next.open)
	newer.with(next, lifecycle.TaskKindDrain)
	d.becomes("t1", lifecycle.TaskSucceeded)
	d.with("t1", func(dt *fakeTask) { require.EqualValues(t, 2, dt.Generation) })
	require.Equal(t, []string{"two"}, next.ran)
	held.mu.Lock()
	defer held.mu.Unlock()
	require.Empty(t, held.ran, "the older one begins no further step")
}

// The whole agent in two halves over the socket, with the signature checked on
// both sides.
func TestTheTwoHalves(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	n := s.node("n1").taskWait()
	n.cfg.HelperSocket = "/s"
	l, err := privileged.Listen(filepath.Join(n.cfg.Root, "s"), -1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	ended := make(chan error, 1)
	go func() { ended <- agent.Helper(ctx, n.cfg, "test", log, l, []int{os.Getuid()}) }()
	stop := n.run()
	d.put("n1", "t1", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	d.becomes("t1", lifecycle.TaskSucceeded)
	require.Contains(t, n.file("etc/slipway/task-keys.json"), "key-1", "the first keys are kept")
	require.NotEmpty(t, n.file("var/lib/slipway-agent-helper/tasks/journal"))

	// The network half is taken over and offers a key of its own.
	c := &privileged.Client{Path: filepath.Join(n.cfg.Root, "s")}
	require.ErrorContains(t, c.Trust(t.Context(), []protocol.TaskKey{{KeyID: "evil", Public: make([]byte, 32)}}), "not believed")
	res, err := c.Execute(t.Context(), protocol.SignedTask{Payload: []byte(`{"id":"x","lease_id":"y","kind":"node.uninstall"}`), KeyID: "evil"}, 1, task.Control{})
	require.NoError(t, err)
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code)
	stop()
	cancel()
	require.NoError(t, <-ended)
}

func TestAnUninstalledAgentEndsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	n := s.node("n1").taskWait()
	d.put("n1", "t1", lifecycle.TaskKindUninstall, `{"keep_reports":true}`)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	require.ErrorIs(t, n.agent().Run(ctx), task.ErrUninstalled)
	require.Equal(t, lifecycle.TaskSucceeded, d.status("t1"), "the result came first")
	require.NoDirExists(t, filepath.Join(n.cfg.Root, n.cfg.StateDir))
	require.NoDirExists(t, filepath.Join(n.cfg.Root, "etc/slipway"))
	require.NotEmpty(t, n.file("var/log/slipway-agent/journal"))
}

func TestARealNodeWithoutAPrivilegedHalfSaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	n := s.node("n1").taskWait()
	root := n.cfg.Root
	n.cfg.Root, n.cfg.Simulated = "/", false
	n.cfg.StateDir, n.cfg.TokenFile = filepath.Join(root, "state"), filepath.Join(root, "etc/slipway/token")
	n.run()
	d.put("n1", "t1", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	d.becomes("t1", lifecycle.TaskFailed)
	require.Equal(t, lifecycle.TaskCodeUnsupported, d.last("t1").Code)
	require.Contains(t, d.last("t1").Message, "slipway-agent-helper")
	raw, err := json.Marshal(d.last("t1"))
	require.NoError(t, err)
	require.NotContains(t, string(raw), root)
}
