package ipmisim

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// ReferenceOptions describe one BMC of go-ipmi. User, password, UUID and
// inventory are those of the machine.
type ReferenceOptions struct {
	Machine *simhw.Machine
	Suites  []int // the cipher suites it offers; none is 17 and 3
	// Sensors are records as SensorRecord makes them; Readings are the answers
	// to Get Sensor Reading by sensor number.
	Sensors  [][]byte
	Readings map[byte][]byte
	// EventCapacity is how many records the system event log holds; 0 is 512.
	EventCapacity int
}

// Reference is a running BMC of go-ipmi over a simulated machine.
type Reference struct {
	server    *server.Server
	address   string
	controls  atomic.Int64
	events    *eventLog
	inventory hal.FRUStore

	mu       sync.Mutex
	readings map[byte][]byte
	refused  map[string][]byte // commands by name, with the first byte of the requests; none is all
}

// StartReference serves on a UDP port of 127.0.0.1 until Close.
func StartReference(ctx context.Context, o ReferenceOptions) (*Reference, error) {
	spec := o.Machine.Spec()
	guid, err := smbiosGUID(spec.UUID)
	if err != nil {
		return nil, err
	}
	r := &Reference{readings: o.Readings, events: newEventLog(o.EventCapacity), refused: map[string][]byte{}}
	h := &machineHAL{HAL: mock.New(), chassis: &machineChassis{Chassis: &mock.Chassis{}, machine: o.Machine, controls: &r.controls}}
	r.inventory = h.Storage().FRU()
	if err := r.SetInventory(ctx, Inventory(spec.Vendor, spec.Model, spec.Serial)); err != nil {
		return nil, err
	}
	for i, record := range o.Sensors {
		if err := h.Storage().SDR().Write(ctx, uint16(i+1), record); err != nil { //nolint:gosec // a handful of sensors
			return nil, err
		}
	}
	b := bmc.New(bmc.DeviceInfo{DeviceID: 0x20, IPMIVersion: 0x02, AdditionalDeviceSupport: 0x8b}, guid, h)
	u, err := b.Users.Add(2, spec.BMCUser)
	if err != nil {
		return nil, err
	}
	u.Enabled = true
	u.SetPassword([]byte(spec.BMCPassword))
	u.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: bmc.PrivilegeLevelAdministrator, Enabled: true}
	if len(o.Suites) == 0 {
		o.Suites = []int{17, 3}
	}
	var suites []types.CipherSuiteID
	for _, s := range o.Suites {
		if s != 17 && s != 3 {
			return nil, errors.New("the reference BMC offers cipher suites 17 and 3 only")
		}
		suites = append(suites, types.CipherSuiteID(s)) //nolint:gosec // 17 or 3
	}
	conn, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	registry := handlers.NewRegistry()
	registry.Use(r.refusing)
	handlers.RegisterAllHandlers(registry)
	registry.RegisterFunc(types.CommandGetSensorReading, r.sensorReading)
	r.events.register(registry)
	r.server = server.NewServer(b, conn, server.WithHandlerRegistry(registry), server.WithCipherSuites(suites))
	r.address = conn.LocalAddr().String()
	// Not bound to ctx: a test's context ends before its clean-up, which still talks to the BMC.
	go func() { _ = r.server.Serve(context.WithoutCancel(ctx)) }()
	return r, nil
}

// Address is its host and UDP port.
func (r *Reference) Address() string { return r.address }

// Controls counts the power changes that were asked for.
func (r *Reference) Controls() int { return int(r.controls.Load()) }

// Close ends the BMC.
func (r *Reference) Close() { _ = r.server.Close() }

// SetReading changes what a sensor answers.
func (r *Reference) SetReading(number byte, answer ...byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[byte][]byte{number: answer}
	for n, a := range r.readings {
		if n != number {
			next[n] = a
		}
	}
	r.readings = next
}

// SetInventory changes the inventory record (FRU 0).
func (r *Reference) SetInventory(ctx context.Context, record []byte) error {
	return r.inventory.Write(ctx, 0, record)
}

// Refuse makes the BMC answer a command with "busy". command is its name in the specification. With
// first, only the requests that begin with one of these bytes are refused.
func (r *Reference) Refuse(command string, first ...byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[command] = first
}

