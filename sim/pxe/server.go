package pxesim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
)

// LiveWord on a kernel's command line says that what was loaded is a system that
// runs from memory, and no installer. It is this simulation's own convention.
const LiveWord = "slipway.live"

// Options are what a Server is made of.
type Options struct {
	Machine *simhw.Machine
	// Slipway is where the DHCP server sends the machine, such as
	// http://127.0.0.1:8080.
	Slipway string
	Dir     string // files of the systems on it; see simnode
	// AgentBinary is the real slipway-agent program.
	AgentBinary string
	SSHListen   [2]string // where sshd of the installed and of the live system answer; default: free ports
	Log         *slog.Logger
	Client      *http.Client // nil: one with a deadline
}

// Server is a whole SIMULATED server that boots from the network. At each network boot its firmware
// follows the script that it is given: it waits, runs an installer, starts a system from memory, or
// starts its disk. Data that was written to its disks stays until it is erased. All methods are
// safe for concurrent use.
type Server struct {
	Hardware *simhw.Machine
	Disk     *simnode.Node // what is installed
	Live     *simnode.Node // what is loaded over the network and runs from memory

	opt Options
	log *slog.Logger

	mu       sync.Mutex
	stop     context.CancelFunc // ends the firmware of this boot
	closed   bool
	work     sync.WaitGroup
	failures []string // what the next installations fail with
	said     []string // what the screen showed last
	userData string   // of the last installation
}

// The durations of the steps, on the machine's clock.
const (
	askAgain    = 30 * time.Second
	loadTime    = 20 * time.Second
	installTime = 4 * time.Minute
	leastAgain  = 500 * time.Millisecond // on the wall: a fast clock must not make a flood
)

// NewServer makes a server around a machine, which may be switched on from then
// on. Close ends it.
func NewServer(o Options) (*Server, error) {
	if o.Machine == nil || o.Slipway == "" {
		return nil, errors.New("a simulated server needs a machine and the URL that its DHCP server names")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s := &Server{Hardware: o.Machine, opt: o, log: o.Log.With("machine", o.Machine.Spec().ID, "simulated", true)}
	disks := filepath.Join(o.Dir, "disk", "disks")
	for i, one := range []struct {
		to   **simnode.Node
		name string
		live bool
	}{{&s.Disk, "disk", false}, {&s.Live, "live", true}} {
		so := simnode.Options{
			Machine: o.Machine, Dir: filepath.Join(o.Dir, one.name), AgentBinary: o.AgentBinary, SSHListen: o.SSHListen[i], Log: o.Log,
			Live: one.live, Shell: s.shell,
		}
		if one.live {
			so.Disks = disks
		}
		n, err := simnode.New(so)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("system on %s: %w", o.Machine.Spec().ID, err)
		}
		*one.to = n
	}
	o.Machine.Subscribe(s.heard)
	return s, nil
}

// Close ends the firmware and what runs. The files stay.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stopFirmware()
	s.work.Wait()
	for _, n := range []*simnode.Node{s.Disk, s.Live} {
		if n != nil {
			n.Close()
		}
	}
}

// MAC is the address of the card that the machine boots from.
func (s *Server) MAC() string {
	nics := s.Hardware.Spec().NICs
	if i := slices.IndexFunc(nics, func(n simhw.NIC) bool { return n.Boot }); i >= 0 {
		return nics[i].MAC
	}
	return ""
}

// SystemDisk is the disk that an installer takes: the last one, as simhw does by
// default; false for a machine without disks.
func (s *Server) SystemDisk() (simhw.Disk, bool) {
	disks := s.Hardware.Spec().Disks
	if len(disks) == 0 {
		return simhw.Disk{}, false
	}
	return disks[len(disks)-1], true
}

// FailInstalls makes the next installations fail, each with one of these errors.
func (s *Server) FailInstalls(with ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, with...)
}

// Screen is what the firmware showed last.
func (s *Server) Screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.said, "\n")
}

