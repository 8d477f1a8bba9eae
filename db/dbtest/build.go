package dbtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Params is what a builder makes; options set it. A value that the options leave empty is made up:
// a node without a site gets a site of its own.
type Params struct {
	Name       string
	SiteID     string
	ProfileID  string
	SKUID      string
	NodeID     string
	BatchID    string
	Hostname   string
	Kind       string
	Input      json.RawMessage
	Simulated  bool
	NodeStatus lifecycle.NodeStatus
	JobStatus  lifecycle.JobStatus
	Site       spec.SiteSpec
	Profile    spec.ProfileSpec
	SKU        spec.SKUSpec
}

// Option sets a part of Params. Any function of this shape is one.
type Option func(*Params)

// Named sets the name of a site, profile or SKU.
func Named(name string) Option { return func(p *Params) { p.Name = name } }

// At puts a profile, node or job at a site.
func At(siteID string) Option { return func(p *Params) { p.SiteID = siteID } }

// With gives a node or job a profile.
func With(profileID string) Option { return func(p *Params) { p.ProfileID = profileID } }

// Of gives a node a SKU.
func Of(skuID string) Option { return func(p *Params) { p.SKUID = skuID } }

// On makes the job one of this node.
func On(nodeID string) Option { return func(p *Params) { p.NodeID = nodeID } }

// In makes the job one of this batch.
func In(batchID string) Option { return func(p *Params) { p.BatchID = batchID } }

// Hostname names a node.
func Hostname(name string) Option { return func(p *Params) { p.Hostname = name } }

// Kind sets the kind of a job; onboarding by default.
func Kind(kind string) Option { return func(p *Params) { p.Kind = kind } }

// Status takes a node to this state, by legal transitions.
func Status(s lifecycle.NodeStatus) Option { return func(p *Params) { p.NodeStatus = s } }

// Active is Status(lifecycle.NodeActive).
func Active() Option { return Status(lifecycle.NodeActive) }

// JobStatus takes a job to this state, by legal transitions.
func JobStatus(s lifecycle.JobStatus) Option { return func(p *Params) { p.JobStatus = s } }

func params(opts []Option) Params {
	unique := db.NewID("x")
	unique = unique[strings.LastIndexByte(unique, '-')+1:]
	p := Params{
		Name: "test-" + unique, Hostname: "host-" + unique, Kind: "onboarding", NodeStatus: lifecycle.NodeMAAS.Initial[0],
		JobStatus: lifecycle.Job.Initial[0], Profile: spec.ProfileSpec{}.WithDefaults(),
		Site: spec.SiteSpec{MAASURL: "http://127.0.0.1:5240/MAAS", MAASAPIKeyRef: "maas/test", BMCNetworks: []string{"10.0.0.0/8", "127.0.0.0/8"}, Simulated: true},
	}
	for _, o := range opts {
		o(&p)
	}
	return p
}

// Site makes a site.
func Site(t testing.TB, s *db.Store, opts ...Option) db.Site {
	t.Helper()
	p := params(opts)
	row, err := s.CreateSite(t.Context(), p.Name, p.Site)
	require.NoError(t, err)
	return row
}

// Profile makes a profile, and a site unless At is given.
func Profile(t testing.TB, s *db.Store, opts ...Option) db.Profile {
	t.Helper()
	p := params(opts)
	if p.SiteID == "" {
		p.SiteID = Site(t, s).ID
	}
	row, err := s.CreateProfile(t.Context(), p.SiteID, p.Name, p.Profile)
	require.NoError(t, err)
	return row
}

// SKU makes a SKU.
func SKU(t testing.TB, s *db.Store, opts ...Option) db.SKU {
	t.Helper()
	p := params(opts)
	row, err := s.CreateSKU(t.Context(), p.Name, p.SKU)
	require.NoError(t, err)
	return row
}

