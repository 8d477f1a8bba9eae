package db

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// agentSilence is how long an agent may be silent before it is said of its task
// that it waits in vain.
const agentSilence = 90 * time.Second

// UndeliveredTask is a task that a running job waits for, of a node whose agent sends no
// heartbeats.
type UndeliveredTask gen.UndeliveredTasksRow

// UndeliveredTasks lists them as of now, of one job or of all (""), at most 1000.
func (s statements) UndeliveredTasks(ctx context.Context, jobID string, now time.Time) ([]UndeliveredTask, error) {
	rows, err := s.q.UndeliveredTasks(ctx, gen.UndeliveredTasksParams{Since: now.Add(-agentSilence), OfJob: jobID, MaxRows: maxPage})
	out := make([]UndeliveredTask, 0, len(rows))
	for _, r := range rows {
		out = append(out, UndeliveredTask(r))
	}
	return out, MapError("list tasks of silent agents", err)
}

// Words says it to an operator.
func (t UndeliveredTask) Words(now time.Time) string {
	heard := "has never been heard"
	if t.Heard {
		heard = fmt.Sprintf("was last heard at %s, %s ago", t.HeardAt.UTC().Format(time.RFC3339), now.Sub(t.HeardAt).Round(time.Second))
	}
	return fmt.Sprintf("it waits for task %s (%s) of the node's agent, which %s; bring the node back, or wait for the task to expire at %s",
		t.Kind, t.ID, heard, t.DeadlineAt.UTC().Format(time.RFC3339))
}
