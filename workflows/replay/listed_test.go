package replay_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// workflowNames notes the workflows that a worker registers, with the names of their functions.
type workflowNames struct{ all, functions []string }

func (n *workflowNames) RegisterWorkflow(any) {}

func (n *workflowNames) RegisterWorkflowWithOptions(run any, o workflow.RegisterOptions) {
	n.all = append(n.all, o.Name)
	name := runtime.FuncForPC(reflect.ValueOf(run).Pointer()).Name()
	n.functions = append(n.functions, name[strings.LastIndex(name, ".")+1:])
}

func (n *workflowNames) RegisterDynamicWorkflow(any, workflow.DynamicRegisterOptions) {}

// The kinds of end that the histories of a job are to show.
const (
	endCompleted = "completed"
	endParked    = "parked, and sent on by an operator"
	endCancelled = "cancelled"
)

// endsOf returns the kinds of end that a history of a job shows.
func endsOf(t *testing.T, h *historypb.History) []string {
	t.Helper()
	var out []string
	for _, e := range h.Events {
		action := ""
		switch e.EventType {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
			out = append(out, endCancelled)
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
			var r contract.JobResult
			require.NoError(t, json.Unmarshal(e.GetWorkflowExecutionCompletedEventAttributes().Result.Payloads[0].Data, &r))
			if r.Status == lifecycle.JobCancelled {
				out = append(out, endCancelled)
			} else {
				out = append(out, endCompleted)
			}
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
			action = e.GetWorkflowExecutionUpdateAcceptedEventAttributes().AcceptedRequest.GetInput().GetName()
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
			action = e.GetWorkflowExecutionSignaledEventAttributes().SignalName
		default:
		}
		if a := lifecycle.Action(action); a == lifecycle.ActionRetryStage || a == lifecycle.ActionRerun || a == lifecycle.ActionResume {
			out = append(out, endParked)
		}
	}
	return out
}

// TestWorkflows_AreFoundByTheirNames: Temporal takes the name of a function, too, as the name of
// its workflow, and prefers it. So no function is named as another workflow.
func TestWorkflows_AreFoundByTheirNames(t *testing.T) {
	t.Parallel()
	var names workflowNames
	server.RegisterWorkflows(&names)
	for i, function := range names.functions {
		for j, name := range names.all {
			require.False(t, i != j && function == name, "the function of workflow %s is named %s, as another workflow is", names.all[i], function)
		}
	}
}

// TestEveryWorkflowIsRecorded: each workflow that a worker registers has a recorded history of this
// release, and each kind of job one of each kind of end.
func TestEveryWorkflowIsRecorded(t *testing.T) {
	t.Parallel()
	var names workflowNames
	server.RegisterWorkflows(&names)
	require.GreaterOrEqual(t, len(names.all), 10)
	jobs := map[string]bool{}
	for _, row := range contract.Kinds {
		jobs[row.Workflow] = true
	}
	var missing []string
	for _, name := range names.all {
		files, err := filepath.Glob(filepath.Join("testdata", name, release, "*.json.gz"))
		require.NoError(t, err)
		if len(files) == 0 {
			missing = append(missing, name)
		}
		if !jobs[name] {
			continue
		}
		var ends []string
		for _, file := range files {
			ends = append(ends, endsOf(t, read(t, file))...)
		}
		for _, end := range []string{endCompleted, endParked, endCancelled} {
			if end == endParked && slices.Contains([]string{contract.WorkflowOf(contract.KindAllocationProvision), contract.WorkflowOf(contract.KindAllocationKeys), contract.WorkflowOf(contract.KindMachineRun)}, name) { // they give up instead
				require.NotContains(t, ends, end)
				continue
			}
			if !slices.Contains(ends, end) {
				missing = append(missing, name+", "+end)
			}
		}
	}
	require.Empty(t, missing, "write a scenario for them and run `make histories`")
}

// TestEveryModeIsRecorded: each mode that takes a node out of service has a recorded history of its
// good end.
func TestEveryModeIsRecorded(t *testing.T) {
	t.Parallel()
	done := map[lifecycle.DecommissionMode]bool{}
	for _, s := range decommissionScenarios() {
		name := contract.WorkflowOf(contract.DecommissionKind(s.mode))
		h := read(t, filepath.Join("testdata", name, release, s.name+".json.gz"))
		require.Equal(t, s.asks, count(h), s.name)
		done[s.mode] = done[s.mode] || s.ends == lifecycle.JobCompleted
	}
	for _, m := range lifecycle.DecommissionModes() {
		require.True(t, done[m.Mode], "%s: write a scenario for it and run `make histories`", m.Mode)
	}
}

// TestScriptedHistoriesAreRecorded holds the stored histories of this release to their tables.
func TestScriptedHistoriesAreRecorded(t *testing.T) {
	t.Parallel()
	for _, j := range scriptedJobs() {
		name := contract.WorkflowOf(j.kind)
		for i, end := range scriptedEnds() {
			if i == 1 && j.givesUp {
				continue
			}
			require.Equal(t, j.asks[i], count(read(t, filepath.Join("testdata", name, release, j.prefix+end+".json.gz"))), "%s, %s", name, j.prefix+end)
		}
	}
	for _, p := range passes() {
		require.Equal(t, p.asks, count(read(t, filepath.Join("testdata", p.workflow, release, p.name+".json.gz"))), "%s, %s", p.workflow, p.name)
	}
}
