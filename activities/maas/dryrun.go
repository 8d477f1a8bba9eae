package maas

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// dryRunMAAS lets a stage's own activity run without effect: it passes reads to the region, and
// records a change as a step instead of sending it. It stops the activity at the first read after a
// change, which would not show the change. It implements every method of the interface itself, so
// that a new method cannot have an effect by accident.
type dryRunMAAS struct {
	providers.MAASOpener
	region providers.MAAS

	absent      string // the hostname of a machine that MAAS does not have yet
	assumeReady bool   // the machine will be Ready by the time of this stage
	reads       int    // how often an activity that polls may read the machine; 0 is no limit

	steps     []string
	changed   bool // the activity has sent a change
	readBack  bool // it has read after a change
	waits     bool // it has polled more often than reads allows
	unknown   bool // it has read what only a machine in MAAS can tell
	assumed   bool // it was told that the machine is Ready, and it is not yet
	allocated bool
	readCount int
	seen      *providers.MAASMachine // as MAAS shows it
	made      *providers.MAASMachine // as it will be, while MAAS has none
	disks     []providers.MAASBlockDevice
	ifaces    []providers.MAASInterface
	subnets   []providers.MAASSubnet
}

var _ providers.MAAS = (*dryRunMAAS)(nil)

// OpenMAAS implements providers.MAASOpener.
func (d *dryRunMAAS) OpenMAAS(site providers.MAASSite) (providers.MAAS, error) {
	m, err := d.MAASOpener.OpenMAAS(site)
	d.region = m
	return d, err
}

// stop ends an activity. Nobody reads the message.
func stop(why string) error {
	return &providers.Error{Kind: providers.KindInvalid, Op: "plan", Message: why}
}

// checkRead stops the activity when a read of the machine would show nothing.
func (d *dryRunMAAS) checkRead() error {
	switch {
	case d.changed:
		d.readBack = true
		return stop("nothing was changed, so there is nothing to read back")
	case d.absent != "":
		d.unknown = true
		return stop("the machine is not in MAAS yet")
	}
	return nil
}

func (d *dryRunMAAS) change(format string, args ...any) {
	d.changed = true
	d.steps = append(d.steps, fmt.Sprintf(format, args...))
}

func (d *dryRunMAAS) lastSeen() providers.MAASMachine {
	switch {
	case d.seen != nil:
		return *d.seen
	case d.made != nil:
		return *d.made
	}
	return providers.MAASMachine{}
}

// name returns the machine's name for operators.
func (d *dryRunMAAS) name(systemID string) string {
	switch host := d.lastSeen().Hostname; {
	case host == "":
		return systemID
	case systemID == "":
		return host
	default:
		return host + " (" + systemID + ")"
	}
}

func (d *dryRunMAAS) Machine(ctx context.Context, systemID string) (providers.MAASMachine, error) {
	if d.allocated {
		d.allocated, d.changed = false, false
		got := d.lastSeen()
		got.Status = providers.MAASAllocated
		return got, nil
	}
	if d.absent != "" && d.assumeReady && !d.changed {
		d.made = &providers.MAASMachine{Hostname: d.absent, Status: providers.MAASReady}
		return *d.made, nil
	}
	if err := d.checkRead(); err != nil {
		return providers.MAASMachine{}, err
	}
	if d.readCount++; d.reads > 0 && d.readCount > d.reads {
		d.waits = true
		return providers.MAASMachine{}, stop("it would wait")
	}
	got, err := d.region.Machine(ctx, systemID)
	if err != nil {
		return got, err
	}
	seen := got
	d.seen = &seen
	if d.assumeReady && !past(got.Status) {
		d.assumed, got.Status = true, providers.MAASReady
	}
	return got, nil
}

func (d *dryRunMAAS) Probe(ctx context.Context) (providers.MAASInfo, error) {
	return d.region.Probe(ctx)
}

func (d *dryRunMAAS) FindMachines(ctx context.Context, q providers.MAASQuery) ([]providers.MAASMachine, error) {
	found, err := d.region.FindMachines(ctx, q)
	if len(found) == 1 {
		seen := found[0]
		d.seen = &seen
	}
	return found, err
}

func (d *dryRunMAAS) BlockDevices(ctx context.Context, systemID string) ([]providers.MAASBlockDevice, error) {
	if err := d.checkRead(); err != nil {
		return nil, err
	}
	var err error
	d.disks, err = d.region.BlockDevices(ctx, systemID)
	return d.disks, err
}

func (d *dryRunMAAS) Interfaces(ctx context.Context, systemID string) ([]providers.MAASInterface, error) {
	if err := d.checkRead(); err != nil {
		return nil, err
	}
	var err error
	d.ifaces, err = d.region.Interfaces(ctx, systemID)
	return d.ifaces, err
}

func (d *dryRunMAAS) Subnets(ctx context.Context) ([]providers.MAASSubnet, error) {
	var err error
	d.subnets, err = d.region.Subnets(ctx)
	return d.subnets, err
}

func (d *dryRunMAAS) Events(ctx context.Context, systemID, level string, limit int) ([]providers.MAASEvent, error) {
	return d.region.Events(ctx, systemID, level, limit)
}

func (d *dryRunMAAS) Results(ctx context.Context, systemID, resultType string) ([]providers.MAASResult, error) {
	return d.region.Results(ctx, systemID, resultType)
}

