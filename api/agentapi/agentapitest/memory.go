// Package agentapitest has an agentapi.Store in memory, for tests of clients of the agent API. It
// behaves as the database does.
package agentapitest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Memory is an agentapi.Store. All methods are safe for concurrent use.
type Memory struct {
	mu         sync.Mutex
	tokens     map[[32]byte]*agentapi.Token
	nodes      map[string]*agentapi.NodeIdentity
	heartbeats map[string]agentapi.Heartbeat
	counts     map[string]int
	alarms     []agentapi.Alarm
	// enrolledFrom is by node; refusals are by node and kind.
	enrolledFrom map[string]time.Time
	lockedAt     map[string]time.Time
	refusals     map[agentapi.Refusal]int
	writes       []int // rows of each statement

	onWrite func([]agentapi.Heartbeat) error
	ahead   time.Duration
}

var _ agentapi.Store = (*Memory)(nil)

// New makes an empty store.
func New() *Memory {
	return &Memory{tokens: map[[32]byte]*agentapi.Token{}, nodes: map[string]*agentapi.NodeIdentity{},
		heartbeats: map[string]agentapi.Heartbeat{}, counts: map[string]int{},
		enrolledFrom: map[string]time.Time{}, lockedAt: map[string]time.Time{}, refusals: map[agentapi.Refusal]int{}}
}

// MoveClock sets the store's clock ahead of the machine's by d.
func (m *Memory) MoveClock(d time.Duration) { m.mu.Lock(); defer m.mu.Unlock(); m.ahead = d }

// Clock implements agentapi.Store.
func (m *Memory) Clock(context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.ahead), nil
}

// AddNode makes a node in state enrolling.
func (m *Memory) AddNode(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[id] = &agentapi.NodeIdentity{NodeID: id, Lifecycle: lifecycle.NodeMAAS.Lifecycle, Status: lifecycle.NodeEnrolling}
}

// SetStatus moves a node.
func (m *Memory) SetStatus(id string, s lifecycle.NodeStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[id].Status = s
}

// SetLifecycle makes a node one of another lifecycle.
func (m *Memory) SetLifecycle(id, machine string, s lifecycle.NodeStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[id].Lifecycle, m.nodes[id].Status = machine, s
}

// AddToken issues a token for a node, which it makes when it is missing.
func (m *Memory) AddToken(nodeID string, expires time.Time) string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	text := base64.RawURLEncoding.EncodeToString(b[:])
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes[nodeID] == nil {
		m.nodes[nodeID] = &agentapi.NodeIdentity{NodeID: nodeID, Lifecycle: lifecycle.NodeMAAS.Lifecycle, Status: lifecycle.NodeEnrolling}
	}
	m.tokens[sha256.Sum256([]byte(text))] = &agentapi.Token{NodeID: nodeID, ExpiresAt: expires}
	return text
}

// Revoke ends a token.
func (m *Memory) Revoke(token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens[sha256.Sum256([]byte(token))].Revoked = true
}

// FailWrites makes WriteHeartbeats call f first and return its error. A nil f ends that.
func (m *Memory) FailWrites(f func([]agentapi.Heartbeat) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onWrite = f
}

// Heartbeat returns the last stored heartbeat of a node and how many were stored.
func (m *Memory) Heartbeat(nodeID string) (agentapi.Heartbeat, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heartbeats[nodeID], m.counts[nodeID]
}

// Writes lists how many rows each statement held.
func (m *Memory) Writes() []int { m.mu.Lock(); defer m.mu.Unlock(); return slices.Clone(m.writes) }

// Alarms lists the alarms.
func (m *Memory) Alarms() []agentapi.Alarm {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.alarms)
}

// Token implements agentapi.Store.
func (m *Memory) Token(_ context.Context, hash [32]byte) (agentapi.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tokens[hash]
	if t == nil {
		return agentapi.Token{}, agentapi.ErrNoToken
	}
	return *t, nil
}

// Redeem implements agentapi.Store.
func (m *Memory) Redeem(_ context.Context, r agentapi.Redemption) (agentapi.Issued, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tokens[r.TokenHash]
	switch {
	case t == nil:
		return agentapi.Issued{}, agentapi.ErrNoToken
	case t.Redeemed != nil && t.Redeemed.SPKI == r.Certificate.SPKI:
		return *t.Redeemed, nil
	case t.Redeemed != nil:
		return agentapi.Issued{}, agentapi.ErrTokenUsed
	case t.Revoked || !r.At.Before(t.ExpiresAt):
		return agentapi.Issued{}, agentapi.ErrTokenEnded
	}
	n := m.nodes[t.NodeID]
	c := r.Certificate
	if c.Enrolment == 0 {
		c.Enrolment = n.Current.Enrolment + 1
	}
	if n.Current.Generation >= c.Generation || c.Enrolment != n.Current.Enrolment+1 {
		return agentapi.Issued{}, agentapi.ErrGenerationMoved
	}
	t.Redeemed, n.Current, n.Locked, m.enrolledFrom[t.NodeID] = &c, c, false, c.NotBefore.Truncate(time.Second)
	return c, nil
}

