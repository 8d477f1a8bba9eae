package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var projections *projection.Activities

func (r *runner[S]) readSnapshot() (contract.Snapshot, error) {
	for away := 0; ; away++ { // as long as a projection waits
		var snap contract.Snapshot
		ctx := quickDB(r.ctx, "load job")
		err := workflow.ExecuteLocalActivity(ctx, projections.TakeJob, r.in).Get(ctx, &snap)
		if err == nil || isPermanent(err) || away == unavailableLimit {
			return snap, err
		}
	}
}

// project writes the job's present state and the audit rows of all actions since the last
// projection, as one local activity in one transaction. c is the context of the calling coroutine:
// the runner's own or a handler's. move belongs to the state that the runner has just entered. A
// handler that stores this state before the runner makes the move with it.
func (r *runner[S]) project(c workflow.Context, move *contract.Move) error {
	if move != nil {
		r.unstored.move = move
	}
	if err := r.mu.Lock(c); err != nil {
		return err
	}
	err := r.projectLocked(c)
	r.mu.Unlock()
	if err != nil && move != nil && r.unstored.move == move {
		r.unstored.move = nil // the runner takes another way
	}
	return err
}

func (r *runner[S]) projectLocked(c workflow.Context) error {
	if r.phase == lifecycle.RunnerOvertaken {
		return r.giveUp(nil, errEnded)
	}
	entries, by := r.unstored.entries, r.unstored.by
	r.unstored.entries, r.unstored.by = nil, ""
	p := r.projection()
	kept := checkpoint[S]{State: r.state, Purpose: r.purpose, GaveUp: r.gaveUp, Answers: r.answers, Observed: p.Observed}
	if r.phase == lifecycle.RunnerContinuing {
		kept.InterruptedStage, kept.Deadline = r.wait.stage, r.deadline
	}
	cp, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("write the checkpoint of %s: %w", r.in.JobID, err)
	}
	for i := range entries {
		entries[i].Seen = r.knows(entries[i].Proof)
	}
	move := r.unstored.move
	p.Checkpoint, p.Actions, p.By = cp, entries, by
	p.Moves = r.moves(p, move, p.Status != r.stored.status)
	res, err := r.write(c, &p, move)
	if err != nil {
		return r.giveUp(entries, err)
	}
	r.stored.status = p.Status
	if r.phase == lifecycle.RunnerEnding {
		r.move(lifecycle.RunnerEnded)
	}
	if r.unstored.move == move {
		r.unstored.move = nil
	}
	if res.Pass > 0 {
		*r.pass = res.Pass
	}
	r.renameFreezer(entries, res)
	for i, e := range entries {
		if !slices.Contains(res.Unproven, i) {
			r.remember(e.Proof)
		}
	}
	r.publish()
	return nil
}

// giveUp keeps the audit rows of a projection that was not stored for the next one. Once the job
// has ended, an action with an effect has none, and is decided again.
func (r *runner[S]) giveUp(entries []contract.ActionEntry, err error) error {
	r.unstored.entries = append(entries, r.unstored.entries...)
	if errors.Is(err, errEnded) {
		r.unstored.entries = slices.DeleteFunc(r.unstored.entries, func(e contract.ActionEntry) bool {
			return e.Effect != lifecycle.EffectRefuse && e.Effect != lifecycle.EffectNoop
		})
	}
	return err
}

// remember keeps the nonce of an action that is stored, so that a copy of it is known as one.
func (r *runner[S]) remember(p *contract.ActionProof) {
	if p != nil && !r.knows(p) {
		r.stored.nonces = append(r.stored.nonces, p.Nonce)
	}
}

// knows reports whether this run has stored an action with the same nonce before.
func (r *runner[S]) knows(p *contract.ActionProof) bool {
	return p != nil && slices.Contains(r.stored.nonces, p.Nonce)
}

// moves returns the moves of a projection: that of the state that the runner has entered, and that
// of the job's subject.
func (r *runner[S]) moves(p contract.Projection, move *contract.Move, entered bool) []contract.Move {
	var out []contract.Move
	if move != nil {
		out = append(out, *move)
	}
	if r.def.Moves == nil {
		return out
	}
	at := contract.Step{Failure: p.Failure}
	if entered {
		at.Entered = p.Status
	}
	if m := r.def.Moves(r.state, at); m != nil {
		out = append(out, *m)
	}
	return out
}

// write applies a projection. A run that a Temporal reset put behind the
// stored state catches up with its sequence number and writes again.
func (r *runner[S]) write(c workflow.Context, p *contract.Projection, move *contract.Move) (contract.ProjectResult, error) {
	away := 0
	for catchUp := 0; ; {
		r.stored.seq++
		p.Seq = r.stored.seq
		var res contract.ProjectResult
		ctx := quickDB(c, "project "+p.Stage)
		if err := workflow.ExecuteLocalActivity(ctx, projections.ProjectJob, *p).Get(ctx, &res); err != nil {
			if isPermanent(err) || away == unavailableLimit {
				return res, err
			}
			away++ // the database is away for longer than one activity waits
			continue
		}
		if res.Applied {
			r.stored.runbook = res.Runbook
			return res, nil
		}
		if res.Ended != "" {
			if r.phase != lifecycle.RunnerHandedOver {
				r.move(lifecycle.RunnerOvertaken)
			}
			r.interruptStage()
			return res, errEnded
		}
		if catchUp++; catchUp > maxCatchUps {
			return res, fmt.Errorf("the state of %s could not be stored: another run of its workflow writes at the same time; resume the job", p.JobID)
		}
		r.stored.seq = max(r.stored.seq, res.StoredSeq)
		if !lifecycle.Job.Terminal(r.stored.status) {
			p.Moves = r.moves(*p, move, true) // what is stored may be of another status than this run knows
		}
	}
}

