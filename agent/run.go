package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const maxBackoff = time.Minute

// Agent is one running agent. Make it with New.
type Agent struct {
	cfg     agentconfig.Config
	node    nodeReader
	version string
	log     *slog.Logger
	now     func() time.Time
	state   *state
	started time.Time

	// Of the loop alone:
	id       *identity
	client   *client
	interval time.Duration
	failures int
	// refusedToken is the SHA-256 of a token that the server has refused for good.
	refusedToken string
	adopted      time.Time // when this process got its newest certificate; zero before
	ended        bool      // the server says that the certificate has expired
	unsent       *spec.HealthReport

	reports chan spec.HealthReport // newest first, one at most
	look    chan struct{}          // asks for a report now

	// Of both loops:
	session  session
	handlers []task.Registry
	accepted chan struct{} // closed by the first heartbeat that the server accepted
	nudge    chan struct{} // asks for a heartbeat now
	// inService holds when the newest heartbeat was sent to which the server answered that the node
	// is in service.
	inService chan time.Time
	once      sync.Once
	// metadata is the listener on which the metadata of the allocation is served; nil serves none.
	metadata net.Listener
}

// ServeMetadata makes Run serve the metadata of the allocation on this listener, which it closes.
func (a *Agent) ServeMetadata(l net.Listener) { a.metadata = l }

// New checks the configuration and opens the state directory. handlers are added to the agent's
// own, for a simulated node that does its tasks in this process.
func New(c agentconfig.Config, version string, log *slog.Logger, handlers ...task.Registry) (*Agent, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	st, err := openState(c.Path(c.StateDir))
	if err != nil {
		return nil, err
	}
	probe, err := newClient(c, nil, time.Now)
	if err != nil {
		return nil, err
	}
	probe.close()
	return &Agent{cfg: c, node: newNodeReader(c), version: version, log: log, now: time.Now, state: st, started: time.Now(), interval: c.HeartbeatInterval,
		reports: make(chan spec.HealthReport, 1), look: make(chan struct{}, 1),
		session: session{ready: make(chan struct{})}, handlers: handlers, accepted: make(chan struct{}), nudge: make(chan struct{}, 1), inService: make(chan time.Time, 1)}, nil
}