// Node makes a node, and a site unless At is given. A node that is draining or being removed had
// the job that must own it, and lost it: the job was cancelled.
func Node(t testing.TB, s *db.Store, opts ...Option) db.Node {
	t.Helper()
	p := params(opts)
	if p.SiteID == "" {
		p.SiteID = Site(t, s).ID
	}
	var n db.Node
	var owner db.Job
	between := p.NodeStatus == lifecycle.NodeDraining || p.NodeStatus == lifecycle.NodeRemoving
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		n, err = tx.CreateNode(t.Context(), db.NewNode{
			Hostname: p.Hostname, SiteID: p.SiteID, SKUID: set(p.SKUID), ProfileID: set(p.ProfileID), Simulated: p.Simulated,
			Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "dbtest"},
		})
		for _, m := range path(lifecycle.NodeMAAS, n.Status, p.NodeStatus) {
			if err == nil {
				n, err = tx.TransitionNode(t.Context(), n.ID, m, m.Needs, db.Actor{Owner: m.Owners[0], ID: "dbtest"})
			}
		}
		if err == nil && between {
			owner, err = tx.CreateJob(t.Context(), db.NewJob{Kind: "node_operation", NodeID: &n.ID, SiteID: &n.SiteID, Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "dbtest"}})
		}
		return err
	})
	if err == nil && between {
		err = s.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionJob(t.Context(), owner.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem, ID: "dbtest"})
			return err
		})
	}
	require.NoError(t, err)
	require.Equal(t, p.NodeStatus, n.Status, "no way leads there")
	return n
}

// MoveNode takes a node to a status, on the shortest way.
func MoveNode(t testing.TB, s *db.Store, id string, to lifecycle.NodeStatus) {
	t.Helper()
	n, err := s.Node(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		for _, m := range path(lifecycle.NodeMAAS, n.Status, to) {
			if _, err := tx.TransitionNode(t.Context(), id, m, m.Needs, db.Actor{Owner: m.Owners[0], ID: "dbtest"}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Job makes a job, and a node unless On is given.
func Job(t testing.TB, s *db.Store, opts ...Option) db.Job {
	t.Helper()
	p := params(opts)
	if p.NodeID == "" {
		n := Node(t, s, opts...)
		p.NodeID, p.SiteID = n.ID, n.SiteID
	}
	if p.SiteID == "" {
		n, err := s.Node(t.Context(), p.NodeID)
		require.NoError(t, err)
		p.SiteID = n.SiteID
	}
	var j db.Job
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		j, err = tx.CreateJob(t.Context(), db.NewJob{
			Kind: p.Kind, NodeID: &p.NodeID, SiteID: set(p.SiteID), ProfileID: set(p.ProfileID), BatchID: set(p.BatchID), Input: p.Input,
			Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "dbtest"},
		})
		for _, m := range path(lifecycle.Job, j.Status, p.JobStatus) {
			if err == nil {
				j, err = tx.TransitionJob(t.Context(), j.ID, m, m.Needs, db.Actor{Owner: m.Owners[0], ID: "dbtest"})
			}
		}
		return err
	})
	require.NoError(t, err)
	require.Equal(t, p.JobStatus, j.Status, "no way leads there")
	return j
}

func set(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// path is the shortest way from one state to another; nil when there is none.
func path[S lifecycle.State](m lifecycle.Machine[S], from, to S) []lifecycle.Transition[S] {
	type step struct {
		at  S
		way []lifecycle.Transition[S]
	}
	seen := map[S]bool{from: true}
	for queue := []step{{at: from}}; len(queue) > 0; queue = queue[1:] {
		here := queue[0]
		if here.at == to {
			return here.way
		}
		for _, t := range m.Transitions {
			if slices.Contains(t.From, here.at) && !seen[t.To] {
				seen[t.To] = true
				queue = append(queue, step{t.To, append(slices.Clone(here.way), t)})
			}
		}
	}
	return nil
}
