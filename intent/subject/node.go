package subject

import (
	"context"
	"encoding/json"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var nodes = Subject{
	Kind: contract.SubjectNode,
	Lock: func(ctx context.Context, tx *db.Tx, ref Ref) (Apply, error) {
		none := func(context.Context, *db.Tx, contract.Projection, json.RawMessage) error { return nil }
		if ref.NodeID == "" {
			return none, nil
		}
		node, err := tx.LockNode(ctx, ref.NodeID)
		return func(ctx context.Context, tx *db.Tx, p contract.Projection, data json.RawMessage) error {
			return moveNode(ctx, tx, node, p, data)
		}, err
	},
	Park:         never,
	EndUnstarted: decommission.EndUnstarted,
}

// moveNode drops a soft move that the node's present state has no edge for, or none that such a job
// may take: a quarantined node that is onboarded again is not moved to enrolling, and one that
// somebody else has put to use meanwhile does not keep a job from ending.
func moveNode(ctx context.Context, tx *db.Tx, node db.Node, p contract.Projection, data json.RawMessage) error {
	m, err := decode[contract.NodeMove](data)
	if err != nil {
		return err
	}
	owner := m.Owner
	if owner == "" {
		owner = lifecycle.Owner(p.Kind)
	}
	path := lifecycle.NodePath(node.Lifecycle, node.Status, m.To, m.Via, owner)
	if m.Soft && (len(path) == 0 || path[0] == node.Status) {
		return nil
	}
	move := db.NodeMove{To: m.To, Proof: m.Proof, Actor: by(p)}
	move.Actor.Owner, move.Actor.Comment = owner, m.Note
	if f := p.Failure; f != nil {
		if m.Note == "" {
			move.Actor.Comment = f.Message
		}
		move.Actor.Metadata = map[string]any{"failure_class": string(f.Class), "stage": f.Stage}
	}
	if len(path) > 1 {
		move.Via = path[:len(path)-1]
	}
	return tx.MoveJobNode(ctx, node, move)
}
