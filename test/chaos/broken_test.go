package chaos_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/activities/fault"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/test/chaos"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestRun_CatchesBrokenActivities runs a worker in which eleven activities are wrong in the ways in
// which such code usually is. All goes well while nothing goes wrong. Each is caught by a fault in
// its stage: the verdict is among its findings; "" is none.
func TestRun_CatchesBrokenActivities(t *testing.T) {
	if testing.Short() {
		t.Skip("these jobs take half a minute")
	}
	want := map[string]chaos.Verdict{
		"onboarding/plain:": "",
		"onboarding/plain:create_or_find_in_maas.CreateOrFindMachine=crash_after.silent":    chaos.WrongEnd,
		"onboarding/plain:deploy_via_maas.DeployMachine=crash_after.silent":                 chaos.Duplicate,
		"onboarding/plain:configure_storage.ConfigureStorage=site_cut.refused_before":       chaos.WrongEnd,
		"onboarding/plain:wait_for_agent_enrollment.DiscardUserData=crash_before.silent":    chaos.Invariant,
		"onboarding/plain:deploy_via_maas.DeployMachine=answer_twice.in_a_row":              chaos.Duplicate,
		"onboarding/plain:wait_for_ready.WaitForReady=crash_after.silent":                   "", // nothing is broken there
		"onboarding/plain:create_or_find_in_maas.CreateOrFindMachine=answer_twice.in_a_row": chaos.WrongEnd,

		"decommission/storage_cleanup:": "",
		"node_operation/remove:":        "",
		"decommission/soft_reset:validate_clean_node.CertifyNode=crash_after.silent":         chaos.Duplicate,
		"decommission/storage_cleanup:cleanup_storage.RunTask=answer_twice.in_a_row":         chaos.Duplicate,
		"node_operation/retire:force_release_allocations.EndAllocation=crash_before.silent":  chaos.WrongEnd,
		"decommission/full_of_retired:cleanup_secrets.DeleteNodeSecrets=crash_before.silent": chaos.Invariant,
		"decommission/soft_reset:validate_clean_node.PowerCycleByBMC=crash_after.silent":     "", // nothing is broken there

		"allocation_release/other:":                                              "",
		"allocation_release/other_agent_lies:":                                   chaos.WrongEnd, // the agent's word is taken for a proof
		"allocation_provision/other:install_keys.GiveAccess=crash_before.silent": chaos.Invariant,

		"instance_create/plain:": "",
		"instance_create/plain:create_server.CreateServer=crash_after.silent": chaos.Duplicate,
	}
	o := chaos.Options{
		Sets: slices.Concat(onboarding(), chaos.DecommissionJobs(), chaos.AllocationJobs(), chaos.InstanceJobs()), Progress: &progress{}, Break: breakStages,
		// The second deployment of DeployMachine=crash_after.silent may come when the agent of the
		// first has used the enrollment token; then no agent can enroll, and the job is also stuck.
		Patience: runenv.Patience(75 * time.Second),
	}
	for _, text := range slices.Sorted(maps.Keys(want)) {
		c, err := chaos.ParseCase(text, o.Sets)
		require.NoError(t, err)
		o.Cases = append(o.Cases, c)
	}
	report, err := chaos.Run(t.Context(), o)
	if err != nil && strings.Contains(err.Error(), "onboard: ") { // on a slow machine a wrong activity is tried twice before a case begins
		report, err = chaos.Run(t.Context(), o)
	}
	require.NoError(t, err)
	require.Len(t, report.Results, len(want))
	right := func(r chaos.Result) bool {
		verdict := want[r.Case.String()]
		return verdict == "" && len(r.Findings) == 0 || slices.ContainsFunc(r.Findings, func(f chaos.Finding) bool { return f.Verdict == verdict })
	}
	// On a slow machine an activity is tried twice in a sound case too, and a wrong one may be
	// ended before it does harm. Such cases are played alone.
	again := o
	again.Cases = nil
	for _, r := range report.Results {
		if !right(r) {
			again.Cases = append(again.Cases, r.Case)
		}
	}
	if len(again.Cases) == 0 {
		return
	}
	report, err = chaos.Run(t.Context(), again)
	require.NoError(t, err)
	for _, r := range report.Results {
		require.True(t, right(r), "%s, which was played alone, should have the verdict %q: %s", r.Case, want[r.Case.String()], r.Blame())
	}
}

