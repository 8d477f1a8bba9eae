package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// play is one scenario on a running worker.
type play struct {
	agent *stand
	rig   *rig.Rig
	node  rig.Node
	job   string
	run   client.WorkflowRun

	bootstrapped bool // an enrolment token was sealed
}

// perform runs a scenario to its end.
func perform(t *testing.T, s scenario) *play {
	t.Helper()
	p := &play{rig: rig.New(t, s.region())}
	var err error
	p.node, err = p.rig.AddNode(t.Context(), "gpu-"+strings.ReplaceAll(s.name, "_", "-"), s.manual)
	require.NoError(t, err)
	p.job, p.run, err = p.rig.Run(t.Context(), p.node)
	require.NoError(t, err)
	if s.drive != nil {
		s.drive(t, p)
	}
	if err := p.ends(t); err != nil {
		require.True(t, temporal.IsCanceledError(err), "the workflow ended: %v", err)
	}
	require.Equal(t, s.ends, p.state(t).Status)
	return p
}

// ends waits until the workflow has ended, and returns its error. Where it does not end in time the
// test fails with what it waits for: an activity that the rig does not register is repeated without
// end.
func (p *play) ends(t *testing.T) error {
	t.Helper()
	limited, cancel := context.WithTimeout(t.Context(), runenv.Patience(2*patience))
	defer cancel()
	err := p.run.Get(limited, nil)
	if limited.Err() == nil || t.Context().Err() != nil {
		return err
	}
	now, err := p.rig.Temporal.DescribeWorkflowExecution(t.Context(), p.run.GetID(), p.run.GetRunID())
	require.NoError(t, err)
	waits := []string{"it has taken " + strconv.FormatInt(now.WorkflowExecutionInfo.HistoryLength, 10) + " events"}
	for _, a := range now.PendingActivities {
		waits = append(waits, fmt.Sprintf("activity %s, attempt %d: %s", a.ActivityType.Name, a.Attempt, a.LastFailure.GetMessage()))
	}
	if task := now.PendingWorkflowTask; task != nil {
		waits = append(waits, fmt.Sprintf("a task of the workflow, attempt %d", task.Attempt))
	}
	require.FailNow(t, "the workflow did not end", strings.Join(waits, "\n"))
	return nil
}

func (p *play) state(t *testing.T) db.Job {
	t.Helper()
	j, err := p.rig.Store.Job(t.Context(), p.job)
	require.NoError(t, err)
	return j
}

func (p *play) until(t *testing.T, what string, is func(db.Job) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		j, err := p.rig.Store.Job(t.Context(), p.job)
		return err == nil && is(j)
	}, runenv.Patience(patience), 20*time.Millisecond, what)
}

// at waits until the job runs this stage and an activity of it has started: the named one, or any
// for "".
func (p *play) at(t *testing.T, stage, activity string) {
	t.Helper()
	p.until(t, "at "+stage, func(j db.Job) bool { return j.Status == lifecycle.JobRunning && j.Stage == stage })
	require.Eventually(t, func() bool {
		d, err := p.rig.Temporal.DescribeWorkflowExecution(t.Context(), p.run.GetID(), p.run.GetRunID())
		return err == nil && len(d.PendingActivities) > 0 && d.PendingActivities[0].State == enumspb.PENDING_ACTIVITY_STATE_STARTED &&
			(activity == "" || d.PendingActivities[0].ActivityType.Name == activity)
	}, runenv.Patience(patience), 20*time.Millisecond, "the activity of "+stage)
}

// parks waits until the job is parked for this reason.
func (p *play) parks(t *testing.T, class lifecycle.FailureClass) {
	t.Helper()
	p.until(t, "parked for "+string(class), func(j db.Job) bool { return j.Status.Parked() })
	require.Equal(t, class, p.state(t).FailureClass)
}

func ask() contract.ActionRequest {
	return contract.ActionRequest{Actor: "recorder", Reason: "as the scenario says"}
}

func (p *play) update(t *testing.T, a lifecycle.Action) {
	t.Helper()
	p.updateWith(t, a, ask())
}

func (p *play) updateWith(t *testing.T, a lifecycle.Action, request contract.ActionRequest) {
	t.Helper()
	h, err := p.rig.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: p.run.GetID(), RunID: p.run.GetRunID(), UpdateName: string(a), Args: []any{request}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, h.Get(t.Context(), nil))
}

func (p *play) signal(t *testing.T, a lifecycle.Action) {
	t.Helper()
	require.NoError(t, p.rig.Temporal.SignalWorkflow(t.Context(), p.run.GetID(), p.run.GetRunID(), string(a), ask()))
}

// history fetches what Temporal has written down, decrypted: a recorded history is read in reviews,
// and replayed without a key.
func (p *play) history(t *testing.T) *historypb.History {
	t.Helper()
	h := &historypb.History{}
	it := p.rig.Temporal.GetWorkflowHistory(t.Context(), p.run.GetID(), p.run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		e, err := it.Next()
		require.NoError(t, err)
		h.Events = append(h.Events, e)
	}
	require.NoError(t, p.rig.Payloads.DecodeHistory(t.Context(), h))
	return h
}

// plain is a history as JSON, payloads readable, without this machine's name.
func plain(t *testing.T, h *historypb.History) []byte {
	t.Helper()
	raw, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(h)
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	return bytes.ReplaceAll(raw, []byte(`"name": "`+host+`:`), []byte(`"name": "recorder:`)) // of sticky queues
}

func store(t *testing.T, file string, raw []byte) {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	require.NoError(t, err)
	_, err = z.Write(raw)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file+".new", b.Bytes(), 0o600))
	require.NoError(t, os.Rename(file+".new", file)) // another test may be reading
}
