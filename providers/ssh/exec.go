package ssh

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

const opExec = "ssh.exec"

const (
	// drainLimit is how long the output of an ended command may take to arrive and to be stored.
	drainLimit = 10 * time.Minute
	// chunkSize bounds one chunk of output.
	chunkSize = 64 << 10
	// smallChunk is less output than one chunk is made of at once: the next one waits for
	// gatherPause, so that a machine that sends single bytes does not make a row of each.
	smallChunk  = 4 << 10
	gatherPause = 200 * time.Millisecond
)

// scriptArgv runs a script that comes on standard input. sh opens it by its name, so that a command
// of the script that reads standard input finds nothing there, and not the rest of the script.
func scriptArgv() []string { return []string{"sh", "-c", "exec 3<&0 </dev/null; exec sh /dev/fd/3"} }

// errSink is the cause of an error of the caller's own sink.
var errSink = errors.New("the output could not be stored")

var _ providers.RemoteExec = (*Runner)(nil)

// Exec implements providers.RemoteExec. The script is an operation (op.go): it goes on when the
// connection is lost, until its timeout. A second session on the same connection reads what the
// machine keeps of its output, so that a reader that is slow or gone neither stops the script nor
// grows memory.
func (r *Runner) Exec(ctx context.Context, t providers.MachineTarget, c providers.RemoteCommand, sink providers.OutputSink) (providers.RemoteResult, error) {
	known := providers.NewRedaction(append(t.SSH.Credentials(), c.Secrets...)...)
	res, err := r.exec(ctx, t.SSH, c, known, sink)
	return res, known.Error(err)
}

func (r *Runner) exec(ctx context.Context, t providers.SSHTarget, c providers.RemoteCommand, known providers.Redaction, sink providers.OutputSink) (providers.RemoteResult, error) {
	cmd, err := r.prepareRemote(c)
	if err != nil {
		return providers.RemoteResult{}, err
	}
	client, err := dial(ctx, t)
	if err != nil {
		return providers.RemoteResult{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, cmd.timeout+killAfter+answerSlack+drainLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	go r.keepAlive(ctx, client)

	f := &follower{cmd: cmd, dir: r.stateDir, from: c.From, known: known, sink: sink}
	followed := make(chan error, 1)
	go func() { followed <- f.follow(ctx, client) }()
	ended, err := r.await(ctx, client, cmd)
	if err != nil {
		cancel()
		if ferr := <-followed; errors.Is(ferr, errSink) || providers.IsKind(ferr, providers.KindTooBig) {
			return providers.RemoteResult{}, ferr
		}
		return providers.RemoteResult{}, err
	}
	if err := <-followed; err != nil {
		return providers.RemoteResult{}, err
	}
	kept := func(n int) int64 { return int64(min(n, cmd.maxOutput)) }
	return providers.RemoteResult{
		ExitCode: ended.rc, Output: providers.RemoteOffsets{Stdout: kept(ended.outN), Stderr: kept(ended.errN)},
		Truncated: ended.outN > cmd.maxOutput || ended.errN > cmd.maxOutput || ended.stillOpened != 0,
	}, nil
}

// prepareRemote checks c and makes the line that runs it and shows none of its output.
func (r *Runner) prepareRemote(c providers.RemoteCommand) (command, error) {
	if err := c.Check(); err != nil {
		return command{}, err
	}
	cmd := command{stdin: []byte(c.Script), timeout: c.Timeout, maxOutput: int(c.KeptOutput())}
	return r.prepareShown(cmd, providers.SSHCommand{Argv: scriptArgv(), Stdin: cmd.stdin, OpID: c.OpID}, 0)
}

// await runs the operation, or waits for the run of an earlier call, and returns how it ended. The
// loss of the connection says nothing about the operation, which goes on: it is KindBusy.
func (r *Runner) await(caller context.Context, client *ssh.Client, cmd command) (answer, error) {
	ctx, cancel := context.WithTimeout(caller, cmd.timeout+killAfter+answerSlack)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	out, err := execute(ctx, client, cmd)
	if !stop() && err == nil {
		err = uncertain(ctx, ctx.Err())
	}
	if providers.IsKind(err, providers.KindUncertain) && caller.Err() == nil {
		err = failure(providers.KindBusy, opExec, err,
			"the connection was lost while operation %s ran; it goes on, and is read again with the same id", cmd.op.id)
	}
	if err != nil {
		return answer{}, err
	}
	a, _, err := cmd.op.answer(out)
	return a, err
}

// follower reads the output of an operation.
type follower struct {
	cmd   command
	dir   string
	from  providers.RemoteOffsets
	known providers.Redaction
	sink  providers.OutputSink

	mu sync.Mutex // one chunk at a time
}

// follow sends the output to the sink until the operation has ended and all of it is sent.
func (f *follower) follow(ctx context.Context, client *ssh.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch, reqs, err := client.OpenChannel("session", nil)
	if err != nil {
		return f.lost(err)
	}
	defer ch.Close()
	status := make(chan exit, 1)
	go watchExit(reqs, status)
	limit := f.cmd.timeout + killAfter + answerSlack + drainLimit
	line := quote([]string{
		"timeout", "-k", seconds(killAfter), seconds(limit), "sh", "-c", ownerText + followText, "slipway-follow",
		f.dir, f.cmd.op.id, strconv.Itoa(f.cmd.maxOutput), f.cmd.op.digest, f.cmd.op.mark,
		strconv.FormatInt(f.from.Stdout, 10), strconv.FormatInt(f.from.Stderr, 10),
	})
	accepted, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{line}))
	if err != nil || !accepted {
		return f.lost(err)
	}
	// Standard input stays open: it tells the script that somebody reads.
	ends := make(chan error, 2)
	go func() { ends <- f.read(ctx, ch, providers.StreamStdout, f.from.Stdout) }()
	go func() { ends <- f.read(ctx, ch.Stderr(), providers.StreamStderr, f.from.Stderr) }()
	for range 2 {
		// Both have ended before this returns: the sink is not called afterwards. A closed session
		// alone would wait for the machine; without the connection the wait for the command ends
		// too, and the command goes on.
		if end := <-ends; end != nil && err == nil {
			err = end
			cancel()
			_ = client.Close()
		}
	}
	if err != nil {
		return err
	}
	if end := <-status; !end.known || end.code != 0 {
		return f.lost(nil)
	}
	return nil
}

