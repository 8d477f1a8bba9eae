package ssh

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
)

// outcome is what came back over the wire.
type outcome struct {
	exitCode int
	stdout   *keeper
	stderr   *keeper
	elapsed  time.Duration
	cutShort bool // the pipes were still open when reading ended
}

func (o outcome) result(cmd command) providers.SSHResult {
	stdout, cutOut := o.stdout.take()
	stderr, cutErr := o.stderr.take()
	code := o.exitCode
	if code == exitKilled && o.elapsed >= cmd.timeout {
		code = exitTimeout
	}
	return providers.SSHResult{ExitCode: code, Stdout: stdout, Stderr: stderr, Truncated: cutOut || cutErr || o.cutShort}
}

// keeper keeps the first limit bytes and swallows the rest, so that a command
// with much output is never blocked and still ends with its own status.
type keeper struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	limit   int
	dropped bool
	total   atomic.Int64 // bytes seen
}

func (k *keeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total.Add(int64(len(p)))
	room := k.limit - k.buf.Len()
	if room >= len(p) {
		return k.buf.Write(p)
	}
	k.dropped = true
	k.buf.Write(p[:room])
	return len(p), nil
}

func (k *keeper) take() (kept []byte, dropped bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Clone(k.buf.Bytes()), k.dropped
}

// execute runs one command on an open client. It speaks the session channel by
// hand: the library's Session hides the exit status until the pipes are closed
// and puts the whole command into the text of a refusal.
func execute(ctx context.Context, client *ssh.Client, cmd command) (outcome, error) {
	ch, reqs, err := client.OpenChannel("session", nil)
	if err != nil {
		return outcome{}, failure(providers.KindUnreachable, opRun, err, "the node opened no session; nothing was sent")
	}
	defer ch.Close()
	status := make(chan exit, 1)
	go watchExit(reqs, status)

	out := outcome{stdout: &keeper{limit: cmd.keep}, stderr: &keeper{limit: cmd.keep}}
	drained := drain(ch, out)
	began := time.Now()
	accepted, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{cmd.line}))
	if err != nil {
		return outcome{}, uncertain(ctx, err)
	}
	if !accepted {
		return outcome{}, failure(providers.KindForbidden, opRun, nil, "the node does not let this user run commands")
	}
	go func() {
		// A command that does not read its input closes it; that is no failure.
		_, _ = io.Copy(ch, bytes.NewReader(cmd.stdin))
		_ = ch.CloseWrite()
	}()

	end := <-status // sent once at the latest when the connection is gone, which ctx sees to
	if !end.known {
		return outcome{}, uncertain(ctx, &ssh.ExitMissingError{})
	}
	out.exitCode, out.elapsed = end.code, time.Since(began)
	out.cutShort = !out.settle(ctx, drained)
	return out, nil
}

// settle reads the rest of the output after the exit status came. It ends when
// both streams have ended (true), or when nothing more has come for drainGrace
// or ctx is over (false).
func (o outcome) settle(ctx context.Context, drained <-chan struct{}) bool {
	for seen := o.received(); ; {
		timer := time.NewTimer(drainGrace)
		select {
		case <-drained:
			timer.Stop()
			return true
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		now := o.received()
		if now == seen {
			return false
		}
		seen = now
	}
}

func (o outcome) received() int64 { return o.stdout.total.Load() + o.stderr.total.Load() }

func uncertain(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return failure(providers.KindUncertain, opRun, ctx.Err(),
			"the wait for the command ended before the node answered; it may have run or may still run")
	}
	return failure(providers.KindUncertain, opRun, cause,
		"the connection was lost while the command ran; it may have run or may still run")
}

// drain copies both output streams and closes the answer when both have ended.
func drain(ch ssh.Channel, out outcome) <-chan struct{} {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(out.stdout, ch) })
	wg.Go(func() { _, _ = io.Copy(out.stderr, ch.Stderr()) })
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	return done
}

// exit is how the remote command ended; known is false when no status came
// before the channel closed.
type exit struct {
	code  int
	known bool
}

// watchExit answers the server's channel requests and reports the exit status
// as soon as it arrives, and an unknown one when the channel closes without.
func watchExit(reqs <-chan *ssh.Request, status chan<- exit) {
	sent := false
	for req := range reqs {
		end, ok := parseExit(req)
		if req.WantReply {
			_ = req.Reply(false, nil)
		}
		if ok && !sent {
			sent = true
			status <- end
		}
	}
	if !sent {
		status <- exit{}
	}
}

// parseExit reads an exit-status or exit-signal request (RFC 4254, 6.10). A
// signal counts as 128 + its number, as shells have it; one with an unknown
// name counts as 255.
func parseExit(req *ssh.Request) (exit, bool) {
	switch req.Type {
	case "exit-status":
		var m struct{ Status uint32 }
		if ssh.Unmarshal(req.Payload, &m) != nil {
			return exit{}, false
		}
		return exit{code: int(m.Status), known: true}, true
	case "exit-signal":
		var m struct {
			Signal     string
			CoreDumped bool
			Message    string
			Lang       string
		}
		if ssh.Unmarshal(req.Payload, &m) != nil {
			return exit{}, false
		}
		return exit{code: signalCode(m.Signal), known: true}, true
	}
	return exit{}, false
}

func signalCode(name string) int {
	numbers := map[string]int{
		"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8,
		"KILL": 9, "SEGV": 11, "PIPE": 13, "ALRM": 14, "TERM": 15,
	}
	if n, ok := numbers[name]; ok {
		return 128 + n
	}
	return 255
}
