package machinerun_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/workflows/machinerun"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

type fixture struct {
	*stagetest.Harness
	stagetest.Activities
}

func step(name string, kind runplan.Kind, retries int) contract.RunStep {
	return contract.RunStep{Name: name, Kind: kind, TimeoutSeconds: 60, Retries: retries}
}

func setup(t *testing.T, steps ...contract.RunStep) *fixture {
	t.Helper()
	f := &fixture{Harness: stagetest.New(t, machinerun.Run, contract.KindMachineRun, contract.MachineRunInput{RunID: "run_1", MachineID: "m-1", Steps: steps})}
	f.register()
	return f
}

func (f *fixture) register() {
	f.Register(f.Env, &machineact.Activities{})
	f.Answer("ReadBootID", func() (any, error) { return machineact.StepFacts{BootID: "boot-1"}, nil })
	f.Answer("Reboot", func() (any, error) { return machineact.StepFacts{BootID: "boot-2"}, nil })
}

// states returns the last state of each step.
func (f *fixture) states() map[string]lifecycle.StepState {
	out := map[string]lifecycle.StepState{}
	for _, row := range f.Store.Last().Stages {
		out[row.Name] = lifecycle.StepStateOf(row.State)
	}
	return out
}

// phase returns the phase of the run after the last projection.
func (f *fixture) phase() lifecycle.RunPhase {
	p := f.Store.Last()
	said := stagetest.MoveOf[contract.RunProgress](p, contract.SubjectRun)
	var class lifecycle.FailureClass
	switch {
	case p.Status == lifecycle.JobCancelled && said != nil && said.Failure != nil:
		class = said.Failure.Class
	case p.Status != lifecycle.JobCancelled && p.Failure != nil:
		class = p.Failure.Class
	}
	return lifecycle.RunPhaseOf(p.Status, class)
}

func TestRun_StepsRunInOrder(t *testing.T) {
	t.Parallel()
	f := setup(t, step("net-boot", runplan.KindNetboot, 2), step("restart", runplan.KindReboot, 1), step("check", runplan.KindSSH, 0))
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []string{"SetNetboot", "ReadBootID", "Reboot", "RunCommand"}, f.Calls(), "the device counts for the boot that followed: nothing is cleared")
	require.Equal(t, lifecycle.RunSucceeded, f.phase())
	var names []string
	for i, row := range f.Store.Last().Stages {
		require.Equal(t, i+1, row.Ordinal)
		names = append(names, row.Name)
	}
	require.Equal(t, []string{"net-boot", "restart", "check"}, names)
}

// A device for a boot that the run does not make is cleared at its end.
func TestRun_ClearsANetbootThatNoBootUsed(t *testing.T) {
	t.Parallel()
	f := setup(t, step("net-boot", runplan.KindNetboot, 0), step("check", runplan.KindSSH, 0))
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []string{"SetNetboot", "RunCommand", "ClearNetboot"}, f.Calls())
}

// TestRun_AnUnsentNetbootIsNotCleared: a BMC that never answers does not keep the run from its end.
// The netboot of a BMC that may have got one of the orders is cleared.
func TestRun_AnUnsentNetbootIsNotCleared(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends   []machineact.CommandEnd
		clears bool
	}{
		"never sent": {[]machineact.CommandEnd{machineact.CommandUnsent, machineact.CommandUnsent}, false},
		"sent first": {[]machineact.CommandEnd{"", machineact.CommandUnsent}, true},
		"sent last":  {[]machineact.CommandEnd{machineact.CommandUnsent, ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, step("net-boot", runplan.KindNetboot, 1))
			ends := tc.ends
			f.Answer("SetNetboot", func() (any, error) {
				end := ends[0]
				ends = ends[1:]
				return nil, machineact.MarkEnd(stagetest.Failure(lifecycle.FailBMCUnreachable), end)
			})
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			require.Equal(t, lifecycle.RunFailed, f.phase())
			require.Equal(t, tc.clears, slices.Contains(f.Calls(), "ClearNetboot"))
		})
	}
}

