package lifecycle

// RotationState is the progress of the rotation of a BMC's login. It says which of the two stored
// logins the BMC accepts: the current one while the rotation is prepared, the candidate when it is
// applied, and one of the two while it is applying.
type RotationState string

// The states of a rotation. A BMC without a rotation under way has none. The last two states are
// outcomes in the history of rotations.
const (
	RotationNone     RotationState = ""
	RotationPrepared RotationState = "prepared"
	RotationApplying RotationState = "applying"
	RotationApplied  RotationState = "applied"
	RotationVerified RotationState = "verified"
	RotationRotated  RotationState = "rotated"
	RotationUndone   RotationState = "undone"
)

// The transitions of a rotation.
var (
	RotationSend   = rotationMove("send", RotationApplying, "the candidate is about to be sent", RotationPrepared)
	RotationAccept = rotationMove("accept", RotationApplied, "the BMC said that it took the candidate, or let it in", RotationApplying)
	RotationRefuse = rotationMove("refuse", RotationPrepared, "the BMC does not take the candidate", RotationApplying, RotationApplied)
	RotationVerify = rotationMove("verify", RotationVerified, "a new login with the candidate succeeded", RotationApplied)
	RotationCommit = rotationMove("commit", RotationRotated, "the candidate becomes the BMC's login", RotationVerified)
	RotationDrop   = rotationMove("drop", RotationUndone, "the candidate is given up, the current login stays", RotationPrepared)
)

func rotationMove(name string, to RotationState, doc string, from ...RotationState) Transition[RotationState] {
	return Transition[RotationState]{Name: name, From: from, To: to, Owners: []Owner{OwnerJob}, Doc: doc}
}

// BMCRotation is the lifecycle of the rotation of a BMC's login.
var BMCRotation = Machine[RotationState]{
	Resource: "bmc_rotation",
	Initial:  []RotationState{RotationPrepared},
	States: []StateInfo[RotationState]{
		{State: RotationPrepared, Doc: "the candidate is stored; nothing was sent, or the BMC refused it", Transitional: true},
		{State: RotationApplying, Doc: "written before the candidate is sent; the BMC takes either login", Transitional: true},
		{State: RotationApplied, Doc: "the BMC took the candidate", Transitional: true},
		{State: RotationVerified, Doc: "the BMC let a new login with the candidate in", Transitional: true},
		{State: RotationRotated, Doc: "the candidate is the BMC's login", Terminal: true},
		{State: RotationUndone, Doc: "the login before stays", Terminal: true},
	},
	Transitions: []Transition[RotationState]{RotationSend, RotationAccept, RotationRefuse, RotationVerify, RotationCommit, RotationDrop},
}
