package stack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// NodeSSHPort is where simulated nodes answer ssh, each on its own loopback
// address as its MAAS assigned it.
const NodeSSHPort = 22022

// SimOptions describe a simulated site.
type SimOptions struct {
	// Specs are the machines; nil takes one GPU server a vendor, Count in all, numbered from
	// FirstMachine on; 0 is 1.
	Specs               []simhw.Spec
	Count, FirstMachine int
	// Speed is virtual seconds a second for everything outside Slipway.
	Speed       float64
	Dir         string // files of the simulated nodes
	AgentBinary string
	Log         *slog.Logger
	// Durations of MAAS; zero fields take its defaults.
	Durations maassim.Durations
	// MAASPort and AdminPort on 127.0.0.1; 0 picks free ones.
	MAASPort, AdminPort int
}

// Sims is a simulated site: machines, their BMCs, a MAAS region, and what runs
// on the machines once deployed.
type Sims struct {
	Fleet  *simhw.Fleet
	MAAS   *maassim.Server
	BMCs   map[string]*redfishsim.Server // by machine id
	Nodes  map[string]*simnode.Node
	APIKey string
	URL    string // of the MAAS region
	Admin  string // of its scenario port

	log   *slog.Logger
	mu    sync.Mutex
	wires map[string]wire // network paths to nodes that are up
	turns map[string]int  // boots and ends of each machine
	stops []func()
}

// StartSims starts a simulated site; ctx ends it.
func StartSims(ctx context.Context, o SimOptions) (*Sims, error) {
	clock := simhw.NewClock(o.Speed)
	s := &Sims{
		Fleet: simhw.NewFleet(ctx, clock), BMCs: map[string]*redfishsim.Server{}, Nodes: map[string]*simnode.Node{},
		APIKey: "sim:" + randomHex(6) + ":" + randomHex(16), log: o.Log, wires: map[string]wire{}, turns: map[string]int{},
	}
	for _, spec := range o.specs() {
		if err := s.addMachine(ctx, o, spec); err != nil {
			s.Stop()
			return nil, err
		}
	}
	if err := s.startMAAS(ctx, o); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (o SimOptions) specs() []simhw.Spec {
	if o.Specs != nil {
		return o.Specs
	}
	var out []simhw.Spec
	for i := range max(o.Count, 1) {
		out = append(out, simhw.GPUServer(simhw.Vendors[i%len(simhw.Vendors)], max(o.FirstMachine, 1)+i))
	}
	return out
}

func (s *Sims) addMachine(ctx context.Context, o SimOptions, spec simhw.Spec) error {
	spec.BMCPassword = "sim-" + randomHex(12) // a secret of this run, for the leak test
	m, err := s.Fleet.Add(spec)
	if err != nil {
		return err
	}
	b, stop, err := startBMC(ctx, m, o.Speed, true)
	if err != nil {
		return err
	}
	s.BMCs[spec.ID] = b
	s.stops = append(s.stops, stop)
	n, err := simnode.New(simnode.Options{
		Machine: m, Dir: filepath.Join(o.Dir, spec.ID), AgentBinary: o.AgentBinary, Log: o.Log.With("machine", spec.ID),
		SSHListen: ownLoopback(),
		HWSync:    func(on bool) { go s.hwSync(ctx, m, on) },
	})
	if err != nil {
		return fmt.Errorf("node on %s: %w", spec.ID, err)
	}
	s.Nodes[spec.ID] = n
	s.stops = append(s.stops, n.Close)
	m.Subscribe(func(e simhw.Event) {
		switch e.Kind {
		case simhw.EventOSUp:
			go s.plugIn(ctx, m, n, s.turn(spec.ID))
		case simhw.EventOSDown:
			s.turn(spec.ID)
		default:
		}
	})
	return nil
}

func startBMC(ctx context.Context, m *simhw.Machine, speed float64, tls bool) (*redfishsim.Server, func(), error) {
	b, err := redfishsim.New(redfishsim.Options{Machine: m, TLS: tls, Adjust: func(p *redfishsim.Personality) {
		// A client of a session asks in real seconds: at full speed the session would count as idle
		// between two requests.
		p.SessionTimeout = time.Duration(float64(p.SessionTimeout) * max(speed, 1))
	}})
	if err != nil {
		return nil, nil, fmt.Errorf("BMC of %s: %w", m.Spec().ID, err)
	}
	_, stop, err := b.Start(ctx, ownLoopback())
	if err != nil {
		return nil, nil, fmt.Errorf("BMC of %s: %w", m.Spec().ID, err)
	}
	return b, stop, nil
}

func (s *Sims) startMAAS(ctx context.Context, o SimOptions) error {
	network, release, err := claimProvisioning(ctx)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, release)
	srv, err := maassim.New(maassim.Options{
		Fleet: s.Fleet, APIKey: s.APIKey, Durations: o.Durations, Seed: 1,
		Networks: []maassim.Network{
			network,
			{VLAN: 2, Name: "fast", CIDR: "127.20.0.0/16", MTU: 9000},
		},
	})
	if err != nil {
		return fmt.Errorf("MAAS simulator: %w", err)
	}
	addrs, stop, err := srv.Start(ctx, loopback(o.MAASPort), loopback(o.AdminPort))
	if err != nil {
		return fmt.Errorf("MAAS simulator: %w", err)
	}
	s.MAAS, s.URL, s.Admin = srv, "http://"+addrs.API+"/MAAS", "http://"+addrs.Admin
	s.stops = append(s.stops, stop)
	return nil
}