// Identity implements agentapi.Store.
func (m *Memory) Identity(_ context.Context, nodeID string) (agentapi.NodeIdentity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[nodeID]
	if n == nil {
		return agentapi.NodeIdentity{}, agentapi.ErrNoNode
	}
	return *n, nil
}

// Standings implements agentapi.Store.
func (m *Memory) Standings(_ context.Context, nodeIDs []string) (map[string]agentapi.Standing, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]agentapi.Standing{}
	for _, id := range nodeIDs {
		n := m.nodes[id]
		if n == nil {
			continue
		}
		s := agentapi.Standing{NodeID: id, Lifecycle: n.Lifecycle, Status: n.Status, SKUID: n.SKUID, Generation: n.Current.Generation,
			Enrolment: n.Current.Enrolment, EnrolledFrom: m.enrolledFrom[id], KeyHash: bytes.Clone(n.Current.SPKI[:])}
		if n.Locked {
			at := m.lockedAt[id]
			s.LockedAt = &at
		}
		if r := m.heartbeats[id].Report; r != nil {
			s.ReportedBoot = r.BootID
		}
		out[id] = s
	}
	return out, nil
}

// Renew implements agentapi.Store.
func (m *Memory) Renew(_ context.Context, r agentapi.Renewal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[r.NodeID]
	if n == nil || n.Locked || n.Current.Generation != r.Certificate.Generation-1 {
		return agentapi.ErrGenerationMoved
	}
	c := r.Certificate
	if c.Enrolment == 0 {
		c.Enrolment = n.Current.Enrolment
	}
	n.Current = c
	return nil
}

// Adopt implements agentapi.Store.
func (m *Memory) Adopt(_ context.Context, a agentapi.Adoption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, c := m.nodes[a.NodeID], a.Certificate
	later := n != nil && c.Enrolment > n.Current.Enrolment
	switch {
	case n == nil, c.Enrolment < n.Current.Enrolment, c.NotBefore.Before(m.enrolledFrom[a.NodeID]), !later && c.Generation <= n.Current.Generation,
		n.Locked && (!later || !a.IssuedAt.After(m.lockedAt[a.NodeID])):
		return agentapi.ErrGenerationMoved
	}
	n.Current = c
	if later {
		n.Locked, m.enrolledFrom[a.NodeID] = false, c.NotBefore
	}
	return nil
}

// Report implements agentapi.Store.
func (m *Memory) Report(_ context.Context, r agentapi.Refusal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusals[agentapi.Refusal{NodeID: r.NodeID, Kind: r.Kind}]++
	return nil
}

// Refusals counts those of a node and kind.
func (m *Memory) Refusals(nodeID string, k agentapi.RefusalKind) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refusals[agentapi.Refusal{NodeID: nodeID, Kind: k}]
}

// Forget puts a node's identity back to an older certificate, as a restored database does.
func (m *Memory) Forget(nodeID string, to agentapi.Issued) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[nodeID].Current, m.nodes[nodeID].Locked, m.enrolledFrom[nodeID] = to, false, to.NotBefore
}

// Lock implements agentapi.Store.
func (m *Memory) Lock(_ context.Context, nodeID, _ string, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes[nodeID] == nil {
		return agentapi.ErrNoNode
	}
	m.nodes[nodeID].Locked, m.lockedAt[nodeID] = true, at
	return nil
}

// Alarm implements agentapi.Store.
func (m *Memory) Alarm(_ context.Context, a agentapi.Alarm) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alarms = append(m.alarms, a)
	return nil
}

// WriteHeartbeats implements agentapi.Store.
func (m *Memory) WriteHeartbeats(_ context.Context, heartbeats []agentapi.Heartbeat) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onWrite != nil {
		if err := m.onWrite(heartbeats); err != nil {
			return err
		}
	}
	m.writes = append(m.writes, len(heartbeats))
	seen := map[string]bool{}
	for _, b := range heartbeats {
		if seen[b.NodeID] {
			return fmt.Errorf("node %s stands twice in one batch", b.NodeID)
		}
		seen[b.NodeID] = true
		if b.Report == nil {
			b.Report = m.heartbeats[b.NodeID].Report
		}
		m.heartbeats[b.NodeID] = b
		m.counts[b.NodeID]++
	}
	return nil
}
