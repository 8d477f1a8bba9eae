package providers

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// MAASStatus is MAAS's numeric node status. Switch on the number, never on the
// name.
type MAASStatus int

// The 23 statuses of MAAS 2.0.
const (
	MAASNew MAASStatus = iota
	MAASCommissioning
	MAASFailedCommissioning
	MAASMissing
	MAASReady
	MAASReserved
	MAASDeployed
	MAASRetired
	MAASBroken
	MAASDeploying
	MAASAllocated
	MAASFailedDeployment
	MAASReleasing
	MAASReleasingFailed
	MAASDiskErasing
	MAASFailedDiskErasing
	MAASRescueMode
	MAASEnteringRescueMode
	MAASFailedEnteringRescueMode
	MAASExitingRescueMode
	MAASFailedExitingRescueMode
	MAASTesting
	MAASFailedTesting
)

var maasNames = [...]string{
	"New", "Commissioning", "Failed commissioning", "Missing", "Ready", "Reserved", "Deployed", "Retired",
	"Broken", "Deploying", "Allocated", "Failed deployment", "Releasing", "Releasing failed", "Disk erasing",
	"Failed disk erasing", "Rescue mode", "Entering rescue mode", "Failed to enter rescue mode",
	"Exiting rescue mode", "Failed to exit rescue mode", "Testing", "Failed testing",
}

// String is MAAS's own label for the status.
func (s MAASStatus) String() string {
	if s < 0 || int(s) >= len(maasNames) {
		return "Unknown"
	}
	return maasNames[s]
}

// MAASAbsent is shown where a machine is not in MAAS (HTTP 404).
const MAASAbsent = "absent"

// MAASSite is where and as whom to talk to one region controller.
type MAASSite struct {
	URL    string // base, e.g. https://maas.example:5240/MAAS
	APIKey Secret // consumer:token:secret
	CAPEM  string // optional bundle for a private CA
	// Rule bounds the addresses that may be connected to; the zero value refuses all.
	Rule spec.AddressRule
	// Answered, when set, is called with the error of each call, nil when it succeeded.
	Answered func(context.Context, error)
}

// MAASOpener opens a client for a site; it costs nothing until the first call.
type MAASOpener interface {
	OpenMAAS(site MAASSite) (MAAS, error)
}

// MAAS is what Slipway asks of a MAAS region controller. All calls honour the
// deadline of ctx. Reads may be repeated. Mutations are not repeated by the
// provider: on KindUncertain the caller re-reads.
type MAAS interface {
	// Probe proves that the site is usable: version, admin rights, SSH keys,
	// settings, images. It changes nothing.
	Probe(ctx context.Context) (MAASInfo, error)
	// FindMachines lists machines that match any of the given facts, found
	// separately and joined by system id.
	FindMachines(ctx context.Context, q MAASQuery) ([]MAASMachine, error)
	// CreateMachine adds a machine without commissioning it where MAAS allows;
	// the returned status says which happened.
	CreateMachine(ctx context.Context, in MAASCreate) (MAASMachine, error)
	// Machine reads one machine; KindNotFound means absent.
	Machine(ctx context.Context, systemID string) (MAASMachine, error)
	// Commission starts commissioning; BMC settings are left alone.
	Commission(ctx context.Context, systemID string, in MAASCommission) (MAASMachine, error)
	OverrideFailedTesting(ctx context.Context, systemID, comment string) error
	BlockDevices(ctx context.Context, systemID string) ([]MAASBlockDevice, error)
	SetBootDisk(ctx context.Context, systemID string, deviceID int) error
	SetStorageLayout(ctx context.Context, systemID, layout string, rootDeviceID int) error
	Interfaces(ctx context.Context, systemID string) ([]MAASInterface, error)
	// LinkSubnet is not idempotent in MAAS: read the links first.
	LinkSubnet(ctx context.Context, systemID string, ifaceID, subnetID int, mode string) error
	UnlinkSubnet(ctx context.Context, systemID string, ifaceID, linkID int) error
	// UpdateInterface sets MTU (0 = leave) and adds tags.
	UpdateInterface(ctx context.Context, systemID string, ifaceID, mtu int, addTags []string) error
	// LinkStatic gives an interface a fixed address on a subnet.
	LinkStatic(ctx context.Context, systemID string, ifaceID, subnetID int, ip string) error
	Subnets(ctx context.Context) ([]MAASSubnet, error)
	Allocate(ctx context.Context, systemID, agentName, comment string) (MAASMachine, error)
	// SetWorkloadAnnotations needs ownership; MAAS wipes them on release.
	SetWorkloadAnnotations(ctx context.Context, systemID string, kv map[string]string) error
	Deploy(ctx context.Context, systemID string, in MAASDeploy) (MAASMachine, error)
	// Abort answers with the old status; re-read.
	Abort(ctx context.Context, systemID, comment string) error
	Release(ctx context.Context, systemID string, in MAASRelease) error
	PowerOn(ctx context.Context, systemID string) error
	PowerOff(ctx context.Context, systemID string, hard bool) error
	// QueryPower asks the BMC through MAAS: on, off, unknown, error.
	QueryPower(ctx context.Context, systemID string) (string, error)
	// PowerLogin reads how MAAS reaches the machine's BMC, and compares it with
	// an address and a password; the one that MAAS holds is not given out.
	PowerLogin(ctx context.Context, systemID, bmcAddress string, password Secret) (MAASPower, error)
	// HeldLogin gives out the login with which MAAS reaches the BMC at an address. It returns
	// KindNotFound where MAAS holds none for it. Only the search for a login that a restore has
	// lost asks for it.
	HeldLogin(ctx context.Context, systemID, bmcAddress string) (Login, error)
	// SetPowerLogin gives MAAS another login for the machine's BMC and leaves
	// every other power parameter as it is.
	SetPowerLogin(ctx context.Context, systemID, user string, password Secret) error
	SetHardwareSync(ctx context.Context, systemID string, on bool) error
	// MachineToken is the machine's own metadata credential: a secret.
	MachineToken(ctx context.Context, systemID string) (Secret, error)
	// Events lists newest first, at most limit, at or above level
	// (DEBUG, INFO, WARNING, ERROR).
	Events(ctx context.Context, systemID, level string, limit int) ([]MAASEvent, error)
	// Results lists script results of type commissioning, testing or
	// installation; output is cut to 16 KiB each.
	Results(ctx context.Context, systemID, resultType string) ([]MAASResult, error)
	// DeleteMachine: absent is success.
	DeleteMachine(ctx context.Context, systemID string) error
}

