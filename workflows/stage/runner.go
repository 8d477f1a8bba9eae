package stage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// runner is one run of one job. It holds everything that changes. The part that must outlive the
// run is in the checkpoint.
type runner[S any] struct {
	def Job[S]
	in  contract.JobInput
	// ctx is disconnected from the workflow's own: a Temporal cancel is an
	// action like any other and must not cut off compensation or projection.
	ctx   workflow.Context
	runID string
	state *S
	mu    workflow.Mutex // one projection at a time

	pass *int // the job's, which activities get; 0 is not known

	phase lifecycle.RunnerPhase
	position
	inbox    inbox
	wait     wait
	outside  outside
	answers  []answer                 // to actions with a key, oldest first
	did      lifecycle.ActionMetadata // what the try has done, or the last one where none runs
	unstored unstored
	stored   stored
}

// position is where the job stands, as the next projection stores it.
type position struct {
	status   lifecycle.JobStatus // enter changes it
	rows     []lifecycle.StageRow
	at       int
	purpose  purpose
	failure  *contract.Failure
	gaveUp   *contract.Failure // the failure at which the job ends instead of parking
	frozen   bool
	adopted  bool
	reached  int
	deadline *time.Time
}

// wait is about a stage that waits for an outside system, and can be interrupted.
type wait struct {
	cancel      workflow.CancelFunc // ends the wait; nil while no stage waits
	interrupted bool                // since the attempt began
	stage       string              // the stage that was interrupted last; it keeps its deadline
}

// outside is what is known of the outside system.
type outside struct {
	lookFirst bool               // stages first observe and are skipped if already so
	last      lifecycle.Observed // in the last projection
	since     *time.Time         // when that was first seen
}

// unstored is what the next projection stores besides the position.
type unstored struct {
	entries []contract.ActionEntry
	by      string
	move    *contract.Move // belongs to the state
}

// stored is what the last projection stored, and what this run has stored before.
type stored struct {
	seq        int64
	status     lifecycle.JobStatus
	attributes attributes
	runbook    string   // URL of the failure's page
	nonces     []string // of signed actions
}

// enter moves the job to a status, and the run to its phase. The end of a job waits for its
// projection.
func (r *runner[S]) enter(s lifecycle.JobStatus) {
	r.status = s
	phase := lifecycle.RunnerPhaseOf(s)
	if phase == lifecycle.RunnerEnded {
		phase = lifecycle.RunnerEnding
	}
	r.move(phase)
}

// move moves the run to a phase. A run that was overtaken changes its phase by leave alone. An edge
// that the machine does not have is a fault of this package: the workflow task fails, and is tried
// again by a build that has the edge.
func (r *runner[S]) move(to lifecycle.RunnerPhase) {
	if to == r.phase || r.phase == lifecycle.RunnerOvertaken && to != lifecycle.RunnerHandedOver {
		return
	}
	if _, err := lifecycle.Runner.Between(r.phase, to); err != nil {
		panic(fmt.Sprintf("job %s: %v", r.in.JobID, err))
	}
	r.phase = to
}

// purpose says why a job is compensated.
type purpose string

const (
	forNothing purpose = ""
	forCancel  purpose = "cancel"
	forRestart purpose = "restart_clean"
)

// checkpoint holds what a new run needs besides the projected columns.
type checkpoint[S any] struct {
	State   *S      `json:"state"`
	Purpose purpose `json:"purpose,omitempty"`
	// GaveUp is the failure at which the job ended, nil for none.
	GaveUp  *contract.Failure `json:"gave_up,omitempty"`
	Answers []answer          `json:"answers,omitempty"`
	// Observed is the outside state of the projection with its time, so that a run that takes over
	// does not call it seen when it has looked at nothing.
	Observed *lifecycle.Observed `json:"observed,omitempty"`
	// InterruptedStage and Deadline describe the stage in whose middle the run continued as new.
	InterruptedStage string     `json:"interrupted_stage,omitempty"`
	Deadline         *time.Time `json:"deadline,omitempty"`
}

