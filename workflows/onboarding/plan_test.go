package onboarding

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestEveryStageIsPlanned: a stage without a prediction would be missing from
// every plan.
func TestEveryStageIsPlanned(t *testing.T) {
	t.Parallel()
	table := predictions()
	for _, st := range stages() {
		require.NotNil(t, table[st.Name], st.Name)
	}
	require.Len(t, table, len(stages()))
}

// outside is what the plan activities answer; what is not set answers that all is done.
type outside struct {
	*stagetest.Harness
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	return &outside{stagetest.New(t, Onboard, contract.KindOnboarding, nil, &maasact.Activities{}, &bmcact.Activities{}, &nodeact.Activities{})}
}

// stored sets what is stored of the job.
func (o *outside) stored(snap contract.Snapshot) {
	o.Store.Update(func(s *contract.Snapshot) { *s = snap })
}

func answer[I, O any](o *outside, act func(context.Context, I) (O, error), reply func(I) (O, error)) {
	o.Env.OnActivity(act, mock.Anything, mock.Anything).Return(func(_ context.Context, in I) (O, error) { return reply(in) }).Maybe()
}

func machineIs(f maasact.DryRunOut) func(maasact.DryRunIn[maasact.MachineIn]) (maasact.DryRunOut, error) {
	return func(maasact.DryRunIn[maasact.MachineIn]) (maasact.DryRunOut, error) { return f, nil }
}

// healthy answers for a machine that is Ready under a profile with everything.
func (o *outside) healthy() *outside {
	ready := maasact.DryRunOut{MachineKnown: true, Machine: contract.MachineFacts{SystemID: "abc", Status: "Ready", Done: true}}
	change := ready
	change.Steps = []string{"change"}
	answer(o, maas.PlanSite, func(maasact.DryRunIn[maasact.LoadSiteIn]) (maasact.SitePlan, error) {
		return maasact.SitePlan{Facts: site()}, nil
	})
	answer(o, bmc.PlanPower, func(bmcact.PlanIn) (bmcact.PowerPlan, error) {
		return bmcact.PowerPlan{Facts: contract.BMCFacts{Serial: "S1", MACs: []string{"m"}}, LoggedIn: true, Steps: []string{"log in"}}, nil
	})
	answer(o, maas.PlanCreateOrFind, func(maasact.DryRunIn[maasact.CreateIn]) (maasact.DryRunOut, error) { return ready, nil })
	answer(o, maas.PlanCommission, machineIs(ready))
	answer(o, maas.PlanReady, machineIs(ready))
	answer(o, maas.PlanStorage, func(maasact.DryRunIn[maasact.StorageIn]) (maasact.DryRunOut, error) { return change, nil })
	answer(o, maas.PlanRoCE, func(maasact.DryRunIn[maasact.NetworkIn]) (maasact.DryRunOut, error) { return change, nil })
	answer(o, maas.PlanPXE, func(maasact.DryRunIn[maasact.NetworkIn]) (maasact.DryRunOut, error) { return ready, nil })
	answer(o, node.PlanCloudInit, func(nodeact.DryRunIn[nodeact.RenderIn]) (nodeact.DryRunOut, error) {
		return nodeact.DryRunOut{Steps: []string{"issue"}}, nil
	})
	answer(o, maas.PlanDeploy, func(l maasact.DryRunIn[maasact.DeployIn]) (maasact.DryRunOut, error) {
		require.Equal(o.T, maasact.PlannedUserData, l.In.UserDataRef)
		return change, nil
	})
	answer(o, node.PlanAgent, func(nodeact.DryRunIn[nodeact.WaitAgentIn]) (nodeact.DryRunOut, error) {
		return nodeact.DryRunOut{}, nil
	})
	return o
}

func site() contract.SiteFacts {
	p := spec.ProfileSpec{RequireHWSync: true, EnablePhase2RoCE: true, EnableDeployRetryOnDatasourceFailed: true, MaxDeployRetryAttempts: 1}
	return contract.SiteFacts{Profile: p.WithDefaults(), MAASVersion: "3.5", Hostname: "gpu-1"}
}

func dryInput() contract.PlanInput {
	return contract.PlanInput{
		Kind: contract.KindOnboarding, Job: contract.JobInput{SiteID: "site_1"},
		Request: &contract.OnboardingInput{SiteID: "site_1", Hostname: "gpu-1"}, BMC: json.RawMessage(`{"Address":"b"}`),
	}
}

func (o *outside) plan(in contract.PlanInput) contract.Plan {
	o.T.Helper()
	p := o.Plan(Plan, in)
	require.Len(o.T, p.Rows, len(lifecycle.OnboardingStages()))
	return p
}