// MAASInfo is what Probe found.
type MAASInfo struct {
	Version     string
	User        string
	IsSuperuser bool
	SSHKeys     int
	// AuthorizedKeys are the user's public SSH keys as MAAS gives them to every
	// machine that it deploys; SSHKeys counts them.
	AuthorizedKeys []string
	Config         map[string]string // node_timeout, hardware_sync_interval, ...
	Images         []string          // "ubuntu/jammy"
}

// MAASQuery holds what is known of a machine; empty fields do not match.
type MAASQuery struct {
	MACs       []string
	Hostname   string
	Serial     string
	BMCAddress string
	// New matches every machine that is New: enlisted and not commissioned.
	New bool
}

// MAASMachine is the part of a machine object that Slipway reads.
type MAASMachine struct {
	SystemID         string
	Hostname         string
	FQDN             string
	Status           MAASStatus
	StatusMessage    string
	ErrorDescription string
	PowerState       string
	PowerType        string
	Owner            string
	Locked           bool
	OSystem          string
	DistroSeries     string
	Zone, Pool       string
	Architecture     string
	Serial, UUID     string // hardware_info.system_serial, hardware_uuid
	BootDiskID       int    // 0 = none
	BootInterfaceID  int    // 0 = none
	BootInterfaceMAC string
	BootVLANID       int // 0 = no VLAN
	MACs             []string
	IPAddresses      []string
	EnableHWSync     bool
	SyncInterval     time.Duration
	LastSync         time.Time // zero = never
	NextSync         time.Time
	Annotations      map[string]string
	TestingStatus    int
	CommissionStatus int
	// CommissioningID counts up with each commissioning; 0 = none yet.
	CommissioningID int
}

// MAASCreate describes a machine to add.
type MAASCreate struct {
	Hostname, Domain, Zone, Pool, Architecture string
	MACs                                       []string
	PowerType                                  string // redfish, ipmi
	PowerAddress, PowerUser                    string
	PowerPassword                              Secret
	PowerNodeID                                string
}

// MAASPower is how MAAS reaches a machine's BMC, without the password.
type MAASPower struct {
	Type    string // redfish, ipmi, manual, ...; "" = MAAS controls no power
	Address string
	User    string
	// SameBMC and SamePassword are set where it is what was asked about.
	SameBMC, SamePassword bool
}

// MAASCommission selects what commissioning does.
type MAASCommission struct {
	SkipNetworking, SkipStorage bool
	TestingScripts              string // "none" or a list
}

// MAASDeploy is the deploy request. UserData is raw; the provider encodes it.
type MAASDeploy struct {
	DistroSeries, HWEKernel string
	UserData                []byte
	EnableHWSync            bool
	Comment                 string
}

// MAASRelease selects erasure; all false is a plain release.
type MAASRelease struct {
	Erase, SecureErase, QuickErase, Force bool
	Comment                               string
}

// MAASBlockDevice is a disk; SizeBytes in bytes.
type MAASBlockDevice struct {
	ID                          int
	Name, Model, Serial, IDPath string
	SizeBytes                   int64
	Type                        string // physical, virtual
	Tags                        []string
	MountPoints                 []string // of the device and its partitions
}

// MAASInterface is a NIC with its links.
type MAASInterface struct {
	ID            int
	Name, MAC     string
	Type          string
	Enabled       bool
	VLANID        int // 0 = no VLAN
	MTU           int
	Tags          []string
	LinkConnected bool
	LinkSpeed     int // Mbit/s
	Links         []MAASLink
}

// MAASLink is one address configuration; Mode is lower case.
type MAASLink struct {
	ID       int
	Mode     string
	SubnetID int // 0 = none
	IP       string
}

// MAASSubnet is a subnet and the VLAN it is on.
type MAASSubnet struct {
	ID     int
	CIDR   string
	Name   string
	VLANID int
}

// MAASEvent is one node event.
type MAASEvent struct {
	ID          int
	Level       string
	Type        string
	Description string
	At          time.Time
}

// MAASResult is one script result.
type MAASResult struct {
	Name   string
	Status int // ScriptStatus
	Output string
}
