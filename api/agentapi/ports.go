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

// The errors of a Store. ErrRejected wraps the refusal of a batch because of one of its rows. After
// any other error of WriteHeartbeats the batch is tried again.
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
	// Token returns an enrolment token by the SHA-256 of its text. It returns ErrNoToken when there
	// is none.
	Token(ctx context.Context, hash [32]byte) (Token, error)
	// Redeem exchanges a token for an identity, in one transaction. It binds the token to the
	// certificate's key, stores the certificate as the node's newest generation, unlocks the
	// identity and writes the audit row. It returns the stored certificate when the same key
	// redeemed the token before. It returns ErrTokenUsed when another key used the token,
	// ErrTokenEnded when the token was revoked or has expired, and ErrGenerationMoved when the
	// certificate's generation is not the next one.
	Redeem(ctx context.Context, r Redemption) (Issued, error)
	// Identity returns the present identity of a node. It returns ErrNoNode when there is none.
	Identity(ctx context.Context, nodeID string) (NodeIdentity, error)
	// Standings returns what decides whether requests with these keys are accepted, with one query.
	// The map has no entry for a node that does not exist.
	Standings(ctx context.Context, nodeIDs []string) (map[string]Standing, error)
	// Renew stores the certificate as the node's newest generation. It returns ErrGenerationMoved
	// when that is not one more than the present generation, or the identity is locked.
	Renew(ctx context.Context, r Renewal) error
	// Adopt stores a certificate as the node's newest generation that the node CA issued and the
	// database does not have. It returns ErrGenerationMoved when it is not newer than the present
	// one, or the identity is locked.
	Adopt(ctx context.Context, a Adoption) error
	// Report counts a refused certificate for the attention list.
	Report(ctx context.Context, r Refusal) error
	// Lock locks an identity until a new token is redeemed. It returns nil when the identity is
	// locked already.
	Lock(ctx context.Context, nodeID, reason string, at time.Time) error
	// Alarm writes an audit row that requires an operator's attention.
	Alarm(ctx context.Context, a Alarm) error
	// WriteHeartbeats stores the newest heartbeat of each node in one statement. A batch has at
	// most one heartbeat of a node. Nodes that do not exist are skipped.
	WriteHeartbeats(ctx context.Context, heartbeats []Heartbeat) error
}

// TaskStore is what the agent API needs of the database for tasks. *db.Store is one and documents
// the methods.
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

// Token is a stored enrolment token. The text of the token is not stored.
type Token struct {
	NodeID    string
	ExpiresAt time.Time
	Revoked   bool
	// Redeemed is the certificate that was issued for the token; nil while it is unused.
	Redeemed *Issued
}

// Issued is a stored certificate.
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
	Address     string // of the agent, without the port
	At          time.Time
}

// Renewal is the change of an identity to its next generation.
type Renewal struct {
	NodeID      string
	Certificate Issued
}

// Adoption is a certificate that an agent presented and the database does not have.
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

// Refusal is one refused certificate.
type Refusal struct {
	Kind                    RefusalKind
	NodeID, Address, Detail string
}

// NodeIdentity is a node with its present certificate.
type NodeIdentity struct {
	NodeID    string
	Lifecycle string // maas or pxe
	Status    lifecycle.NodeStatus
	Current   Issued // Generation 0: never enrolled
	Locked    bool
	SKUID     string // its reports are checked against it; "" for no check
}

// Standing is the part of a node's row that decides whether its requests are accepted.
type Standing = db.AgentStanding

// AlarmKind names an event that requires operator action.
type AlarmKind string

// The alarms.
const (
	AlarmTokenReused      AlarmKind = "enrolment_token_reused"
	AlarmGenerationReused AlarmKind = "certificate_generation_reused"
)

// Alarm is such an event, for the audit log.
type Alarm struct {
	Kind    AlarmKind
	NodeID  string
	Address string
	Detail  string
	At      time.Time
}

// Heartbeat is one stored heartbeat.
type Heartbeat struct {
	NodeID       string
	SKUID        string
	Generation   int64
	BootID       string
	AgentVersion string
	Address      string
	ClockSkew    time.Duration // agent's clock minus the server's
	Uptime       time.Duration // of the agent
	At           time.Time     // by the database's clock, as Report.At
	Report       *Report       // nil: nothing new
	Allocation   *string       // that the node holds, "" for none; nil: the agent does not say
}

// Report is a health report and its boot.
type Report struct {
	BootID string
	At     time.Time
	Health spec.HealthReport
}
