package simnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// Options are what a simulated node is made of.
type Options struct {
	Machine *simhw.Machine
	// Dir holds the node's files, state and logs; it is made. Its path may hold
	// letters, digits and /._- only, since it becomes part of commands.
	Dir string
	// AgentBinary is the real slipway-agent program.
	AgentBinary string
	// SSHListen is where sshd answers while the system is up; default
	// 127.0.0.1:0, a port that is chosen once and kept.
	SSHListen string
	Log       *slog.Logger
	// Live makes it the system that the machine runs from memory when one was
	// loaded over the network; otherwise it is the one on the machine's disk.
	Live bool
	// Disks is where the machine's disks lie when they are shared with another
	// Node of the machine; default: in Dir.
	Disks string
	// Shell does a runcmd line of user-data that the simulation knows. A script
	// that it answers with is run as the agent's install script; done is false for
	// a line that it does not know. nil knows none.
	Shell func(ctx context.Context, line string) (script []byte, done bool, err error)
	// HWSync is told when MAAS's hardware sync timer on the node starts or stops.
	// It must not block.
	HWSync func(enabled bool)
}

// Faults are what goes wrong on a node. They hold from when they are set until
// they are set otherwise.
type Faults struct {
	// AgentDown keeps the agent from running: set before the first boot the node
	// never enrols, set later its heartbeats stop.
	AgentDown bool
	// MissingGPUs takes that many GPUs away.
	MissingGPUs int
	// ECCUnknown makes all ECC facts read N/A.
	ECCUnknown bool
	// SSHRefusesKeys makes sshd accept no key.
	SSHRefusesKeys bool
	// SSHKeepsAccess makes sshd go on with the accounts and keys of tenants that are there when it
	// is set, whatever is done with the files, until the system goes down. From outside this is an
	// agent that answers that it removed an account, and did not.
	SSHKeepsAccess bool
	// SSHLosesAnswerTo breaks the connection of every command whose line holds
	// this text, after it has run and before its status is sent.
	SSHLosesAnswerTo string
	// Scrub is what goes wrong when the node is scrubbed or validated.
	Scrub ScrubFaults
}

// Node is one simulated node. All methods are safe for concurrent use.
type Node struct {
	opt                     Options
	log                     *slog.Logger
	dir, root, tools, state string

	mail   *mailbox
	closed context.Context // ended by Close
	end    context.CancelFunc
	loop   sync.WaitGroup

	mu       sync.Mutex
	faults   Faults
	up       bool
	stopBoot context.CancelFunc // ends all that runs in this boot
	agent    *agentProcess
	ssh      *sshServer
	sshAddr  string
	hwSync   bool
	tenant   string              // whose data Occupy leaves
	bootedAt time.Time           // by the machine's clock
	kept     map[string][]string // keys by account that sshd accepts whatever the files say

	metadataAddr string
	logins       atomic.Int64
}

var dirPattern = regexp.MustCompile(`^/[A-Za-z0-9/._-]+$`)

// New makes a node and listens to its machine. Close ends it.
func New(o Options) (*Node, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the node's directory: %w", err)
	}
	switch {
	case o.Machine == nil || o.AgentBinary == "":
		return nil, errors.New("a simulated node needs a machine and the agent's program")
	case !dirPattern.MatchString(dir):
		return nil, fmt.Errorf("the directory %q of a simulated node may hold letters, digits and /._- only", dir)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.SSHListen == "" {
		o.SSHListen = "127.0.0.1:0"
	}
	n := &Node{opt: o, dir: dir, root: filepath.Join(dir, "root"), tools: filepath.Join(dir, "tools"), state: filepath.Join(dir, "state"),
		log: o.Log.With("machine", o.Machine.Spec().ID, "simulated", true), mail: newMailbox()}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	if err := n.shareDisks(); err != nil {
		return nil, err
	}
	if n.sshAddr, err = choosePort(o.SSHListen); err != nil {
		return nil, err
	}
	if n.metadataAddr, err = choosePort("127.0.0.1:0"); err != nil {
		return nil, err
	}
	n.closed, n.end = context.WithCancel(context.Background())
	n.loop.Go(n.listen)
	o.Machine.Subscribe(n.heard)
	return n, nil
}

