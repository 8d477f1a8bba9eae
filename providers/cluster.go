package providers

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Cluster is a Kubernetes cluster and how its API is reached.
type Cluster struct {
	Ref string
	URL string // https://host:port
	// CAPins are sha256: and the hex digest of a public key. A CA without one of them is not
	// trusted.
	CAPins     []string
	Kubeconfig Secret
	// Rule bounds the addresses that may be connected to; the zero value refuses all.
	Rule spec.AddressRule
}

// BootstrapToken lets one machine ask for its certificate in a cluster.
type BootstrapToken struct {
	ID          string // 6 of a-z, 0-9
	Secret      Secret // 16 of a-z, 0-9
	Expires     time.Time
	Description string
}

// Value returns the token as kubeadm takes it.
func (t BootstrapToken) Value() Secret { return NewSecret(t.ID + "." + t.Secret.Reveal()) }

// ClusterNode is a Node object of a cluster.
type ClusterNode struct {
	Name, UID      string
	SystemUUID     string // of the machine's firmware
	BootID         string
	KubeletVersion string
	Ready          bool
	ReadySince     time.Time
	Reason         string // why it is not Ready, and the cluster's message
	Unschedulable  bool
	Taints         []string // the keys of those that keep pods away
	CreatedAt      time.Time
}

// ClusterJoin is the cluster's half of a join: it makes and deletes bootstrap tokens, and reads
// what became of the node.
//
// Errors: KindUnreachable and KindUnavailable (repeat), KindUnauthorized, KindForbidden (a right is
// missing), KindPinMismatch (another CA than the pinned ones), KindNotFound, KindStateConflict,
// KindInvalid (the kubeconfig is not usable), KindTooBig (the cluster answers with more than a call
// reads).
type ClusterJoin interface {
	// MintToken makes a token. KindStateConflict: there is one with its id.
	MintToken(ctx context.Context, c Cluster, t BootstrapToken) error
	// IsSigned reports whether the cluster lets machines find it with the token.
	IsSigned(ctx context.Context, c Cluster, tokenID string) (bool, error)
	// RevokeToken deletes a token; absent is success. The API server may take it for 10 s more.
	RevokeToken(ctx context.Context, c Cluster, tokenID string) error
	// Node returns a node, or KindNotFound.
	Node(ctx context.Context, c Cluster, name string) (ClusterNode, error)
	// Nodes returns all nodes.
	Nodes(ctx context.Context, c Cluster) ([]ClusterNode, error)
	// DeleteNode deletes a node that still has the UID given; absent is success, and another UID
	// KindStateConflict.
	DeleteNode(ctx context.Context, c Cluster, name, uid string) error
	// Heartbeat returns what changes with each heartbeat of a node, or KindNotFound before the
	// first.
	Heartbeat(ctx context.Context, c Cluster, node string) (string, error)
	// BlockingPods returns how many pods have to leave a node before it is drained.
	BlockingPods(ctx context.Context, c Cluster, node string) (int, error)
}

// JoinFacts are what a machine says before it joins a cluster.
type JoinFacts struct {
	SystemUUID, BootID string
	KubeadmVersion     string // such as v1.34.1; "" where kubeadm is missing
	// Joined says that the machine has the files of a cluster, and JoinedBy the cluster that a run
	// of ours had it join, "" where that was none of ours.
	Joined   bool
	JoinedBy string
	// Begun says that the operation has begun, HasFile that its join file is there.
	Begun, HasFile bool
}

// JoinHost is the machine's half of a join. Scripts of RemoteExec do the rest.
type JoinHost interface {
	// JoinFacts reads what the machine says. It changes nothing.
	JoinFacts(ctx context.Context, t MachineTarget, opID string) (JoinFacts, error)
	// PutJoinFile writes the join file of an operation, with mode 0600 and in memory alone. No
	// process list shows it. KindUnsupported: the machine has no such place.
	PutJoinFile(ctx context.Context, t MachineTarget, opID string, content Secret) error
	// RemoveJoinFile deletes what an operation has left of its token; absent is success.
	RemoveJoinFile(ctx context.Context, t MachineTarget, opID string) error
	// JoinScript returns the script that joins by the join file of an operation. It holds no
	// secret.
	JoinScript(opID, clusterRef string) string
}

// OpenCluster returns a cluster with its login. Its address keeps the rule of the login.
func OpenCluster(ctx context.Context, s Secrets, ref string, stated spec.ClusterSpec) (Cluster, error) {
	c := Cluster{Ref: ref, URL: stated.APIURL, CAPins: stated.CAPins}
	login, use := SecretRef(stated.KubeconfigRef), Use{Kind: spec.SecretKubeconfig, Address: stated.APIURL}
	var err error
	if c.Rule, err = s.AddressRule(ctx, login, use); err != nil {
		return c, err
	}
	c.Kubeconfig, err = s.Resolve(ctx, login, use)
	return c, err
}
