package bmc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// BootIn is the input of the activities about the next boot of a machine and about which machine it
// is.
type BootIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
	CAPEM string `json:"ca_pem,omitempty"`
	// Target is the device of the next boot; providers.BootNone leaves it to the firmware.
	Target providers.BootTarget `json:"target,omitempty"`
	// Record is what the machine must be. One without anything compares nothing where a device is
	// cleared.
	Record MachineRecord `json:"record,omitzero"`
}

// MachineRecord is how a machine is recorded. Every serial number and every MAC address counts.
type MachineRecord struct {
	Serials []string `json:"serials,omitempty"`
	MACs    []string `json:"macs,omitempty"`
}

// BootFacts is what a BMC says of the next boot and of the machine.
type BootFacts struct {
	Target providers.BootTarget `json:"target"` // providers.BootNone when none is set
	Serial string               `json:"serial,omitempty"`
	MACs   []string             `json:"macs,omitempty"`
	// Sent says that the BMC may have got the order to set a device, also where the call failed.
	Sent bool `json:"-"`
}

// IdentifyByBMC compares the machine with its record and changes nothing. It fails with
// other_machine where a serial number or a MAC address of the record is not that of the machine,
// and where the BMC tells none that could be compared. Each call is one login.
func (a *Activities) IdentifyByBMC(ctx context.Context, in BootIn) (BootFacts, error) {
	var out BootFacts
	err := a.session(ctx, SettingsIn{AllocationRef: contract.AllocationRef{JobRef: in.JobRef}, BMCID: in.BMCID, CAPEM: in.CAPEM}, func(b providers.BMC) (err error) {
		out, err = identify(ctx, b)
		return err
	})
	if err != nil {
		return out, err
	}
	return out, in.Record.compare(out)
}

// SetBootByBMC compares the machine with its record, sets the device of its next boot, once, and
// reads it back. A device that is set already stays. It fails as IdentifyByBMC does, before
// anything is set; what is cleared is cleared on whatever machine it is.
func (a *Activities) SetBootByBMC(ctx context.Context, in BootIn) (BootFacts, error) {
	var out BootFacts
	var other error
	err := a.session(ctx, SettingsIn{AllocationRef: contract.AllocationRef{JobRef: in.JobRef}, BMCID: in.BMCID, CAPEM: in.CAPEM}, func(b providers.BMC) (err error) {
		if out, err = identify(ctx, b); err != nil {
			return err
		}
		if in.Target != providers.BootNone {
			other = in.Record.compare(out)
		}
		if other != nil {
			return nil
		}
		now, err := b.BootOverride(ctx)
		if err != nil {
			return err
		}
		out.Sent = true
		// The mode of the firmware stays: a machine that starts by BIOS has no UEFI boot entry.
		set, err := b.SetBootOnce(ctx, in.Target, now.Mode != "Legacy")
		out.Target = deviceOf(set)
		return err
	})
	if err == nil {
		err = other
	}
	if err == nil && out.Target != in.Target {
		err = fault.New(lifecycle.FailStateDisagreement, "the next boot was set to %s, and the BMC says %s", in.Target, out.Target)
	}
	return out, err
}

// ReadBootByBMC reads the device of the next boot. Each call is one login.
func (a *Activities) ReadBootByBMC(ctx context.Context, in BootIn) (BootFacts, error) {
	var out BootFacts
	err := a.session(ctx, SettingsIn{AllocationRef: contract.AllocationRef{JobRef: in.JobRef}, BMCID: in.BMCID, CAPEM: in.CAPEM}, func(b providers.BMC) error {
		now, err := b.BootOverride(ctx)
		out.Target = deviceOf(now)
		return err
	})
	return out, err
}

func identify(ctx context.Context, b providers.BMC) (BootFacts, error) {
	sys, err := b.Identify(ctx)
	if err != nil {
		return BootFacts{}, err
	}
	out := BootFacts{Serial: spec.NormalSerial(sys.Serial)}
	for _, text := range sys.MACs {
		if mac, ok := spec.NormalMAC(text); ok {
			out.MACs = append(out.MACs, mac)
		}
	}
	return out, nil
}

// deviceOf returns the device of an override that is in force.
func deviceOf(o providers.BootOverride) providers.BootTarget {
	if o.Enabled == "Disabled" || o.Target == "" {
		return providers.BootNone
	}
	return o.Target
}

// compare refuses another machine than the record's, and one that tells nothing of what is
// recorded.
func (r MachineRecord) compare(f BootFacts) error {
	compared := false
	for _, want := range r.Serials {
		if f.Serial == "" {
			break
		}
		if compared = true; !strings.EqualFold(want, f.Serial) {
			return fault.New(lifecycle.FailOtherMachine, "the BMC says that the machine has serial number %s, and the record says %s; nothing was changed", f.Serial, want)
		}
	}
	for _, want := range r.MACs {
		if len(f.MACs) == 0 {
			break
		}
		if compared = true; !slices.Contains(f.MACs, want) {
			return fault.New(lifecycle.FailOtherMachine, "the record says that the machine has MAC address %s, and the BMC lists %s; nothing was changed", want, strings.Join(f.MACs, ", "))
		}
	}
	if !compared {
		return fault.New(lifecycle.FailOtherMachine,
			"nothing tells which machine this is: the BMC and the record have no serial number and no MAC address in common that could be compared; nothing was changed")
	}
	return nil
}

// TimelineNote is what the timeline says.
func (f BootFacts) TimelineNote() string {
	return fmt.Sprintf("serial number %s, next boot %s", f.Serial, f.Target)
}