func (r *Reference) refusing(next handlers.Handler) handlers.Handler {
	return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
		r.mu.Lock()
		first, ok := r.refused[h.Command.Name]
		r.mu.Unlock()
		if ok && (len(first) == 0 || len(req) > 0 && bytes.IndexByte(first, req[0]) >= 0) {
			return nil, types.CodeNodeBusy, nil
		}
		return next.Handle(ctx, h, req)
	})
}

func (r *Reference) sensorReading(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(req) < 1 {
		return nil, types.CodeRequestDataTruncated, nil
	}
	answer, ok := r.readings[req[0]]
	if !ok {
		return nil, types.CodeRequestedDataNotPresent, nil
	}
	return answer, types.CodeOK, nil
}

// smbiosGUID orders a UUID's bytes as SMBIOS and most BMCs do.
func smbiosGUID(uuid string) (guid [16]byte, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil || len(raw) != 16 {
		return guid, errors.New("the machine's UUID is none")
	}
	for to, from := range []int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		guid[to] = raw[from]
	}
	return guid, nil
}

type machineHAL struct {
	*mock.HAL
	chassis *machineChassis
}

func (h *machineHAL) Chassis() hal.ChassisHAL { return h.chassis }

// machineChassis is the chassis of a simulated machine. The methods that it does not define are the
// mock's.
type machineChassis struct {
	*mock.Chassis
	machine  *simhw.Machine
	controls *atomic.Int64
}

const byIPMI = "ipmi"

// PowerState: a machine that goes down still has power, one that comes up
// counts when it is up, as Redfish's two states in between do.
func (c *machineChassis) PowerState(context.Context) (bool, error) {
	p := c.machine.Power()
	return p == simhw.On || p == simhw.PoweringOff, nil
}

func (c *machineChassis) SetPower(_ context.Context, on bool) error {
	c.controls.Add(1)
	if on {
		c.machine.PowerOn(byIPMI)
	} else {
		c.machine.PowerOff(byIPMI, true)
	}
	return nil
}

func (c *machineChassis) PowerCycle(context.Context) error {
	c.controls.Add(1)
	c.machine.Reset(byIPMI)
	return nil
}

func (c *machineChassis) ColdReset(context.Context) error {
	c.controls.Add(1)
	c.machine.Reset(byIPMI)
	return nil
}

// WarmReset is what the reference calls for a soft shutdown.
func (c *machineChassis) WarmReset(context.Context) error {
	c.controls.Add(1)
	c.machine.PowerOff(byIPMI, false)
	return nil
}

func (c *machineChassis) SetBootFlags(_ context.Context, f *types.BootOptionParam_BootFlags) error {
	o := simhw.Override{Target: "None", Enabled: "Disabled", Mode: "Legacy"}
	for _, t := range bootTargets() {
		if t.device == f.BootDeviceSelector {
			o.Target = t.target
		}
	}
	if f.BIOSBootType {
		o.Mode = "UEFI"
	}
	switch {
	case !f.BootFlagsValid || o.Target == "None":
	case f.Persist:
		o.Enabled = "Continuous"
	default:
		o.Enabled = "Once"
	}
	c.machine.SetBootOverride(o)
	return nil
}

func (c *machineChassis) GetBootFlags(context.Context) (*types.BootOptionParam_BootFlags, error) {
	o := c.machine.BootOverride()
	f := &types.BootOptionParam_BootFlags{
		BootFlagsValid: o.Enabled == "Once" || o.Enabled == "Continuous", Persist: o.Enabled == "Continuous", BIOSBootType: o.Mode == "UEFI",
	}
	for _, t := range bootTargets() {
		if f.BootFlagsValid && strings.EqualFold(t.target, o.Target) {
			f.BootDeviceSelector = t.device
		}
	}
	return f, nil
}

type bootTarget struct {
	device types.BootDeviceSelector
	target string
}

func bootTargets() []bootTarget {
	return []bootTarget{
		{types.BootDeviceSelectorForcePXE, "Pxe"}, {types.BootDeviceSelectorForceHardDrive, "Hdd"},
		{types.BootDeviceSelectorForceCDROM, "Cd"}, {types.BootDeviceSelectorForceBIOSSetup, "BiosSetup"},
	}
}
