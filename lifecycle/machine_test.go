package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// machineEdges is the table of transitions that the code must equal, written by hand.
var machineEdges = map[string][]string{
	"FACTORY_READY": {"PROVISIONING", "READY", "IN_SERVICE", "MAINTENANCE", "RMA", "RETIRED"},
	"READY":         {"PROVISIONING", "FACTORY_READY", "IN_SERVICE", "MAINTENANCE", "RMA", "RETIRED"},
	"IN_SERVICE":    {"PROVISIONING", "FACTORY_READY", "READY", "MAINTENANCE", "RMA", "RETIRED"},
	"MAINTENANCE":   {"PROVISIONING", "FACTORY_READY", "READY", "IN_SERVICE", "RMA", "RETIRED"},
	"RMA":           {"PROVISIONING", "FACTORY_READY", "READY", "MAINTENANCE", "RETIRED"},
	"PROVISIONING":  {"FACTORY_READY", "READY", "IN_SERVICE", "MAINTENANCE", "RMA"},
	"RETIRED":       {},
}

func TestMachinePhases_Edges(t *testing.T) {
	t.Parallel()
	require.Len(t, lifecycle.MachinePhases.States, len(machineEdges))
	for _, s := range lifecycle.MachinePhases.States {
		require.ElementsMatch(t, machineEdges[string(s.State)], lifecycle.MachinePhases.Reachable(s.State), "from %s", s.State)
	}
	// Only a run may begin and end PROVISIONING, so that no operator's call takes a machine from a
	// run.
	for _, tr := range lifecycle.MachinePhases.Transitions {
		run := tr.To == lifecycle.MachineProvisioning || slices.Contains(tr.From, lifecycle.MachineProvisioning)
		require.Equal(t, run, slices.Equal(tr.Owners, []lifecycle.Owner{lifecycle.OwnerJob}), tr.Name)
	}
	err := lifecycle.MachinePhases.Check(lifecycle.MachineSetInService, lifecycle.MachineReady, lifecycle.OwnerAdmin, nil)
	require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, "IN_SERVICE without the proof")
}

func TestMachinePhaseOfNode(t *testing.T) {
	t.Parallel()
	want := map[lifecycle.NodeStatus][2]lifecycle.MachinePhase{ // out of its cluster, in it
		lifecycle.NodeBootstrapIssued: {"FACTORY_READY", "FACTORY_READY"},
		lifecycle.NodeEnrolling:       {"FACTORY_READY", "FACTORY_READY"},
		lifecycle.NodeActive:          {"READY", "IN_SERVICE"},
		lifecycle.NodeOffline:         {"READY", "IN_SERVICE"},
		lifecycle.NodeQuarantined:     {"MAINTENANCE", "MAINTENANCE"},
		lifecycle.NodeDraining:        {"MAINTENANCE", "MAINTENANCE"},
		lifecycle.NodeRetired:         {"MAINTENANCE", "MAINTENANCE"},
		lifecycle.NodeRemoving:        {"MAINTENANCE", "MAINTENANCE"},
		lifecycle.NodeDeleted:         {"RETIRED", "RETIRED"},
	}
	for _, machine := range []lifecycle.Machine[lifecycle.NodeStatus]{lifecycle.NodeMAAS, lifecycle.NodePXE} {
		for _, s := range machine.States {
			if phases, ok := want[s.State]; ok {
				require.Equal(t, phases[0], lifecycle.MachinePhaseOfNode(s.State, false), s.State)
				require.Equal(t, phases[1], lifecycle.MachinePhaseOfNode(s.State, true), s.State)
			} else {
				// A state of another lifecycle is never read as a machine that may be used.
				require.Equal(t, lifecycle.MachineMaintenance, lifecycle.MachinePhaseOfNode(s.State, true), s.State)
			}
		}
	}
}

func TestMachinePhaseAfterRun(t *testing.T) {
	t.Parallel()
	for _, runType := range lifecycle.RunTypes() {
		for _, before := range lifecycle.MachinePhases.States {
			for _, verified := range []bool{false, true} {
				name := fmt.Sprintf("%s from %s, verified %t", runType, before.State, verified)
				for _, end := range []lifecycle.RunPhase{lifecycle.RunFailed, lifecycle.RunCanceled} {
					tr, ended := lifecycle.MachinePhaseAfterRun(runType, end, before.State, verified)
					require.True(t, ended)
					require.Equal(t, lifecycle.MachineMaintenance, tr.To, name)
				}
				for _, end := range []lifecycle.RunPhase{lifecycle.RunPending, lifecycle.RunRunning} {
					_, ended := lifecycle.MachinePhaseAfterRun(runType, end, before.State, verified)
					require.False(t, ended, name)
				}
				want := before.State
				switch {
				case runType == lifecycle.RunTypeRMA:
					want = lifecycle.MachineRMA
				case runType == lifecycle.RunTypeRepave && verified:
					want = lifecycle.MachineInService
				case runType == lifecycle.RunTypeRepave:
					want = lifecycle.MachineReady
				case before.State == lifecycle.MachineProvisioning, before.State == lifecycle.MachineRetired:
					want = lifecycle.MachineMaintenance // no run begins there
				}
				tr, ended := lifecycle.MachinePhaseAfterRun(runType, lifecycle.RunSucceeded, before.State, verified)
				require.True(t, ended)
				require.Equal(t, want, tr.To, name)
				require.NoError(t, lifecycle.MachinePhases.Check(tr, lifecycle.MachineProvisioning, lifecycle.OwnerJob, nil), name)
			}
		}
	}
}

