package chaos_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	leaveact "github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/internal/devstack"
	"github.com/slipway-cloud/slipway/internal/e2e/chaos"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestBrokenStagesOfLeavingAreCaught is the same for five activities of a node
// that leaves service.
func TestBrokenStagesOfLeavingAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("jobs in trouble take a minute")
	}
	breaks := func(*devstack.Stack) interceptor.WorkerInterceptor { return &careless{} }
	caught(t, chaos.Options{Plugs: chaos.Leaving(), Progress: &progress{}, Break: breaks}, map[string]chaos.Verdict{
		"decommission/storage_cleanup:": "",
		"node_operation/remove:":        "",
		"decommission/soft_reset:validate_clean_node.CertifyNode=crash_after.silent":         chaos.Duplicate,
		"decommission/storage_cleanup:cleanup_storage.RunTask=answer_twice.in_a_row":         chaos.Duplicate,
		"node_operation/retire:force_release_allocations.EndAllocation=crash_before.silent":  chaos.WrongEnd,
		"node_operation/remove:remove_gpuaas_node_record.RevokeIdentity=crash_before.silent": chaos.Invariant,
		"decommission/full_of_retired:cleanup_secrets.CleanSecrets=crash_before.silent":      chaos.Invariant,
		"decommission/soft_reset:validate_clean_node.PowerCycleByBMC=crash_after.silent":     "", // nothing is broken there
	})
}

// careless puts wrong activities in the place of right ones.
type careless struct {
	interceptor.WorkerInterceptorBase
	asked sync.Map // job and stage to how often
}

func (c *careless) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &carelessActivity{interceptor.ActivityInboundInterceptorBase{Next: next}, c}
}

type carelessActivity struct {
	interceptor.ActivityInboundInterceptorBase
	*careless
}

func (c *carelessActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	again := activity.GetInfo(ctx).Attempt > 1 // "the first execution will have done it"
	switch name := activity.GetInfo(ctx).ActivityType.Name; {
	case name == "CertifyNode":
		arg, _ := in.Args[0].(leaveact.CertifyIn)
		arg.StartedAt = time.Now() // evidence that is another each time it is gathered
		in.Args[0] = arg
	case name == "RunTask":
		arg, _ := in.Args[0].(agenttask.RunTaskIn)
		n, _ := c.asked.LoadOrStore(arg.JobID+arg.Stage, new(atomic.Int64))
		arg.Key = strconv.FormatInt(n.(*atomic.Int64).Add(1), 10) // a key that is another each time it is asked
		in.Args[0] = arg
	case again && (name == "EndAllocation" || name == "RevokeIdentity" || name == "CleanSecrets"):
		return contract.LeavingFacts{Done: true, Agent: contract.AgentAlive}, nil
	}
	return c.Next.ExecuteActivity(ctx, in)
}
