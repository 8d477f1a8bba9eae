package sanitize

import (
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Note begins the note of a move with the mode of the job.
func (s *State) Note(what string) string { return fmt.Sprintf("%s %s", s.Mode, what) }

// Quarantine returns the move of a node that may not be clean or sound: from draining there is no
// edge to quarantined, so that it passes offline in the same step.
func Quarantine(note string) *contract.Move {
	return contract.NodeMove{
		To: lifecycle.NodeQuarantined, Via: []lifecycle.NodeStatus{lifecycle.NodeOffline}, Owner: lifecycle.OwnerDecommission, Note: note, Soft: true,
	}.Move()
}

// EndedMove returns the move of a node that stays in service: a healthy heartbeat makes it active.
func (s *State) EndedMove() *contract.Move {
	note := "proved clean; a healthy heartbeat makes it active"
	if len(s.Evidence.Unproven) > 0 {
		note = "ended at an operator's risk, and has not proved the node clean"
	}
	return contract.NodeMove{To: lifecycle.NodeOffline, Owner: lifecycle.OwnerDecommission, Note: s.Note(note)}.Move()
}

// CancelledMove returns the move of a node whose job was cancelled before the node retired: back to
// offline, or to quarantine where it came from, where a tenant has left it and nothing proves it
// clean, or where something was done that nobody can take back. from is the state of the node
// before the job.
func (s *State) CancelledMove(from lifecycle.NodeStatus) *contract.Move {
	switch {
	case s.IrreversibleStage != "":
		return Quarantine(fmt.Sprintf("%s was cancelled after %s had begun, which cannot be taken back: nothing proves the node clean", s.Mode, s.IrreversibleStage))
	case s.Node.TenantLeft != nil && s.Node.AllocationID == "":
		return Quarantine(s.Note("was cancelled after the tenant had left, and nothing proves the node clean; decommission it once more"))
	case from == lifecycle.NodeQuarantined:
		return Quarantine(s.Note("was cancelled; the node was quarantined before"))
	}
	return contract.NodeMove{To: lifecycle.NodeOffline, Owner: lifecycle.OwnerDecommission, Note: s.Note("was cancelled before a tenant was ended or anything was erased"), Soft: true}.Move()
}
