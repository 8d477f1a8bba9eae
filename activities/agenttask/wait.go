package agenttask

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// maxTasks is more than the tasks of one job.
const maxTasks = 100

// TasksDone is the answer to a question about all tasks of a job.
type TasksDone struct {
	Done bool   `json:"done,omitempty"`
	Note string `json:"note,omitempty"` // the task that is the reason when Done is false
}

// TimelineNote returns what the node's timeline says of the answer.
func (f TasksDone) TimelineNote() string { return f.Note }

// WaitForTasksIn is the input of WaitForTasks.
type WaitForTasksIn struct {
	contract.JobRef
	Until time.Time     `json:"until"`
	Poll  spec.Duration `json:"poll,omitempty"`
}

// WaitForTasks waits, at most until Until, for the end of the tasks of the job that the node's
// agent has begun. It does not wait for tasks that erase or uninstall. Done is false when a task is
// still open at Until. With ObserveOnly it reads once.
func (a *Activities) WaitForTasks(ctx context.Context, in WaitForTasksIn) (TasksDone, error) {
	out := TasksDone{}
	err := fault.PollStore(ctx, in.Poll.D(), func() (bool, error) {
		tasks, err := a.Store.ListTasks(ctx, db.TaskFilter{NodeID: in.NodeID, JobID: in.JobID}, "", maxTasks)
		if err != nil {
			return false, err
		}
		out.Done, out.Note = true, ""
		for _, t := range tasks {
			lasting := t.Kind == lifecycle.TaskKindScrub || t.Kind == lifecycle.TaskKindUninstall
			if t.Status == lifecycle.TaskQueued || t.Status == lifecycle.TaskDispatched && !lasting {
				out.Done, out.Note = false, fmt.Sprintf("task %s (%s) is %s on the node", t.ID, t.Kind, t.Status)
			}
		}
		return out.Done || in.ObserveOnly || time.Now().After(in.Until), nil
	})
	return out, fault.Internal(ctx, err)
}

// CheckNothingErased reports whether the node's agent has begun no erasure of the job: Done is true
// then. A scrub that was only queued has changed nothing.
func (a *Activities) CheckNothingErased(ctx context.Context, in contract.JobRef) (TasksDone, error) {
	tasks, err := a.Store.ListTasks(ctx, db.TaskFilter{NodeID: in.NodeID, JobID: in.JobID, Kind: lifecycle.TaskKindScrub}, "", maxTasks)
	if err != nil {
		return TasksDone{}, fault.Internal(ctx, err)
	}
	out := TasksDone{Done: true}
	for _, t := range tasks {
		if t.Attempt > 0 {
			out.Done, out.Note = false, fmt.Sprintf("task %s (%s) was begun on the node and is %s", t.ID, t.Kind, t.Status)
		}
	}
	return out, nil
}
