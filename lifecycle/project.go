package lifecycle

// ProjectStatus is the state of a project.
type ProjectStatus string

// The states of a project.
const (
	ProjectActive  ProjectStatus = "active"
	ProjectClosing ProjectStatus = "closing"
	ProjectClosed  ProjectStatus = "closed"
)

// The transitions of a project.
var (
	ProjectClose = Transition[ProjectStatus]{
		Name: "close", From: []ProjectStatus{ProjectActive}, To: ProjectClosing, Owners: []Owner{OwnerAdmin, OwnerCustomer},
		Doc: "an owner or an operator ends everything that runs; the data stays",
	}
	ProjectFinish = Transition[ProjectStatus]{
		Name: "finish", From: []ProjectStatus{ProjectClosing}, To: ProjectClosed, Owners: []Owner{OwnerAdmin, OwnerCustomer},
		Doc: "nothing of the project runs any more",
	}
)

// Project is the lifecycle of a project.
var Project = Machine[ProjectStatus]{
	Resource: "project",
	Initial:  []ProjectStatus{ProjectActive},
	States: []StateInfo[ProjectStatus]{
		{State: ProjectActive, Doc: "its members can use it"},
		{State: ProjectClosing, Doc: "nothing new is accepted; what runs is ended"},
		{State: ProjectClosed, Doc: "nothing runs; its members can read it, and its ledger stays", Terminal: true},
	},
	Transitions: []Transition[ProjectStatus]{ProjectClose, ProjectFinish},
}

// InvitationStatus is the state of an invitation to a project.
type InvitationStatus string

// The states of an invitation.
const (
	InvitationPending  InvitationStatus = "pending"
	InvitationAccepted InvitationStatus = "accepted"
	InvitationRevoked  InvitationStatus = "revoked"
	InvitationExpired  InvitationStatus = "expired"
)

// The transitions of an invitation.
var (
	InvitationAccept = Transition[InvitationStatus]{
		Name: "accept", From: []InvitationStatus{InvitationPending}, To: InvitationAccepted, Owners: []Owner{OwnerCustomer},
		Doc: "the invited identity became a member",
	}
	InvitationRevoke = Transition[InvitationStatus]{
		Name: "revoke", From: []InvitationStatus{InvitationPending}, To: InvitationRevoked, Owners: []Owner{OwnerAdmin, OwnerCustomer},
		Doc: "an owner or an operator took it back, or the project was closed",
	}
	InvitationExpire = Transition[InvitationStatus]{
		Name: "expire", From: []InvitationStatus{InvitationPending}, To: InvitationExpired, Owners: []Owner{OwnerAdmin, OwnerCustomer},
		Doc: "nobody accepted it in time",
	}
)

// Invitation is the lifecycle of an invitation to a project.
var Invitation = Machine[InvitationStatus]{
	Resource: "invitation",
	Initial:  []InvitationStatus{InvitationPending},
	States: []StateInfo[InvitationStatus]{
		{State: InvitationPending, Doc: "the invited identity can accept it until it expires"},
		{State: InvitationAccepted, Doc: "it made a member", Terminal: true},
		{State: InvitationRevoked, Doc: "it was taken back", Terminal: true},
		{State: InvitationExpired, Doc: "nobody accepted it in time", Terminal: true},
	},
	Transitions: []Transition[InvitationStatus]{InvitationAccept, InvitationRevoke, InvitationExpire},
}

// ProjectRole is what a member may do in a project.
type ProjectRole string

// The roles of a project. Owner includes all, member includes viewer. Billing is for who pays: it
// includes no other role.
const (
	RoleProjectOwner   ProjectRole = "owner"
	RoleProjectMember  ProjectRole = "member"
	RoleProjectBilling ProjectRole = "billing"
	RoleProjectViewer  ProjectRole = "viewer"

	// RoleProjectAny is what every role includes. It is given to nobody.
	RoleProjectAny ProjectRole = "any"
)

// Includes reports whether a holder of r may do what other may do.
func (r ProjectRole) Includes(other ProjectRole) bool {
	switch {
	case other == RoleProjectAny:
		return r == RoleProjectAny || r.IsKnown()
	case r == RoleProjectOwner:
		return other.IsKnown()
	case r == RoleProjectMember && other == RoleProjectViewer:
		return true
	}
	return r == other && r.IsKnown()
}

// IsKnown reports whether r is a role of a project.
func (r ProjectRole) IsKnown() bool {
	return r == RoleProjectOwner || r == RoleProjectMember || r == RoleProjectBilling || r == RoleProjectViewer
}