// UserData is what the last installer was told.
func (s *Server) UserData() string { s.mu.Lock(); defer s.mu.Unlock(); return s.userData }

// MoveDisks takes the disks out of one server and puts them into another that
// has none, with the system that is installed on them. Both must be off.
func MoveDisks(from, to *Server) error {
	disks := from.Hardware.Spec().Disks
	if err := simhw.MoveDisks(from.Hardware, to.Hardware); err != nil {
		return err
	}
	return simnode.MoveDisks(from.Disk, to.Disk, disks)
}

// heard takes an event of the machine and does not block.
func (s *Server) heard(ev simhw.Event) {
	switch {
	case ev.Kind == simhw.EventBoot:
		s.forgetErased()
		s.stopFirmware()
		if ev.Source == simhw.BootNetwork {
			s.startFirmware(ev.BootID)
		}
	case ev.Kind == simhw.EventPower && ev.Power != simhw.On:
		s.stopFirmware()
	default:
	}
}

// forgetErased: a disk that was erased holds no system any more.
func (s *Server) forgetErased() {
	os := s.Hardware.InstalledOS()
	if os == nil {
		return
	}
	if held, err := s.Disk.DiskHolds(os.Disk, simnode.SystemMark); err != nil || !held {
		s.log.Info("the system is gone from the disk", "disk", os.Disk)
		s.Hardware.Wipe()
	}
}

func (s *Server) stopFirmware() {
	s.mu.Lock()
	stop := s.stop
	s.stop = nil
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (s *Server) startFirmware(boot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(func() { s.firmware(ctx, boot) })
}

// firmware follows scripts until one of them leads out of the firmware.
func (s *Server) firmware(ctx context.Context, boot string) {
	spec := s.Hardware.Spec()
	m := &Machine{Server: s.opt.Slipway, MAC: s.MAC(), Client: s.opt.Client, SMBIOS: map[string]string{
		"manufacturer": spec.Vendor, "product": spec.Model, "serial": spec.Serial, "uuid": spec.UUID, "ip": "127.0.0.1",
	}}
	for ctx.Err() == nil && s.Hardware.RunsBoot(boot) {
		b, err := m.Boot(ctx)
		s.show(b.Said, err)
		left := false
		switch {
		case err != nil:
		case b.Kind == Installs && slices.Contains(strings.Fields(b.CommandLine), LiveWord):
			left, err = s.startLive(ctx, boot, m, b)
		case b.Kind == Installs:
			left, err = s.install(ctx, boot, m, b)
		case b.Kind == Local:
			left = s.Hardware.StartDisk(boot) // an empty one: the network again
		default:
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a network boot came to nothing; it is tried again", "error", err)
		}
		if left || s.again(ctx) != nil {
			return
		}
	}
}

func (s *Server) show(said []string, err error) {
	if err != nil {
		said = append(said, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = said
}

// pause waits on the machine's clock.
func (s *Server) pause(ctx context.Context, d time.Duration) error {
	return s.Hardware.Clock().Sleep(ctx, d)
}

// again waits before something is asked of Slipway once more.
func (s *Server) again(ctx context.Context) error {
	return s.pause(ctx, max(askAgain, time.Duration(float64(leastAgain)*s.Hardware.Clock().Speed())))
}

// startLive starts a system from memory, which is told what to do by its
// user-data as any cloud image is.
func (s *Server) startLive(ctx context.Context, boot string, m *Machine, b Boot) (left bool, err error) {
	user, meta, err := m.UserData(ctx, b)
	if err != nil {
		return false, err
	}
	if err := s.pause(ctx, loadTime); err != nil {
		return false, err
	}
	s.log.Info("a live system starts from memory", "command_line", withoutTokens(b.CommandLine))
	return s.Hardware.StartLive(boot, simhw.OS{System: "live", Hostname: hostname(meta), UserData: []byte(user)}), nil
}
