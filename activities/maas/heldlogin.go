package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/providers"
)

// HeldLogin returns a function that reads the login which the MAAS of a node holds for the BMC at
// an address. It is no activity, so that no login is ever in a history.
func HeldLogin(a *Activities) func(ctx context.Context, node db.Node, address string) (providers.Login, error) {
	asked := a.forPlan()
	return func(ctx context.Context, node db.Node, address string) (providers.Login, error) {
		m, _, err := asked.region(ctx, contract.JobRef{SiteID: node.SiteID, NodeID: node.ID})
		if err != nil {
			return providers.Login{}, err
		}
		return m.HeldLogin(ctx, *node.MAASSystemID, address)
	}
}
