package drift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/drift/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// NetworkProbe is the last probe of a node's network that its agent ended; Asked has no targets
// before the first.
type NetworkProbe struct {
	Asked  spec.ProbeNetworkArgs `json:"asked"`
	Output json.RawMessage       `json:"output"`
	At     time.Time             `json:"at"`
}

// Open returns the targets that the node reached, as spec.ProbeNetworkArgs.OpenTargets does.
func (p NetworkProbe) Open() ([]string, error) { return p.Asked.OpenTargets(p.Output) }

// LastProbe reads the last probe of a node.
func LastProbe(ctx context.Context, c db.Conn, nodeID string) (NetworkProbe, error) {
	var out NetworkProbe
	row, err := queries(c).LastProbe(ctx, gen.LastProbeParams{NodeID: nodeID, Kind: lifecycle.TaskKindProbeNetwork})
	if errors.Is(err, pgx.ErrNoRows) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(row, &out)
	}
	return out, db.MapError("network probe of node "+nodeID, err)
}

// ProbeAddress is the address of a BMC or of another node.
type ProbeAddress = gen.ProbeAddressesRow

// ProbeAddresses lists addresses of a site's BMCs, a node's own first, and of other nodes, at most
// that many of each, drawn by the seed.
func ProbeAddresses(ctx context.Context, c db.Conn, siteID, nodeID, seed string, each int) ([]ProbeAddress, error) {
	rows, err := queries(c).ProbeAddresses(ctx, gen.ProbeAddressesParams{SiteID: siteID, NodeID: nodeID, Seed: seed, MaxRows: int32(each)}) //nolint:gosec // a constant
	bmcs := 0
	return slices.DeleteFunc(rows, func(r ProbeAddress) bool {
		if r.Kind == "bmc" {
			bmcs++
		}
		return r.Kind == "bmc" && bmcs > each // the node's own is one more than were drawn
	}), db.MapError("addresses of site "+siteID, err)
}

// NodesToProbe lists nodes in service whose network was last probed before, longest ago first.
func NodesToProbe(ctx context.Context, c db.Conn, siteID string, heardSince, before time.Time, limit int) ([]string, error) {
	ids, err := queries(c).NodesToProbe(ctx, gen.NodesToProbeParams{
		SiteID: siteID, HeardSince: heardSince, Before: before, Kind: lifecycle.TaskKindProbeNetwork, MaxRows: int32(limit), //nolint:gosec // a setting
	})
	return ids, db.MapError("nodes to probe of site "+siteID, err)
}

// AskProbe has a node's agent probe its network, once in a pass.
func AskProbe(ctx context.Context, s *db.Store, nodeID string, pass int64, args spec.ProbeNetworkArgs, actor db.Actor) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("arguments of a network probe: %w", err)
	}
	err = s.Tx(ctx, func(tx *db.Tx) error {
		_, _, err := tx.EnqueueTask(ctx, db.NewTask{NodeID: nodeID, Kind: lifecycle.TaskKindProbeNetwork, Args: raw, Key: fmt.Sprintf("drift/%d/network", pass), Actor: actor})
		return err
	})
	var same *db.ConflictError
	if errors.As(err, &same) { // a repetition of the activity, which has drawn others
		return nil
	}
	return err
}
