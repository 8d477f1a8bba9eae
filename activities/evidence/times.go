package evidence

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// stepOfRelease is the step of MAAS's erasure.
const stepOfRelease = "maas.release/erase"

// setTimes gives every step its time and the run its end. Nodes have clocks of their own, which may
// be wrong and which a tenant may have set: what a task reports is kept within the time that the
// control plane saw the task run. MAAS's erasure has the times of its stage. A step that says what
// was not done has the time at which the evidence before it ended.
func (a *Activities) setTimes(ctx context.Context, g *gathered) error {
	start := g.in.StartedAt
	for _, s := range g.steps {
		g.ended = latest(g.ended, s.EndedAt)
	}
	g.ended = latest(g.ended, start)
	rows, err := a.Store.JobStages(ctx, g.in.JobID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	for i := range g.steps {
		s := &g.steps[i]
		if s.Name == stepOfRelease {
			s.StartedAt, s.EndedAt = timesOfStage(rows, lifecycle.StageReleaseMAAS)
		}
		if s.StartedAt.IsZero() {
			s.StartedAt = latest(s.EndedAt, g.ended)
		}
		s.EndedAt = latest(s.EndedAt, s.StartedAt)
		s.StartedAt, s.EndedAt = s.StartedAt.UTC(), s.EndedAt.UTC()
	}
	for _, s := range g.steps {
		g.ended = latest(g.ended, s.EndedAt)
	}
	return nil
}

// timesOfStage returns when a stage of the job ran. Both are zero where it did not.
func timesOfStage(rows []lifecycle.StageRow, name string) (start, end time.Time) {
	i := slices.IndexFunc(rows, func(r lifecycle.StageRow) bool { return r.Name == name })
	if i < 0 || rows[i].StartedAt == nil {
		return start, end
	}
	start = *rows[i].StartedAt
	if rows[i].FinishedAt != nil {
		end = *rows[i].FinishedAt
	}
	return start, latest(end, start)
}

// clampToTask keeps the times of a reported step within the time in which the task ran.
func clampToTask(t *db.NodeTask, s *lifecycle.StepResult) {
	from, to := t.CreatedAt, t.StatusAt
	if t.DispatchedAt != nil {
		from = *t.DispatchedAt
	}
	if t.FinishedAt != nil {
		to = *t.FinishedAt
	}
	to = latest(to, from)
	within := func(at, otherwise time.Time) time.Time {
		switch {
		case at.IsZero():
			return otherwise
		case at.Before(from):
			return from
		case at.After(to):
			return to
		}
		return at
	}
	s.EndedAt = within(s.EndedAt, to)
	s.StartedAt = within(s.StartedAt, from)
	if s.StartedAt.After(s.EndedAt) {
		s.StartedAt = s.EndedAt
	}
}

func latest(x, y time.Time) time.Time {
	if y.After(x) {
		return y
	}
	return x
}
