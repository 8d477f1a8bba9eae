package decommission

import (
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
)

// How the node's coarse state moves with the job's. Moves in the middle of a job are made by its
// stages.

// succeeded ends a mode where it is to end. A node is deleted with the very step
// that completes its job, so that no stage can fail behind it.
func succeeded(s *State) *contract.Move {
	switch s.ModeInfo().Ends {
	case lifecycle.NodeActive:
		return contract.NodeMove{To: lifecycle.NodeActive, Owner: s.ModeInfo().Owner, Note: s.Note("put the node on its new hardware, and its agent is healthy")}.Move()
	case lifecycle.NodeRetired:
		return contract.NodeMove{To: lifecycle.NodeRetired, Owner: s.ModeInfo().Owner, Note: s.Note("completed"), Soft: true}.Move()
	case lifecycle.NodeDeleted:
		move := contract.NodeMove{To: lifecycle.NodeDeleted, Owner: lifecycle.OwnerDecommission, Note: s.Note("completed")}
		if s.Uninstalled {
			move.Proof = lifecycle.Proof{lifecycle.NeedRevoked}
		}
		return move.Move()
	default:
		return s.EndedMove()
	}
}

// parked blocks a node that may not be clean or sound: from draining there is no
// edge to quarantined, so that it passes offline in the same step. A removal
// that did not succeed leaves the node retired.
func parked(s *State, f contract.Failure) *contract.Move {
	switch {
	case s.IsPXE():
		return nil // no state of a PXE node is left for a failure: it stays where the job works
	case f.Stage == lifecycle.StageRemoveNode && !s.Uninstalled:
		return contract.NodeMove{To: lifecycle.NodeRetired, Owner: lifecycle.OwnerDecommission, Soft: true, Note: "the removal is blocked; the identity is kept: " + f.Message}.Move()
	case lifecycle.Failure(f.Class).NodeUnsafe && !s.ModeInfo().Operation:
		return sanitize.Quarantine(fmt.Sprintf("%s is blocked at %s: %s", s.Request.Mode, f.Stage, f.Message))
	}
	return nil
}

// resumed returns the move of a node back to draining that was quarantined when the job parked. An
// operator has decided that by resuming the job. It returns nil when the job does not drain.
func resumed(s *State) *contract.Move {
	if s.IsPXE() || s.Retired || s.Request.Mode == lifecycle.ModeRemove {
		return nil
	}
	return contract.NodeMove{
		To: lifecycle.NodeDraining, Owner: lifecycle.OwnerAdmin, Proof: lifecycle.Proof{lifecycle.NeedOwningJob},
		Note: s.Note("goes on"), Soft: true,
	}.Move()
}

// cancelled is the move of a node whose job was cancelled. A PXE node stays in the state that the
// job works in.
func cancelled(s *State) *contract.Move {
	if s.IsPXE() {
		return nil // there is no way back: asking for the state again begins the next job
	}
	return s.CancelledMove(s.Request.From)
}