// breakStages makes the interceptors that put wrong activities in the place of
// right ones.
func breakStages(s *stack.Stack) []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&breaker{stack: s}, &decommissionBreaker{}, &instanceBreaker{stack: s}}
}

type breaker struct {
	interceptor.WorkerInterceptorBase
	stack *stack.Stack
	noted sync.Map // job id
}

func (b *breaker) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &brokenActivity{interceptor.ActivityInboundInterceptorBase{Next: next}, b}
}

type brokenActivity struct {
	interceptor.ActivityInboundInterceptorBase
	*breaker
}

func (b *brokenActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	switch info := activity.GetInfo(ctx); info.ActivityType.Name {
	case "CreateOrFindMachine":
		arg, _ := in.Args[0].(maasact.CreateIn)
		return b.createWithoutLooking(ctx, in, arg)
	case "DeployMachine":
		arg, _ := in.Args[0].(maasact.DeployIn)
		return b.deployAfresh(ctx, in, arg)
	case "ConfigureStorage":
		// The note that it was done comes before it is done.
		arg, _ := in.Args[0].(maasact.StorageIn)
		if _, noted := b.noted.LoadOrStore(arg.JobID, true); noted {
			return contract.MachineFacts{SystemID: arg.SystemID, Done: true}, nil
		}
	case "DiscardUserData":
		if info.Attempt > 1 { // "the first execution will have done it"
			return contract.UserData{}, nil
		}
	}
	return b.Next.ExecuteActivity(ctx, in)
}

// createWithoutLooking creates first, and finds only what it has created.
func (b *brokenActivity) createWithoutLooking(ctx context.Context, in *interceptor.ExecuteActivityInput, arg maasact.CreateIn) (any, error) {
	m, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: b.stack.Sims.URL, APIKey: providers.NewSecret(b.stack.Sims.APIKey)})
	if err != nil {
		return nil, err
	}
	machine := b.stack.Sims.Fleet.ByMAC(arg.BMC.MACs[0]).Spec()
	if err := b.stack.App.Store.SetMAASCreateIntent(ctx, arg.NodeID, arg.JobID); err != nil {
		return nil, err
	}
	_, err = m.CreateMachine(ctx, providers.MAASCreate{
		Hostname: arg.Hostname, Architecture: arg.Profile.Architecture, MACs: arg.BMC.MACs, PowerType: arg.Profile.PowerType,
		PowerAddress: arg.BMC.Address, PowerUser: machine.BMCUser, PowerPassword: providers.NewSecret(machine.BMCPassword), PowerNodeID: arg.BMC.RedfishSysID,
	})
	if err != nil {
		return nil, fault.MAAS(ctx, err)
	}
	return b.Next.ExecuteActivity(ctx, in)
}

// deployAfresh releases any deployment that it finds, without
// reading whose it is.
func (b *brokenActivity) deployAfresh(ctx context.Context, in *interceptor.ExecuteActivityInput, arg maasact.DeployIn) (any, error) {
	acts := &maasact.Activities{Store: b.stack.App.Store, Secrets: b.stack.App.Secrets, Opener: maas.Opener{}}
	if _, err := acts.ReturnToReady(ctx, maasact.ReleaseIn{MachineIn: maasact.MachineIn{JobRef: arg.JobRef, SystemID: arg.SystemID}}); err != nil {
		return nil, err
	}
	return b.Next.ExecuteActivity(ctx, in)
}
