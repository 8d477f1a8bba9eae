package temporalx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonpb "go.temporal.io/api/common/v1"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
)

// Watch finds out how the job workflows of one task queue stand; workflows of
// other task queues in the namespace are not its business.
type Watch struct {
	Client    client.Client
	Namespace string
	TaskQueue string
	Payloads  *payloadcodec.Codec // nil for plain payloads
}

// Open is a job workflow that runs, as the list of workflows tells; the list is
// behind by up to some seconds.
type Open struct {
	WorkflowID string
	RunID      string
	Started    time.Time
}

// Execution is how one workflow stands, exactly. Of one that is not there only
// Found is set.
type Execution struct {
	Found   bool
	Running bool
	Paused  bool // by an operator, in Temporal; the workflow still runs
	RunID   string
	Status  string // as Temporal names it: Running, Terminated, ...
	Build   string // the build that it is pinned to, "" for none
	Started time.Time
	Closed  time.Time
	// Task is the workflow task that waits or runs, nil for none.
	Task       *PendingTask
	Activities []PendingActivity
}

// PendingTask is a workflow task that has not been answered yet.
type PendingTask struct {
	Attempt   int
	Scheduled time.Time
	Taken     bool // by a worker
}

// PendingActivity is an activity that has not ended yet.
type PendingActivity struct {
	Name      string
	Attempt   int
	Scheduled time.Time // of this attempt; may lie ahead
	Taken     bool
	Paused    bool
	Heartbeat time.Time
	Failure   string // of the attempt before, "" for none, and for one that waits without a worker
}

// The limits of one question each, so that no pass hangs on one.
const (
	listPage     = 1000
	listTimeout  = 10 * time.Second
	lookTimeout  = 5 * time.Second
	maxToldError = 300
)

// OpenWorkflows lists the job workflows that run on the task queue, at most
// limit; all tells whether these are all.
func (w Watch) OpenWorkflows(ctx context.Context, limit int) (open []Open, all bool, err error) {
	types := make([]string, 0, len(contract.Kinds))
	for _, row := range contract.Kinds {
		types = append(types, quoted(row.Workflow))
	}
	query := fmt.Sprintf("TaskQueue = %s AND ExecutionStatus = 'Running' AND WorkflowType IN (%s)", quoted(w.TaskQueue), strings.Join(types, ", "))
	var token []byte
	for {
		res, err := w.list(ctx, query, token)
		if err != nil {
			return nil, false, fmt.Errorf("list the workflows of task queue %s: %w", w.TaskQueue, err)
		}
		for _, e := range res.GetExecutions() {
			open = append(open, Open{WorkflowID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId(), Started: at(e.GetStartTime())})
		}
		token = res.GetNextPageToken()
		if len(token) == 0 || len(open) >= limit {
			return open, len(token) == 0, nil
		}
	}
}

func (w Watch) list(ctx context.Context, query string, token []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return w.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: w.Namespace, PageSize: listPage, Query: query, NextPageToken: token,
	})
}

// quoted is a text in Temporal's query language.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Look asks how the latest run of a workflow stands.
func (w Watch) Look(ctx context.Context, workflowID string) (Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	res, err := w.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return Execution{}, nil
	}
	if err != nil {
		return Execution{}, fmt.Errorf("look at workflow %s: %w", workflowID, err)
	}
	info := res.GetWorkflowExecutionInfo()
	e := Execution{
		Found: true, Running: lives(info.GetStatus()), RunID: info.GetExecution().GetRunId(), Status: info.GetStatus().String(),
		Paused:  info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED,
		Started: at(info.GetStartTime()), Closed: at(info.GetCloseTime()),
		Build: info.GetVersioningInfo().GetDeploymentVersion().GetBuildId(),
	}
	if t := res.GetPendingWorkflowTask(); t != nil {
		e.Task = &PendingTask{Attempt: int(t.GetAttempt()), Scheduled: at(t.GetScheduledTime()), Taken: t.GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_STARTED}
	}
	for _, a := range res.GetPendingActivities() {
		e.Activities = append(e.Activities, w.pendingActivity(a))
	}
	return e, nil
}

func lives(s enumspb.WorkflowExecutionStatus) bool {
	return s == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || s == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
}