// TestEffectiveState goes over every phase, active run and value of the conditions.
func TestEffectiveState(t *testing.T) {
	t.Parallel()
	active := []lifecycle.RunPhase{lifecycle.RunPending, lifecycle.RunRunning}
	ended := []lifecycle.RunPhase{"", lifecycle.RunSucceeded, lifecycle.RunFailed, lifecycle.RunCanceled}
	without := map[lifecycle.MachinePhase][2]lifecycle.MachinePhase{ // no active run: out of the cluster, in it
		"FACTORY_READY": {"FACTORY_READY", "IN_SERVICE"},
		"READY":         {"READY", "IN_SERVICE"},
		"PROVISIONING":  {"READY", "IN_SERVICE"},
		"IN_SERVICE":    {"READY", "IN_SERVICE"},
		"MAINTENANCE":   {"MAINTENANCE", "MAINTENANCE"},
		"RMA":           {"RMA", "RMA"},
		"RETIRED":       {"RETIRED", "RETIRED"},
	}
	require.Len(t, lifecycle.MachinePhases.States, len(without))
	for _, s := range lifecycle.MachinePhases.States {
		for others := range 1 << 6 { // the other six conditions change nothing but the banners
			for inCluster := range 2 {
				var c lifecycle.Conditions
				var banners []lifecycle.ConditionType
				bit := 0
				for _, ct := range lifecycle.ConditionTypes() {
					status := inCluster == 1
					if ct != lifecycle.InCustomerClusterCondition {
						status = others>>bit&1 == 1
						bit++
					}
					c = c.Observe(ct, status, "Probe", time.Time{})
				}
				if c.Holds(lifecycle.NeedsInterventionCondition) {
					banners = append(banners, "NeedsIntervention")
				}
				if c.Holds(lifecycle.DegradedCondition) {
					banners = append(banners, "Degraded")
				}
				require.Equal(t, banners, lifecycle.Banners(c))
				for _, run := range active {
					require.Equal(t, lifecycle.MachineProvisioning, lifecycle.EffectiveState(s.State, run, c), s.State)
				}
				for _, run := range ended {
					require.Equal(t, without[s.State][inCluster], lifecycle.EffectiveState(s.State, run, c), "%s, in cluster %d, run %q", s.State, inCluster, run)
				}
			}
		}
	}
	require.Equal(t, lifecycle.MachineReady, lifecycle.EffectiveState(lifecycle.MachineInService, "", nil), "nothing was observed")
}

func TestConditions_LastTransitionMovesWithTheStatus(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	find := func(c lifecycle.Conditions) lifecycle.Condition {
		found, ok := c.Find(lifecycle.ReachableCondition)
		require.True(t, ok)
		return found
	}
	var none lifecycle.Conditions
	require.Empty(t, none.Fail(lifecycle.ReachableCondition), "a probe without an answer is no observation")
	require.False(t, none.Known(lifecycle.ReachableCondition))

	first := none.Observe(lifecycle.ReachableCondition, true, "PingOK", at(1))
	require.Equal(t, at(1), find(first).LastTransition)
	same := first.Observe(lifecycle.ReachableCondition, true, "SSHOK", at(2))
	require.Equal(t, lifecycle.Condition{Type: "Reachable", Status: true, Reason: "SSHOK", LastTransition: at(1)}, find(same))
	failed := same.Fail(lifecycle.ReachableCondition)
	require.Equal(t, lifecycle.Condition{Type: "Reachable", Status: true, Reason: "Unknown", LastTransition: at(1)}, find(failed))
	require.False(t, failed.Known(lifecycle.ReachableCondition))
	require.True(t, failed.Holds(lifecycle.ReachableCondition))
	gone := failed.Observe(lifecycle.ReachableCondition, false, "NoAnswer", at(5))
	require.Equal(t, at(5), find(gone).LastTransition)
	jumped := gone.Observe(lifecycle.ReachableCondition, true, "PingOK", at(3))
	require.Equal(t, at(5), find(jumped).LastTransition, "the clock went back")
	require.Equal(t, "PingOK", find(first).Reason, "earlier values are not changed")
}

