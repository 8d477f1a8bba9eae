// Package mock is a cloud provider whose servers and workers exist only in the memory of a process.
// The state of a server follows the time since it was made, so that the API, the command line and
// the portal can be tried without anything.
package mock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// DefaultDuration is how long a server takes to become ready.
const DefaultDuration = time.Minute

// Checksum is that of the agent that every simulated worker says it runs.
const Checksum = "6d6f636b000000000000000000000000000000000000000000000000000000ff"

// Provider implements providers.Cloud and providers.Worker. It is safe for concurrent use.
type Provider struct {
	duration time.Duration
	now      func() time.Time
	percents map[string]int // of the action types

	mu      sync.Mutex
	servers map[string]*server // by id
	extras  []providers.CloudResource
	made    int
}

type server struct {
	providers.CloudServer
	instanceID string
	size       int64
	installed  string // the model
}

var (
	_ providers.Cloud  = (*Provider)(nil)
	_ providers.Worker = (*Provider)(nil)
)

// New returns a provider without servers. duration 0 is DefaultDuration, and now nil the time of
// the process.
func New(duration time.Duration, now func() time.Time) *Provider {
	if now == nil {
		now = time.Now
	}
	p := &Provider{duration: cmp.Or(duration, DefaultDuration), now: now, percents: map[string]int{}, servers: map[string]*server{}}
	for _, step := range lifecycle.InstanceCreateSteps() {
		p.percents[step.ActionType] = step.Percent
	}
	return p
}

func failure(kind providers.Kind, op, format string, args ...any) error {
	return &providers.Error{Kind: kind, Op: "cloud." + op, Message: fmt.Sprintf(format, args...)}
}

// hasReached reports whether the time for an action of a server is over.
func (p *Provider) hasReached(s *server, action string) bool {
	return p.now().Sub(s.CreatedAt) >= p.duration*time.Duration(p.percents[action])/100
}

// Check implements providers.Cloud.
func (p *Provider) Check(context.Context, string) error { return nil }

// Offer implements providers.Cloud. Every type is free of charge.
func (p *Provider) Offer(context.Context, string, string) (providers.CloudOffer, error) {
	return providers.CloudOffer{GrowsVolume: true}, nil
}

// Create implements providers.Cloud.
func (p *Provider) Create(_ context.Context, in providers.CloudCreate) (providers.CloudServer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	// Ids stay with an instance for ever, and a restart begins to count again.
	id := func(kind string) string { return fmt.Sprintf("mock-%s-%s-%d", kind, in.InstanceID, p.made) }
	s := &server{instanceID: in.InstanceID, CloudServer: providers.CloudServer{
		ID: id("server"), Name: "slipway-" + in.InstanceID, Type: in.Type, Zone: in.Zone, State: providers.CloudStopped, CreatedAt: p.now(),
		Volumes: []string{id("volume")}, GroupID: id("group"),
	}}
	p.servers[s.ID] = s
	for _, r := range []providers.CloudResource{{Kind: providers.CloudKindVolume, ID: s.Volumes[0]}, {Kind: providers.CloudKindGroup, ID: s.GroupID}} {
		r.Zone, r.Name, r.InstanceID, r.CreatedAt = in.Zone, s.Name, in.InstanceID, s.CreatedAt
		p.extras = append(p.extras, r)
	}
	return s.CloudServer, nil
}

// view returns a server as it is now.
func (p *Provider) view(s *server) providers.CloudServer {
	out := s.CloudServer
	if out.State == providers.CloudStarting && p.hasReached(s, lifecycle.ActProviderStart) {
		out.State = providers.CloudRunning
	}
	if out.State == providers.CloudRunning && p.hasReached(s, lifecycle.ActProviderGetIP) {
		out.Address = "192.0.2." + fmt.Sprint(1+strings.Count(s.ID, "")%250)
	}
	return out
}