// would is the plan in one line: the stages' verdicts in order.
func would(p contract.Plan) string {
	parts := make([]string, 0, len(p.Rows))
	for _, r := range p.Rows {
		parts = append(parts, string(r.Planned))
	}
	return strings.Join(parts, " ")
}

func TestPlanOfADryRun(t *testing.T) {
	t.Parallel()
	p := newOutside(t).healthy().plan(dryInput())
	require.Equal(t, "run run already_done already_done already_done run run already_done run run wait skip skip run wait wait", would(p))
	require.Equal(t, "The job would run to its end.", p.Summary)
	require.False(t, p.NeedsHuman)
	require.Equal(t, "gpu-1", p.Subject.Hostname)
	again := newOutside(t).healthy().plan(dryInput())
	require.Equal(t, p.Hash, again.Hash)
}

// A profile without hardware sync does not take the proof of the SSH login from the plan.
func TestPlan_LogsInWithoutHardwareSync(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]contract.PlannedAction{"": contract.PlannedSkip, "ber1/ssh": contract.PlannedRun} {
		o := newOutside(t)
		answer(o, maas.PlanSite, func(maasact.DryRunIn[maasact.LoadSiteIn]) (maasact.SitePlan, error) {
			f := site()
			f.Profile.RequireHWSync, f.Site.SSHKeyRef = false, key
			return maasact.SitePlan{Facts: f}, nil
		})
		rows := o.healthy().plan(dryInput()).Rows
		row := rows[slices.Index(lifecycle.OnboardingStages(), lifecycle.StageEnsureHWSync)]
		require.Equal(t, want, row.Planned, key)
		require.Equal(t, key != "", strings.Contains(strings.Join(row.Steps, " "), "log in to the node by SSH"))
	}
}

// A stage that cannot be observed any more is unknown. The rest of the plan is still complete.
func TestPlan_UnobservableIsUnknown(t *testing.T) {
	t.Parallel()
	failed := func(c lifecycle.FailureClass) *contract.Failure { return &contract.Failure{Class: c, Message: "why"} }
	for name, c := range map[string]struct {
		outside func(o *outside)
		want    string
		class   lifecycle.FailureClass
	}{
		"region away": {func(o *outside) {
			answer(o, maas.PlanSite, func(maasact.DryRunIn[maasact.LoadSiteIn]) (maasact.SitePlan, error) {
				f := site()
				f.MAASVersion = ""
				return maasact.SitePlan{Facts: f, Failure: failed(lifecycle.FailMAASUnavailable)}, nil
			})
		}, "cannot run unknown unknown unknown unknown unknown unknown run unknown unknown skip skip run wait wait", lifecycle.FailMAASUnavailable},
		"no image": {func(o *outside) {
			answer(o, maas.PlanSite, func(maasact.DryRunIn[maasact.LoadSiteIn]) (maasact.SitePlan, error) {
				return maasact.SitePlan{Facts: site(), Failure: failed(lifecycle.FailConfiguration)}, nil
			})
		}, "cannot run already_done already_done already_done run run already_done run run wait skip skip run wait wait", lifecycle.FailConfiguration},
		"candidates in conflict": {func(o *outside) {
			answer(o, maas.PlanCreateOrFind, func(maasact.DryRunIn[maasact.CreateIn]) (maasact.DryRunOut, error) {
				return maasact.DryRunOut{Failure: failed(lifecycle.FailConflictingCandidates)}, nil
			})
		}, "run run cannot unknown unknown unknown unknown unknown run unknown unknown skip skip run wait wait", lifecycle.FailConflictingCandidates},
		"region goes away on the way": {func(o *outside) {
			answer(o, maas.PlanStorage, func(maasact.DryRunIn[maasact.StorageIn]) (maasact.DryRunOut, error) {
				return maasact.DryRunOut{Failure: failed(lifecycle.FailMAASUnavailable)}, nil
			})
		}, "run run already_done already_done already_done cannot unknown unknown run unknown unknown skip skip run wait wait", lifecycle.FailMAASUnavailable},
		"no disk fits": {func(o *outside) {
			answer(o, maas.PlanStorage, func(maasact.DryRunIn[maasact.StorageIn]) (maasact.DryRunOut, error) {
				return maasact.DryRunOut{Failure: failed(lifecycle.FailBootDiskNotFound)}, nil
			})
		}, "run run already_done already_done already_done cannot run already_done run run wait skip skip run wait wait", lifecycle.FailBootDiskNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutside(t)
			c.outside(o) // first come, first served
			p := o.healthy().plan(dryInput())
			require.Equal(t, c.want, would(p))
			require.True(t, p.NeedsHuman)
			require.Contains(t, p.Summary, string(c.class))
			require.Contains(t, p.Summary, lifecycle.Failure(c.class).Next)
		})
	}
}