// TestRun_StopsAtTheFirstFailedStep: a step is repeated as often as it says, whatever its failures
// are classed as. Then the run has failed, later steps wait for ever, and nothing is left for the
// next boot.
func TestRun_StopsAtTheFirstFailedStep(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		retries, fails, calls int
		class                 lifecycle.FailureClass
		end                   lifecycle.RunPhase
	}{
		"no retries":            {0, 1, 1, lifecycle.FailCommand, lifecycle.RunFailed},
		"the retry succeeds":    {1, 1, 2, lifecycle.FailCommand, lifecycle.RunSucceeded},
		"the retries are spent": {2, 9, 3, lifecycle.FailBMCUnreachable, lifecycle.RunFailed},
		"more than the class":   {5, 5, 6, lifecycle.FailPowerNotConfirmed, lifecycle.RunSucceeded},
		"never of a manual one": {3, 9, 1, lifecycle.FailCommandUncertain, lifecycle.RunFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, step("net-boot", runplan.KindNetboot, 0), step("work", runplan.KindSSH, tc.retries), step("restart", runplan.KindReboot, 0))
			left := tc.fails
			f.Answer("RunCommand", func() (any, error) {
				if left--; left >= 0 {
					return nil, machineact.MarkEnd(stagetest.Failure(tc.class), machineact.CommandEnded)
				}
				return nil, nil
			})
			f.Run()
			calls := 0
			for _, c := range f.Calls() {
				if c == "RunCommand" {
					calls++
				}
			}
			require.Equal(t, tc.calls, calls)
			require.Equal(t, tc.end, f.phase())
			if tc.end == lifecycle.RunSucceeded {
				return
			}
			require.Equal(t, map[string]lifecycle.StepState{"net-boot": "FAILED", "work": "FAILED", "restart": "WAITING"}, f.states(), "the device was taken back")
			require.Contains(t, f.Calls(), "ClearNetboot")
			require.NotContains(t, f.Calls(), "Reboot")
			require.NotContains(t, f.Calls(), "StopCommand", "the command has ended")
			last := stagetest.MoveOf[contract.RunProgress](f.Store.Last(), contract.SubjectRun).Failure
			require.Equal(t, []string{"work", string(tc.class)}, []string{last.Stage, string(last.Class)})
			job := f.Store.Last()
			require.Equal(t, lifecycle.JobCancelled, job.Status)
			require.NotNil(t, job.Failure, "the job is shown as failed, not as one that somebody cancelled")
			require.Equal(t, []string{"work", string(tc.class)}, []string{job.Failure.Stage, string(job.Failure.Class)})
		})
	}
}

// TestRun_CancelStopsTheCommand: the step that runs is interrupted, its command is ended on the
// machine, and what came before stays as it ended.
func TestRun_CancelStopsTheCommand(t *testing.T) {
	t.Parallel()
	f := setup(t, step("first", runplan.KindSSH, 0), step("second", runplan.KindSSH, 0), step("third", runplan.KindSSH, 0))
	f.holdSecond()
	got := f.Act(30*time.Second, lifecycle.ActionCancel, contract.ActionRequest{Reason: "test"})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.NoError(t, got.Err)
	require.Equal(t, lifecycle.RunCanceled, f.phase())
	require.Equal(t, []string{"RunCommand", "StopCommand"}, f.Calls(), "the second command never answered")
	require.Equal(t, map[string]lifecycle.StepState{"first": "SUCCEEDED", "second": "FAILED", "third": "WAITING"}, f.states())
}

// holdSecond has the second command take an hour.
func (f *fixture) holdSecond() {
	calls := 0
	f.Hold(f.Env, "RunCommand", func() time.Duration {
		if calls++; calls == 2 {
			return time.Hour
		}
		return 0
	})
}

// TestRun_RefusesWhatWouldRepeatSteps asks a run that runs for the actions that it never takes.
func TestRun_RefusesWhatWouldRepeatSteps(t *testing.T) {
	t.Parallel()
	for _, action := range []lifecycle.Action{lifecycle.ActionRerun, lifecycle.ActionRestartClean, lifecycle.ActionAdopt} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			f := setup(t, step("first", runplan.KindSSH, 0))
			f.storeIsAwayUntil(150 * time.Minute)
			got := f.Act(2*time.Hour, action, contract.ActionRequest{Actor: "anna", Reason: "test", AcceptRisk: action == lifecycle.ActionAdopt, Proof: stagetest.Sign()})
			f.Act(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{Actor: "anna"})
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.True(t, got.Err != nil || got.Rejected != nil)
		})
	}
}