// Run executes the job. It returns when the job has ended in completed,
// reconciled or cancelled; a failed job parks and waits for an action.
func Run[S any](ctx workflow.Context, def Job[S], in contract.JobInput) (contract.JobResult, error) {
	r := newRunner(ctx, def, in)
	r.listen(ctx)
	if err := r.load(); err != nil {
		return contract.JobResult{}, err
	}
	// Actions that came with the start are decided on the state that the job had before this run.
	if err := workflow.Await(r.ctx, func() bool { return r.phase.Overtaken() || r.inbox.undecided == 0 && !r.inbox.signalled() }); err != nil {
		return contract.JobResult{}, err
	}
	err := r.run()
	if errors.Is(err, errEnded) {
		err = r.leave()
	}
	if errors.Is(err, errContinueAsNew) {
		return contract.JobResult{}, workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name, in)
	}
	if err != nil {
		return contract.JobResult{}, err
	}
	if err := r.answerAll(); err != nil {
		return contract.JobResult{}, err
	}
	if r.status == lifecycle.JobCancelled && ctx.Err() != nil {
		return contract.JobResult{}, ctx.Err()
	}
	return contract.JobResult{Status: r.status, Stage: r.stageName()}, nil
}

// answerAll waits until no action waits for an answer. It writes the audit rows of those whose own
// projection found that the job had ended.
func (r *runner[S]) answerAll() error {
	for {
		if err := workflow.Await(r.ctx, func() bool { return r.phase == lifecycle.RunnerOvertaken || r.allAnswered() }); err != nil {
			return err
		}
		if r.phase == lifecycle.RunnerOvertaken {
			if err := r.leave(); err != nil {
				return err
			}
			continue
		}
		if !r.phase.Overtaken() || len(r.unstored.entries) == 0 {
			return nil
		}
		if err := r.project(r.ctx, nil); err != nil {
			return err
		}
	}
}

// allAnswered reports whether no update and no signal waits for an answer. Temporal would drop a
// waiting signal without an error.
func (r *runner[S]) allAnswered() bool {
	if r.inbox.unanswered > 0 || !workflow.AllHandlersFinished(r.ctx) {
		return false
	}
	return !r.inbox.signalled()
}

func newRunner[S any](ctx workflow.Context, def Job[S], in contract.JobInput) *runner[S] {
	dctx, _ := workflow.NewDisconnectedContext(ctx)
	pass := new(int)
	dctx = workflow.WithValue(dctx, passKey, pass)
	r := &runner[S]{
		def: def, in: in, ctx: dctx, pass: pass, state: new(S), mu: workflow.NewMutex(dctx),
		runID: workflow.GetInfo(ctx).WorkflowExecution.RunID, phase: lifecycle.RunnerLoading, position: position{status: lifecycle.JobPending},
	}
	r.resetRows()
	return r
}

// resetRows makes a row for each stage.
func (r *runner[S]) resetRows() {
	r.rows = nil
	for i, st := range r.def.Stages {
		r.rows = append(r.rows, lifecycle.StageRow{Ordinal: i + 1, Name: st.Name, State: lifecycle.StagePending})
	}
}

