package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/internal/config"
)

// workers are real worker processes, started again whenever one dies.
type workers struct {
	t   *environment
	bin string
	env []string
	url string
	log io.Writer // gets what the workers say

	end    context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	live   map[string]*hand
	fail   error
	deaths int
}

// hand is one worker process; done is closed when it has ended.
type hand struct {
	cmd    *exec.Cmd
	done   chan struct{}
	killed bool
	cut    bool // its connections to the database were terminated
}

// failed reports whether a process that ended should not have. A process that loses its connections
// before it has begun may end: its supervisor starts it again.
func (h *hand) failed(begun bool) bool { return !h.killed && (begun || !h.cut) }

// startWorkers starts the worker processes of an environment. They are this
// program, which calls RunWorker when its first argument is "worker".
func startWorkers(ctx context.Context, t *environment, o environmentOptions) (*workers, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &workers{t: t, log: o.log, bin: program, live: map[string]*hand{}}
	url, stop, err := t.plans.Serve(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	t.closes = append(t.closes, stop)
	w.url, w.env = url, append(os.Environ(), workerEnv(t.stack.Config)...)
	ctx, w.end = context.WithCancel(context.WithoutCancel(ctx))
	for range o.processes {
		w.wg.Add(1)
		go w.keepOne(ctx)
	}
	return w, nil
}

// workerEnv is a stack's configuration for a process of its own.
func workerEnv(c config.Config) []string {
	return append(instanceEnv(c.Instance),
		"SLIPWAY_DATABASE_URL="+c.Database.URL, "SLIPWAY_TEMPORAL_ADDRESS="+c.Temporal.Address,
		"SLIPWAY_TEMPORAL_NAMESPACE="+c.Temporal.Namespace, "SLIPWAY_TEMPORAL_MAINTENANCE_NAMESPACE="+c.Temporal.PassNamespace(),
		"SLIPWAY_TEMPORAL_TASK_QUEUE="+c.Temporal.TaskQueue,
		"SLIPWAY_AGENT_CA_DIR="+c.Agent.CADir, "SLIPWAY_AGENT_PUBLIC_URL="+c.Agent.PublicURL,
		"SLIPWAY_AGENT_LISTEN="+c.Agent.Listen, "SLIPWAY_SECRETS_KEY_FILE="+c.Secrets.KeyFile, "SLIPWAY_METRICS_LISTEN=",
		"SLIPWAY_RELEASE_REVOKE_DEADLINE="+c.Release.RevokeDeadline.String(),
		"SLIPWAY_AGENT_OFFLINE_AFTER="+c.Agent.OfflineAfter.String(), "SLIPWAY_WORKER_DEADLOCK_TIMEOUT="+c.Worker.DeadlockTimeout.String(),
	)
}

// keepOne runs a worker, and another when it has died, until ctx ends. A worker that ends by itself
// fails the run.
func (w *workers) keepOne(ctx context.Context) {
	defer w.wg.Done()
	for ctx.Err() == nil {
		var said tail
		h, in, err := w.start(ctx, &said)
		if err != nil {
			w.failed(fmt.Errorf("start a worker: %w", err))
			return
		}
		name := strconv.Itoa(h.cmd.Process.Pid)
		w.mu.Lock()
		w.live[name] = h
		w.mu.Unlock()
		err = h.cmd.Wait()
		_ = in.Close()
		w.mu.Lock()
		delete(w.live, name)
		failed := h.failed(w.t.plans.HasBegun(name))
		w.deaths++
		w.mu.Unlock()
		close(h.done)
		w.t.plans.Died(name)
		if failed && ctx.Err() == nil {
			w.failed(fmt.Errorf("a worker ended by itself: %w\n%s", err, said.String()))
		}
	}
}

// start starts one process. The end of its standard input tells it that the
// harness is gone.
func (w *workers) start(ctx context.Context, said io.Writer) (*hand, io.Closer, error) {
	cmd := exec.CommandContext(ctx, w.bin, WorkerArgument, "--injector", w.url)
	cmd.Env, cmd.Stderr = w.env, io.MultiWriter(said, w.log)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return &hand{cmd: cmd, done: make(chan struct{})}, in, nil
}

func (w *workers) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail == nil {
		w.fail = err
	}
}

// failure is what went wrong with the processes themselves.
func (w *workers) failure() error { w.mu.Lock(); defer w.mu.Unlock(); return w.fail }

// killed counts the workers that have died so far.
func (w *workers) killed() int { w.mu.Lock(); defer w.mu.Unlock(); return w.deaths }

const (
	// gather is how long a killed worker is left for other jobs to reach their
	// own end in it: one death serves several.
	gather = 400 * time.Millisecond
	dying  = 20 * time.Second
)

// kill ends a worker with SIGKILL and returns when it is dead.
func (w *workers) kill(ctx context.Context, name string) error {
	w.mu.Lock()
	h := w.live[name]
	if h == nil {
		w.mu.Unlock()
		return fmt.Errorf("no worker %s", name)
	}
	first := !h.killed
	h.killed = true
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dying)
	defer cancel()
	if first {
		pause(ctx, gather)
		if err := h.cmd.Process.Kill(); err != nil {
			return err
		}
	}
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("worker %s does not die", name)
	}
}

// cut notes that the connections of all processes were terminated.
func (w *workers) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.live {
		h.cut = true
	}
}

func (w *workers) stop() {
	w.end()
	w.wg.Wait()
}

const maxWorkerOutput = 16 << 10

// tail keeps the end of what a worker says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - maxWorkerOutput; over > 0 {
		t.b = append([]byte(nil), t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { t.mu.Lock(); defer t.mu.Unlock(); return string(t.b) }

// WorkerArgument is the first argument of a program that has to call RunWorker with
// the others.
const WorkerArgument = "worker"

// RunWorker is the worker process: Slipway's own worker, with the interceptor that
// asks the injector of the harness. It ends with ctx, or with its standard input.
func RunWorker(ctx context.Context, args []string) error {
	fs := pflag.NewFlagSet(WorkerArgument, pflag.ContinueOnError)
	url := fs.String("injector", "", "URL of the injector that says which faults to inject")
	src := config.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartTemporal, config.PartAgent, config.PartSecrets, config.PartWorker)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	app, err := server.Open(ctx, cfg, os.Stderr)
	if err != nil {
		return err
	}
	defer app.Close()
	app.TuneInstances = tuneInstances
	return app.RunWorker(ctx, &Interceptor{Injector: Dial(*url, strconv.Itoa(os.Getpid()))})
}