// read sends one stream to the sink.
func (f *follower) read(ctx context.Context, from io.Reader, stream string, offset int64) error {
	out := f.known.Stream(offset, func(clean []byte, next int64) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := f.sink(ctx, providers.OutputChunk{Stream: stream, Data: clean, Next: next}); err != nil {
			return failure(providers.KindUnavailable, opExec, errors.Join(errSink, err),
				"the output of operation %s could not be stored; it goes on, and is read again with the same id", f.cmd.op.id)
		}
		return nil
	})
	if err := skipTo(from, f.cmd.op.mark+"\n"); err != nil {
		return f.lost(err)
	}
	buf := make([]byte, chunkSize)
	for room := max(int64(f.cmd.maxOutput)-offset, 0); ; {
		n, err := from.Read(buf)
		if room -= int64(n); room < 0 {
			return failure(providers.KindTooBig, opExec, nil,
				"the machine sends more than the %d bytes that it was to keep of a stream; it does not run the commands that it is given", f.cmd.maxOutput)
		}
		if n > 0 {
			if _, werr := out.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			return out.Close()
		case err != nil:
			return f.lost(err)
		case n < smallChunk:
			_ = poll.Sleep(ctx, gatherPause) // when ctx ends, so does the connection
		}
	}
}

// lost says that the output did not arrive whole. Nothing is lost on the machine.
func (f *follower) lost(cause error) error {
	return failure(providers.KindUnreachable, opExec, cause,
		"the output of operation %s was not read to its end; repeat it with the same id to get the rest", f.cmd.op.id)
}

// skipTo reads up to the mark, one byte at a time so that nothing after it is lost. The output of a
// login script before the mark is bounded.
func skipTo(from io.Reader, mark string) error {
	var seen []byte
	one := make([]byte, 1)
	for len(seen) < headerRoom {
		if _, err := io.ReadFull(from, one); err != nil {
			return err
		}
		if seen = append(seen, one[0]); bytes.HasSuffix(seen, []byte(mark)) {
			return nil
		}
	}
	return errors.New("the machine's login script writes too much")
}
