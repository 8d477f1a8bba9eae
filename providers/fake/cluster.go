package fake

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

var (
	_ providers.ClusterJoin = (*Provider)(nil)
	_ providers.JoinHost    = (*Provider)(nil)
)

// KubeadmVersion is the release that every simulated machine has of kubeadm and of the kubelet.
const KubeadmVersion = "v1.34.1+simulated"

// The exit statuses of a join.
const (
	exitNoToken  = 1
	exitNoFile   = 66
	exitJoinedBy = 67
)

// cluster is what simulated machines have joined: its bootstrap tokens and its nodes.
type cluster struct {
	tokens map[string]string // the secret of each, by its id
	nodes  map[string]*node  // by name
	made   int
}

// node is a Node object of a simulated machine.
type node struct {
	uid, machine string
	at           time.Time
}

// joinFile is what a simulated kubeadm reads of the file of a join.
type joinFile struct {
	Discovery struct {
		Token struct {
			Token string `json:"token"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	Node struct {
		Name string `json:"name"`
	} `json:"nodeRegistration"`
}

// HasCluster reports whether a simulated machine has joined a cluster, or was about to.
func (p *Provider) HasCluster(ref string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.clusters[ref]
	return ok
}

// clusterNamed returns the cluster with a name. The caller holds the lock.
func (p *Provider) clusterNamed(ref string) *cluster {
	c, ok := p.clusters[ref]
	if !ok {
		c = &cluster{tokens: map[string]string{}, nodes: map[string]*node{}}
		p.clusters[ref] = c
	}
	return c
}

// systemUUID returns the UUID of the firmware of a machine, which follows from its id.
func systemUUID(id string) string {
	sum := sha256.Sum256([]byte("uuid of " + id))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}

func bootID(id string, boots int) string {
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%x-%d", sum[:8], boots)
}

// MintToken implements providers.ClusterJoin.
func (p *Provider) MintToken(_ context.Context, c providers.Cluster, t providers.BootstrapToken) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	tokens := p.clusterNamed(c.Ref).tokens
	if _, taken := tokens[t.ID]; taken {
		return &providers.Error{Kind: providers.KindStateConflict, Op: "fake.mint", Message: "there is a token with this id"}
	}
	tokens[t.ID] = t.Value().Reveal()
	return nil
}

// IsSigned implements providers.ClusterJoin.
func (p *Provider) IsSigned(_ context.Context, c providers.Cluster, tokenID string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.clusterNamed(c.Ref).tokens[tokenID]
	return ok, nil
}

// RevokeToken implements providers.ClusterJoin.
func (p *Provider) RevokeToken(_ context.Context, c providers.Cluster, tokenID string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clusterNamed(c.Ref).tokens, tokenID)
	return nil
}

// Node implements providers.ClusterJoin.
func (p *Provider) Node(ctx context.Context, c providers.Cluster, name string) (providers.ClusterNode, error) {
	all, err := p.Nodes(ctx, c)
	if i := slices.IndexFunc(all, func(n providers.ClusterNode) bool { return n.Name == name }); i >= 0 {
		return all[i], err
	}
	return providers.ClusterNode{}, noNode(name)
}

func noNode(name string) error {
	return &providers.Error{Kind: providers.KindNotFound, Op: "fake.node", Message: "the simulated cluster has no node " + name}
}

// Nodes implements providers.ClusterJoin. The node of a machine that was installed again since it
// joined is not Ready.
func (p *Provider) Nodes(_ context.Context, c providers.Cluster) ([]providers.ClusterNode, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []providers.ClusterNode{}
	for name, n := range p.clusterNamed(c.Ref).nodes {
		m := p.machine(n.machine)
		reason := ""
		if m.joined != c.Ref {
			reason = "the machine was installed again"
		}
		out = append(out, providers.ClusterNode{
			Name: name, UID: n.uid, SystemUUID: systemUUID(n.machine), BootID: bootID(n.machine, m.boots), KubeletVersion: KubeadmVersion,
			Ready: reason == "", ReadySince: n.at, Reason: reason, CreatedAt: n.at,
		})
	}
	slices.SortFunc(out, func(a, b providers.ClusterNode) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// DeleteNode implements providers.ClusterJoin.
func (p *Provider) DeleteNode(_ context.Context, c providers.Cluster, name, uid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes := p.clusterNamed(c.Ref).nodes
	n, ok := nodes[name]
	if ok && n.uid != uid {
		return &providers.Error{Kind: providers.KindStateConflict, Op: "fake.node", Message: "node " + name + " is another one by now"}
	}
	delete(nodes, name)
	return nil
}

// Heartbeat implements providers.ClusterJoin. Each call finds another heartbeat.
func (p *Provider) Heartbeat(ctx context.Context, c providers.Cluster, name string) (string, error) {
	if _, err := p.Node(ctx, c, name); err != nil {
		return "", err
	}
	return time.Now().Format(time.RFC3339Nano), nil
}

// BlockingPods implements providers.ClusterJoin. A simulated node runs no pods.
func (p *Provider) BlockingPods(ctx context.Context, c providers.Cluster, name string) (int, error) {
	_, err := p.Node(ctx, c, name)
	return 0, err
}

// JoinFacts implements providers.JoinHost.
func (p *Provider) JoinFacts(ctx context.Context, t providers.MachineTarget, opID string) (providers.JoinFacts, error) {
	if err := ctx.Err(); err != nil {
		return providers.JoinFacts{}, unreachable("fake.join", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machine(t.ID)
	_, begun := m.ops[opID]
	_, hasFile := m.joinFiles[opID]
	return providers.JoinFacts{
		SystemUUID: systemUUID(t.ID), BootID: bootID(t.ID, m.boots), KubeadmVersion: KubeadmVersion,
		Joined: m.joined != "", JoinedBy: m.joined, Begun: begun, HasFile: hasFile,
	}, nil
}

// PutJoinFile implements providers.JoinHost.
func (p *Provider) PutJoinFile(ctx context.Context, t providers.MachineTarget, opID string, content providers.Secret) error {
	if err := ctx.Err(); err != nil {
		return unreachable("fake.join", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine(t.ID).joinFiles[opID] = content
	return nil
}

// RemoveJoinFile implements providers.JoinHost.
func (p *Provider) RemoveJoinFile(ctx context.Context, t providers.MachineTarget, opID string) error {
	if err := ctx.Err(); err != nil {
		return unreachable("fake.join", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.machine(t.ID).joinFiles, opID)
	return nil
}

// JoinScript implements providers.JoinHost.
func (p *Provider) JoinScript(opID, clusterRef string) string {
	return "#fake\njoin " + opID + " " + clusterRef + "\n"
}

// joinCluster has a machine join a cluster, by the file of an operation. It returns what the script
// prints and its exit status.
func (p *Provider) joinCluster(id, argument string) (says string, exit int) {
	opID, ref, _ := strings.Cut(argument, " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	m, c := p.machine(id), p.clusterNamed(ref)
	content, ok := m.joinFiles[opID]
	var file joinFile
	switch {
	case !ok || json.Unmarshal([]byte(content.Reveal()), &file) != nil:
		return "the join file is gone\n", exitNoFile
	case m.joined != "" && m.joined != ref:
		return "the machine has the files of another cluster\n", exitJoinedBy
	}
	tokenID, _, _ := strings.Cut(file.Discovery.Token.Token, ".")
	if c.tokens[tokenID] != file.Discovery.Token.Token {
		return "the cluster does not take the bootstrap token\n", exitNoToken
	}
	c.made++
	c.nodes[file.Node.Name] = &node{uid: fmt.Sprintf("simulated-%s-%d", ref, c.made), machine: id, at: time.Now()}
	m.joined = ref
	return "simulated: the machine is node " + file.Node.Name + " of cluster " + ref + "\n", 0
}
