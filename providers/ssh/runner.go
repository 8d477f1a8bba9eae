package ssh

import (
	"context"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
)

// The bounds that hold when a target or command names none (providers.SSHTarget,
// providers.SSHCommand).
const (
	DefaultStateDir         = "/var/lib/slipway/ops"
	defaultHandshakeTimeout = 10 * time.Second
	defaultTimeout          = 30 * time.Second
	defaultMaxOutput        = 64 << 10
	maxTimeout              = 24 * time.Hour
	maxOutputCap            = 16 << 20

	// killAfter is how long a command may ignore SIGTERM before SIGKILL.
	killAfter = 5 * time.Second
	// answerSlack is what the node and the line get on top of the command's own
	// time before the connection is given up. A node that computes at full load answers late, and
	// giving up makes the outcome unknown; the keepalive finds a node that is gone.
	answerSlack = 30 * time.Second
	// drainGrace is how long a silent stream is waited for after the exit status
	// came: a background process of the command may hold it open for ever.
	drainGrace = 2 * time.Second
)

// Runner implements providers.SSHRunner. It keeps no connection between calls
// and is safe for concurrent use.
type Runner struct {
	stateDir          string
	bootIDFile        string
	systemRoot        string // "" is /
	join              JoinPaths
	keepaliveInterval time.Duration
	keepaliveTimeout  time.Duration
}

var _ providers.SSHRunner = (*Runner)(nil)

// Option changes a Runner at construction.
type Option func(*Runner)

// WithStateDir moves the folder on the node under which operation results are
// kept; the default is DefaultStateDir. It must be an absolute path that the
// login user may write to.
func WithStateDir(dir string) Option { return func(r *Runner) { r.stateDir = dir } }

// WithKeepalive sets how often a running command's connection is probed and how
// long one answer may take; the default is 15 s and 10 s.
func WithKeepalive(interval, timeout time.Duration) Option {
	return func(r *Runner) { r.keepaliveInterval, r.keepaliveTimeout = interval, timeout }
}

// New returns a Runner.
func New(opts ...Option) *Runner {
	r := &Runner{
		stateDir:          DefaultStateDir,
		bootIDFile:        defaultBootIDFile,
		keepaliveInterval: 15 * time.Second,
		keepaliveTimeout:  10 * time.Second,
	}
	for _, o := range opts {
		o(r)
	}
	return r
}

// RunSSH logs in to t, runs c and returns how it ended. ExitCode 124 means that
// c.Timeout passed and the node ended the processes; 126 and 127 are the
// shell's "cannot execute" and "not found".
//
// Errors: KindInvalid (bad target or command, or an operation id used before
// for another command), KindUnreachable (nothing was sent: safe to repeat),
// KindPinMismatch, KindUnauthorized, KindForbidden (the node refuses to run
// commands), KindUncertain (it was sent and its outcome is unknown), and with
// an operation id KindBusy (an earlier run is still going: repeat with the same
// id) and KindStateConflict (the node cannot keep operation results).
//
// A node may repeat what it was sent: the login key and c.Secrets are hidden in result and error.
func (r *Runner) RunSSH(ctx context.Context, t providers.SSHTarget, c providers.SSHCommand) (providers.SSHResult, error) {
	known := providers.NewRedaction(append(t.Credentials(), c.Secrets...)...)
	res, err := r.run(ctx, t, c)
	for _, stream := range []*[]byte{&res.Stdout, &res.Stderr} {
		if text := string(*stream); known.Found(text) {
			*stream = []byte(known.Clean(text))
		}
	}
	return res, known.Error(err)
}

func (r *Runner) run(ctx context.Context, t providers.SSHTarget, c providers.SSHCommand) (providers.SSHResult, error) {
	cmd, err := r.prepare(c)
	if err != nil {
		return providers.SSHResult{}, err
	}
	client, err := dial(ctx, t)
	if err != nil {
		return providers.SSHResult{}, err
	}
	defer client.Close()

	// The command's own limit is kept by the node; this one only ends the wait
	// when the node or the line does not answer.
	runCtx, cancel := context.WithTimeout(ctx, cmd.timeout+killAfter+answerSlack)
	defer cancel()
	stop := context.AfterFunc(runCtx, func() { _ = client.Close() })
	defer stop()
	go r.keepAlive(runCtx, client)

	out, err := execute(runCtx, client, cmd)
	if err != nil {
		return providers.SSHResult{}, err
	}
	if cmd.op == nil {
		return out.result(cmd), nil
	}
	return cmd.op.parse(out, cmd.maxOutput)
}

// keepAlive closes the client when the other end stops answering, so that a
// frozen node costs one interval and not the whole deadline.
func (r *Runner) keepAlive(ctx context.Context, client *ssh.Client) {
	ticker := time.NewTicker(r.keepaliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		answered := make(chan error, 1)
		go func() {
			_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		timer := time.NewTimer(r.keepaliveTimeout)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case err := <-answered:
			timer.Stop()
			if err != nil {
				_ = client.Close()
				return
			}
		case <-timer.C:
			_ = client.Close()
			return
		}
	}
}
