package maassim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// Server is one simulated region with its database. All methods are safe for
// concurrent use. No method of simhw that moves a machine is called with mu
// held: the machine's events come back into the server.
type Server struct {
	simcontrol.Script
	opt   Options
	fleet *simhw.Fleet
	ctx   context.Context
	close context.CancelFunc

	mu       sync.Mutex
	rng      *rand.Rand
	machines []*machine // by creation
	watched  map[*simhw.Machine]bool
	history  []Change
	events   []event
	ids      map[string]int // last id by kind
	config   map[string]any
	counts   counts
	revoked  bool
}

// New makes a region over the fleet; every machine of the fleet is unknown to
// it until it is created or netboots. Close ends its timers.
func New(opt Options) (*Server, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opt: opt, fleet: opt.Fleet, ctx: ctx, close: stop,
		rng:     rand.New(rand.NewPCG(opt.Seed, opt.Seed^0x6d616173)),
		watched: map[*simhw.Machine]bool{}, ids: map[string]int{},
		config: siteConfig(opt), counts: newCounts(),
	}
	s.Script = simcontrol.Script{Lock: &s.mu, Specs: faultTable(), Selector: "machine", CheckParam: checkFaultParam}
	for _, hw := range s.fleet.All() {
		s.Watch(hw)
	}
	return s, nil
}

// Close ends every timer of the region.
func (s *Server) Close() { s.close() }

// Watch connects a machine that was added to the fleet after New to the
// region's network, so that its network boots are answered. It may be repeated.
func (s *Server) Watch(hw *simhw.Machine) {
	s.mu.Lock()
	known := s.watched[hw]
	s.watched[hw] = true
	s.mu.Unlock()
	if !known {
		hw.Subscribe(func(ev simhw.Event) { s.onHardware(hw, ev) })
	}
}

func (s *Server) now() time.Time { return s.fleet.Clock().Now() }

// tx is one database transaction: state changes under the lock, power and other
// effects after it, as MAAS runs its post-commit hooks.
type tx struct {
	s     *Server
	after []func() *reply
}

// post registers an effect that runs after the commit; a non-nil answer
// replaces the one already rendered.
func (t *tx) post(f func() *reply) { t.after = append(t.after, f) }

// do registers an effect without an answer.
func (t *tx) do(f func()) { t.post(func() *reply { f(); return nil }) }

// commit runs f under the lock and its effects after it.
func (s *Server) commit(f func(*tx) *reply) *reply {
	t := &tx{s: s}
	s.mu.Lock()
	out := f(t)
	s.mu.Unlock()
	for _, g := range t.after {
		if r := g(); r != nil {
			out = r
		}
	}
	return out
}

// within runs f after a virtual duration, in a transaction, unless the record
// is gone or has changed its status since.
func (s *Server) within(m *machine, d time.Duration, f func(*tx)) {
	gen := m.gen
	s.later(m, d, func() bool { return m.gen == gen }, f)
}

// onBoot is within for the environment of one boot: it also ends when the
// machine lost power or booted again.
func (s *Server) onBoot(m *machine, hw *simhw.Machine, boot string, d time.Duration, f func(*tx)) {
	gen := m.gen
	s.later(m, d, func() bool { return m.gen == gen && hw.BootID() == boot && hw.Power() == simhw.On }, f)
}

func (s *Server) later(m *machine, d time.Duration, still func() bool, f func(*tx)) {
	s.fleet.Clock().AfterFunc(s.ctx, d, func() {
		s.commit(func(t *tx) *reply {
			if s.machineByID(m.id) == m && still() {
				f(t)
			}
			return nil
		})
	})
}

func (s *Server) machineByID(id string) *machine {
	for _, m := range s.machines {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (s *Server) nextID(kind string) int {
	s.ids[kind]++
	return s.ids[kind]
}

const (
	znums = "3478abcdefghkmnpqrstwxy6"
	hex   = "0123456789abcdef"
)

func (s *Server) random(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[s.rng.IntN(len(alphabet))]
	}
	return string(b)
}

func (s *Server) newSystemID() string {
	for {
		id := s.random(znums, 6)
		if s.machineByID(id) == nil && s.counts.machines[id] == nil {
			return id
		}
	}
}

func (s *Server) newUUID() string {
	h := s.random(hex, 32)
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// newMachine adds a record; the status New counts as its first change.
func (s *Server) newMachine(hostname, arch string) *machine {
	m := &machine{
		id: s.newSystemID(), hostname: hostname, domain: "maas", arch: arch, zone: "default", pool: "default",
		ownerData: map[string]string{}, status: none, power: map[string]string{}, powerState: "unknown", netboot: true,
		created: s.now(), updated: s.now(), info: map[string]string{}, token: s.random(znums, 18), secret: s.random(znums, 32), syncLeft: -1,
	}
	if m.hostname == "" {
		m.hostname = words[s.rng.IntN(len(words))] + "-" + words[s.rng.IntN(len(words))] + s.random(znums, 2)
	}
	s.machines = append(s.machines, m)
	s.writeStatus(m, StatusNew, "created", "")
	return m
}

var words = [...]string{"apt", "bold", "calm", "deft", "eager", "fair", "glad", "hale", "keen", "lush", "mild", "neat", "proud", "quick", "sharp", "wise"}

func (s *Server) remove(m *machine) {
	for i, x := range s.machines {
		if x == m {
			s.machines = append(s.machines[:i:i], s.machines[i+1:]...)
			m.gen++
			return
		}
	}
}

// recordOf finds the record of a physical machine: by its boot NIC, then by any
// NIC, then by the BMC's address.
func (s *Server) recordOf(hw *simhw.Machine) *machine {
	spec := hw.Spec()
	for _, boot := range []bool{true, false} {
		for _, n := range spec.NICs {
			if n.Boot != boot {
				continue
			}
			for _, m := range s.machines {
				if m.nicByMAC(n.MAC) != nil {
					return m
				}
			}
		}
	}
	for _, m := range s.machines {
		if m.power["power_address"] != "" && s.fleet.ByBMC(m.power["power_address"]) == hw {
			return m
		}
	}
	return nil
}