// Find implements providers.Cloud.
func (p *Provider) Find(_ context.Context, zone, instanceID string) ([]providers.CloudServer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []providers.CloudServer{}
	for _, s := range p.servers {
		if s.Zone == zone && s.instanceID == instanceID {
			out = append(out, p.view(s))
		}
	}
	slices.SortFunc(out, func(a, b providers.CloudServer) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, nil
}

func (p *Provider) find(op, id string) (*server, error) {
	s, ok := p.servers[id]
	if !ok {
		return nil, failure(providers.KindNotFound, op, "there is no server %s; simulated servers end with the process that made them", id)
	}
	return s, nil
}

// Server implements providers.Cloud.
func (p *Provider) Server(_ context.Context, _, id string) (providers.CloudServer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.find("server", id)
	if err != nil {
		return providers.CloudServer{}, err
	}
	return p.view(s), nil
}

// ClaimVolumes implements providers.Cloud.
func (p *Provider) ClaimVolumes(_ context.Context, t providers.CloudTarget) ([]providers.CloudResource, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.find("claim_volumes", t.ServerID)
	if err != nil {
		return nil, err
	}
	out := []providers.CloudResource{}
	for _, r := range p.extras {
		if slices.Contains(s.Volumes, r.ID) {
			out = append(out, r)
		}
	}
	return out, nil
}

// GrowVolume implements providers.Cloud.
func (p *Provider) GrowVolume(_ context.Context, t providers.CloudTarget, bytes int64) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.find("grow_volume", t.ServerID)
	if err != nil {
		return false, err
	}
	asked := s.size >= bytes
	s.size = max(s.size, bytes)
	return asked && p.hasReached(s, lifecycle.ActProviderVolumeResize), nil
}

// SetUserData implements providers.Cloud.
func (p *Provider) SetUserData(_ context.Context, t providers.CloudTarget, _ providers.Secret) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.find("set_user_data", t.ServerID)
	return err
}

// Start implements providers.Cloud.
func (p *Provider) Start(_ context.Context, t providers.CloudTarget) error {
	return p.set("start", t, providers.CloudStarting, providers.CloudStopped)
}

// Stop implements providers.Cloud.
func (p *Provider) Stop(_ context.Context, t providers.CloudTarget) error {
	return p.set("stop", t, providers.CloudStopped)
}

// set moves a server that is in one of the states; none means from any.
func (p *Provider) set(op string, t providers.CloudTarget, to providers.CloudState, from ...providers.CloudState) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.find(op, t.ServerID)
	if err == nil && (len(from) == 0 || slices.Contains(from, s.State)) {
		s.State = to
	}
	return err
}

// VerifyGroup implements providers.Cloud.
func (p *Provider) VerifyGroup(_ context.Context, t providers.CloudTarget, _ providers.CloudSources) (bool, error) {
	return p.reached("verify_group", t.ServerID, lifecycle.ActProviderGroup)
}

func (p *Provider) reached(op, id, action string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.find(op, id)
	return err == nil && p.hasReached(s, action), err
}

// DeleteServer implements providers.Cloud. Its volume and its group stay.
func (p *Provider) DeleteServer(_ context.Context, t providers.CloudTarget) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.servers[t.ServerID]; ok && p.view(s).State != providers.CloudStopped {
		return false, failure(providers.KindBusy, "delete_server", "the server is not stopped")
	}
	delete(p.servers, t.ServerID)
	return true, nil
}

// Delete implements providers.Cloud.
func (p *Provider) Delete(_ context.Context, r providers.CloudResource) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if s.GroupID == r.ID || slices.Contains(s.Volumes, r.ID) {
			return false, nil // in use
		}
	}
	p.extras = slices.DeleteFunc(p.extras, func(e providers.CloudResource) bool { return e.Kind == r.Kind && e.ID == r.ID })
	return true, nil
}

// List implements providers.Cloud.
func (p *Provider) List(_ context.Context, zone, instanceID string) ([]providers.CloudResource, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.extras)
	for _, s := range p.servers {
		all = append(all, providers.CloudResource{Kind: providers.CloudKindServer, ID: s.ID, Zone: s.Zone, Name: s.Name, InstanceID: s.instanceID, CreatedAt: s.CreatedAt})
	}
	return slices.DeleteFunc(all, func(r providers.CloudResource) bool {
		return r.Zone != zone || instanceID != "" && r.InstanceID != instanceID
	}), nil
}
