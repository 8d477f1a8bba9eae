package providers

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Cloud makes servers at a cloud provider. Each call has a deadline, and may be repeated: it reads
// before it changes anything. A read that finds nothing is KindNotFound or an empty list;
// KindUncertain says that an order was sent and its outcome is not known.
type Cloud interface {
	// Check proves that the key is accepted and that the project is the configured one. A wrong key
	// is KindUnauthorized, a wrong project KindForbidden.
	Check(ctx context.Context, zone string) error
	// Offer returns what the zone has of a type: KindInvalid where it has none.
	Offer(ctx context.Context, zone, serverType string) (CloudOffer, error)

	// Create makes the security group and the server of an instance. The server is stopped and
	// nothing is open to it but what Sources names. It looks for no server that is there already:
	// Find does. KindQuota and KindCapacity say that nothing was made.
	Create(ctx context.Context, in CloudCreate) (CloudServer, error)
	// Find lists the servers that have the tag of an instance, the oldest first. It may lag behind
	// Create.
	Find(ctx context.Context, zone, instanceID string) ([]CloudServer, error)
	// Server reads one server, or returns KindNotFound.
	Server(ctx context.Context, zone, id string) (CloudServer, error)

	// ClaimVolumes gives the volumes of a server the tag of its instance, and returns them. A
	// volume that nobody has claimed cannot be told from one of somebody else once the server is
	// gone.
	ClaimVolumes(ctx context.Context, t CloudTarget) ([]CloudResource, error)
	// GrowVolume asks for a size of the root volume, and reports whether it is read back.
	GrowVolume(ctx context.Context, t CloudTarget, bytes int64) (done bool, err error)
	// SetUserData stores what the first boot reads. It replaces what is there.
	SetUserData(ctx context.Context, t CloudTarget, data Secret) error
	// Start and Stop order it; Server says when it is done. A server that fell back to stopped
	// after an accepted start has met KindCapacity: the caller decides, since only it knows that it
	// asked.
	Start(ctx context.Context, t CloudTarget) error
	Stop(ctx context.Context, t CloudTarget) error
	// VerifyGroup writes the rules of the security group where they differ, and reports whether the
	// provider says that they are in force.
	VerifyGroup(ctx context.Context, t CloudTarget, sources CloudSources) (done bool, err error)

	// DeleteServer orders the deletion, and reports whether the server is gone.
	DeleteServer(ctx context.Context, t CloudTarget) (gone bool, err error)
	// Delete deletes a billed resource that is no server, and reports whether it is gone. A
	// resource that is in use is not deleted yet.
	Delete(ctx context.Context, r CloudResource) (gone bool, err error)
	// List returns everything in a zone that is billed and has our tag; instanceID "" is that of
	// all instances.
	List(ctx context.Context, zone, instanceID string) ([]CloudResource, error)
}

// CloudTarget names the server of an instance.
type CloudTarget struct{ Zone, InstanceID, ServerID string }

// CloudCreate is a server that is to be made. Image is a label; the provider resolves it in the
// zone.
type CloudCreate struct {
	Zone, InstanceID, Type, Image string
	Sources                       CloudSources
}

// CloudSources are the networks from which a server may be reached, as prefixes: SSH from one list,
// the worker's ports from the other. Empty lists open nothing.
type CloudSources struct{ SSH, Worker []string }

// The ports of a worker.
const (
	WorkerVLLMPort  = 8000 // vLLM
	WorkerAgentPort = 8080 // the worker's agent
)

// CloudState is the state of a server.
type CloudState string

// The states of servers. A server that is stopped in place keeps its machine, and is billed.
const (
	CloudStopped  CloudState = "stopped"
	CloudStarting CloudState = "starting"
	CloudRunning  CloudState = "running"
	CloudStopping CloudState = "stopping"
	CloudInPlace  CloudState = "stopped in place"
	CloudLocked   CloudState = "locked"
)

// CloudServer is a server as its provider says it is.
type CloudServer struct {
	ID, Name, Type, Zone string
	State                CloudState
	Detail               string // for logs: nothing is decided by it
	Address              string // its public address, "" while it has none
	CreatedAt            time.Time
	Volumes              []string
	GroupID              string
}

// CloudKind is a kind of what a provider bills.
type CloudKind string

// The kinds.
const (
	CloudKindServer   CloudKind = "server"
	CloudKindVolume   CloudKind = "volume"
	CloudKindSnapshot CloudKind = "snapshot"
	CloudKindAddress  CloudKind = "address"
	CloudKindGroup    CloudKind = "security_group"
)

// CloudResource is one thing at a provider. HourlyMicro is what it costs an hour in millionths of
// the currency, 0 where the provider does not say it.
type CloudResource struct {
	Kind        CloudKind `json:"kind"`
	ID          string    `json:"id"`
	Zone        string    `json:"zone"`
	Name        string    `json:"name,omitempty"`
	InstanceID  string    `json:"instance_id,omitempty"` // of its tag
	HourlyMicro int64     `json:"hourly_micro,omitempty"`
	Currency    string    `json:"currency,omitempty"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
}

// CloudOffer is what a zone has of a type. GrowsVolume says that its root volume is made with the
// size of the image, and is grown before the first start.
type CloudOffer struct {
	HourlyMicro int64
	Currency    string
	GrowsVolume bool
}

// CloudAccount is how a provider is reached.
type CloudAccount struct {
	URL       string // "" is the provider's own
	ProjectID string
	AccessKey string
	SecretKey Secret
	Rule      spec.AddressRule
}

// Worker reaches the worker of an instance from our side.
type Worker interface {
	// Install runs the installation script on the server, and returns the phases that it has ended,
	// with an error too: those that were read before it. A repeated call takes up the run that it
	// began.
	Install(ctx context.Context, t WorkerTarget, in WorkerInstall) (WorkerPhases, error)
	// ReachSSH reports whether the server accepts a login.
	ReachSSH(ctx context.Context, t WorkerTarget) (bool, error)
	// Readyz, Models, Complete and Info ask the worker. A missing answer is KindUnreachable.
	Readyz(ctx context.Context, t WorkerTarget) (bool, error)
	Models(ctx context.Context, t WorkerTarget) ([]string, error)
	Complete(ctx context.Context, t WorkerTarget, model string) error
	Info(ctx context.Context, t WorkerTarget) (WorkerInfo, error)
}

// WorkerTarget is how the worker of an instance is reached. CreatedAt is for workers that are
// simulated.
type WorkerTarget struct {
	InstanceID string
	Address    string
	SSH        SSHTarget
	APIKey     Secret
	CreatedAt  time.Time
	VLLMPort   int // 0 is WorkerVLLMPort
	AgentPort  int // 0 is WorkerAgentPort
}

// WorkerInstall is what a server's worker is installed with.
type WorkerInstall struct {
	// OpID is that of the command: it is begun once, and its result can be read again.
	OpID         string
	Model        string
	Token        Secret // one-time, for the first heartbeat
	HeartbeatURL string
	CAPEM        string
}

// WorkerPhases are the phases that an installation has ended, in their order, with the exit status
// of the script.
type WorkerPhases struct {
	Done       []string
	ExitStatus string
	Info       WorkerInfo // of the agent that was installed
}

// WorkerInfo is what an agent says of its program.
type WorkerInfo struct {
	Version   string `json:"version"`
	BuildDate string `json:"build_date"`
	Checksum  string `json:"checksum"` // SHA-256 in hex
}
