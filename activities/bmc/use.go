package bmc

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// loginUse returns what a login of a BMC is resolved for. Site and node are those of the BMC's
// record or of its rack device, or else those of the job.
func (a *Activities) loginUse(ctx context.Context, rec db.BMC, job contract.JobRef) (providers.Use, error) {
	use := providers.Use{Kind: spec.SecretBMCLogin, Site: job.SiteID, Node: job.NodeID, Address: rec.Address}
	if rec.NodeID == nil {
		device, ok, err := hardwaredb.RackDeviceOfBMC(ctx, a.Store, rec.ID)
		if ok {
			use.Site = device.SiteID
		}
		return use, fault.Internal(ctx, err)
	}
	node, err := a.Store.Node(ctx, *rec.NodeID)
	if errors.Is(err, db.ErrNotFound) {
		return use, nil // of a dry run
	}
	if err != nil {
		return use, fault.Internal(ctx, err)
	}
	use.Site, use.Node = node.SiteID, node.ID
	return use, nil
}

// resolve opens a login for a BMC.
func (a *Activities) resolve(ctx context.Context, ref string, use providers.Use) (providers.Login, error) {
	login, err := providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(ref), use)
	return login, fault.Login(ctx, err, fault.BMC)
}
