package contract

// The slots of a BMC's login: which of the two stored logins the BMC takes, as
// far as it is known.
const (
	SlotCurrent   = "current"
	SlotCandidate = "candidate"
	SlotUnknown   = "unknown" // the change was sent and its outcome is not known yet
)

// RotationFacts is where the rotation of a BMC's login stands. Logins are
// references, never values.
type RotationFacts struct {
	BMCID string `json:"bmc_id"`
	// CurrentRef is the stored login of the BMC; after the commit, the new one.
	CurrentRef string `json:"current_ref"`
	// CandidateRef is the login that is rotated to; after the commit it equals
	// CurrentRef, after an undo it is "".
	CandidateRef string `json:"candidate_ref,omitempty"`
	// FromRef is the login that this rotation replaces.
	FromRef string `json:"from_ref,omitempty"`
	Slot    string `json:"slot,omitempty"` // current, candidate, unknown

	Applied   bool   `json:"applied,omitempty"`   // the BMC took the candidate
	Verified  bool   `json:"verified,omitempty"`  // a new login with it succeeded
	Committed bool   `json:"committed,omitempty"` // it is the stored login
	Undone    bool   `json:"undone,omitempty"`    // the rotation was taken back
	Note      string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f RotationFacts) TimelineNote() string { return f.Note }
