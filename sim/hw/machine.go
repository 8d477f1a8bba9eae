package simhw

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Power is a machine's power state.
type Power string

// The power states.
const (
	Off         Power = "Off"
	PoweringOn  Power = "PoweringOn"
	On          Power = "On"
	PoweringOff Power = "PoweringOff"
)

// NIC is a network card. VLAN 0 means the cable leads nowhere.
type NIC struct {
	Name, MAC string
	SpeedMbps int
	VLAN      int
	Boot      bool // the firmware tries PXE here
}

// Disk is a drive.
type Disk struct {
	Name, Model, Serial string
	Bytes               int64
	NVMe                bool
}

// Spec describes a machine as built. Vendor is Dell, Supermicro, HPE, Lenovo or
// NVIDIA and selects the BMC's personality.
type Spec struct {
	ID                          string // stable handle, e.g. "r1u01"
	Vendor, Model, Serial       string
	UUID                        string
	Architecture                string // amd64/generic
	CPUs                        int
	MemoryMiB                   int64
	NICs                        []NIC
	Disks                       []Disk
	GPUs                        int
	GPUModel                    string
	BMCAddress                  string // host:port or URL, set when its simulator listens
	BMCUser, BMCPassword        string
	PowerOnDelay, PowerOffDelay time.Duration // virtual; defaults 3 s and 2 s
}

// OS is what an installer put on the boot disk. UserData is the cloud-init
// document that its first boot reads, secrets included: never log it.
type OS struct {
	System, Series, Hostname string
	UserData                 []byte
	VendorData               []byte
	Disk                     string // name of the disk it was installed on
	InstalledAt              time.Time
	CloudInit                string // what becomes of cloud-init on the first boot; see below
	Live                     bool   // runs from memory and is on no disk; see StartLive
}

// The values of OS.CloudInit beyond "" (it works): with either, no key and no agent of the
// user-data ever reaches the machine.
const (
	CloudInitNoDatasource = "no_datasource" // finds no datasource, asks nobody for user-data
	CloudInitFails        = "fails"         // asks for user-data, then fails
)

// BootSource says where a boot went first.
type BootSource string

// The boot sources.
const (
	BootNetwork BootSource = "network"
	BootDisk    BootSource = "disk"
	BootOther   BootSource = "other" // virtual CD, setup
)

// Override is a boot override as a BMC sets it.
type Override struct {
	Target  string // None, Pxe, UefiHttp, Cd, Hdd, BiosSetup
	Enabled string // Disabled, Once, Continuous
	Mode    string // UEFI, Legacy
}

// EventKind names what happened to a machine.
type EventKind string

// The events. Boot follows each power-on once firmware is through; OSUp follows
// BootFromDisk when an OS is installed; OSDown precedes Off. Erased follows Erase.
const (
	EventPower  EventKind = "power"
	EventBoot   EventKind = "boot"
	EventOSUp   EventKind = "os_up"
	EventOSDown EventKind = "os_down"
	EventErased EventKind = "erased"
)

// Event is told to every subscriber, in order, outside the machine's lock.
type Event struct {
	Kind      EventKind
	Power     Power
	Source    BootSource
	BootID    string
	FirstBoot bool // OSUp: the first boot of this installation
	OS        *OS
	By        string
	At        time.Time
}

// Counters are the external effects that tests count.
type Counters struct {
	PowerOns, PowerOffs, Boots, Installs int
}

// ErrBMCAuth is a wrong BMC user or password, ErrBMCUnreachable a BMC that does
// not answer.
var (
	ErrBMCAuth        = errors.New("BMC rejected the login")
	ErrBMCUnreachable = errors.New("BMC does not answer")
)

// Machine is one simulated server. All methods are safe for concurrent use.
type Machine struct {
	clock *Clock
	ctx   context.Context

	mu       sync.Mutex
	spec     Spec
	power    Power
	gen      int // rises at each power request; stale timers compare it
	override Override
	identify bool
	bootID   string
	os       *OS
	osBooted bool // this installation has booted before
	osUp     bool
	bmcDown  bool
	// bmcLogins are those that software on the host made, beside the spec's.
	bmcLogins map[string]string
	counters  Counters
	subs      []func(Event)
	entries   []string // of the firmware's boot menu, made by a system
}