func (w Watch) pendingActivity(a *workflowpb.PendingActivityInfo) PendingActivity {
	state := a.GetState()
	scheduled := at(a.GetScheduledTime())
	if next := at(a.GetNextAttemptScheduleTime()); next.After(scheduled) {
		scheduled = next
	}
	out := PendingActivity{
		Name: a.GetActivityType().GetName(), Attempt: int(a.GetAttempt()), Scheduled: scheduled, Heartbeat: at(a.GetLastHeartbeatTime()),
		Taken:  state == enumspb.PENDING_ACTIVITY_STATE_STARTED || state == enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
		Paused: a.GetPaused(),
	}
	if !waitsOutside(a) {
		out.Failure = told(w.messageOf(a.GetLastFailure()))
	}
	return out
}

// waitsOutside: an activity without heartbeats is ended from outside, and to run
// out of time is how it takes its wait up again: no failure.
func waitsOutside(a *workflowpb.PendingActivityInfo) bool {
	o := a.GetActivityOptions()
	return o != nil && o.GetHeartbeatTimeout().AsDuration() == 0 &&
		a.GetLastFailure().GetTimeoutFailureInfo().GetTimeoutType() == enumspb.TIMEOUT_TYPE_START_TO_CLOSE
}

// Ending tells in words how a run ended, by whom and why. "" when its history
// is not there any more.
func (w Watch) Ending(ctx context.Context, workflowID, runID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	it := w.Client.GetWorkflowHistory(ctx, workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	var gone *serviceerror.NotFound
	for it.HasNext() {
		e, err := it.Next()
		switch {
		case errors.As(err, &gone):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("read how workflow %s ended: %w", workflowID, err)
		}
		if words := w.ending(e); words != "" {
			return words, nil
		}
	}
	return "", nil
}

func (w Watch) ending(e *historypb.HistoryEvent) string {
	switch a := e.GetAttributes().(type) {
	case *historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes:
		t := a.WorkflowExecutionTerminatedEventAttributes
		return "was terminated" + by(t.GetIdentity()) + because(t.GetReason())
	case *historypb.HistoryEvent_WorkflowExecutionTimedOutEventAttributes:
		return "timed out"
	case *historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes:
		return "failed" + because(w.messageOf(a.WorkflowExecutionFailedEventAttributes.GetFailure()))
	case *historypb.HistoryEvent_WorkflowExecutionCanceledEventAttributes:
		return "ended as cancelled"
	case *historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes:
		return "completed without writing the job's end"
	case *historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes:
		return "continued as a run that is not there"
	}
	return ""
}

// messageOf returns the message of a failure, decrypted.
func (w Watch) messageOf(f *failurepb.Failure) string {
	if f != nil {
		converter.DecodeCommonFailureAttributes(NewDataConverter(w.Payloads), f)
	}
	return f.GetMessage()
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + told(who)
}

func because(why string) string {
	if why == "" {
		return ", no reason given"
	}
	return ": " + told(why)
}

// told keeps foreign text short and on one line.
func told(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(strings.ReplaceAll(s, "\x00", " ")), " "), "?")
	if len(s) > maxToldError {
		s = strings.ToValidUTF8(s[:maxToldError], "") + "…"
	}
	return s
}

const recentEvents = 20

// TaskFailure tells why the workflow's last failed task failed; "" when none of
// its last events says.
func (w Watch) TaskFailure(ctx context.Context, workflowID, runID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	res, err := w.Client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: w.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID}, MaximumPageSize: recentEvents,
	})
	if err != nil {
		return "", fmt.Errorf("read the last events of workflow %s: %w", workflowID, err)
	}
	for _, e := range res.GetHistory().GetEvents() {
		if a := e.GetWorkflowTaskFailedEventAttributes(); a != nil {
			return told(a.GetCause().String() + ": " + w.messageOf(a.GetFailure())), nil
		}
	}
	return "", nil
}

// Cancel asks a run to end by itself. A run that has ended is no error.
func (w Watch) Cancel(ctx context.Context, workflowID, runID string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return ended(w.Client.CancelWorkflow(ctx, workflowID, runID))
}

// Terminate ends a run at once. A run that has ended is no error.
func (w Watch) Terminate(ctx context.Context, workflowID, runID, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return ended(w.Client.TerminateWorkflow(ctx, workflowID, runID, reason))
}

func ended(err error) error {
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}

// at is a time that may be missing.
func at(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
