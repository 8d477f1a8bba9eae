package machine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	// tokenLifetime is how long a bootstrap token is valid.
	tokenLifetime = 10 * time.Minute
	// defaultTokenCache is how long API servers take a token that was deleted.
	defaultTokenCache = 10 * time.Second
	// signLimit is how long a cluster may take to sign a token.
	signLimit = time.Minute
)

// member is a machine as a node of a cluster.
type member struct {
	*session
	row     clusterdb.Cluster
	cluster providers.Cluster
	node    string // its name
	facts   providers.JoinFacts
	uuid    string
}

// openMember opens the cluster of a step, and reads what the machine says.
func (s *session) openMember(ctx context.Context, ref string) (*member, error) {
	if !s.adapter.JoinsClusters() {
		return nil, s.lacks(runplan.CapClusterJoin)
	}
	m := &member{session: s}
	var ok bool
	if m.node, ok = spec.NodeName(s.machine.ID); !ok {
		return nil, fault.New(lifecycle.FailConfiguration, "the id of the machine cannot be the name of a node of a cluster; register it under one of at most 63 of a-z, 0-9, '-' and '.'")
	}
	var err error
	if m.row, m.cluster, err = s.a.openCluster(ctx, ref); err != nil {
		return nil, err
	}
	// A cluster is joined by the machines of its project alone, whatever a plan says.
	if text(m.row.ProjectID) != text(s.machine.ProjectID) {
		return nil, fault.New(lifecycle.FailConfiguration, "cluster %s and the machine belong to different projects", ref)
	}
	if err := m.ask(ctx); err != nil {
		return nil, err
	}
	if m.uuid, ok = spec.NormalUUID(m.facts.SystemUUID); !ok {
		return nil, fault.New(lifecycle.FailClusterJoin, "the machine does not say a system UUID that identifies it, so that its node could not be told from another machine's")
	}
	return m, nil
}

// openCluster returns a cluster with its login. Its address keeps the rule of the login.
func (a *Activities) openCluster(ctx context.Context, ref string) (clusterdb.Cluster, providers.Cluster, error) {
	row, err := clusterdb.Get(ctx, a.Store, ref)
	if errors.Is(err, db.ErrNotFound) {
		return row, providers.Cluster{}, fault.New(lifecycle.FailConfiguration, "there is no cluster %s; create it first", ref)
	}
	if err != nil {
		return row, providers.Cluster{}, fault.Internal(ctx, err)
	}
	c, err := providers.OpenCluster(ctx, a.Secrets, row.Ref, row.Spec)
	return row, c, fault.Login(ctx, err, fault.Cluster)
}

// ask reads what the machine says now.
func (m *member) ask(ctx context.Context) error {
	err := m.again(ctx, func() (err error) {
		m.facts, err = m.adapter.JoinHost.JoinFacts(ctx, m.target, m.opID(""))
		m.record(ctx, err)
		return err
	})
	if err != nil {
		return m.failureOf(ctx, err)
	}
	return nil
}

// again repeats a call whose other side does not answer now, until ctx ends.
func (m *member) again(ctx context.Context, do func() error) error {
	for {
		err := do()
		switch providers.KindOf(err) { //nolint:exhaustive // the others are answers
		case providers.KindUnreachable, providers.KindUnavailable, providers.KindBusy, providers.KindUncertain:
		default:
			return err
		}
		if poll.Sleep(ctx, m.a.poll()) != nil {
			return err
		}
	}
}

// failure types an error of the cluster.
func (m *member) failure(ctx context.Context, err error) error { return fault.Cluster(ctx, err) }

// joinFile is what kubeadm reads. It is JSON, which YAML contains.
type joinFile struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Discovery  joinDiscovery    `json:"discovery"`
	Node       joinRegistration `json:"nodeRegistration"`
	Timeouts   *joinTimeouts    `json:"timeouts,omitempty"` // from v1beta4
}

type joinDiscovery struct {
	Token   joinToken `json:"bootstrapToken"`
	Timeout string    `json:"timeout,omitempty"` // until v1beta3
}

type joinToken struct {
	Token    string   `json:"token"`
	Endpoint string   `json:"apiServerEndpoint"`
	Pins     []string `json:"caCertHashes"`
}

type joinRegistration struct {
	Name string `json:"name"`
}

type joinTimeouts struct {
	Discovery string `json:"discovery"`
	Kubelet   string `json:"kubeletHealthCheck"`
	TLS       string `json:"tlsBootstrap"`
}

// The times of a join together are less than its step has, and than its token is valid.
const (
	discoveryTimeout = "2m0s"
	kubeletTimeout   = "2m0s"
	tlsTimeout       = "4m0s"
)

// firstV1beta4 is the first minor release whose kubeadm reads v1beta4.
const firstV1beta4 = 31