// load reads the projected state. It is empty for a new job. For a job whose workflow was lost,
// reset or continued as new, it is that of its last step.
func (r *runner[S]) load() error {
	snap, err := r.readSnapshot()
	if err != nil {
		return err
	}
	r.state = new(S)
	r.stored.seq, r.status, r.stored.status, r.failure = snap.Seq, snap.Status, snap.Status, snap.Failure
	r.reached, r.frozen, r.adopted = snap.Reached, snap.Frozen, snap.Adopted
	cp, err := r.def.restore(r.state, snap)
	if err == nil {
		r.def.Stages, err = r.def.Chosen(r.state)
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", r.in.JobID, err)
	}
	r.purpose, r.gaveUp, r.wait.stage, r.deadline = cp.Purpose, cp.GaveUp, cp.InterruptedStage, cp.Deadline
	// Answers that are not stored belong to a way that the job did not take. Refused actions stay
	// refused.
	given := slices.DeleteFunc(r.answers, func(a answer) bool { return a.Refused == nil && a.Result.Effect != lifecycle.EffectNoop })
	r.answers = append(cp.Answers, given...)
	if o := cp.Observed; o != nil {
		r.outside.last, r.outside.since = lifecycle.Observed{MAAS: o.MAAS, Power: o.Power, Agent: o.Agent}, o.At
	}
	r.resetRows()
	for _, row := range snap.Stages {
		if i := r.index(row.Name); i >= 0 {
			row.Ordinal = i + 1
			r.rows[i] = row
		}
	}
	if i := r.index(snap.Stage); i >= 0 {
		r.at, r.outside.lookFirst = i, true
	}
	if r.phase == lifecycle.RunnerOvertaken {
		r.move(lifecycle.RunnerHandedOver)
	} else {
		r.move(lifecycle.RunnerPhaseOf(r.status))
	}
	if snap.Stage != "" || snap.Status.Parked() {
		r.publish() // a run that continues a job shows its state before it changes it
	}
	return nil
}

// run runs the job: stages in order, a safe point between any two, parking when one fails, and an
// end.
func (r *runner[S]) run() error {
	if lifecycle.Job.Terminal(r.status) {
		return nil
	}
	if r.status == lifecycle.JobCompensating {
		if err := r.compensateFor(r.purpose, nil); err != nil {
			return err
		}
	}
	for !lifecycle.Job.Terminal(r.status) {
		if err := r.step(); err != nil {
			return err
		}
	}
	return r.drainInbox() // actions that came while the job was ending
}

// leave ends the run of a job that has ended already, with the stored state as its own. The actions
// that wait are decided on that.
func (r *runner[S]) leave() error {
	if err := r.load(); err != nil {
		return err
	}
	r.inbox.queue = slices.DeleteFunc(r.inbox.queue, func(req *request) bool {
		first, known := r.findAnswer(req.action, req.ask)
		if known {
			r.remember(req.ask.Proof)
			req.done, req.result, req.err = true, first.Result, first.err()
		}
		return known
	})
	return r.drainInbox()
}

// step does the next thing that the job has to do.
func (r *runner[S]) step() error {
	switch {
	case r.phase.Overtaken():
		return errEnded
	case len(r.inbox.queue) > 0:
		return r.handleNext()
	case r.shouldContinueAsNew():
		return r.continueAsNew()
	case r.status.Parked():
		return r.waitForAction()
	case r.status == lifecycle.JobPending:
		r.enter(lifecycle.JobRunning)
		return r.project(r.ctx, r.moveOf(r.def.Started))
	case r.at >= len(r.def.Stages):
		return r.finish()
	}
	out := r.runStage(r.at)
	switch {
	case out.err != nil:
		return out.err
	case out.failure != nil:
		return r.fail(*out.failure)
	case out.cancelled:
		return r.compensateFor(forCancel, nil)
	case out.backTo != "":
		return r.goBack(out.backTo)
	case out.interrupted:
		return nil // the request that interrupted is in the inbox, or the run continues as new
	}
	r.at++
	return nil
}

// waitForAction waits without a limit on purpose: a parked job is on the attention list, and only
// an operator can move it. A refused action does not end the wait, but it adds to the history.
func (r *runner[S]) waitForAction() error {
	return workflow.Await(r.ctx, func() bool { return len(r.inbox.queue) > 0 || r.phase.Overtaken() || r.shouldContinueAsNew() })
}

var errContinueAsNew = errors.New("continue as new")