// TestPlanAbsent: of a machine that has to be created the hardware is not known,
// and what is to come is told as far as it can be.
func TestPlanAbsent(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	answer(o, maas.PlanCreateOrFind, func(maasact.DryRunIn[maasact.CreateIn]) (maasact.DryRunOut, error) {
		return maasact.DryRunOut{Steps: []string{"create gpu-1"}}, nil
	})
	answer(o, maas.PlanStorage, func(l maasact.DryRunIn[maasact.StorageIn]) (maasact.DryRunOut, error) {
		require.Equal(t, "gpu-1", l.Absent)
		require.True(t, l.Ready)
		return maasact.DryRunOut{Unknown: true}, nil
	})
	p := o.healthy().plan(dryInput())
	require.Equal(t, "run run run run wait unknown run already_done run run wait skip skip run wait wait", would(p))
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageConfigureStorage).Why, "layout flat")
	require.Contains(t, p.Summary, "only the run will show")
}

func snapshot(t *testing.T, stage string, s State) contract.Snapshot {
	t.Helper()
	s.Job = contract.JobRef{JobID: "job_1", NodeID: "node_1", SiteID: "site_1"}
	s.Request = contract.OnboardingInput{SiteID: "site_1", Hostname: "gpu-1", BMCID: "bmc_1"}
	s.Site = site()
	raw, err := json.Marshal(map[string]any{"state": s})
	require.NoError(t, err)
	input, err := json.Marshal(s.Request)
	require.NoError(t, err)
	snap := contract.Snapshot{Seq: 9, Status: lifecycle.JobFailedManual, Stage: stage, Checkpoint: raw, Input: input}
	state := lifecycle.StageSucceeded
	for i, name := range lifecycle.OnboardingStages() {
		if name == stage {
			state = lifecycle.StageFailed
		}
		snap.Stages = append(snap.Stages, lifecycle.StageRow{Ordinal: i + 1, Name: name, State: state})
		if name == stage {
			state = lifecycle.StagePending
		}
	}
	return snap
}

func jobInput() contract.PlanInput {
	return contract.PlanInput{
		Kind: contract.KindOnboarding, Job: contract.JobInput{JobID: "job_1", NodeID: "node_1", SiteID: "site_1", Kind: contract.KindOnboarding},
	}
}

// TestPlanOfAParkedJob: what is behind it is done, the rest is looked at with
// what the job knows.
func TestPlanOfAParkedJob(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.stored(snapshot(t, lifecycle.StageConfigureStorage, State{Machine: contract.MachineFacts{SystemID: "abc", Status: "Ready"}}))
	answer(o, maas.PlanStorage, func(l maasact.DryRunIn[maasact.StorageIn]) (maasact.DryRunOut, error) {
		require.Equal(t, "abc", l.In.SystemID)
		require.Equal(t, "job_1", l.In.JobID)
		require.Empty(t, l.Absent)
		return maasact.DryRunOut{Steps: []string{"now there is a disk"}}, nil
	})
	p := o.healthy().plan(jobInput())
	require.Equal(t, "already_done already_done already_done already_done already_done run run already_done run run wait skip skip run wait wait", would(p))
	require.Equal(t, lifecycle.JobFailedManual, p.Status)
	require.True(t, p.NeedsHuman, "somebody has to take it up again")
	require.Contains(t, p.Summary, "parked")
}

// TestPlanOfAFailedDeployment: the failure is classified as the run would, and
// the profile's automatic recovery is planned.
func TestPlanOfAFailedDeployment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempt int
		class   lifecycle.FailureClass
		want    string
		shown   lifecycle.FailureClass
	}{
		"datasource, to be tried again": {1, lifecycle.FailDatasource, "run run", ""},
		"datasource, tried again":       {2, lifecycle.FailDatasource, "cannot skip", lifecycle.FailDatasourceRepeated},
		"installer":                     {1, lifecycle.FailDeploy, "cannot skip", lifecycle.FailDeploy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutside(t)
			o.stored(snapshot(t, lifecycle.StageClassifyFailure, State{
				Machine: contract.MachineFacts{SystemID: "abc", Status: "Failed deployment"},
				Deploy:  Deployment{Attempt: c.attempt, Outcome: contract.DeployFailed},
			}))
			answer(o, maas.PlanClassify, func(maasact.DryRunIn[maasact.ClassifyIn]) (maasact.DryRunOut, error) {
				return maasact.DryRunOut{Failure: &contract.Failure{Class: c.class, Message: "why"}}, nil
			})
			answer(o, maas.PlanRecover, func(maasact.DryRunIn[maasact.ReleaseIn]) (maasact.DryRunOut, error) {
				return maasact.DryRunOut{Steps: []string{"release gpu-1"}}, nil
			})
			p := o.healthy().plan(jobInput())
			require.Equal(t, c.want, strings.Join(strings.Fields(would(p))[11:13], " "))
			f := stagetest.Row(t, p, lifecycle.StageClassifyFailure).Failure
			if c.shown == "" {
				require.Nil(t, f)
				return
			}
			require.Equal(t, c.shown, f.Class)
		})
	}
}