// claimProvisioning returns a loopback network of this site's own, a thousand addresses: sites that
// run side by side must not answer for each other's nodes. Until release is called, a listener on
// the gateway keeps other sites, in other processes too, from choosing the same network.
func claimProvisioning(ctx context.Context) (network maassim.Network, release func(), err error) {
	var lc net.ListenConfig
	for range 20 {
		b := make([]byte, 2)
		_, _ = rand.Read(b)
		prefix := fmt.Sprintf("127.%d.%d.", 32+int(b[0])%192, int(b[1])/4*4)
		var l net.Listener
		if l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(prefix+"1", strconv.Itoa(NodeSSHPort))); err == nil {
			network = maassim.Network{VLAN: 1, Name: "provisioning", CIDR: prefix + "0/22", Gateway: prefix + "1", MTU: 1500, DHCP: true}
			return network, func() { _ = l.Close() }, nil
		}
	}
	return network, nil, fmt.Errorf("no free loopback network for the site: %w", err)
}

// ownLoopback is a loopback address for one server of one machine. An address on 127.0.0.1 could be
// another machine's: its sshd listens only once the machine has booted, and the address of a BMC
// stays in the database when its site has ended.
func ownLoopback() string {
	b := make([]byte, 2)
	_, _ = rand.Read(b)
	return fmt.Sprintf("127.24.%d.%d:0", b[0], 1+int(b[1])%254)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Stop ends everything, newest first.
func (s *Sims) Stop() {
	s.mu.Lock()
	for id, w := range s.wires {
		_ = w.Close()
		delete(s.wires, id)
	}
	s.mu.Unlock()
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	s.stops = nil
}

const lookupTimeout = 30 * time.Second

// record asks MAAS, as anyone would, for the machine's record.
func (s *Sims) record(ctx context.Context, m *simhw.Machine) (providers.MAASMachine, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	c, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: s.URL, APIKey: providers.NewSecret(s.APIKey)})
	if err != nil {
		return providers.MAASMachine{}, err
	}
	found, err := c.FindMachines(ctx, providers.MAASQuery{MACs: []string{m.Spec().NICs[0].MAC}})
	if err != nil {
		return providers.MAASMachine{}, err
	}
	if len(found) != 1 {
		return providers.MAASMachine{}, fmt.Errorf("%d records match %s", len(found), m.Spec().ID)
	}
	return found[0], nil
}

// Address returns the address that MAAS gave a deployed machine.
func (s *Sims) Address(ctx context.Context, m *simhw.Machine) (string, error) {
	rec, err := s.record(ctx, m)
	if err == nil && len(rec.IPAddresses) == 0 {
		err = errors.New("MAAS gave it no address")
	}
	if err != nil {
		return "", err
	}
	return rec.IPAddresses[0], nil
}

func (s *Sims) hwSync(ctx context.Context, m *simhw.Machine, on bool) {
	rec, err := s.record(ctx, m)
	if err != nil {
		s.log.Warn("hardware sync not switched in the simulator", "machine", m.Spec().ID, "error", err)
		return
	}
	s.MAAS.SetHWSyncAgent(rec.SystemID, on)
}

// plugIn makes the node's ssh reachable under the address that MAAS gave it. turn
// is the boot that it is for: when the system has gone down meanwhile, its
// address may be another machine's already.
func (s *Sims) plugIn(ctx context.Context, m *simhw.Machine, n *simnode.Node, turn int) {
	id := m.Spec().ID
	for until := time.Now().Add(lookupTimeout); ; {
		err := s.tryPlugIn(ctx, m, n, turn)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Now().After(until) {
			s.log.Warn("simulated node is not reachable by ssh", "machine", id, "error", err)
			return
		}
		if poll.Sleep(ctx, 100*time.Millisecond) != nil { // the node that had the address before is ending
			return
		}
	}
}

// tryPlugIn reports nil also when there is nothing left to do for this boot.
func (s *Sims) tryPlugIn(ctx context.Context, m *simhw.Machine, n *simnode.Node, turn int) error {
	rec, err := s.record(ctx, m)
	if err == nil && len(rec.IPAddresses) == 0 {
		err = errors.New("MAAS gave it no address")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := m.Spec().ID
	if s.turns[id] != turn {
		return nil
	}
	if err != nil {
		return err
	}
	address := rec.IPAddresses[0]
	for other, w := range s.wires {
		if w.address == address { // a machine that was not powered off when it was released
			_ = w.Close()
			delete(s.wires, other)
		}
	}
	l, err := s.forward(ctx, m, n, address)
	if err == nil {
		s.wires[id] = wire{l, address}
	}
	return err
}

// wire is the network path to a node.
type wire struct {
	io.Closer
	address string
}

// turn ends what the boot before had, and counts a machine's boots and ends.
func (s *Sims) turn(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, there := s.wires[id]; there {
		_ = w.Close()
		delete(s.wires, id)
	}
	s.turns[id]++
	return s.turns[id]
}

// forward is a wire: connections to the address reach the node's sshd for as long
// as MAAS says that the address is the machine's.
func (s *Sims) forward(ctx context.Context, m *simhw.Machine, n *simnode.Node, address string) (io.Closer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(NodeSSHPort)))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if rec, err := s.record(ctx, m); err != nil || !slices.Contains(rec.IPAddresses, address) {
					_ = c.Close()
					return
				}
				pipe(ctx, c, n.SSHAddress())
			}()
		}
	}()
	return l, nil
}

func pipe(ctx context.Context, c net.Conn, to string) {
	defer c.Close() //nolint:errcheck // the other side has gone
	var d net.Dialer
	dctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t, err := d.DialContext(dctx, "tcp", to)
	if err != nil {
		return
	}
	defer t.Close() //nolint:errcheck // the other side has gone
	done := make(chan struct{}, 2)
	copyOne := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		done <- struct{}{}
	}
	go copyOne(t, c)
	go copyOne(c, t)
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