// Run works until ctx ends, and then returns nil. It never gives up: a server that is down or
// refuses is asked again, more and more slowly. It returns task.ErrRestart or task.ErrUninstalled
// when a task requires that, and an error when it cannot begin.
func (a *Agent) Run(ctx context.Context) error {
	if a.cfg.Simulated {
		a.log.Warn("this node is simulated; what it reports is made up", "root", a.cfg.Root)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var beside sync.WaitGroup
	beside.Go(func() { a.lookAround(ctx) })
	if a.metadata != nil {
		beside.Go(func() { a.serveMetadata(ctx) })
	}
	beside.Go(func() {
		if err := a.runTasks(ctx); err != nil {
			end(err)
		}
	})
	a.runHeartbeats(ctx)
	beside.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

func (a *Agent) runHeartbeats(ctx context.Context) {
	for {
		wait := a.step(ctx)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			if a.client != nil {
				a.client.close()
			}
			return
		case r := <-a.reports:
			a.unsent = &r
			if a.failures > 0 { // a new report must not shorten the wait after failures
				waitFor(ctx, t)
			}
		case <-a.nudge:
			if a.failures > 0 {
				waitFor(ctx, t)
			}
		case <-t.C:
		}
		t.Stop()
	}
}

func (a *Agent) serveMetadata(ctx context.Context) {
	read := func() (*spec.InstanceMetadata, error) { return metadata.Read(a.cfg.Path(metadata.Path)) }
	if err := metadata.Serve(ctx, a.metadata, metadata.Handler(read), a.log); err != nil {
		a.log.Error("the metadata of the allocation is no longer served", "error", err)
	}
}

func waitFor(ctx context.Context, t *time.Timer) {
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// identityProblems end the use of a certificate: only a new token helps.
var identityProblems = []string{protocol.ProblemLocked, protocol.ProblemNodeRemoved, protocol.ProblemSuperseded,
	protocol.ProblemFormer, protocol.ProblemDenied, protocol.ProblemGraceOver}

// step does what is due and returns how long to wait.
func (a *Agent) step(ctx context.Context) time.Duration {
	err := a.Enroll(ctx)
	if err != nil && a.id != nil {
		a.log.Warn("the new enrolment token could not be used yet", "error", err)
		err = nil
	}
	// An expired certificate can be renewed for a while. The server decides whether it has expired,
	// since this node's clock may be wrong.
	if err == nil && a.renewalDue() {
		if err = a.renew(ctx); err != nil && !isProblem(err, identityProblems...) {
			a.log.Warn("the certificate could not be renewed yet", "error", err)
			err = nil // the present certificate may still be valid; the next heartbeat shows whether an answer was lost
		}
	}
	if err == nil {
		err = a.sendHeartbeat(ctx)
	}
	a.ended = a.ended || isProblem(err, protocol.ProblemCertificateEnded)
	if err == nil {
		a.failures = 0
		return spread(a.interval)
	}
	if ctx.Err() != nil {
		return 0
	}
	a.failures++
	wait := a.backoff(err)
	a.log.Warn("no heartbeat", "error", err, "tries", a.failures, "next_in", wait.Round(time.Millisecond))
	return wait
}

// holder returns the allocation that the node is held for, "" for none. It returns nil when that
// cannot be read. The control plane then does not count this node as agreeing.
func (a *Agent) holder() *string {
	id, err := metadata.ReadHolder(a.cfg.Path(metadata.HolderPath))
	if err != nil {
		a.log.Warn("the allocation of this node is unknown", "error", err)
		return nil
	}
	return &id
}

// sendHeartbeat sends a heartbeat and does the actions that the answer requests.
func (a *Agent) sendHeartbeat(ctx context.Context) error {
	boot, err := a.node.bootID()
	if err != nil {
		return err
	}
	in := protocol.Heartbeat{BootID: boot, AgentVersion: a.version, Generation: a.id.Generation, SentAt: a.now().UTC(),
		UptimeSecs: time.Since(a.started).Seconds(), Report: a.unsent, TaskKeyIDs: keyIDs(a.id.TaskKeys), Allocation: a.holder()}
	var out protocol.HeartbeatResponse
	sent := time.Now()
	if err := a.client.post(ctx, protocol.PathHeartbeat, in, &out); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	a.unsent = nil
	a.once.Do(func() { close(a.accepted) })
	a.learn(out.TaskKeys)
	a.setInterval(out.HeartbeatIntervalSeconds)
	if out.InService {
		select {
		case <-a.inService: // an older one that nobody took
		default:
		}
		a.inService <- sent
	}
	for _, act := range out.Actions {
		if act == protocol.SendReportNow {
			select {
			case a.look <- struct{}{}:
			default: // asked already
			}
		}
	}
	return nil
}

// lookAround makes a report at once, in every report interval, and on request. It runs beside the
// heartbeats, because a hanging driver must not stop them.
func (a *Agent) lookAround(ctx context.Context) {
	tick := time.NewTicker(a.cfg.ReportInterval)
	defer tick.Stop()
	for {
		// The report that is made now answers all requests up to here.
		select {
		case <-a.look:
		default:
		}
		r := a.report(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-a.reports: // an older one that nobody took
		default:
		}
		a.reports <- r
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.look:
		}
	}
}

// backoff returns the wait before the next try. It grows from the heartbeat interval to a minute,
// with full jitter, so that a thousand nodes do not come back in one moment. It is longest for
// errors that only an operator can fix. A wait that the server requests is kept.
func (a *Agent) backoff(err error) time.Duration {
	var r *refused
	if errors.As(err, &r) && r.retryAfter > 0 {
		return r.retryAfter + rand.N(r.retryAfter/4+1)
	}
	most := a.interval
	for range min(a.failures-1, 16) {
		if most *= 2; most >= maxBackoff {
			break
		}
	}
	most = min(most, max(maxBackoff, a.interval))
	return most/4 + rand.N(most*3/4+1)
}

// spread moves an interval by a fifth up or down.
func spread(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }
