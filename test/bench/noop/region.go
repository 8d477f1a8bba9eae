package noop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// The operations that Refuse and Land are asked about.
const (
	OpCreate     = "create"
	OpCommission = "commission"
	OpLayout     = "set_storage_layout"
	OpDeploy     = "deploy"
	OpRelease    = "release"
)

// Region is a MAAS region in which every machine is at its goal at once. The
// hooks make it do otherwise; set them before the first call. It may be used
// from any goroutine.
type Region struct {
	// Refuse is asked before an operation; its error is the answer, and nothing
	// changes. nil refuses nothing.
	Refuse func(op, host string) error
	// Land says into which status commissioning and deploying lead; nil means
	// Ready and Deployed.
	Land func(op, host string) providers.MAASStatus
	// Boot is told when a machine is deployed: its agent would start now.
	Boot func(ctx context.Context, host string, userData []byte) error

	mu     sync.Mutex
	byID   map[string]*machine
	byHost map[string]*machine
	made   int
}

type machine struct {
	providers.MAASMachine
	rootOn  int // id of the disk with the root file system
	linked  bool
	ports   map[int]port
	pending []byte // user-data of a deployment that has not landed
	erased  []providers.MAASEvent
}

type port struct {
	mtu  int
	tags []string
	ip   string
}

var _ providers.MAASOpener = (*Region)(nil)

// OpenMAAS implements providers.MAASOpener.
func (r *Region) OpenMAAS(site providers.MAASSite) (providers.MAAS, error) {
	if site.APIKey.Reveal() != APIKey {
		return nil, &providers.Error{Kind: providers.KindUnauthorized, Op: "noop.open", Message: "wrong API key"}
	}
	return r, nil
}

// Move puts a machine into a status, as an event outside would; Deployed boots
// it.
func (r *Region) Move(ctx context.Context, host string, to providers.MAASStatus) error {
	r.mu.Lock()
	m := r.byHost[host]
	if m == nil {
		r.mu.Unlock()
		return absent(host)
	}
	return r.land(ctx, m, to)
}

// Lose removes a machine, as somebody in the MAAS web page would.
func (r *Region) Lose(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.byHost[host]; m != nil {
		delete(r.byID, m.SystemID)
		delete(r.byHost, host)
	}
}

// Status is a machine's status; false when it is not there.
func (r *Region) Status(host string) (providers.MAASStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byHost[host]
	if m == nil {
		return 0, false
	}
	return m.MAASMachine.Status, true
}

// land moves a machine; the caller holds mu, which land gives up.
func (r *Region) land(ctx context.Context, m *machine, to providers.MAASStatus) error {
	m.MAASMachine.Status = to
	boots := to == providers.MAASDeployed
	if boots {
		m.OSystem, m.PowerState, m.IPAddresses = "ubuntu", "on", []string{"127.0.0.1"}
	}
	host, data := m.Hostname, m.pending
	r.mu.Unlock()
	if boots && r.Boot != nil {
		return r.Boot(ctx, host, data)
	}
	return nil
}

func absent(what string) error {
	return &providers.Error{Kind: providers.KindNotFound, Op: "noop.machine", Status: 404, Message: "no machine " + what}
}

func (r *Region) refuse(op, host string) error {
	if r.Refuse == nil {
		return nil
	}
	return r.Refuse(op, host)
}

// with runs f on a machine under the lock.
func (r *Region) with(systemID string, f func(*machine)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byID[systemID]
	if m == nil {
		return absent(systemID)
	}
	f(m)
	return nil
}

func (r *Region) host(systemID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.byID[systemID]; m != nil {
		return m.Hostname
	}
	return ""
}

// Probe implements providers.MAAS.
func (r *Region) Probe(context.Context) (providers.MAASInfo, error) {
	return providers.MAASInfo{
		Version: "3.5.0", User: "noop", IsSuperuser: true, SSHKeys: 1, Config: map[string]string{"node_timeout": "30"}, Images: []string{"ubuntu/jammy"},
	}, nil
}

// FindMachines finds by hostname.
func (r *Region) FindMachines(_ context.Context, q providers.MAASQuery) ([]providers.MAASMachine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.byHost[q.Hostname]; m != nil {
		return []providers.MAASMachine{m.view()}, nil
	}
	return nil, nil
}

// CreateMachine implements providers.MAAS.
func (r *Region) CreateMachine(_ context.Context, in providers.MAASCreate) (providers.MAASMachine, error) {
	if err := r.refuse(OpCreate, in.Hostname); err != nil {
		return providers.MAASMachine{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID, r.byHost = map[string]*machine{}, map[string]*machine{}
	}
	if r.byHost[in.Hostname] != nil {
		return providers.MAASMachine{}, &providers.Error{Kind: providers.KindInvalid, Op: "noop.create", Status: 400, Message: "hostname is taken"}
	}
	r.made++
	m := &machine{MAASMachine: providers.MAASMachine{
		SystemID: fmt.Sprintf("noop%06x", r.made), Hostname: in.Hostname, PowerState: "off", PowerType: in.PowerType, Architecture: in.Architecture,
		BootInterfaceID: bootPort, MACs: in.MACs, Annotations: map[string]string{},
	}, ports: map[int]port{}}
	r.byID[m.SystemID], r.byHost[m.Hostname] = m, m
	return m.view(), nil
}

// view is a copy that later changes do not reach. Every look at a deployed
// machine finds a later hardware sync.
func (m *machine) view() providers.MAASMachine {
	if m.MAASMachine.Status == providers.MAASDeployed && m.EnableHWSync {
		m.LastSync = time.Now()
	}
	v := m.MAASMachine
	v.Annotations, v.MACs = maps.Clone(m.Annotations), slices.Clone(m.MACs)
	return v
}

// Machine implements providers.MAAS.
func (r *Region) Machine(_ context.Context, systemID string) (v providers.MAASMachine, err error) {
	err = r.with(systemID, func(m *machine) { v = m.view() })
	return v, err
}

// DeleteMachine implements providers.MAAS.
func (r *Region) DeleteMachine(_ context.Context, systemID string) error {
	r.Lose(r.host(systemID))
	return nil
}
