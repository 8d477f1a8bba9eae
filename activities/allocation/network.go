package allocation

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// NetworkIn is the input of KeepNetwork.
type NetworkIn struct {
	contract.AllocationRef
	CIDR string `json:"cidr,omitempty"`
}

// KeepNetwork stores which network the allocation is in: that of the site, with the isolation that
// the catalogue states, and the subnet of the node. It can be repeated.
func (a *Activities) KeepNetwork(ctx context.Context, in NetworkIn) (contract.AllocationFacts, error) {
	row, err := allocationdb.Get(ctx, a.Store, in.AllocationID)
	if err != nil {
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	}
	n := allocationdb.Network{ID: deref(row.SiteID), Kind: "unknown", CIDR: in.CIDR} // the SKU may not be offered any more
	offer, err := tenancydb.ReadOffer(ctx, a.Store, row.SKUID)
	switch {
	case err == nil:
		n.Kind = offer.Isolation
	case !errors.Is(err, db.ErrNotFound):
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	}
	if n.ID == "" {
		return contract.AllocationFacts{Done: true, Note: "the node belongs to no site"}, nil
	}
	err = allocationdb.SetNetwork(ctx, a.Store, in.AllocationID, n)
	return contract.AllocationFacts{Done: err == nil, Note: "the node is in the network " + in.CIDR}, fault.Internal(ctx, err)
}