// finish ends the job in success.
func (r *runner[S]) finish() error {
	end := lifecycle.JobCompleted
	if r.adopted {
		end = lifecycle.JobReconciled
	}
	r.enter(end)
	r.failure, r.deadline = nil, nil
	err := r.project(r.ctx, r.moveOf(r.def.Succeeded))
	if err == nil || !isPermanent(err) || r.phase != lifecycle.RunnerEnding {
		return err
	}
	// The subject may not move to the state that the job wants. An operator decides, and
	// the workflow keeps running.
	r.enter(lifecycle.JobRunning)
	return r.fail(contract.Failure{
		Class: lifecycle.FailStateDisagreement, Stage: r.stageName(), Message: "every stage is done, but the node cannot follow: " + failureOf(err).Message,
	})
}

// startMove returns the move with which the job begins, if it was not made yet. A
// workflow may be lost before its first step.
func (r *runner[S]) startMove() *contract.Move {
	for _, row := range r.rows {
		if row.Attempts > 0 || row.State == lifecycle.StageAdopted {
			return nil
		}
	}
	return r.moveOf(r.def.Started)
}

// fail ends a stage that has used up its tries. The job parks, or is compensated if its kind gives
// up.
func (r *runner[S]) fail(f contract.Failure) error {
	if r.def.GivesUp != nil && r.def.GivesUp(r.state, f) {
		r.gaveUp = &f
		return r.compensateFor(forCancel, nil)
	}
	return r.park(f)
}

// park stops the job with a failure and projects that.
func (r *runner[S]) park(f contract.Failure) error {
	info := lifecycle.Failure(f.Class)
	r.failure, r.deadline = &f, nil
	r.enter(info.ParkStatus())
	var move *contract.Move
	switch {
	case r.def.Parked != nil:
		move = r.def.Parked(r.state, f)
	case info.NodeUnsafe:
		move = r.moveOf(r.def.Blocked)
	}
	workflow.GetLogger(r.ctx).Warn("job parked", "job", r.in.JobID, "stage", f.Stage, "class", f.Class)
	err := r.project(r.ctx, move)
	if err != nil && isPermanent(err) && r.status == lifecycle.JobFailedRetryable {
		// A lost workflow task may have stored that an operator took the job over.
		r.enter(lifecycle.JobFailedManual)
		return r.project(r.ctx, move)
	}
	return err
}

// goBack continues at an earlier stage; the stages in between run again.
func (r *runner[S]) goBack(to string) error {
	i := r.index(to)
	if i < 0 || i > r.at {
		return r.park(contract.Failure{Class: lifecycle.FailInternal, Stage: r.stageName(), Message: "no earlier stage " + to})
	}
	r.resetFrom(i)
	r.at, r.outside.lookFirst = i, false
	return r.project(r.ctx, nil)
}

// resetFrom marks the stages from i on as pending and keeps their attempts.
func (r *runner[S]) resetFrom(i int) {
	for ; i < len(r.rows); i++ {
		r.rows[i].State, r.rows[i].FailureClass, r.rows[i].StartedAt, r.rows[i].FinishedAt = lifecycle.StagePending, "", nil, nil
	}
}

func (r *runner[S]) moveOf(f func(*S) *contract.Move) *contract.Move {
	if f == nil {
		return nil
	}
	return f(r.state)
}

// nodeID names the job's node, "" while it has none.
func (r *runner[S]) nodeID() string {
	if r.def.NodeID != nil {
		return r.def.NodeID(r.state)
	}
	return r.in.NodeID
}

func (r *runner[S]) index(name string) int {
	for i, st := range r.def.Stages {
		if st.Name == name {
			return i
		}
	}
	return -1
}

func (r *runner[S]) stageName() string {
	if r.at < len(r.def.Stages) {
		return r.def.Stages[r.at].Name
	}
	return r.def.Stages[len(r.def.Stages)-1].Name
}

func (r *runner[S]) now() *time.Time {
	t := workflow.Now(r.ctx).UTC()
	return &t
}
