package agentapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	standingLimit = 5 * time.Second
	// standingBatch bounds the nodes in one query.
	standingBatch = 1000
)

// identityBatcher reads the standing of nodes with one query at a time. Requests that arrive during
// a query share the next one. So a single request does not wait, many nodes cost one query each few
// milliseconds, and no answer is older than its request.
type identityBatcher struct {
	store Store

	mu      sync.Mutex
	next    *identityQuery // sent when the running query has ended
	working bool
}

type identityQuery struct {
	nodes []string
	done  chan struct{}
	found map[string]Standing
	err   error
}

// standing returns the standing of a node. It returns a refusal when the node is gone or its agent
// is not served.
func (s *identityBatcher) standing(ctx context.Context, nodeID string) (Standing, error) {
	q := s.join(nodeID)
	select {
	case <-q.done:
	case <-ctx.Done():
		return Standing{}, ctx.Err()
	}
	if q.err != nil {
		return Standing{}, q.err
	}
	st, known := q.found[nodeID]
	if !known {
		return Standing{}, removed()
	}
	return st, admit(st.Lifecycle, st.Status)
}

func (s *identityBatcher) join(nodeID string) *identityQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &identityQuery{done: make(chan struct{})}
	}
	q := s.next
	q.nodes = append(q.nodes, nodeID)
	if !s.working {
		s.working = true
		go s.work()
	} else if len(q.nodes) >= standingBatch {
		s.next = nil
		go s.send(q)
	}
	return q
}

// work sends queries until no request waits.
func (s *identityBatcher) work() {
	for {
		s.mu.Lock()
		q := s.next
		s.next, s.working = nil, q != nil
		s.mu.Unlock()
		if q == nil {
			return
		}
		s.send(q)
	}
}

func (s *identityBatcher) send(q *identityQuery) {
	ctx, cancel := context.WithTimeout(context.Background(), standingLimit)
	defer cancel()
	defer close(q.done)
	q.found, q.err = s.store.Standings(ctx, q.nodes)
}

// node returns a node's identity. It returns a refusal when the node is gone.
func (s *Server) node(ctx context.Context, id string) (NodeIdentity, error) {
	n, err := s.cfg.Store.Identity(ctx, id)
	if errors.Is(err, ErrNoNode) {
		return NodeIdentity{}, removed()
	}
	if err != nil {
		return NodeIdentity{}, err
	}
	return n, admit(n.Lifecycle, n.Status)
}

// installWait is the time after which the agent of a node may try again while the node waits to be
// installed.
const installWait = 30 * time.Second

// admit returns a refusal for the agent of a node that is gone or not installed yet.
func admit(machine string, status lifecycle.NodeStatus) error {
	switch {
	case lifecycle.AdmitsAgent(machine, status):
		return nil
	case status == lifecycle.NodeDeleted || status == lifecycle.NodeRetired:
		return removed()
	}
	return refuse(http.StatusServiceUnavailable, protocol.ProblemBusy, "not_installed",
		"The node is %s; its agent is served once its installation has started.", status).after(installWait)
}

func removed() *refusal {
	return refuse(http.StatusForbidden, protocol.ProblemNodeRemoved, "node_removed", "This node has been removed; stop the agent.")
}
