package providers

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// PowerState is the observed power state of a system. Only On and Off are
// final; PoweringOn and PoweringOff never count as reached.
type PowerState string

// The power states of Redfish.
const (
	PowerOn          PowerState = "On"
	PowerOff         PowerState = "Off"
	PowerPoweringOn  PowerState = "PoweringOn"
	PowerPoweringOff PowerState = "PoweringOff"
	PowerUnknown     PowerState = "Unknown"
)

// PowerIntent is what is asked for.
type PowerIntent string

// The power intents; the provider maps each to a reset type the BMC allows.
const (
	IntentOn          PowerIntent = "on"
	IntentGracefulOff PowerIntent = "graceful_off"
	IntentForceOff    PowerIntent = "force_off"
	IntentNMI         PowerIntent = "nmi"
)

// BootTarget is a one-time boot device.
type BootTarget string

// The boot targets.
const (
	BootPXE      BootTarget = "Pxe"
	BootUEFIHTTP BootTarget = "UefiHttp"
	BootCD       BootTarget = "Cd"
	BootHDD      BootTarget = "Hdd"
	BootSetup    BootTarget = "BiosSetup"
	BootNone     BootTarget = "None"
)

// BMCTarget is one BMC and how to log in to it.
type BMCTarget struct {
	Address  string // host:port or https URL
	User     string
	Password Secret
	SystemID string // configured system, "" = the only one with a Reset action
	// PinSHA256 is the approved SHA-256 of the leaf's SubjectPublicKeyInfo in
	// hex; "" allows Probe only, unless CAPEM is set.
	PinSHA256 string
	CAPEM     string // second mode: a CA bundle of the site
	// CipherSuite is for IPMI: 17, or 3 for a device that has nothing better;
	// 0 is 17. Redfish ignores it.
	CipherSuite int
	// Rule bounds the addresses that may be connected to; the zero value refuses all.
	Rule spec.AddressRule
}

// BMCOpener opens a BMC; it logs in on the first call that needs it. Close
// logs out and frees the session.
type BMCOpener interface {
	OpenBMC(t BMCTarget) (BMC, error)
}

// ProbeBMC opens a BMC without a login, probes it and closes it.
func ProbeBMC(ctx context.Context, opener BMCOpener, target BMCTarget) (BMCIdent, error) {
	b, err := opener.OpenBMC(target)
	if err != nil {
		return BMCIdent{}, err
	}
	id, err := b.Probe(ctx)
	_ = b.Close(context.WithoutCancel(ctx)) // nothing is open: there was no login
	return id, err
}

// BMC is what Slipway asks of a management controller. A mutation reads,
// acts and reads again; repeating it when the goal is already reached does
// nothing and is no error.
type BMC interface {
	// Probe reads the service root without any login and the leaf's pin.
	Probe(ctx context.Context) (BMCIdent, error)
	// Identify reads the system's identity, power and health.
	Identify(ctx context.Context) (BMCSystem, error)
	Power(ctx context.Context) (PowerState, error)
	// SetPower asks for a state and waits until it is observed, within ctx.
	SetPower(ctx context.Context, intent PowerIntent) (PowerState, error)
	// SetBootOnce sets and verifies a one-time boot override.
	SetBootOnce(ctx context.Context, target BootTarget, uefi bool) (BootOverride, error)
	// BootOverride reads the override now in force.
	BootOverride(ctx context.Context) (BootOverride, error)
	// Health lists what is not well; a part that could not be read is Unknown.
	Health(ctx context.Context) (BMCHealth, error)
	// Inventory lists drives, media slots, sensors, logs and accounts as far
	// as the BMC tells; partial reads are marked, never shown as empty.
	Inventory(ctx context.Context) (BMCInventory, error)
	// Survey reads every part with its health. Of a switch tray or a power shelf there is no host,
	// which device says: a BMC without a system is then no error.
	Survey(ctx context.Context, device bool) (Survey, error)
	// Logs reads the entries of the BMC's logs that known does not know. It asks known with Service
	// and ID alone where an entry has to be read first. Time that runs out leaves what was read.
	Logs(ctx context.Context, known func(BMCLogEntry) bool) (BMCLogs, error)
	Close(ctx context.Context) error
}

// BMCIdent is what can be known without a login.
type BMCIdent struct {
	Vendor, Product, RedfishVersion, UUID string
	PinSHA256                             string // "" over plain HTTP and IPMI
	IPMIVersion                           string // "" over Redfish
}

// BMCSystem identifies a system. Serial is trimmed and comes from the system or a chassis that it
// links; where both leave it empty it is empty. Never use the address as identity.
type BMCSystem struct {
	ID, URI                     string
	Manufacturer, Model, Serial string
	SerialSource                string // "system System_0", "chassis BMC_0", "FRU"; "" without a serial number
	UUID                        string
	MACs                        []string
	Power                       PowerState
	Health                      string // what the system says of itself; Health asks every part
	MemoryGiB                   float64
	ProcessorCount              int
	Partial                     []string // what could not be read, each with the reason
}

// BootOverride is the override in force, read from the resource that carries
// it (the settings object where the BMC has one).
type BootOverride struct {
	Target  BootTarget
	Enabled string // Once, Continuous, Disabled
	Mode    string // UEFI, Legacy, ""
	FromURI string
}

// BMCHealth is Slipway's own roll-up over the members.
type BMCHealth struct {
	Overall  string // OK, Warning, Critical, Unknown
	Problems []string
	Unknown  []string
}

// BMCInventory is what the BMC lists besides the system itself.
type BMCInventory struct {
	Drives      []BMCDrive
	MediaSlots  []BMCMediaSlot
	Sensors     int
	LogServices []string
	Accounts    []string
	// LockoutThreshold is nil when the BMC does not say; 0 means no lockout.
	LockoutThreshold *int
	LockoutDuration  time.Duration
	Partial          []string // URIs that could not be read, with the reason
}

// BMCDrive is a physical drive; CapacityBytes 0 = not told.
type BMCDrive struct {
	Name, Model, Serial, Protocol string
	CapacityBytes                 int64
}

// BMCMediaSlot is a virtual media slot.
type BMCMediaSlot struct {
	URI       string
	Types     []string
	Inserted  bool
	HasInsert bool // InsertMedia action is offered; otherwise PATCH
}