// errEnded means that the job has ended, by steps that a lost workflow task of this run stored, or
// before Temporal reset the run. The run does nothing more.
var errEnded = errors.New("the job has ended")

// maxCatchUps bounds how often a run that is behind the stored state tries to catch up with it.
const maxCatchUps = 3

// unavailableLimit bounds how many hours a job waits for its database: a week.
const unavailableLimit = 7 * 24

// isPermanent reports an answer of the database that no repetition changes.
func isPermanent(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.NonRetryable()
}

func (r *runner[S]) projection() contract.Projection {
	now := r.now()
	p := contract.Projection{
		JobID: r.in.JobID, Kind: r.in.Kind, NodeID: r.nodeID(), RunID: r.runID,
		Status: r.status, Stage: r.stageName(), StageOrdinal: min(r.at, len(r.rows)-1) + 1,
		Stages: append([]lifecycle.StageRow(nil), r.rows...), Failure: r.failure,
		WaitingOut: r.waitingOutside(), Frozen: r.frozen, Adopted: r.adopted, StageDeadline: r.deadline,
		At: now, ActionType: r.def.Stages[min(r.at, len(r.rows)-1)].ActionType,
	}
	p.Attempt = r.rows[p.StageOrdinal-1].Attempts
	if r.def.Observed != nil {
		o := r.def.Observed(r.state)
		if o != r.outside.last || r.outside.since == nil {
			r.outside.last, r.outside.since = o, now
		}
		o.At = r.outside.since
		p.Observed = &o
	}
	if r.def.Metadata != nil {
		p.Metadata = r.def.Metadata(r.state)
	}
	p.Metadata.CorrelationID, p.Did = r.runID, r.did
	shares := make([]lifecycle.StageShare, 0, len(r.rows))
	for i, row := range r.rows {
		st := r.def.Stages[i]
		shares = append(shares, lifecycle.StageShare{State: row.State, Weight: st.Weight, Percent: st.Percent})
	}
	p.Progress, r.reached = lifecycle.Progress(r.status, r.reached, shares)
	p.Reached = r.reached
	return p
}

// waitingOutside is the fact that allows adopt_observed_state while running.
func (r *runner[S]) waitingOutside() bool {
	return r.status == lifecycle.JobRunning && r.at < len(r.def.Stages) && r.def.Stages[r.at].Waits
}

type attributes struct {
	status, stage    string
	node             string // of a job that was started without one
	requiresOperator bool
}

// publish puts the state where the Temporal Web UI and CLI see it.
func (r *runner[S]) publish() {
	workflow.SetCurrentDetails(r.ctx, r.details())
	a := attributes{status: string(r.status), stage: r.stored.attributes.stage, requiresOperator: r.status.Parked()}
	if r.in.NodeID == "" {
		a.node = r.nodeID()
	}
	// Each upsert costs the server as much as half an activity. The details above are always exact.
	// The Stage attribute changes only at the points where a job can stand still: at stages that
	// wait, parked, and at its end.
	if r.waitingOutside() || r.status != lifecycle.JobRunning {
		a.stage = r.stageName()
	}
	if a == r.stored.attributes {
		return
	}
	found := a.node != r.stored.attributes.node
	r.stored.attributes = a
	set := []temporal.SearchAttributeUpdate{
		contract.JobStatusAttribute.ValueSet(a.status), contract.NeedsHumanAttribute.ValueSet(a.requiresOperator),
	}
	if a.stage != "" {
		set = append(set, contract.StageAttribute.ValueSet(a.stage))
	}
	if found {
		set = append(set, contract.NodeIDAttribute.ValueSet(a.node))
	}
	if err := workflow.UpsertTypedSearchAttributes(r.ctx, set...); err != nil {
		workflow.GetLogger(r.ctx).Warn("search attributes not set", "error", err)
	}
}

var marks = map[lifecycle.StageState]string{
	lifecycle.StagePending: "·", lifecycle.StageRunning: "▶", lifecycle.StageSucceeded: "✓", lifecycle.StageFailed: "✗",
	lifecycle.StageSkipped: "–", lifecycle.StageAdopted: "≈", lifecycle.StageCompensated: "↩",
}

// details is the Markdown stage table of the Temporal Web UI.
func (r *runner[S]) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s** %s %s · %d %%\n\n", r.in.JobID, oneLine(r.in.Hostname), r.status, r.reached)
	if r.failure != nil {
		info := lifecycle.Failure(r.failure.Class)
		fmt.Fprintf(&b, "**%s** at `%s`: %s\n\nNext: `%s`. %s\n\n", r.failure.Class, r.failure.Stage, oneLine(r.failure.Message), info.Recommended, info.Next)
		if r.stored.runbook != "" {
			fmt.Fprintf(&b, "Runbook: %s\n\n", r.stored.runbook)
		}
	}
	b.WriteString("| | stage | state | attempts | took | |\n|---|---|---|---|---|---|\n")
	for _, row := range r.rows {
		took := ""
		if row.StartedAt != nil && row.FinishedAt != nil {
			took = row.FinishedAt.Sub(*row.StartedAt).Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %d | %s | %s |\n", marks[row.State], row.Name, row.State, row.Attempts, took, oneLine(row.Message))
	}
	return b.String()
}

func oneLine(s string) string {
	s = strings.NewReplacer("\n", " ", "|", "\\|").Replace(s)
	if len(s) > 160 {
		s = strings.ToValidUTF8(s[:160], "") + "…"
	}
	return s
}
