package chaos_test

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/scaleway"
	"github.com/slipway-cloud/slipway/test/stack"
)

// instanceBreaker puts a wrong activity of instances in the place of the right one.
type instanceBreaker struct {
	interceptor.WorkerInterceptorBase
	stack *stack.Stack
}

func (b *instanceBreaker) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &brokenInstance{interceptor.ActivityInboundInterceptorBase{Next: next}, b}
}

type brokenInstance struct {
	interceptor.ActivityInboundInterceptorBase
	*instanceBreaker
}

// ExecuteActivity orders a server again when nobody heard of the first execution.
func (b *brokenInstance) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if info := activity.GetInfo(ctx); info.ActivityType.Name != "CreateServer" || info.Attempt == 1 {
		return b.Next.ExecuteActivity(ctx, in)
	}
	ref, _ := in.Args[0].(contract.JobRef)
	c := b.stack.Config.Instance
	use := providers.Use{Kind: spec.SecretCloudKey, Address: c.ScalewayURL}
	key, err := b.stack.App.Secrets.Resolve(ctx, providers.SecretRef(c.ScalewayKeyRef), use)
	if err != nil {
		return nil, err
	}
	cloud, err := scaleway.Open(providers.CloudAccount{
		URL: c.ScalewayURL, ProjectID: c.ScalewayProjectID, AccessKey: c.ScalewayAccessKey, SecretKey: key, Rule: providers.SimulatedAddresses(),
	}, c.Installation)
	if err != nil {
		return nil, err
	}
	order := providers.CloudCreate{Zone: c.Zones()[0], InstanceID: ref.ResourceID, Type: "L4-1-24G", Image: c.ScalewayImage}
	order.Sources.SSH, order.Sources.Worker = c.Sources()
	if _, err := cloud.Create(ctx, order); err != nil {
		return nil, err
	}
	return b.Next.ExecuteActivity(ctx, in)
}