// TestPlanOfAJobThatWaits: a job that waits for hardware sync and agent is told
// what there is of them.
func TestPlanOfAJobThatWaits(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.stored(snapshot(t, lifecycle.StageEnsureHWSync, State{
		Machine: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}, Deploy: Deployment{Attempt: 1, Outcome: contract.DeployOK},
	}))
	o.Store.Update(func(s *contract.Snapshot) { s.Status = lifecycle.JobRunning })
	deployed := contract.MachineFacts{SystemID: "abc", Status: "Deployed", Done: true}
	answer(o, maas.PlanSyncOn, machineIs(maasact.DryRunOut{MachineKnown: true, Machine: deployed}))
	answer(o, maas.PlanSynced, func(maasact.DryRunIn[maasact.WaitSyncIn]) (maasact.DryRunOut, error) {
		return maasact.DryRunOut{MachineKnown: true, Machine: deployed, Waits: true}, nil
	})
	answer(o, node.PlanAgent, func(nodeact.DryRunIn[nodeact.WaitAgentIn]) (nodeact.DryRunOut, error) {
		return nodeact.DryRunOut{Done: true, Agent: contract.AgentFacts{Enrolled: true, Healthy: true}}, nil
	})
	p := o.healthy().plan(jobInput())
	require.Equal(t, "already_done wait already_done", strings.Join(strings.Fields(would(p))[13:], " "))
	require.Equal(t, "healthy", p.Observed.Agent)
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageWaitHWSync).Why, "at most")
}

// TestPlanOfAnEndedJob looks at nothing.
func TestPlanOfAnEndedJob(t *testing.T) {
	t.Parallel()
	for _, status := range []lifecycle.JobStatus{lifecycle.JobCompleted, lifecycle.JobCancelled, lifecycle.JobReconciled, lifecycle.JobCompensating} {
		o := newOutside(t)
		o.stored(snapshot(t, lifecycle.StageConfigureStorage, State{}))
		o.Store.Update(func(s *contract.Snapshot) { s.Status = status })
		p := o.plan(jobInput())
		require.Equal(t, strings.TrimSpace(strings.Repeat("already_done ", 5)+strings.Repeat("skip ", 11)), would(p))
		require.Equal(t, status, p.Status)
	}
}

// TestPlanOfAManualJob has no MAAS stages to look at.
func TestPlanOfAManualJob(t *testing.T) {
	t.Parallel()
	in := dryInput()
	in.Request.Manual = true
	p := newOutside(t).healthy().plan(in)
	require.Equal(t, "run "+strings.Repeat("skip ", 14)+"wait", would(p))
}

// TestPlanOutOfTime: an outside that hangs costs its rows, not the plan.
func TestPlanOutOfTime(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	late := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil)
	o.Env.OnActivity(maas.PlanStorage, mock.Anything, mock.Anything).After(plan.ReadLimit).Return(maasact.DryRunOut{}, late)
	o.Env.OnActivity(maas.PlanRoCE, mock.Anything, mock.Anything).After(plan.ReadLimit).Return(maasact.DryRunOut{}, late)
	o.Env.OnActivity(maas.PlanPXE, mock.Anything, mock.Anything).Never()
	p := o.healthy().plan(dryInput())
	for _, stage := range []string{lifecycle.StageConfigureStorage, lifecycle.StageApplyRoCE, lifecycle.StageEnsurePXE, lifecycle.StageDeploy} {
		row := stagetest.Row(t, p, stage)
		require.Equal(t, contract.PlannedUnknown, row.Planned, stage)
		require.Contains(t, row.Why, "no time left", stage)
	}
	o.Env.AssertExpectations(t)
}

func TestPlanNeedsASubject(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.Env.ExecuteWorkflow(Plan, contract.PlanInput{Kind: contract.KindOnboarding})
	require.ErrorContains(t, o.Env.GetWorkflowError(), "a plan needs a job or a request")
}

// TestPlanWorkflowID: equal questions are one workflow, others are not.
func TestPlanWorkflowID(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	login, other := dryInput(), dryInput()
	login.Login = true
	other.Request.Hostname = "gpu-2"
	jobLogin := jobInput()
	jobLogin.Login = true
	for _, in := range []contract.PlanInput{dryInput(), login, other, jobInput(), jobLogin} {
		ids[contract.PlanWorkflowID(in)] = true
	}
	require.Len(t, ids, 5)
	require.Equal(t, contract.PlanWorkflowID(dryInput()), contract.PlanWorkflowID(dryInput()))
}