func TestRun_PhaseFollowsItsJob(t *testing.T) {
	t.Parallel()
	notSteps := []lifecycle.FailureClass{lifecycle.FailWorkflowLost, lifecycle.FailFrozen, lifecycle.FailStoreUnavailable, lifecycle.FailCompensation}
	want := map[lifecycle.JobStatus]lifecycle.RunPhase{
		"pending": "PENDING", "running": "RUNNING", "compensating": "RUNNING", "completed": "SUCCEEDED", "reconciled": "SUCCEEDED",
		"cancelled": "CANCELED", "failed_retryable": "FAILED", "failed_manual_intervention": "FAILED",
	}
	require.Len(t, lifecycle.Job.States, len(want))
	for _, s := range lifecycle.Job.States {
		for _, f := range lifecycle.Failures() {
			phase, stopped := want[s.State], false
			if s.State.Parked() && slices.Contains(notSteps, f.Class) {
				phase, stopped = lifecycle.RunRunning, true
			}
			if s.State == lifecycle.JobCancelled && !slices.Contains(notSteps, f.Class) {
				phase = lifecycle.RunFailed // the failure ended the job
			}
			require.Equal(t, phase, lifecycle.RunPhaseOf(s.State, f.Class), "%s, %s", s.State, f.Class)
			require.Equal(t, stopped, lifecycle.RunNeedsIntervention(s.State, f.Class), "%s, %s", s.State, f.Class)
		}
	}
	// Every move of a job is no move of its run or an edge. A failed run is final: its job is not
	// moved again, and no step has failed in a job that has not begun.
	for _, e := range lifecycle.Job.Edges() {
		for _, f := range lifecycle.Failures() {
			from, to := lifecycle.JobStatus(e.From), lifecycle.JobStatus(e.To)
			if e.From == "" || lifecycle.RunPhaseOf(from, f.Class) == lifecycle.RunFailed || from == lifecycle.JobPending && lifecycle.IsStepFailure(f.Class) && (to.Parked() || to == lifecycle.JobCancelled) {
				continue
			}
			before, after := lifecycle.RunPhaseOf(from, f.Class), lifecycle.RunPhaseOf(to, f.Class)
			require.True(t, before == after || slices.Contains(lifecycle.Run.Reachable(before), string(after)), "%s -> %s (%s): %s -> %s", from, to, f.Class, before, after)
		}
	}
	require.Equal(t, lifecycle.RunCanceled, lifecycle.RunPhaseOf(lifecycle.JobCancelled, ""), "an operator cancelled it")
	require.Contains(t, lifecycle.Run.Reachable(lifecycle.RunPending), "CANCELED")
}

func TestKeepOutcomes_OfStepsThatWereUndone(t *testing.T) {
	t.Parallel()
	row := func(s lifecycle.StageState, message string, class lifecycle.FailureClass) lifecycle.StageRow {
		return lifecycle.StageRow{Name: "a", State: s, Message: message, FailureClass: class}
	}
	undone := row(lifecycle.StageUndone, "", "")
	failed := row(lifecycle.StageFailed, "exit status 1", lifecycle.FailCommand)
	compensated := row(lifecycle.StageCompensated, "", "")
	for name, c := range map[string]struct{ before, after, want lifecycle.StageRow }{
		"it succeeded":             {row(lifecycle.StageSucceeded, "", ""), compensated, undone},
		"it was there already":     {row(lifecycle.StageAdopted, "", ""), compensated, undone},
		"it failed":                {failed, compensated, failed},
		"the undo failed":          {row(lifecycle.StageSucceeded, "", ""), row(lifecycle.StageFailed, "stuck", lifecycle.FailCompensation), row(lifecycle.StageSucceeded, "stuck", "")},
		"the undo succeeded later": {row(lifecycle.StageSucceeded, "stuck", ""), compensated, undone},
		"it stays undone":          {undone, compensated, undone},
		"its attempt failed":       {row(lifecycle.StageRunning, "", ""), failed, failed},
		"it runs again":            {failed, row(lifecycle.StageRunning, "", ""), row(lifecycle.StageRunning, "", "")},
	} {
		require.Equal(t, []lifecycle.StageRow{c.want}, lifecycle.KeepOutcomes([]lifecycle.StageRow{c.before}, []lifecycle.StageRow{c.after}), name)
	}
	require.Equal(t, []lifecycle.StageRow{failed}, lifecycle.KeepOutcomes(nil, []lifecycle.StageRow{failed}))
}

func TestRunStep_StateFollowsItsStage(t *testing.T) {
	t.Parallel()
	for stage, want := range map[lifecycle.StageState]lifecycle.StepState{
		lifecycle.StagePending: "WAITING", lifecycle.StageRunning: "RUNNING", lifecycle.StageSucceeded: "SUCCEEDED",
		lifecycle.StageSkipped: "SUCCEEDED", lifecycle.StageAdopted: "SUCCEEDED", lifecycle.StageFailed: "FAILED",
		lifecycle.StageUndone: "SUCCEEDED", lifecycle.StageCompensated: "FAILED", "a later state": "FAILED",
	} {
		require.Equal(t, want, lifecycle.StepStateOf(stage), stage)
		require.True(t, lifecycle.RunStep.Has(lifecycle.StepStateOf(stage)))
	}
	for attempts, want := range map[int]int{0: 0, 1: 0, 2: 1, 4: 3} {
		require.Equal(t, want, lifecycle.RetryCount(lifecycle.StageRow{Attempts: attempts}))
	}
}