// storeIsAwayUntil has commands fail because their output cannot be stored.
func (f *fixture) storeIsAwayUntil(d time.Duration) {
	away := true
	f.After(d, func() { away = false })
	f.Answer("RunCommand", func() (any, error) {
		if away {
			return nil, stagetest.Failure(lifecycle.FailStoreUnavailable)
		}
		return nil, nil
	})
}

// A park that no step caused leaves the run RUNNING, and resuming it goes on.
func TestRun_AStoreThatIsAwayFailsNoStep(t *testing.T) {
	t.Parallel()
	f := setup(t, step("first", runplan.KindSSH, 0))
	f.storeIsAwayUntil(150 * time.Minute)
	parked := f.LastAt(2 * time.Hour)
	f.Act(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{Actor: "anna"})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.True(t, parked.Status.Parked())
	require.Equal(t, lifecycle.RunRunning, lifecycle.RunPhaseOf(parked.Status, parked.Failure.Class))
	require.True(t, lifecycle.RunNeedsIntervention(parked.Status, parked.Failure.Class))
}

// TestRun_ALostRunGoesOnAtItsStep loses the workflow in each step. Steps that have ended do not run
// again, and the command that runs keeps its number: the machine does not begin it twice.
func TestRun_ALostRunGoesOnAtItsStep(t *testing.T) {
	t.Parallel()
	f := setup(t, step("first", runplan.KindSSH, 0), step("second", runplan.KindSSH, 0), step("third", runplan.KindReboot, 0))
	f.holdSecond()
	f.RunUntil(30*time.Second, func() []any { return nil })
	next := &fixture{Harness: f.Harness}
	next.register()
	require.Equal(t, lifecycle.JobCompleted, next.Run().Status)
	require.Equal(t, []string{"RunCommand", "ReadBootID", "Reboot"}, next.Calls())
	for _, row := range next.Store.Last().Stages {
		require.Equal(t, lifecycle.StageSucceeded, row.State, row.Name)
	}
}

// TestRun_ALostRunOrdersNoOtherRestart loses the workflow while the machine restarts. The next one
// knows the boot id of before, and that a restart was ordered.
func TestRun_ALostRunOrdersNoOtherRestart(t *testing.T) {
	t.Parallel()
	f := setup(t, step("restart", runplan.KindReboot, 0))
	f.Hold(f.Env, "Reboot", func() time.Duration { return time.Hour })
	next := &orders{}
	f.RunUntil(30*time.Second, func() []any { return []any{next} })
	require.Equal(t, lifecycle.JobCompleted, f.Harness.Run().Status)
	require.Equal(t, []bool{true}, next.seen)
	require.Equal(t, "boot-1", next.before)
}

// attempts counts the number that each command was sent with.
type attempts struct {
	machineact.Activities
	seen []int
}

// RunCommand fails twice.
func (a *attempts) RunCommand(_ context.Context, in machineact.CommandIn) (machineact.StepFacts, error) {
	a.seen = append(a.seen, in.Attempt)
	if in.Step != "work" || in.RunID != "run_1" {
		return machineact.StepFacts{}, errors.New("another step")
	}
	if len(a.seen) < 3 {
		return machineact.StepFacts{}, stagetest.Failure(lifecycle.FailCommand)
	}
	return machineact.StepFacts{}, nil
}

// Each attempt has a number of its own, by which the machine runs a command once.
func TestRun_AttemptsAreNumbered(t *testing.T) {
	t.Parallel()
	a := &attempts{}
	h := stagetest.New(t, machinerun.Run, contract.KindMachineRun,
		contract.MachineRunInput{RunID: "run_1", MachineID: "m-1", Steps: []contract.RunStep{step("work", runplan.KindSSH, 4)}}, a)
	require.Equal(t, lifecycle.JobCompleted, h.Run().Status)
	require.Equal(t, []int{1, 2, 3}, a.seen)
}