// NewMachine builds a machine that is off with nothing installed. ctx ends its
// timers.
func NewMachine(ctx context.Context, clock *Clock, s Spec) *Machine {
	if s.PowerOnDelay == 0 {
		s.PowerOnDelay = 3 * time.Second
	}
	if s.PowerOffDelay == 0 {
		s.PowerOffDelay = 2 * time.Second
	}
	return &Machine{clock: clock, ctx: ctx, spec: s, power: Off, override: Override{Target: "None", Enabled: "Disabled"}}
}

// Spec returns the machine as built.
func (m *Machine) Spec() Spec { m.mu.Lock(); defer m.mu.Unlock(); return m.spec }

// Clock is the machine's clock.
func (m *Machine) Clock() *Clock { return m.clock }

// SetBMC records where the BMC listens and its login.
func (m *Machine) SetBMC(address, user, password string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spec.BMCAddress, m.spec.BMCUser, m.spec.BMCPassword = address, user, password
}

// AddBMCLogin sets a further login, as software on the host makes one in-band. The first login
// stays.
func (m *Machine) AddBMCLogin(user, password string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bmcLogins == nil {
		m.bmcLogins = map[string]string{}
	}
	m.bmcLogins[user] = password
}

// DropBMCLogin removes a login that AddBMCLogin set.
func (m *Machine) DropBMCLogin(user string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bmcLogins, user)
}

// BMCLogins returns the further logins with their passwords.
func (m *Machine) BMCLogins() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.bmcLogins)
}

// SetBMCDown makes the BMC unreachable, also for MAAS.
func (m *Machine) SetBMCDown(down bool) { m.mu.Lock(); defer m.mu.Unlock(); m.bmcDown = down }

// CheckBMC says whether a BMC login from outside would succeed.
func (m *Machine) CheckBMC(user, password string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bmcDown {
		return ErrBMCUnreachable
	}
	if own := m.bmcLogins[user]; own != "" && password == own {
		return nil
	}
	if user != m.spec.BMCUser || password != m.spec.BMCPassword {
		return ErrBMCAuth
	}
	return nil
}

// Subscribe adds a listener. Listeners must not block.
func (m *Machine) Subscribe(f func(Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subs = append(m.subs, f)
}

func (m *Machine) emit(evs ...Event) {
	m.mu.Lock()
	subs := slices.Clone(m.subs)
	m.mu.Unlock()
	for _, e := range evs {
		e.At = m.clock.Now()
		for _, f := range subs {
			f(e)
		}
	}
}

// Power is the present power state.
func (m *Machine) Power() Power { m.mu.Lock(); defer m.mu.Unlock(); return m.power }

// BootID changes at each boot; "" before the first.
func (m *Machine) BootID() string { m.mu.Lock(); defer m.mu.Unlock(); return m.bootID }

// OSUp reports whether the installed system runs.
func (m *Machine) OSUp() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.osUp }

// InstalledOS is what is on the boot disk, nil for nothing.
func (m *Machine) InstalledOS() *OS { m.mu.Lock(); defer m.mu.Unlock(); return m.os }

// Counters returns the effects so far.
func (m *Machine) Counters() Counters { m.mu.Lock(); defer m.mu.Unlock(); return m.counters }

// BootOverride and SetBootOverride are the BMC's view of the next boot.
func (m *Machine) BootOverride() Override { m.mu.Lock(); defer m.mu.Unlock(); return m.override }

// SetBootOverride sets the next boot.
func (m *Machine) SetBootOverride(o Override) { m.mu.Lock(); defer m.mu.Unlock(); m.override = o }

// BootEntries are the entries of the firmware's boot menu that systems made, such as Boot0042. They
// outlive what is installed, as they do on a board.
func (m *Machine) BootEntries() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}

// SetBootEntries replaces the entries that systems made.
func (m *Machine) SetBootEntries(entries ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = slices.Clone(entries)
}

// Identify is the state of the locator light.
func (m *Machine) Identify() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.identify }

// SetIdentify switches the locator light.
func (m *Machine) SetIdentify(on bool) { m.mu.Lock(); defer m.mu.Unlock(); m.identify = on }