func choosePort(addr string) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("choose the node's ssh port: %w", err)
	}
	return ln.Addr().String(), ln.Close()
}

// heard takes an event of the machine. Everything that runs in a boot ends at once when the system
// goes down; the rest follows in order.
func (n *Node) heard(ev simhw.Event) {
	if ev.Kind == simhw.EventErased {
		if err := n.eraseDisks(); err != nil {
			n.log.Error("a simulated disk could not be erased", "error", err)
		}
		return
	}
	if ev.Kind != simhw.EventOSUp && ev.Kind != simhw.EventOSDown || ev.Kind == simhw.EventOSUp && (ev.OS == nil || ev.OS.Live != n.opt.Live) {
		return
	}
	if ev.Kind == simhw.EventOSDown {
		n.mu.Lock()
		if n.stopBoot != nil {
			n.stopBoot()
		}
		n.mu.Unlock()
	}
	n.mail.put(ev)
}

func (n *Node) listen() {
	for {
		ev, ok := n.mail.take(n.closed)
		if !ok {
			return
		}
		n.goDown()
		if ev.Kind == simhw.EventOSUp {
			n.comeUp(ev)
		}
	}
}

// goDown ends what ran in the last boot.
func (n *Node) goDown() {
	n.mu.Lock()
	agent, ssh, stop := n.agent, n.ssh, n.stopBoot
	n.agent, n.ssh, n.stopBoot, n.up = nil, nil, nil, false
	n.kept = nil
	n.mu.Unlock()
	if stop != nil {
		stop()
	}
	if ssh != nil {
		ssh.close()
	}
	if agent != nil {
		agent.kill()
	}
	n.setHWSync(false)
}

// Close ends the agent and ssh and listens to the machine no more. The files
// stay.
func (n *Node) Close() {
	n.end()
	n.loop.Wait()
	n.goDown()
}

// SSHAddress is host:port of the node's sshd, the same before, during and after
// each boot.
func (n *Node) SSHAddress() string { return n.sshAddr }

// MetadataAddress is host:port where the node's agent serves the metadata of its allocation. A
// command on the node reaches it at http://169.254.169.254.
func (n *Node) MetadataAddress() string { return n.metadataAddr }

// Root is the directory that stands for the node's "/".
func (n *Node) Root() string { return n.root }

// AgentPID is the process of the agent, 0 when it does not run.
func (n *Node) AgentPID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil {
		return 0
	}
	select {
	case <-n.agent.done:
		return 0
	default:
		return n.agent.cmd.Process.Pid
	}
}

// Faults are the faults now.
func (n *Node) Faults() Faults { n.mu.Lock(); defer n.mu.Unlock(); return n.faults }

// SetFaults replaces the faults; they take effect at once.
func (n *Node) SetFaults(f Faults) error {
	kept := map[string][]string{}
	if f.SSHKeepsAccess {
		kept = n.tenantKeys()
	}
	n.mu.Lock()
	n.faults, n.kept = f, kept
	up := n.up
	n.mu.Unlock()
	if !up {
		return nil
	}
	spec := n.opt.Machine.Spec()
	err := errors.Join(n.writeGPUs(spec), n.writeScrub(spec))
	n.settle()
	return err
}

func (n *Node) setHWSync(on bool) {
	n.mu.Lock()
	changed := n.hwSync != on
	n.hwSync = on
	n.mu.Unlock()
	if changed && n.opt.HWSync != nil {
		n.opt.HWSync(on)
	}
}

// mailbox keeps events in order without ever making the machine wait.
type mailbox struct {
	mu   sync.Mutex
	all  []simhw.Event
	some chan struct{}
}

func newMailbox() *mailbox { return &mailbox{some: make(chan struct{}, 1)} }

func (m *mailbox) put(ev simhw.Event) {
	m.mu.Lock()
	m.all = append(m.all, ev)
	m.mu.Unlock()
	select {
	case m.some <- struct{}{}:
	default:
	}
}

func (m *mailbox) take(ctx context.Context) (simhw.Event, bool) {
	for {
		m.mu.Lock()
		if len(m.all) > 0 && ctx.Err() == nil {
			ev := m.all[0]
			m.all = m.all[1:]
			m.mu.Unlock()
			return ev, true
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return simhw.Event{}, false
		case <-m.some:
		}
	}
}
