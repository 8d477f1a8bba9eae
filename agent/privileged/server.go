package privileged

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// maxConns bounds the connections at once; the other half needs three.
const maxConns = 8

// Server is the privileged half.
type Server struct {
	Executor task.Executor
	// AllowUIDs are who may connect besides root.
	AllowUIDs []int
	Version   string
	Log       *slog.Logger
	// Mounts lists the machine's own mounts, which the other half cannot see.
	Mounts func() []spec.MountReport
	// RequestTime is how long a connection may take to say what it wants;
	// default 10s.
	RequestTime time.Duration
}

// Listen makes the socket: 0660, of group gid where that is not negative. A
// socket that a dead process left is replaced.
func Listen(path string, gid int) (net.Listener, error) {
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("something listens on %s already", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace the socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	err = os.Chmod(path, 0o660)
	if gid >= 0 {
		err = errors.Join(err, os.Chown(path, -1, gid))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set the socket's rights: %w", err), l.Close())
	}
	return l, nil
}

// Serve answers until ctx ends, and returns nil then, or until a task ends the
// process: task.ErrRestart or task.ErrUninstalled. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer l.Close() //nolint:errcheck // also where a connection came in at the very end
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	free := make(chan struct{}, maxConns)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if c != nil {
				_ = c.Close()
			}
			if cause := context.Cause(ctx); errors.Is(cause, task.ErrRestart) || errors.Is(cause, task.ErrUninstalled) {
				return cause
			}
			return nil
		}
		if err != nil {
			end(err)
			return fmt.Errorf("the socket: %w", err)
		}
		select {
		case free <- struct{}{}:
		default:
			s.Log.Warn("too many connections to the privileged process")
			_ = c.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-free }()
			if err := s.serve(ctx, c); errors.Is(err, task.ErrRestart) || errors.Is(err, task.ErrUninstalled) {
				end(err)
			}
		})
	}
}

// serve answers one connection; its error is that of the executor.
func (s *Server) serve(ctx context.Context, c net.Conn) error {
	defer func() { _ = c.Close() }()
	uid, err := peer(c)
	if err != nil || (uid != 0 && !slices.Contains(s.AllowUIDs, uid)) {
		s.Log.Error("a process of another user connected to the privileged process", "uid", uid, "error", err)
		return nil
	}
	most := s.RequestTime
	if most <= 0 {
		most = 10 * time.Second
	}
	ln := newLine(c, maxRequest)
	var r request
	if err := errors.Join(c.SetReadDeadline(time.Now().Add(most)), ln.read(&r)); err != nil {
		s.Log.Warn("a request to the privileged process could not be read", "error", err)
		return nil
	}
	_ = c.SetReadDeadline(time.Time{})
	a := answer{Final: true, Version: s.Version}
	err = s.answer(ctx, ln, r, &a)
	if err != nil {
		a.fail(err)
	}
	if e := ln.write(a); e != nil {
		s.Log.Warn("an answer of the privileged process was not heard", "error", e)
	}
	return err
}

func (s *Server) answer(ctx context.Context, ln *line, r request, a *answer) (err error) {
	switch r.Op {
	case opPending:
		a.Pending, err = s.Executor.Pending(ctx)
		return err
	case opAcknowledge:
		return s.Executor.Acknowledge(ctx, r.TaskID)
	case opDrop:
		return s.Executor.Drop(ctx, r.TaskID)
	case opTrust:
		return s.Executor.Trust(ctx, r.Keys)
	case opHealthy:
		return s.Executor.Healthy(ctx, r.Version)
	case opInService:
		a.Mark, err = s.Executor.InService(ctx, r.TaskID)
		return err
	case opMounts:
		if s.Mounts == nil {
			return errors.New("this process does not know the mounts")
		}
		a.Mounts = s.Mounts()
		return nil
	case opExecute:
		if r.Signed == nil {
			return errors.New("there is no task to execute")
		}
		res, err := s.execute(ctx, ln, r)
		if err == nil {
			a.Result = &res
		}
		return err
	}
	return fmt.Errorf("operation %.40q is unknown", r.Op)
}

// peer is the uid of the other end, as the kernel knows it.
func peer(c net.Conn) (int, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return -1, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return -1, err
	}
	uid := -1
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, e := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if inner = e; e == nil {
			uid = int(cred.Uid)
		}
	})
	return uid, errors.Join(err, inner)
}
