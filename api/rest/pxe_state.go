package rest

import (
	"context"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/pxejob"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// StateTransition is a state that an admin sets. Behind force it holds
// what the jobs of deprovisioning and migrating are asked for.
type StateTransition struct {
	State   lifecycle.NodeStatus `json:"state" required:"true" maxLength:"30"`
	Comment *string              `json:"comment,omitempty" maxLength:"2000"`
	Force   bool                 `json:"force,omitempty" doc:"Passes by the retry limit and sets the counters back: needed from install_failed. Also passes by a live job, which then stands still: needed for retired and active while one holds the node"`

	GraceSeconds int              `json:"grace_seconds,omitempty" minimum:"0" maximum:"86400" doc:"With deprovisioning and migrating: how long what runs on the node may take to end"`
	Disks        string           `json:"disks,omitempty" enum:"new,moved,same" doc:"With migrating: new (as when absent), the hardware brings empty disks and is installed; moved, the node's disks move into it; same, the node keeps its hardware, which is erased, proven clean and installed again"`
	EraseOld     bool             `json:"erase_old,omitempty" doc:"With migrating to new disks: the old hardware is erased and proven clean first"`
	Hardware     *HardwareRequest `json:"hardware,omitempty" doc:"With migrating: the new hardware, if it is known; else it is planned later"`
}

func (s *server) setNodeState(ctx context.Context, in *struct {
	NodePath
	op.Match
	Body StateTransition
}) (*op.Versioned[Node], error) {
	t := in.Body
	checked, err := pxejob.Check(ctx, s.store, pxejob.Request{
		NodeID: in.ID, State: t.State, Comment: text(t.Comment), Force: t.Force,
		Options: pxejob.Options{GraceSeconds: t.GraceSeconds, Disks: t.Disks, EraseOld: t.EraseOld, Hardware: t.Hardware.hardware()},
	})
	if err != nil {
		return nil, err
	}
	return s.changePXENode(ctx, in.Match, func(tx *db.Tx, version int64) (db.Node, error) {
		return pxejob.Accept(ctx, tx, checked, version, op.Actor(ctx))
	})
}

// changePXENode changes a PXE node and answers with it, of the same moment.
func (s *server) changePXENode(ctx context.Context, m op.Match, change func(*db.Tx, int64) (db.Node, error)) (*op.Versioned[Node], error) {
	version, err := m.Version(op.AnyVersion)
	if err != nil {
		return nil, err
	}
	var view Node
	err = s.store.Tx(ctx, func(tx *db.Tx) error {
		n, err := change(tx, version)
		if err != nil {
			return err
		}
		view = nodeView(n)
		if err := addOccupants(ctx, tx, &view); err != nil {
			return err
		}
		return addPXE(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(view.Version, view), nil
}
