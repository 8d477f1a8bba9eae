package onboarding

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// parkedJob is a job that waits for an operator at one stage, over an outside that answers every
// activity: with what the test sets, or with a plain success.
type parkedJob struct {
	*stagetest.Harness
	stagetest.Activities
}

func parkedAt(t *testing.T, name string, s State) *parkedJob {
	t.Helper()
	s.Job = contract.JobRef{JobID: "job_1", NodeID: "node_1", SiteID: "site_1"}
	s.Request = contract.OnboardingInput{SiteID: "site_1", Hostname: "gpu-1"}
	p := &parkedJob{Harness: stagetest.New(t, Onboard, contract.KindOnboarding, s.Request)}
	cp, err := json.Marshal(map[string]any{"state": s})
	require.NoError(t, err)
	p.Store.Update(func(snap *contract.Snapshot) {
		snap.Seq, snap.Status, snap.Stage, snap.Checkpoint = 7, lifecycle.JobFailedManual, name, cp
		snap.Failure = &contract.Failure{Class: lifecycle.FailStateDisagreement, Stage: name, Message: "look"}
		for i, st := range stages() {
			snap.Stages = append(snap.Stages, lifecycle.StageRow{Ordinal: i + 1, Name: st.Name, State: lifecycle.StageSucceeded, Attempts: 1})
			if st.Name == name {
				break
			}
		}
	})
	p.Register(p.Env, &maasact.Activities{}, &bmcact.Activities{}, &nodeact.Activities{})
	return p
}

// act has an operator act, cancels the job afterwards, and returns the operator's answer and the
// step that stored the action.
func (p *parkedJob) act(t *testing.T, a lifecycle.Action, req contract.ActionRequest) (*contract.Projection, error) {
	t.Helper()
	req.Actor = "anna"
	got := p.Act(time.Minute, a, req)
	p.Act(1000*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Actor: "end"})
	_ = p.Execute()
	_, at := p.Store.AuditOf("anna")
	require.NotEmpty(t, at, "the action left no audit row")
	return &p.Store.Steps()[at[0]], got.Err
}

// pair is a stage and what is observed at it. A done one is the stage's own
// outcome; a listed one is named as adoptable.
type pair struct {
	stage, state string
	foreign      bool // the machine does not carry this job's mark
	done         bool // what the stage's own activity says of its outcome
	adopted      bool
}

// pairs is the list as it is meant, written down apart from the stages' table.
var pairs = []pair{
	{lifecycle.StageResolvePower, "the BMC as it is", false, false, false},

	{lifecycle.StageCommission, "Commissioning", false, false, true}, {lifecycle.StageCommission, "Testing", false, false, true},
	{lifecycle.StageCommission, "Ready", false, false, true}, {lifecycle.StageCommission, "Allocated", false, false, true},
	{lifecycle.StageCommission, "Deploying", false, false, true}, {lifecycle.StageCommission, "Deployed", false, false, true},
	{lifecycle.StageCommission, "New", false, false, false}, {lifecycle.StageCommission, "Failed commissioning", false, false, false},
	{lifecycle.StageCommission, "Broken", false, false, false}, {lifecycle.StageCommission, "absent", false, false, false},

	{lifecycle.StageWaitReady, "Ready", false, false, true}, {lifecycle.StageWaitReady, "Allocated", false, false, true},
	{lifecycle.StageWaitReady, "Deploying", false, false, true}, {lifecycle.StageWaitReady, "Deployed", false, false, true},
	{lifecycle.StageWaitReady, "Commissioning", false, false, false}, {lifecycle.StageWaitReady, "Failed testing", false, false, false},

	{lifecycle.StageConfigureStorage, "Ready", false, true, true}, {lifecycle.StageConfigureStorage, "Ready", false, false, false},
	{lifecycle.StageApplyRoCE, "Ready", false, true, true}, {lifecycle.StageApplyRoCE, "Ready", false, false, false},
	{lifecycle.StageEnsurePXE, "Ready", false, true, true}, {lifecycle.StageEnsurePXE, "Ready", false, false, false},

	{lifecycle.StageDeploy, "Deployed", false, true, true}, {lifecycle.StageDeploy, "Deploying", false, false, true},
	{lifecycle.StageDeploy, "Deployed", true, false, false}, {lifecycle.StageDeploy, "Ready", false, false, false},
	{lifecycle.StageDeploy, "Failed deployment", false, false, false},

	{lifecycle.StageWaitDeployed, "Deployed", false, false, true}, {lifecycle.StageWaitDeployed, "Deployed", true, false, false},
	{lifecycle.StageWaitDeployed, "Deploying", false, false, false}, {lifecycle.StageWaitDeployed, "Failed deployment", false, false, false},

	{lifecycle.StageWaitHWSync, "Deployed", false, true, true}, {lifecycle.StageWaitHWSync, "Deployed", false, false, false},
}

// lookingFor is the activity by which a stage observes.
var lookingFor = map[string]string{
	lifecycle.StageResolvePower: "CreateOrFindMachine", // it looks at what it kept itself
	lifecycle.StageCommission:   "ObserveMachine", lifecycle.StageWaitReady: "ObserveMachine", lifecycle.StageConfigureStorage: "ConfigureStorage",
	lifecycle.StageApplyRoCE: "ApplyRoCE", lifecycle.StageEnsurePXE: "EnsurePXEInterfaceAuto", lifecycle.StageDeploy: "DeployMachine",
	lifecycle.StageWaitDeployed: "ObserveMachine", lifecycle.StageWaitHWSync: "WaitForHardwareSync",
}

