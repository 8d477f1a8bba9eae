package privileged

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// askTime bounds what is not a task; removing the agent takes longest.
const askTime = 2 * time.Minute

// lookTime bounds a look, which a report waits for.
const lookTime = 10 * time.Second

// Client is the privileged process as the network-facing one sees it.
type Client struct {
	Path string

	mu sync.Mutex
	// version is of the process that answered first. Another one means that the
	// installation was changed, and this process must follow.
	version string
}

var _ task.Executor = (*Client)(nil)

// Pending implements task.Executor.
func (c *Client) Pending(ctx context.Context) ([]task.Entry, error) {
	a, err := c.ask(ctx, request{Op: opPending})
	return a.Pending, err
}

// Acknowledge implements task.Executor.
func (c *Client) Acknowledge(ctx context.Context, taskID string) error {
	_, err := c.ask(ctx, request{Op: opAcknowledge, TaskID: taskID})
	return err
}

// Drop implements task.Executor.
func (c *Client) Drop(ctx context.Context, taskID string) error {
	_, err := c.ask(ctx, request{Op: opDrop, TaskID: taskID})
	return err
}

// Trust implements task.Executor.
func (c *Client) Trust(ctx context.Context, keys []protocol.TaskKey) error {
	_, err := c.ask(ctx, request{Op: opTrust, Keys: keys})
	return err
}

// Healthy implements task.Executor.
func (c *Client) Healthy(ctx context.Context, version string) error {
	_, err := c.ask(ctx, request{Op: opHealthy, Version: version})
	return err
}

// InService implements task.Executor.
func (c *Client) InService(ctx context.Context, drain string) (string, error) {
	a, err := c.ask(ctx, request{Op: opInService, TaskID: drain})
	return a.Mark, err
}

// Mounts lists the machine's own mounts: this process sees those of its sandbox.
func (c *Client) Mounts(ctx context.Context) ([]spec.MountReport, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	a, err := c.ask(ctx, request{Op: opMounts})
	return a.Mounts, err
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "unix", c.Path)
	if err != nil {
		return nil, fmt.Errorf("the privileged process does not answer; is slipway-agent-helper running? %w", err)
	}
	return conn, nil
}

func (c *Client) ask(ctx context.Context, r request) (answer, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	ln := newLine(conn, maxAnswer)
	var a answer
	err = errors.Join(conn.SetReadDeadline(time.Now().Add(askTime)), ln.write(r))
	if err == nil {
		err = ln.read(&a)
	}
	if err != nil {
		return answer{}, fmt.Errorf("the privileged process did not answer: %w", err)
	}
	return a, c.checkAnswer(a)
}

// checkAnswer returns the error in an answer. It returns an error as well when this process must be
// restarted to have the version of the privileged process.
func (c *Client) checkAnswer(a answer) error {
	if err := a.err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == "" {
		c.version = a.Version
	}
	if a.Version != c.version {
		return fmt.Errorf("%w: the privileged process is now %s and was %s", task.ErrRestart, a.Version, c.version)
	}
	return nil
}

// Execute implements task.Executor. An answer that does not come leaves the task
// in the journal of the other process: it is asked for again.
func (c *Client) Execute(ctx context.Context, signed protocol.SignedTask, generation int64, ctl task.Control) (lifecycle.TaskResult, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	ln := newLine(conn, maxAnswer)
	if err := ln.write(request{Op: opExecute, Signed: &signed, Generation: generation}); err != nil {
		return lifecycle.TaskResult{}, fmt.Errorf("%w: %w", task.ErrInterrupted, err)
	}
	beside.Go(func() {
		select {
		case <-ctx.Done():
		case <-ctl.Halt:
			_ = ln.write(request{Halt: true})
		}
	})
	for {
		var a answer
		if err := ln.read(&a); err != nil {
			return lifecycle.TaskResult{}, fmt.Errorf("%w: the privileged process broke off: %w", task.ErrInterrupted, err)
		}
		switch {
		case a.Final && a.Result != nil:
			return *a.Result, c.checkAnswer(a)
		case a.Final:
			if err := c.checkAnswer(a); err != nil {
				return lifecycle.TaskResult{}, err
			}
			return lifecycle.TaskResult{}, errors.New("the privileged process gave no result")
		case a.Fetch != nil:
			beside.Go(func() { _ = ln.write(request{Fetched: fetch(ctx, ctl, *a.Fetch)}) })
		case a.Progress != "" && ctl.Progress != nil:
			ctl.Progress(a.Progress)
		}
	}
}

func fetch(ctx context.Context, ctl task.Control, f task.File) *fetched {
	if ctl.Fetch == nil {
		return &fetched{Error: "there is nobody to fetch"}
	}
	path, err := ctl.Fetch(ctx, f)
	if err != nil {
		return &fetched{Error: err.Error()}
	}
	return &fetched{Path: path}
}