func TestJob_BuildsEveryKindOfStep(t *testing.T) {
	t.Parallel()
	build := func(kind runplan.Kind) error {
		_, err := machinerun.Job(contract.JobInput{}).Build(&machinerun.State{Request: contract.MachineRunInput{Steps: []contract.RunStep{step("a", kind, 0)}}})
		return err
	}
	for _, kind := range runplan.Kinds() {
		require.NoError(t, build(kind), "%s", kind)
	}
	require.ErrorContains(t, build("teleport"), "teleport")
}

// TestRun_StopsACommandThatMayStillRun: its stage has failed, and what became of the command is not
// known.
func TestRun_StopsACommandThatMayStillRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end   machineact.CommandEnd
		class lifecycle.FailureClass
		stops bool
	}{
		"uncertain":              {"", lifecycle.FailCommandUncertain, true},
		"not reached any more":   {"", lifecycle.FailCommand, true},
		"it has ended":           {machineact.CommandEnded, lifecycle.FailCommand, false},
		"it was never sent":      {machineact.CommandUnsent, lifecycle.FailConfiguration, false},
		"no worker, no deadline": {"", lifecycle.FailStageDeadline, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, step("work", runplan.KindSSH, 0))
			f.Answer("RunCommand", func() (any, error) { return nil, machineact.MarkEnd(stagetest.Failure(tc.class), tc.end) })
			f.Run()
			require.Equal(t, lifecycle.RunFailed, f.phase())
			require.Equal(t, tc.stops, slices.Contains(f.Calls(), "StopCommand"))
		})
	}
}

// A run that is parked because its store is away, or whose workflow was lost, is cancelled: the
// command is stopped.
func TestRun_CancelOfAParkedRunStopsTheCommand(t *testing.T) {
	t.Parallel()
	f := setup(t, step("first", runplan.KindSSH, 0))
	f.storeIsAwayUntil(9 * time.Hour)
	f.Act(3*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Reason: "test"})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Contains(t, f.Calls(), "StopCommand")
}

// stops fails each StopCommand but the last, of a command whose outcome is not known.
type stops struct {
	machineact.Activities
	seen []machineact.StopIn
}

// RunCommand fails.
func (*stops) RunCommand(context.Context, machineact.CommandIn) (machineact.StepFacts, error) {
	return machineact.StepFacts{}, stagetest.Failure(lifecycle.FailCommandUncertain)
}

// StopCommand fails twice.
func (a *stops) StopCommand(_ context.Context, in machineact.StopIn) (machineact.StepFacts, error) {
	if a.seen = append(a.seen, in); len(a.seen) < 3 {
		return machineact.StepFacts{}, stagetest.Failure(lifecycle.FailStageDeadline)
	}
	return machineact.StepFacts{}, nil
}

// Each try waits for the same moment, at which the machine itself has ended the command.
func TestRun_StopsUntilOneMoment(t *testing.T) {
	t.Parallel()
	a := &stops{}
	h := stagetest.New(t, machinerun.Run, contract.KindMachineRun,
		contract.MachineRunInput{RunID: "run_1", MachineID: "m-1", Steps: []contract.RunStep{step("work", runplan.KindSSH, 0)}}, a)
	require.Equal(t, lifecycle.JobCancelled, h.Run().Status)
	require.Len(t, a.seen, 3)
	require.Equal(t, []int{1, 1}, []int{a.seen[0].Attempt, a.seen[2].Attempt})
	require.True(t, a.seen[0].EndsBy.Equal(a.seen[2].EndsBy))
}

// outage loses the first calls, and notes what each call was told.
type outage struct {
	machineact.Activities
	lost  int
	how   enums.TimeoutType
	cause error // what became of the try before
	seen  []machineact.CommandIn
}

func (o *outage) RunCommand(_ context.Context, in machineact.CommandIn) (machineact.StepFacts, error) {
	if o.seen = append(o.seen, in); len(o.seen) <= o.lost {
		return machineact.StepFacts{}, temporal.NewTimeoutError(o.how, o.cause)
	}
	return machineact.StepFacts{}, nil
}

