package contract

import (
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// AllocationInput is the accepted request of a job of an allocation: everything else is read from
// the allocation.
type AllocationInput struct {
	AllocationID string `json:"allocation_id"`
	Reason       string `json:"reason,omitempty"`
}

// AllocationRef names an allocation in the input of an activity. The node is that of the job, ""
// while it has none.
type AllocationRef struct {
	JobRef
	AllocationID string `json:"allocation_id"`
}

// AllocationMove asks for a change of the job's allocation with the projection. To is "" for a job
// that changes keys: its allocation stays where it is.
type AllocationMove struct {
	To lifecycle.AllocationStatus `json:"to"`
	// KeysProven is set where the node was seen to accept the keys in force, and to refuse the
	// former ones.
	KeysProven bool `json:"keys_proven,omitempty"`
	// FailureClass and FailureStage say where a provision failed, or a release is parked.
	FailureClass lifecycle.FailureClass `json:"failure_class,omitempty"`
	FailureStage string                 `json:"failure_stage,omitempty"`
	// Clean is set where a provision has left nothing of the tenant on the node.
	Clean bool `json:"clean,omitempty"`
	// CertificateID proves the node of a release clean.
	CertificateID string `json:"certificate_id,omitempty"`
	// Connection and Image are those of an allocation that becomes active. A change of keys states
	// the connection too.
	Connection *AllocationConnection `json:"connection,omitempty"`
	Image      *AllocationImage      `json:"image,omitempty"`
	Note       string                `json:"note,omitempty"`
}

// Move returns the move of an allocation.
func (m AllocationMove) Move(allocationID string) *Move {
	return newMove(SubjectAllocation, allocationID, true, m)
}

// AllocationConnection is how the tenant logs in.
type AllocationConnection struct {
	Host          string    `json:"host"`
	Port          int       `json:"port"`
	User          string    `json:"user"`
	HostKey       string    `json:"host_key"`
	HostKeySHA256 string    `json:"host_key_sha256"`
	Since         time.Time `json:"since"`
}

// AllocationImage is the installed system, from the record of its deployment.
type AllocationImage struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	SHA256      string    `json:"sha256,omitempty"`
	InstalledAt time.Time `json:"installed_at,omitzero"`
}

// IsLate reports that the time to provision the node is over.
func (f AllocationFacts) IsLate(now time.Time) bool {
	return !f.ReadyBy.IsZero() && now.After(f.ReadyBy)
}

// AllocationKey is a public key of the tenant as it is installed: no options, no comment.
type AllocationKey struct {
	Fingerprint string `json:"fingerprint"`
	PublicKey   string `json:"public_key"`
}

// AllocationFacts is what is stored of an allocation and of its node.
type AllocationFacts struct {
	Status     lifecycle.AllocationStatus `json:"status"`
	NodeID     string                     `json:"node_id,omitempty"`
	SiteID     string                     `json:"site_id,omitempty"`
	TenantRoot bool                       `json:"tenant_root,omitempty"`
	// ReleaseRequested is set once somebody has asked for the release while it is being
	// provisioned.
	ReleaseRequested bool `json:"release_requested,omitempty"`
	// Keys are those in force, Former those that were withdrawn and may be on the node still.
	Keys   []AllocationKey `json:"keys,omitempty"`
	Former []AllocationKey `json:"former,omitempty"`
	// AccessGiven is set once a key of the tenant may have been on the node.
	AccessGiven bool   `json:"access_given,omitempty"`
	Access      string `json:"access,omitempty"`
	// RevokeSeconds and MaxDeliver are the policy of a release.
	RevokeSeconds int `json:"revoke_seconds,omitempty"`
	MaxDeliver    int `json:"max_deliver,omitempty"`
	// ReadyBy is when a node that is provisioned has to be the tenant's; zero is no limit.
	ReadyBy time.Time `json:"ready_by,omitzero"`
	Done    bool      `json:"done,omitempty"` // the outcome asked for is there
	Note    string    `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f AllocationFacts) TimelineNote() string { return f.Note }

// ReleaseAsked reports that the tenant, or somebody for him, wants the allocation ended.
func (f AllocationFacts) ReleaseAsked() bool {
	return f.ReleaseRequested || f.Status == lifecycle.AllocationReleasing || lifecycle.Allocation.Terminal(f.Status)
}

// SettingsFacts is what a BMC's settings say beside those of the claim.
type SettingsFacts struct {
	// Count is how many were read. Unreadable names the parts that the BMC has and that could not
	// be read, NotOffered what this kind of BMC never shows or was not read at the claim; Changed
	// says what differs.
	Count      int      `json:"count,omitempty"`
	Unreadable []string `json:"unreadable,omitempty"`
	NotOffered []string `json:"not_offered,omitempty"`
	Changed    []string `json:"changed,omitempty"`
	// OtherAccounts names the enabled accounts besides Slipway's. Nothing shows whether the
	// password of one was changed.
	OtherAccounts []string `json:"other_accounts,omitempty"`
	// FormerNode is the record of the same machine that a tenant who was root left, and whose mark
	// stays until the BMC has another password.
	FormerNode string `json:"former_node,omitempty"`
	Done       bool   `json:"done,omitempty"`
	Note       string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f SettingsFacts) TimelineNote() string { return f.Note }
