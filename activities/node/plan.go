package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// DryRunIn asks what an activity would do with its input. The input is a field and
// not embedded, so that a look is no entry on the node's timeline.
type DryRunIn[I any] struct {
	In I `json:"in"`
}

// DryRunOut is what an activity would do: nothing when Done, the Steps, or fail
// with Failure.
type DryRunOut struct {
	Done     bool                `json:"done,omitempty"`
	Steps    []string            `json:"steps,omitempty"`
	Observed string              `json:"observed,omitempty"`
	Agent    contract.AgentFacts `json:"agent"`
	Failure  *contract.Failure   `json:"failure,omitempty"`
}

// withFailure adds an error that a run would fail with.
func (f DryRunOut) withFailure(err error) (DryRunOut, error) {
	if err == nil {
		return f, nil
	}
	failure, ok := fault.Failure(err)
	if !ok {
		return f, err
	}
	f.Failure = &failure
	return f, nil
}

// plannedNodeID stands in a trial rendering where the id of the node will stand.
const plannedNodeID = "node_00000000-0000-7000-8000-000000000000"

// PlanCloudInit is whether render_cloud_init would succeed: it renders the
// document with a token that nobody keeps, and throws it away. Nothing is
// issued, sealed or stored.
func (a *Activities) PlanCloudInit(ctx context.Context, l DryRunIn[RenderIn]) (DryRunOut, error) {
	in := l.In
	if in.InUse && in.Existing.Ref != "" {
		return DryRunOut{Done: true, Observed: "the machine was deployed with the user-data that is sealed"}, nil
	}
	sealed, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(cloudinit.SecretName(in.JobID, in.Attempt)))
	if err != nil && !providers.IsKind(err, providers.KindNotFound) {
		return DryRunOut{}.withFailure(fault.Secret(ctx, err))
	}
	if err == nil && time.Until(sealed.ExpiresAt) >= tokenMargin && !a.used(ctx, sealed.TokenHash) {
		return DryRunOut{Done: true, Observed: "user-data with an unused token is sealed already"}, nil
	}
	if in.NodeID == "" {
		in.NodeID = plannedNodeID
	}
	doc, err := a.render(ctx, in)
	if err != nil {
		return DryRunOut{}.withFailure(err)
	}
	ttl := time.Duration(in.Profile.EnrollmentTokenTTLSeconds) * time.Second
	// The size varies with the made-up key by some bytes; a plan's hash must not.
	return DryRunOut{
		Steps:    []string{fmt.Sprintf("issue a one-time enrolment token for %s, make a host key, seal the user-data", ttl)},
		Observed: fmt.Sprintf("the user-data renders, %d KiB", len(doc.Document)/1024),
	}, nil
}

// PlanAgent is what wait_for_agent_enrollment sees now. Read-only.
func (a *Activities) PlanAgent(ctx context.Context, l DryRunIn[WaitAgentIn]) (DryRunOut, error) {
	l.In.ObserveOnly = true
	f, err := a.WaitForAgent(ctx, l.In)
	out := DryRunOut{Agent: f, Done: f.Healthy}
	switch {
	case f.Healthy:
		out.Observed = "the agent is enrolled and its report meets the SKU"
	case f.Enrolled:
		out.Observed = "the agent is enrolled; its report does not meet the SKU: " + strings.Join(f.Problems, "; ")
	default:
		out.Observed = "no agent has reported"
	}
	return out.withFailure(err)
}