func (c pair) job(t *testing.T) *parkedJob {
	t.Helper()
	p := parkedAt(t, c.stage, State{
		BMC:     contract.BMCFacts{BMCID: "bmc_1"},
		Machine: contract.MachineFacts{SystemID: "abc", Status: "Ready"},
		Site:    contract.SiteFacts{Profile: spec.ProfileSpec{RequireHWSync: true, EnablePhase2RoCE: true}.WithDefaults()},
	})
	first := true
	p.Answer(lookingFor[c.stage], func() (any, error) {
		f := contract.MachineFacts{SystemID: "abc", Status: c.state, Foreign: c.foreign, Done: c.done || !first}
		first = false
		return f, nil
	})
	return p
}

// TestEveryPairOfStageAndObservedState: the listed are adopted, any other is
// refused with the pair named, and an operator may still accept it with a reason.
func TestEveryPairOfStageAndObservedState(t *testing.T) {
	t.Parallel()
	unlisted := map[string]bool{}
	for _, c := range pairs {
		unlisted[c.stage] = unlisted[c.stage] || !c.adopted
		t.Run(fmt.Sprintf("%s/%s/foreign=%v/done=%v", c.stage, c.state, c.foreign, c.done), func(t *testing.T) {
			t.Parallel()
			step, err := c.job(t).act(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "seen"})
			at := slices.Index(lifecycle.OnboardingStages(), c.stage)
			if c.adopted {
				require.NoError(t, err)
				require.Equal(t, lifecycle.JobRunning, step.Status)
				require.True(t, step.Adopted)
				require.Equal(t, lifecycle.StageAdopted, step.Stages[at].State)
				require.Equal(t, "adopted: "+c.state, step.Stages[at].Message)
				require.Equal(t, at+2, step.StageOrdinal)
				return
			}
			refused, ok := contract.RefusalOf(err)
			require.True(t, ok, "%v", err)
			require.Contains(t, refused.Reason, fmt.Sprintf("(%s, %s) is not a pair that may be adopted", c.stage, c.state))
			require.Equal(t, lifecycle.JobFailedManual, step.Status)
			require.Equal(t, lifecycle.EffectRefuse, step.Actions[0].Effect)
			require.False(t, step.Adopted)

			step, err = c.job(t).act(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "I stand in front of it", AcceptRisk: true})
			require.NoError(t, err)
			require.Equal(t, lifecycle.StageAdopted, step.Stages[at].State)
			require.Equal(t, "I stand in front of it", step.Actions[0].Reason)
		})
	}
	for _, st := range stages() {
		require.Equal(t, st.Observe != nil, unlisted[st.Name], "%s: an unlisted pair for each stage that observes", st.Name)
		for _, state := range st.Adoptable {
			require.True(t, slices.ContainsFunc(pairs, func(c pair) bool { return c.stage == st.Name && c.state == state && c.adopted && !c.done }), state)
		}
	}
}

// TestAStageThatObservesNothingIsNotAdopted, at whatever risk.
func TestAStageThatObservesNothingIsNotAdopted(t *testing.T) {
	t.Parallel()
	for _, st := range stages() {
		if st.Observe != nil {
			continue
		}
		t.Run(st.Name, func(t *testing.T) {
			t.Parallel()
			p := parkedAt(t, st.Name, State{})
			step, err := p.act(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "sure", AcceptRisk: true})
			require.ErrorContains(t, err, "stage "+st.Name+" has no outside state to observe")
			require.Equal(t, lifecycle.JobFailedManual, step.Status)
		})
	}
}

// TestAnOutsideThatCannotBeSeenIsNotAdopted.
func TestAnOutsideThatCannotBeSeenIsNotAdopted(t *testing.T) {
	t.Parallel()
	p := parkedAt(t, lifecycle.StageWaitReady, State{Machine: contract.MachineFacts{SystemID: "abc"}})
	p.Answer("ObserveMachine", func() (any, error) { return nil, unavailable() })
	_, err := p.act(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "sure", AcceptRisk: true})
	require.ErrorContains(t, err, "the outside could not be observed: MAAS is away")
}

// TestSSHLogin_IsProvenWithoutHardwareSync checks that the login is proven wherever the site has a
// key for it, and skipped where nothing is to be proven.
func TestSSHLogin_IsProvenWithoutHardwareSync(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sync          bool
		key           string
		calls, others []string
		skipped       string
	}{
		"neither":      {skipped: "the profile does not require hardware sync", others: []string{"CheckSSHSeed", "EnsureHardwareSync"}},
		"a key alone":  {key: "ber1/ssh", calls: []string{"ObserveMachine", "CheckSSHSeed"}, others: []string{"EnsureHardwareSync", "WaitForHardwareSync"}},
		"sync alone":   {sync: true, calls: []string{"EnsureHardwareSync", "WaitForHardwareSync"}, others: []string{"CheckSSHSeed"}},
		"sync and key": {sync: true, key: "ber1/ssh", calls: []string{"EnsureHardwareSync", "CheckSSHSeed", "WaitForHardwareSync"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := State{Machine: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}}
			s.Site.Profile.RequireHWSync, s.Site.Site.SSHKeyRef = c.sync, c.key
			p := parkedAt(t, lifecycle.StageEnsureHWSync, s)
			p.Answer("WaitForHardwareSync", func() (any, error) {
				return contract.MachineFacts{SystemID: "abc", Status: "Deployed", Done: true}, nil
			})
			_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
			require.NoError(t, err)
			for _, call := range c.calls {
				require.Contains(t, p.Calls(), call)
			}
			for _, call := range c.others {
				require.NotContains(t, p.Calls(), call)
			}
			row := p.Store.Last().Stages[slices.Index(lifecycle.OnboardingStages(), lifecycle.StageEnsureHWSync)]
			require.Equal(t, c.skipped, row.Message)
		})
	}
}
