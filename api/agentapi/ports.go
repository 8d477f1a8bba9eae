package agentapi

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// What a Store answers besides success. ErrRejected wraps the refusal of a
// batch for what one of its rows holds; any other error of WriteHeartbeats is
// taken as passing and the batch is tried again.
var (
	ErrNoToken         = errors.New("no such enrolment token")
	ErrNoNode          = errors.New("no such node")
	ErrTokenUsed       = errors.New("the enrolment token was used by another key")
	ErrTokenEnded      = errors.New("the enrolment token was revoked or expired")
	ErrGenerationMoved = errors.New("the node's identity moved on meanwhile")
	ErrRejected        = errors.New("the heartbeat batch holds a row that cannot be stored")
)

// Store is what the agent API needs of the database.
type Store interface {
	Clock
	// Token finds an enrolment token by the SHA-256 of its text, or ErrNoToken.
	Token(ctx context.Context, hash [32]byte) (Token, error)
	// Redeem trades a token for an identity, in one transaction: the token is
	// bound to the certificate's key, the certificate becomes the node's newest
	// generation, a locked identity is unlocked, and the audit says so. A token
	// that this key redeemed before gives what it was traded for then.
	// ErrTokenUsed: by another key. ErrTokenEnded. ErrGenerationMoved: the
	// certificate's generation is not the next one.
	Redeem(ctx context.Context, r Redemption) (Issued, error)
	// Identity is the present identity of a node, or ErrNoNode.
	Identity(ctx context.Context, nodeID string) (NodeIdentity, error)
	// Standings is what each request with one of these keys is judged by, in one
	// question; a node that is not there is missing.
	Standings(ctx context.Context, shown []ShownKey) (map[ShownKey]Standing, error)
	// Renew makes the certificate the node's newest generation if that is one
	// more than the present one and the identity is not locked; otherwise
	// ErrGenerationMoved.
	Renew(ctx context.Context, r Renewal) error
	// Adopt makes a certificate the node's newest generation that the database does
	// not know though the node CA issued it. ErrGenerationMoved: it is not newer than
	// the present one, or the identity is locked.
	Adopt(ctx context.Context, a Adoption) error
	// Report counts a certificate that was refused, for the list of what needs attention.
	Report(ctx context.Context, r Refusal) error
	// Lock shuts an identity out until a new token is redeemed. Locking twice is
	// success.
	Lock(ctx context.Context, nodeID, reason string, at time.Time) error
	// Alarm writes an audit row that asks for a person's eye.
	Alarm(ctx context.Context, a Alarm) error
	// WriteHeartbeats stores the newest beat of each node in one statement; a
	// node stands once in a batch. Nodes that are gone are passed over.
	WriteHeartbeats(ctx context.Context, beats []Beat) error
}

// TaskStore is what the agent API needs of the database for tasks; *db.Store is
// one, and says what each method does and refuses.
type TaskStore interface {
	HasOpenTasks(ctx context.Context, nodeID string) (bool, error)
	ClaimTask(ctx context.Context, c db.TaskClaim) (db.TaskClaimed, error)
	UnclaimTask(ctx context.Context, f db.TaskFence) error
	RenewTask(ctx context.Context, f db.TaskFence, progress string, lease time.Duration) error
	FinishTask(ctx context.Context, f db.TaskFence, r lifecycle.TaskResult) (lifecycle.TaskStatus, error)
	NodesWithQueuedTasks(ctx context.Context, nodeIDs []string) ([]string, error)
	ListenFor(ctx context.Context, channel string, fn func(payload string)) error
}

// TaskSigner signs tasks and lists the keys; *signing.Ring is one.
type TaskSigner interface {
	Sign(ctx context.Context, p signing.Purpose, message []byte) (signing.Signature, error)
	TaskKeys(ctx context.Context) ([]protocol.TaskKey, error)
}

// Token is an enrolment token as stored; the text itself is not.
type Token struct {
	NodeID    string
	ExpiresAt time.Time
	Revoked   bool
	// Redeemed is what it was traded for, nil while unused.
	Redeemed *Issued
}

// Issued is a certificate as stored.
type Issued struct {
	Generation int64
	Enrolment  int64
	SPKI       [32]byte // SHA-256 of the public key
	Serial     string
	PEM        string
	NotBefore  time.Time
	NotAfter   time.Time
}

// Redemption is one use of a token.
type Redemption struct {
	TokenHash   [32]byte
	NodeID      string
	Certificate Issued
	Address     string // who asked, without port
	At          time.Time
}

// Renewal is one step of an identity.
type Renewal struct {
	NodeID      string
	Certificate Issued
	Address     string
	At          time.Time
}

// Adoption is a certificate that an agent showed and the database does not know.
type Adoption struct {
	NodeID      string
	Certificate Issued
	IssuedAt    time.Time
	Address     string
}

// RefusalKind names why a certificate was refused without locking the identity.
type RefusalKind string

// The kinds of refusals.
const (
	RefusalFormer      RefusalKind = "former_enrolment"
	RefusalDenied      RefusalKind = "denied"
	RefusalAbsurd      RefusalKind = "too_far_ahead"
	RefusalForked      RefusalKind = "forked"
	RefusalExpiredCopy RefusalKind = "expired_copy"
)

// Refusal is one of these.
type Refusal struct {
	Kind                    RefusalKind
	NodeID, Address, Detail string
}

// NodeIdentity is what a node may show.
type NodeIdentity struct {
	NodeID    string
	Lifecycle string // maas or pxe
	Status    lifecycle.NodeStatus
	Current   Issued // Generation 0: never enrolled
	Locked    bool
	SKUID     string // what its reports are judged by, "" for nothing
}

// Standing is how a node stands: the little that each of its requests is judged
// by.
type Standing = db.AgentStanding

// ShownKey names a node and the key that a request shows as its own.
type ShownKey = db.AgentKey

// AlarmKind names what a person should look at.
type AlarmKind string

// The alarms.
const (
	AlarmTokenReused      AlarmKind = "enrolment_token_reused"
	AlarmGenerationReused AlarmKind = "certificate_generation_reused"
)

// Alarm is one event for the audit.
type Alarm struct {
	Kind    AlarmKind
	NodeID  string
	Address string
	Detail  string
	At      time.Time
}

// Beat is one heartbeat as it is stored.
type Beat struct {
	NodeID       string
	SKUID        string
	Generation   int64
	BootID       string
	AgentVersion string
	Address      string
	ClockSkew    time.Duration // agent's clock minus the server's
	Uptime       time.Duration // of the agent
	At           time.Time     // by the database's clock, as is the Report's
	Report       *Report       // nil: nothing new
}

// Report is a health report and the boot that it is of.
type Report struct {
	BootID string
	At     time.Time
	Health spec.HealthReport
}
