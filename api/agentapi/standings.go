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
	// standingBatch bounds one question; who comes later is in the next one.
	standingBatch = 1000
)

// standings asks the database how nodes stand, one question at a time: who asks
// meanwhile is in the next one. So nobody waits while there is little to do, a
// hundred thousand nodes take a question each few milliseconds, and what is
// answered was never read before it was asked.
type standings struct {
	store Store

	mu      sync.Mutex
	next    *question // what is asked when the present one is answered
	working bool
}

type question struct {
	shown []ShownKey
	done  chan struct{}
	found map[ShownKey]Standing
	err   error
}

// of is how a node and the key that a request shows stand now.
func (s *standings) of(ctx context.Context, shown ShownKey) (Standing, error) {
	q := s.join(shown)
	select {
	case <-q.done:
	case <-ctx.Done():
		return Standing{}, ctx.Err()
	}
	if q.err != nil {
		return Standing{}, q.err
	}
	st, known := q.found[shown]
	if !known {
		return Standing{}, removed()
	}
	return st, admit(st.Lifecycle, st.Status)
}

func (s *standings) join(shown ShownKey) *question {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &question{done: make(chan struct{})}
	}
	q := s.next
	q.shown = append(q.shown, shown)
	if !s.working {
		s.working = true
		go s.work()
	} else if len(q.shown) >= standingBatch {
		s.next = nil
		go s.ask(q)
	}
	return q
}

// work asks until nobody waits.
func (s *standings) work() {
	for {
		s.mu.Lock()
		q := s.next
		s.next, s.working = nil, q != nil
		s.mu.Unlock()
		if q == nil {
			return
		}
		s.ask(q)
	}
}

func (s *standings) ask(q *question) {
	ctx, cancel := context.WithTimeout(context.Background(), standingLimit)
	defer cancel()
	defer close(q.done)
	q.found, q.err = s.store.Standings(ctx, q.shown)
}

// node looks a node up and refuses one that is gone.
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

// installWait is how long the agent of a node that waits to be installed is
// asked to wait: its system is about to be replaced.
const installWait = 30 * time.Second

// admit refuses the agent of a node that is gone or has no system that counts.
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