// file returns the join file of a token.
func (m *member) file(t providers.BootstrapToken) (providers.Secret, error) {
	endpoint, ok := m.row.Spec.Endpoint()
	if !ok {
		return providers.Secret{}, fault.New(lifecycle.FailConfiguration, "the URL of cluster %s is not https://host:port", m.row.Ref)
	}
	f := joinFile{
		APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "JoinConfiguration", Node: joinRegistration{m.node},
		Discovery: joinDiscovery{Token: joinToken{t.Value().Reveal(), endpoint, m.row.Spec.CAPins}},
		Timeouts:  &joinTimeouts{discoveryTimeout, kubeletTimeout, tlsTimeout},
	}
	if minor(m.facts.KubeadmVersion) < firstV1beta4 {
		f.APIVersion, f.Timeouts, f.Discovery.Timeout = "kubeadm.k8s.io/v1beta3", nil, discoveryTimeout
	}
	raw, err := json.Marshal(f)
	return providers.NewSecret(string(raw)), err
}

// minor returns the minor number of a release of Kubernetes.
func minor(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return n
}

// release returns a version without what stands behind its numbers.
func release(version string) string {
	version, _, _ = strings.Cut(version, "+")
	return version
}

// isStandIn reports whether a version is that of a stand-in.
func isStandIn(version string) bool { return strings.HasSuffix(version, "+simulated") }

const tokenCharacters = "0123456789abcdefghijklmnopqrstuvwxyz"

// randomText returns n characters that nobody can foretell.
func randomText(n int) (string, error) {
	out := make([]byte, n)
	for i := range out {
		at, err := rand.Int(rand.Reader, big.NewInt(int64(len(tokenCharacters))))
		if err != nil {
			return "", fmt.Errorf("bootstrap token: %w", err)
		}
		out[i] = tokenCharacters[at.Int64()]
	}
	return string(out), nil
}

// mint makes a token and waits until the cluster has signed it. Its row is written first, so that
// no token is left of which nothing is known.
func (m *member) mint(ctx context.Context) (providers.BootstrapToken, error) {
	var t providers.BootstrapToken
	err := m.again(ctx, func() error {
		id, err := randomText(6)
		if err != nil {
			return err
		}
		secret, err := randomText(16)
		if err != nil {
			return err
		}
		t = providers.BootstrapToken{
			ID: id, Secret: providers.NewSecret(secret), Expires: time.Now().Add(tokenLifetime),
			Description: "Slipway, run=" + m.in.RunID + " attempt=" + strconv.Itoa(m.in.Attempt),
		}
		row := clusterdb.Token{ClusterRef: m.row.Ref, ID: id, RunID: m.in.RunID, Step: m.in.Step, Attempt: m.in.Attempt}
		if err := clusterdb.AddToken(ctx, m.a.Store, row, tokenLifetime); err != nil {
			return fault.Internal(ctx, err)
		}
		err = m.adapter.ClusterJoin.MintToken(ctx, m.cluster, t)
		if providers.IsKind(err, providers.KindStateConflict) { // somebody else's, which must not be deleted
			if ferr := clusterdb.ForgetToken(ctx, m.a.Store, row); ferr != nil {
				return fault.Internal(ctx, ferr)
			}
			return &providers.Error{Kind: providers.KindBusy, Op: "kube.mint", Message: "the id of the token is taken"}
		}
		return err
	})
	if err != nil {
		return t, m.failure(ctx, err)
	}
	wait := min(signLimit, m.step.Timeout()/4)
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		signed, err := m.adapter.ClusterJoin.IsSigned(limited, m.cluster, t.ID)
		if err == nil && signed {
			return t, nil
		}
		if kind := providers.KindOf(err); err != nil && kind != providers.KindUnreachable && kind != providers.KindUnavailable {
			return t, m.failure(ctx, err)
		}
		if poll.Sleep(limited, m.a.poll()) != nil {
			if ctx.Err() != nil {
				return t, ctx.Err()
			}
			return t, fault.New(lifecycle.FailClusterJoin, "the cluster did not sign cluster-info with the bootstrap token within %s; look at the controller bootstrapsigner", wait)
		}
	}
}

// revoke deletes the tokens of the step. It returns when the API server takes none of them any
// more.
func (a *Activities) revoke(ctx context.Context, in StepIn, join providers.ClusterJoin, cluster providers.Cluster) error {
	tokens, err := clusterdb.TokensOfStep(ctx, a.Store, in.RunID, in.Step)
	if err != nil || len(tokens) == 0 {
		return fault.Internal(ctx, err)
	}
	for _, t := range tokens {
		if t.ClusterRef != cluster.Ref {
			continue
		}
		if err := join.RevokeToken(ctx, cluster, t.ID); err != nil {
			return fault.Cluster(ctx, err)
		}
	}
	wait := a.TokenCache
	if wait == 0 {
		wait = defaultTokenCache
	}
	if err := poll.Sleep(ctx, wait); err != nil {
		return err
	}
	for _, t := range tokens {
		if err := clusterdb.ForgetToken(ctx, a.Store, t); err != nil {
			return fault.Internal(ctx, err)
		}
	}
	return nil
}
