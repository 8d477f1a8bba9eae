package decommission

import (
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// How the node's coarse state moves with the job's. What moves in the middle of
// a job is moved by its stages.

// succeeded ends a mode where it is to end. A node is deleted with the very step
// that completes its job, so that no stage can fail behind it.
func succeeded(s *State) *contract.Move {
	switch s.mode().Ends {
	case lifecycle.NodeActive:
		return contract.NodeMove{To: lifecycle.NodeActive, Owner: s.mode().Owner, Note: s.note("put the node on its new hardware, and its agent is healthy")}.Move()
	case lifecycle.NodeRetired:
		return contract.NodeMove{To: lifecycle.NodeRetired, Owner: s.mode().Owner, Note: s.note("completed"), Soft: true}.Move()
	case lifecycle.NodeDeleted:
		move := contract.NodeMove{To: lifecycle.NodeDeleted, Owner: lifecycle.OwnerDecommission, Note: s.note("completed")}
		if s.Uninstalled {
			move.Proof = lifecycle.Proof{lifecycle.NeedRevoked}
		}
		return move.Move()
	default:
		note := "proved clean; a healthy heartbeat makes it active"
		if len(s.Evidence.Unproven) > 0 {
			note = "ended at an operator's risk, and has not proved the node clean"
		}
		return contract.NodeMove{To: lifecycle.NodeOffline, Owner: lifecycle.OwnerDecommission, Note: s.note(note)}.Move()
	}
}

func (s *State) note(what string) string { return fmt.Sprintf("%s %s", s.Request.Mode, what) }

// parked blocks a node that may not be clean or sound: from draining there is no
// edge to quarantined, so that it passes offline in the same step. A removal
// that did not succeed leaves the node retired.
func parked(s *State, f contract.Failure) *contract.Move {
	switch {
	case s.pxe():
		return nil // no state of a PXE node is left for a failure: it stays where the job works
	case f.Stage == lifecycle.StageRemoveNode && !s.Uninstalled:
		return contract.NodeMove{To: lifecycle.NodeRetired, Owner: lifecycle.OwnerDecommission, Soft: true, Note: "the removal is blocked; the identity is kept: " + f.Message}.Move()
	case lifecycle.Failure(f.Class).NodeUnsafe && !s.mode().Operation:
		return quarantine(fmt.Sprintf("%s is blocked at %s: %s", s.Request.Mode, f.Stage, f.Message))
	}
	return nil
}

func quarantine(note string) *contract.Move {
	return contract.NodeMove{
		To: lifecycle.NodeQuarantined, Via: []lifecycle.NodeStatus{lifecycle.NodeOffline}, Owner: lifecycle.OwnerDecommission, Note: note, Soft: true,
	}.Move()
}

// resumed returns the move of a node back to draining that was quarantined when the job parked. An
// operator has decided that by resuming the job. It returns nil when the job does not drain.
func resumed(s *State) *contract.Move {
	if s.pxe() || s.Retired || s.Request.Mode == lifecycle.ModeRemove {
		return nil
	}
	return contract.NodeMove{
		To: lifecycle.NodeDraining, Owner: lifecycle.OwnerAdmin, Proof: lifecycle.Proof{lifecycle.NeedOwningJob},
		Note: s.note("goes on"), Soft: true,
	}.Move()
}

// cancelled stops short of retirement: the node goes back to offline, or to
// quarantine where it came from, where a tenant has left it and nothing proves it
// clean, or where something was done that nobody can take back. A node that is retired stays so, and so does a PXE node in the state
// that the job works in.
func cancelled(s *State) *contract.Move {
	switch {
	case s.pxe():
		return nil // there is no way back: asking for the state again begins the next job
	case s.IrreversibleStage != "":
		return quarantine(fmt.Sprintf("%s was cancelled after %s had begun, which cannot be taken back: nothing proves the node clean", s.Request.Mode, s.IrreversibleStage))
	case s.Node.TenantLeft != nil && s.Node.AllocationID == "":
		return quarantine(s.note("was cancelled after the tenant had left, and nothing proves the node clean; decommission it once more"))
	case s.Request.From == lifecycle.NodeQuarantined:
		return quarantine(s.note("was cancelled; the node was quarantined before"))
	}
	return contract.NodeMove{To: lifecycle.NodeOffline, Owner: lifecycle.OwnerDecommission, Note: s.note("was cancelled before a tenant was ended or anything was erased"), Soft: true}.Move()
}
