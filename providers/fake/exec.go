package fake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	opExec    = "fake.exec"
	chunkSize = 64 << 10
)

// Exec implements providers.RemoteExec.
func (p *Provider) Exec(ctx context.Context, t providers.MachineTarget, c providers.RemoteCommand, sink providers.OutputSink) (providers.RemoteResult, error) {
	if err := c.Check(); err != nil {
		return providers.RemoteResult{}, err
	}
	known := providers.NewRedaction(c.Secrets...)
	op, err := p.start(t.ID, c)
	if err != nil {
		return providers.RemoteResult{}, err
	}
	// An earlier call may have begun it, with a longer timeout.
	ctx, cancel := context.WithTimeout(ctx, providers.MaxRemoteTimeout)
	defer cancel()
	stdout := newReader(op, providers.StreamStdout, c.From.Stdout, known, sink)
	stderr := newReader(op, providers.StreamStderr, c.From.Stderr, known, sink)
	for {
		changed, ended := op.state()
		for _, r := range []*reader{stdout, stderr} {
			if err := r.send(ctx, ended); err != nil {
				return providers.RemoteResult{}, &providers.Error{
					Kind: providers.KindUnavailable, Op: opExec, Message: "the output could not be stored; repeat the command with the same id", Err: known.Error(err),
				}
			}
		}
		if ended {
			return op.result()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return providers.RemoteResult{}, &providers.Error{
				Kind: providers.KindUncertain, Op: opExec, Message: "the wait for the command ended before it did", Err: ctx.Err(),
			}
		}
	}
}

// Stop implements providers.RemoteExec.
func (p *Provider) Stop(ctx context.Context, t providers.MachineTarget, opID string) error {
	if !providers.ValidOpID(opID) {
		return &providers.Error{Kind: providers.KindInvalid, Op: opExec, Message: "the operation id is not valid"}
	}
	p.mu.Lock()
	m := p.machine(t.ID)
	op := m.ops[opID]
	if op == nil {
		op = newOperation(providers.RemoteCommand{OpID: opID})
		op.end(exitTerminated)
		m.add(op)
	}
	p.mu.Unlock()
	op.stop()
	for {
		changed, ended := op.state()
		if ended {
			_, err := op.result()
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &providers.Error{Kind: providers.KindBusy, Op: opExec, Message: "operation " + opID + " has not ended yet; repeat the call", Err: ctx.Err()}
		}
	}
}

// start returns the operation of the command, and begins it when the machine does not have it.
func (p *Provider) start(id string, c providers.RemoteCommand) (*operation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machine(id)
	if op, ok := m.ops[c.OpID]; ok {
		if op.script != c.Script && op.script != "" { // one without a script was stopped before it began
			return nil, &providers.Error{
				Kind: providers.KindInvalid, Op: opExec, Message: "operation id " + c.OpID + " was used on this machine for another command; use a new id",
			}
		}
		return op, nil
	}
	op := newOperation(c)
	m.add(op)
	released := m.released
	count := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		m.runs++
	}
	go op.run(released, count, func(argument string) (string, int) { return p.joinCluster(id, argument) })
	return op, nil
}

// add keeps an operation in place of the oldest. The caller holds the provider's lock.
func (m *machine) add(op *operation) {
	if len(m.order) >= keptOps {
		delete(m.ops, m.order[0])
		m.order = m.order[1:]
	}
	m.ops[op.id], m.order = op, append(m.order, op.id)
}

// reader sends one stream of an operation to a sink.
type reader struct {
	op     *operation
	stream string
	at     int64
	out    *providers.RedactedStream
	ctx    context.Context // of the present send
}

func newReader(op *operation, stream string, from int64, known providers.Redaction, sink providers.OutputSink) *reader {
	r := &reader{op: op, stream: stream, at: from}
	r.out = known.Stream(from, func(clean []byte, next int64) error {
		return sink(r.ctx, providers.OutputChunk{Stream: stream, Data: clean, Next: next})
	})
	return r
}

// send sends what is there. When the operation has ended it also sends what redaction holds back.
func (r *reader) send(ctx context.Context, ended bool) error {
	r.ctx = ctx
	for {
		data := r.op.read(r.stream, r.at, chunkSize)
		if len(data) == 0 {
			break
		}
		r.at += int64(len(data))
		if _, err := r.out.Write(data); err != nil {
			return err
		}
	}
	if ended {
		return r.out.Close()
	}
	return nil
}

// after returns a channel that closes after the timeout of an operation, and a function that stops
// the timer.
func after(d time.Duration) (<-chan struct{}, func() bool) {
	passed := make(chan struct{})
	return passed, time.AfterFunc(d, func() { close(passed) }).Stop
}

var errLost = errors.New("the machine was restarted")

// lostError says that nobody knows what became of an operation.
func lostError(id string) error {
	return &providers.Error{
		Kind: providers.KindUncertain, Op: opExec, Err: errLost,
		Message: fmt.Sprintf("operation %s began on the machine and left no result; look at the machine, then use a new id", id),
	}
}
