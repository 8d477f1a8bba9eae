package chaos_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
)

// decommissionBreaker puts wrong activities in the place of right ones, in jobs that take a node
// out of service and in jobs of allocations.
type decommissionBreaker struct {
	interceptor.WorkerInterceptorBase
	asked sync.Map // from job and stage to the number of tasks
}

func (c *decommissionBreaker) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &brokenDecommissionActivity{interceptor.ActivityInboundInterceptorBase{Next: next}, c}
}

type brokenDecommissionActivity struct {
	interceptor.ActivityInboundInterceptorBase
	*decommissionBreaker
}

func (c *brokenDecommissionActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	again := activity.GetInfo(ctx).Attempt > 1 // "the first execution will have done it"
	switch name := activity.GetInfo(ctx).ActivityType.Name; {
	case name == "CertifyNode":
		arg, _ := in.Args[0].(evidenceact.CertifyIn)
		arg.StartedAt = time.Now() // evidence that differs each time it is gathered
		in.Args[0] = arg
	case name == "RunTask":
		arg, _ := in.Args[0].(agenttask.RunTaskIn)
		n, _ := c.asked.LoadOrStore(arg.JobID+arg.Stage, new(atomic.Int64))
		arg.Key = strconv.FormatInt(n.(*atomic.Int64).Add(1), 10) // a key that differs each time
		in.Args[0] = arg
	case again && (name == "EndAllocation" || name == "DeleteNodeSecrets"):
		return contract.DecommissionFacts{Done: true, Agent: contract.AgentAlive}, nil
	case again && name == "GiveAccess":
		return contract.AllocationFacts{Done: true}, nil
	case name == "OfferKeys":
		if arg, _ := in.Args[0].(accessact.OfferKeysIn); !arg.Accepted {
			return accessact.OfferedKeys{Done: true}, nil // "the agent has removed the account"
		}
	}
	return c.Next.ExecuteActivity(ctx, in)
}