// PowerOn starts the machine; it does nothing when it is on or coming on.
func (m *Machine) PowerOn(by string) {
	m.mu.Lock()
	if m.power == On || m.power == PoweringOn {
		m.mu.Unlock()
		return
	}
	m.power = PoweringOn
	m.gen++
	m.counters.PowerOns++
	gen, delay := m.gen, m.spec.PowerOnDelay
	m.mu.Unlock()
	m.emit(Event{Kind: EventPower, Power: PoweringOn, By: by})
	m.clock.AfterFunc(m.ctx, delay, func() { m.booted(gen, by) })
}

func (m *Machine) booted(gen int, by string) {
	m.mu.Lock()
	if m.gen != gen {
		m.mu.Unlock()
		return
	}
	m.power = On
	m.bootID = newUUID()
	m.counters.Boots++
	src := BootNetwork // PXE is first in the boot order of a managed machine
	if m.override.Enabled != "Disabled" && m.override.Target != "None" {
		switch strings.ToLower(m.override.Target) {
		case "pxe", "uefihttp":
			src = BootNetwork
		case "hdd":
			src = BootDisk
		default:
			src = BootOther
		}
		if m.override.Enabled == "Once" {
			m.override = Override{Target: "None", Enabled: "Disabled", Mode: m.override.Mode}
		}
	}
	id := m.bootID
	m.mu.Unlock()
	m.emit(Event{Kind: EventPower, Power: On, By: by}, Event{Kind: EventBoot, Power: On, Source: src, BootID: id, By: by})
	if src == BootDisk {
		m.BootFromDisk()
	}
}

// BootFromDisk hands the boot on to the disk, as firmware does after "local
// boot" or without an answer from the network.
func (m *Machine) BootFromDisk() {
	m.mu.Lock()
	if m.power != On || m.os == nil || m.osUp {
		m.mu.Unlock()
		return
	}
	ev := m.startDisk()
	m.mu.Unlock()
	m.emit(ev)
}

func (m *Machine) startDisk() Event {
	first := !m.osBooted
	m.osUp, m.osBooted = true, true
	return Event{Kind: EventOSUp, Power: On, BootID: m.bootID, FirstBoot: first, OS: m.os}
}

// PowerOff stops the machine; hard skips the system's own shutdown.
func (m *Machine) PowerOff(by string, hard bool) {
	m.mu.Lock()
	if m.power == Off || m.power == PoweringOff {
		m.mu.Unlock()
		return
	}
	m.power = PoweringOff
	m.gen++
	m.counters.PowerOffs++
	gen, delay := m.gen, m.spec.PowerOffDelay
	if !hard {
		delay *= 2
	}
	wasUp := m.osUp
	m.osUp = false
	m.mu.Unlock()
	evs := []Event{{Kind: EventPower, Power: PoweringOff, By: by}}
	if wasUp {
		evs = append([]Event{{Kind: EventOSDown, Power: PoweringOff, By: by}}, evs...)
	}
	m.emit(evs...)
	m.clock.AfterFunc(m.ctx, delay, func() {
		m.mu.Lock()
		if m.gen != gen {
			m.mu.Unlock()
			return
		}
		m.power = Off
		m.mu.Unlock()
		m.emit(Event{Kind: EventPower, Power: Off, By: by})
	})
}

// Reset restarts a running machine without passing Off: a new boot id.
func (m *Machine) Reset(by string) {
	m.mu.Lock()
	if m.power != On {
		m.mu.Unlock()
		m.PowerOn(by)
		return
	}
	m.power = PoweringOn
	m.gen++
	gen, delay, wasUp := m.gen, m.spec.PowerOnDelay, m.osUp
	m.osUp = false
	m.mu.Unlock()
	if wasUp {
		m.emit(Event{Kind: EventOSDown, By: by})
	}
	m.clock.AfterFunc(m.ctx, delay, func() { m.booted(gen, by) })
}

// Install puts an operating system on the boot disk; its first boot is still to
// come.
func (m *Machine) Install(o OS) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.install(o)
}

func (m *Machine) install(o OS) {
	o.InstalledAt = m.clock.Now()
	m.os, m.osBooted, m.osUp = &o, false, false
	m.counters.Installs++
}

// Wipe removes the operating system.
func (m *Machine) Wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.os, m.osBooted, m.osUp = nil, false, false
}

// Erase removes the operating system and what is on every disk.
func (m *Machine) Erase() {
	m.Wipe()
	m.emit(Event{Kind: EventErased})
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