// QueryPower returns the state that MAAS knows: a query would make MAAS log in to the BMC.
func (d *dryRunMAAS) QueryPower(context.Context, string) (string, error) {
	if d.seen == nil {
		return "unknown", nil
	}
	return d.seen.PowerState, nil
}

func (d *dryRunMAAS) CreateMachine(_ context.Context, in providers.MAASCreate) (providers.MAASMachine, error) {
	d.change("create %s in MAAS", in.Hostname)
	return providers.MAASMachine{}, stop("not created")
}

func (d *dryRunMAAS) Commission(_ context.Context, systemID string, _ providers.MAASCommission) (providers.MAASMachine, error) {
	d.change("commission %s", d.name(systemID))
	return d.lastSeen(), nil
}

func (d *dryRunMAAS) OverrideFailedTesting(_ context.Context, systemID, _ string) error {
	d.change("override the failed tests of %s", d.name(systemID))
	return nil
}

func (d *dryRunMAAS) SetBootDisk(_ context.Context, _ string, deviceID int) error {
	d.change("make %s the boot disk", d.disk(deviceID))
	return nil
}

func (d *dryRunMAAS) SetStorageLayout(_ context.Context, _, layout string, rootDeviceID int) error {
	d.change("apply storage layout %s on %s", layout, d.disk(rootDeviceID))
	return nil
}

func (d *dryRunMAAS) LinkSubnet(_ context.Context, _ string, ifaceID, subnetID int, mode string) error {
	d.change("set an %s link of %s on %s", strings.ToUpper(mode), d.iface(ifaceID).Name, d.subnet(subnetID))
	return nil
}

func (d *dryRunMAAS) UnlinkSubnet(_ context.Context, _ string, ifaceID, linkID int) error {
	f := d.iface(ifaceID)
	text := fmt.Sprintf("link %d", linkID)
	if i := slices.IndexFunc(f.Links, func(l providers.MAASLink) bool { return l.ID == linkID }); i >= 0 {
		text = d.link(f.Links[i]) + " link"
	}
	d.change("remove the %s from %s", text, f.Name)
	return nil
}

func (d *dryRunMAAS) UpdateInterface(_ context.Context, _ string, ifaceID, mtu int, addTags []string) error {
	var what []string
	if mtu > 0 {
		what = append(what, fmt.Sprintf("MTU %d", mtu))
	}
	if len(addTags) > 0 {
		what = append(what, "tags "+strings.Join(addTags, ", "))
	}
	d.change("set %s on %s", strings.Join(what, " and "), d.iface(ifaceID).Name)
	return nil
}

func (d *dryRunMAAS) LinkStatic(_ context.Context, _ string, ifaceID, subnetID int, ip string) error {
	d.change("give %s the address %s on %s", d.iface(ifaceID).Name, ip, d.subnet(subnetID))
	return nil
}

func (d *dryRunMAAS) Allocate(_ context.Context, systemID, _, _ string) (providers.MAASMachine, error) {
	d.change("allocate %s", d.name(systemID))
	d.allocated = true
	return d.lastSeen(), nil
}

func (d *dryRunMAAS) SetWorkloadAnnotations(_ context.Context, systemID string, kv map[string]string) error {
	d.change("mark %s with this job, attempt %s", d.name(systemID), kv[annotationAttempt])
	return nil
}

func (d *dryRunMAAS) Deploy(_ context.Context, systemID string, in providers.MAASDeploy) (providers.MAASMachine, error) {
	text := "deploy " + in.DistroSeries
	if in.HWEKernel != "" {
		text += " with kernel " + in.HWEKernel
	}
	if in.EnableHWSync {
		text += ", hardware sync on"
	}
	d.change("%s to %s", text, d.name(systemID))
	return providers.MAASMachine{}, nil
}

func (d *dryRunMAAS) Abort(_ context.Context, systemID, _ string) error {
	d.change("abort what %s is doing", d.name(systemID))
	return nil
}

func (d *dryRunMAAS) Release(_ context.Context, systemID string, _ providers.MAASRelease) error {
	d.change("release %s", d.name(systemID))
	return nil
}

func (d *dryRunMAAS) PowerOn(_ context.Context, systemID string) error {
	d.change("power %s on", d.name(systemID))
	return nil
}

func (d *dryRunMAAS) PowerOff(_ context.Context, systemID string, _ bool) error {
	d.change("power %s off", d.name(systemID))
	return nil
}

func (d *dryRunMAAS) PowerLogin(context.Context, string, string, providers.Secret) (providers.MAASPower, error) {
	return providers.MAASPower{}, stop("a plan asks for no login")
}

func (d *dryRunMAAS) HeldLogin(context.Context, string, string) (providers.Login, error) {
	return providers.Login{}, stop("a plan asks for no login")
}

func (d *dryRunMAAS) SetPowerLogin(_ context.Context, systemID, user string, _ providers.Secret) error {
	d.change("give MAAS the login %s for the BMC of %s", user, d.name(systemID))
	return nil
}

func (d *dryRunMAAS) SetHardwareSync(_ context.Context, systemID string, on bool) error {
	d.change("switch hardware sync of %s %s", d.name(systemID), map[bool]string{true: "on", false: "off"}[on])
	return nil
}

func (d *dryRunMAAS) MachineToken(context.Context, string) (providers.Secret, error) {
	return providers.Secret{}, stop("a plan asks for no token")
}

func (d *dryRunMAAS) DeleteMachine(_ context.Context, systemID string) error {
	d.change("delete %s from MAAS", d.name(systemID))
	return nil
}
