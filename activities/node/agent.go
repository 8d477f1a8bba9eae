package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// WaitAgentIn is the input of WaitForAgent.
type WaitAgentIn struct {
	contract.JobRef
	SKU  spec.SKUSpec  `json:"sku"`
	Poll spec.Duration `json:"poll,omitempty"`
	// After is when the enrolment token was issued: a heartbeat from before
	// comes from another installation.
	After *time.Time `json:"after,omitempty"`
	// UserDataRef is the sealed user-data that the node booted with, and Until
	// how long its token must at least be good; without them it is left as it is.
	UserDataRef string    `json:"user_data_ref,omitempty"`
	Until       time.Time `json:"until,omitzero"`
}

// unhealthyPatience is how many polls in a row a report may fall short of the
// SKU before that is a failure: drivers and links come up after the agent.
const unhealthyPatience = 30

// staleAfter is the age at which a heartbeat no longer proves a living node: a
// job may be taken up again days after it was parked.
const staleAfter = 10 * time.Minute

// WaitForAgent polls until the node's agent has enrolled and its report meets
// the SKU. An unhealthy node is a typed failure; one that never enrols ends at
// the stage's deadline.
func (a *Activities) WaitForAgent(ctx context.Context, in WaitAgentIn) (contract.AgentFacts, error) {
	every := in.Poll.D()
	if every <= 0 {
		every = 10 * time.Second
	}
	if err := a.keepToken(ctx, in); err != nil {
		return contract.AgentFacts{}, err
	}
	for bad := 0; ; {
		facts, err := a.agent(ctx, in)
		if err != nil && (in.ObserveOnly || db.Permanent(err) || ctx.Err() != nil) {
			return facts, fault.Internal(ctx, err)
		} // a database that is away is borne: the stage's deadline bounds it
		if facts.Healthy && !in.ObserveOnly {
			return facts, fault.Internal(ctx, a.Store.Tx(ctx, func(tx *db.Tx) error { return acceptReport(ctx, tx, in.NodeID) }))
		}
		if in.ObserveOnly {
			return facts, nil
		}
		activity.RecordHeartbeat(ctx, facts)
		if facts.Enrolled {
			if bad++; bad > unhealthyPatience {
				return facts, fault.New(lifecycle.FailNodeUnhealthy, "the node does not meet its SKU: %s", strings.Join(facts.Problems, "; "))
			}
		}
		if err := poll.Sleep(ctx, every); err != nil {
			return facts, err
		}
	}
}

// acceptReport keeps what the report of a healthy node says of its drives, and of its address where
// MAAS knows none.
func acceptReport(ctx context.Context, tx *db.Tx, nodeID string) error {
	heartbeat, err := tx.LatestHeartbeat(ctx, nodeID)
	if err != nil {
		return err
	}
	if heartbeat.Report != nil && heartbeat.Report.Address != "" {
		now := db.NodeAddresses{Source: lifecycle.AddressesOfAgent, IPs: []string{heartbeat.Report.Address}}
		if err := tx.SetNodeAddresses(ctx, nodeID, now); err != nil {
			return err
		}
	}
	return tx.FreezeDrives(ctx, nodeID)
}

// keepToken lets the node's unused token live for as long as this wait: it was
// made before the deployment, and an operator may fix the node's way to the agent
// API much later. A used or revoked one, or user-data that is gone, is none of
// this wait's business.
func (a *Activities) keepToken(ctx context.Context, in WaitAgentIn) error {
	if in.UserDataRef == "" || in.Until.IsZero() || in.ObserveOnly {
		return nil
	}
	sealed, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(in.UserDataRef))
	if providers.IsKind(err, providers.KindNotFound) {
		return nil
	}
	if err != nil {
		return fault.Secret(ctx, err)
	}
	_, err = a.Store.ExtendEnrollmentToken(ctx, in.NodeID, sealed.TokenHash, in.Until)
	return fault.Internal(ctx, err)
}

// agent reads what the control plane knows of the node's agent now.
func (a *Activities) agent(ctx context.Context, in WaitAgentIn) (contract.AgentFacts, error) {
	heartbeat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
	if errors.Is(err, db.ErrNotFound) {
		return contract.AgentFacts{}, nil
	}
	if err != nil {
		return contract.AgentFacts{}, err
	}
	now, err := a.Store.Clock(ctx) // which the heartbeat was dated by
	if err != nil {
		return contract.AgentFacts{}, err
	}
	if now.Sub(heartbeat.ReceivedAt) > staleAfter || (in.After != nil && heartbeat.ReceivedAt.Before(*in.After)) {
		return contract.AgentFacts{}, nil
	}
	f := contract.AgentFacts{Enrolled: true, BootID: heartbeat.BootID, Version: heartbeat.AgentVersion}
	if heartbeat.Report == nil {
		f.Problems = []string{"no health report yet"}
		return f, nil
	}
	f.Simulated, f.Problems = heartbeat.Report.Simulated, in.SKU.CheckHealth(*heartbeat.Report)
	f.Healthy = len(f.Problems) == 0
	return f, nil
}