// Workers that are away for longer than an attempt may take fail no step: the same attempt is taken
// up again with its whole time. It knows whether it may have begun before.
func TestRun_AnOutageOfWorkersFailsNoStep(t *testing.T) {
	t.Parallel()
	died := temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil)
	for name, c := range map[string]struct {
		how   enums.TimeoutType
		cause error
		again bool
	}{
		"a worker died":                    {enums.TIMEOUT_TYPE_HEARTBEAT, nil, true},
		"none began it":                    {enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil, false},
		"none began it after one had died": {enums.TIMEOUT_TYPE_SCHEDULE_TO_START, died, true},
		"nobody knows whether one had it":  {enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &outage{lost: 30, how: c.how, cause: c.cause} // more than one call is repeated
			h := stagetest.New(t, machinerun.Run, contract.KindMachineRun,
				contract.MachineRunInput{RunID: "run_1", MachineID: "m-1", Steps: []contract.RunStep{step("work", runplan.KindSSH, 0)}}, o)
			limits := &startLimits{}
			h.Env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{limits}})
			require.Equal(t, lifecycle.JobCompleted, h.Run().Status)
			require.Equal(t, 1, h.Store.Last().Stages[0].Attempts)
			first, last := o.seen[0], o.seen[len(o.seen)-1]
			require.Equal(t, []any{false, c.again, 1, 1}, []any{first.Again, last.Again, first.Attempt, last.Attempt})
			if c.how == enums.TIMEOUT_TYPE_HEARTBEAT { // which is tried a while at first
				require.True(t, last.EndsBy.After(first.EndsBy))
			}
			for _, limit := range limits.seen {
				require.Equal(t, time.Minute, limit, "a command that is begun later has less than its timeout")
			}
			require.NotEmpty(t, limits.seen)
		})
	}
}

// startLimits notes how long RunCommand may wait for a worker.
type startLimits struct {
	interceptor.WorkerInterceptorBase
	seen []time.Duration
}

type (
	limitsIn struct {
		interceptor.WorkflowInboundInterceptorBase
		l *startLimits
	}
	limitsOut struct {
		interceptor.WorkflowOutboundInterceptorBase
		l *startLimits
	}
)

func (l *startLimits) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &limitsIn{interceptor.WorkflowInboundInterceptorBase{Next: next}, l}
}

func (i *limitsIn) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&limitsOut{interceptor.WorkflowOutboundInterceptorBase{Next: out}, i.l})
}

func (o *limitsOut) ExecuteActivity(ctx workflow.Context, activity string, args ...any) workflow.Future {
	if activity == "RunCommand" {
		o.l.seen = append(o.l.seen, workflow.GetActivityOptions(ctx).ScheduleToStartTimeout)
	}
	return o.Next.ExecuteActivity(ctx, activity, args...)
}

// orders notes what each Reboot was told, and fails a few.
type orders struct {
	machineact.Activities
	fails  int
	seen   []bool
	before string
}

// ReadBootID finds a machine that does not answer.
func (*orders) ReadBootID(context.Context, machineact.StepIn) (machineact.StepFacts, error) {
	return machineact.StepFacts{}, nil
}

// Reboot fails at first.
func (a *orders) Reboot(_ context.Context, in machineact.RebootIn) (machineact.StepFacts, error) {
	a.before = in.Before
	if a.seen = append(a.seen, in.Ordered); len(a.seen) <= a.fails {
		return machineact.StepFacts{}, stagetest.Failure(lifecycle.FailBMCUnreachable)
	}
	return machineact.StepFacts{BootID: "boot-2"}, nil
}

// The second attempt knows that a restart was ordered, so that it does not cut the power again.
func TestRun_ARestartIsOrderedOnce(t *testing.T) {
	t.Parallel()
	a := &orders{fails: 1}
	h := stagetest.New(t, machinerun.Run, contract.KindMachineRun,
		contract.MachineRunInput{RunID: "run_1", MachineID: "m-1", Steps: []contract.RunStep{step("restart", runplan.KindReboot, 1)}}, a)
	require.Equal(t, lifecycle.JobCompleted, h.Run().Status)
	require.Equal(t, []bool{false, true}, a.seen)
}
