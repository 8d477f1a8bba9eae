package maas

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

// StorageIn is the input of ConfigureStorage.
type StorageIn struct {
	contract.JobRef
	SystemID string            `json:"system_id"`
	Rule     spec.BootDiskRule `json:"rule"`
	Layout   string            `json:"layout"`
}

// ConfigureStorage chooses the boot disk by the profile's rule and applies the
// layout to it, while the machine is Ready: MAAS refuses both in any other
// state, and its own default is whatever disk enumerates first. A machine that
// is configured so already, or is past Ready, is left alone. Each of the two is
// sent only while MAAS does not show it: an execution that died between them has
// made the first.
func (a *Activities) ConfigureStorage(ctx context.Context, in StorageIn) (contract.MachineFacts, error) {
	m, got, err := a.openMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	disks, err := m.BlockDevices(ctx, in.SystemID)
	if err != nil {
		return facts(got), fault.MAAS(ctx, err)
	}
	want, err := chooseBootDisk(in.Rule, disks)
	if err != nil {
		return facts(got), err
	}
	out := facts(got)
	out.Note = fmt.Sprintf("boot disk %s (%s)", want.Name, want.Model)
	if got.BootDiskID == want.ID && laidOut(in.Layout, disks, want.ID) {
		out.Done = true
		return out, nil
	}
	if in.ObserveOnly {
		return out, nil
	}
	if got.Status != providers.MAASReady {
		return out, fault.New(lifecycle.FailStateDisagreement,
			"machine %s is %s and boots from another disk than %s; storage can be changed only while it is Ready", in.SystemID, got.Status, want.Name)
	}
	if got.BootDiskID != want.ID {
		if err := m.SetBootDisk(ctx, in.SystemID, want.ID); err != nil {
			return out, fault.MAAS(ctx, err)
		}
	}
	return a.layOut(ctx, m, in, want, out)
}

// layOut applies the layout to the boot disk and reads it back.
func (a *Activities) layOut(ctx context.Context, m providers.MAAS, in StorageIn, want providers.MAASBlockDevice, out contract.MachineFacts) (contract.MachineFacts, error) {
	if err := m.SetStorageLayout(ctx, in.SystemID, in.Layout, want.ID); err != nil {
		if providers.IsKind(err, providers.KindInvalid) {
			return out, fault.New(lifecycle.FailStorageLayoutRejected, "MAAS refused layout %q on %s: %v", in.Layout, want.Name, err)
		}
		return out, fault.MAAS(ctx, err)
	}
	disks, err := m.BlockDevices(ctx, in.SystemID)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	got, err := machine(ctx, m, in.SystemID)
	if err != nil {
		return out, err
	}
	if got.BootDiskID != want.ID || (!laidOut(in.Layout, disks, want.ID) && !rootOn(disks, want.ID)) {
		return out, fault.New(lifecycle.FailStorageLayoutRejected,
			"MAAS accepted layout %q but %s does not carry the root file system", in.Layout, want.Name)
	}
	out.Done = true
	return out, nil
}

// chooseBootDisk applies the rule to the physical disks: of several matches the
// smallest, then the lowest id, so that the choice never depends on the order
// in which MAAS lists them.
func chooseBootDisk(rule spec.BootDiskRule, disks []providers.MAASBlockDevice) (providers.MAASBlockDevice, error) {
	var fit []providers.MAASBlockDevice
	var seen []string
	for _, d := range disks {
		if d.Type != "" && d.Type != "physical" {
			continue
		}
		seen = append(seen, fmt.Sprintf("%s %q %d GB", d.Name, d.Model, d.SizeBytes/1_000_000_000))
		if rule.ModelContains != "" && !strings.Contains(strings.ToUpper(d.Model), strings.ToUpper(rule.ModelContains)) {
			continue
		}
		if d.SizeBytes < rule.MinBytes || (rule.MaxBytes > 0 && d.SizeBytes > rule.MaxBytes) {
			continue
		}
		fit = append(fit, d)
	}
	if len(fit) == 0 {
		return providers.MAASBlockDevice{}, fault.New(lifecycle.FailBootDiskNotFound,
			"no disk matches the boot disk rule (model contains %q); the machine has: %s", rule.ModelContains, strings.Join(seen, "; "))
	}
	return slices.MinFunc(fit, func(x, y providers.MAASBlockDevice) int {
		if x.SizeBytes != y.SizeBytes {
			if x.SizeBytes < y.SizeBytes {
				return -1
			}
			return 1
		}
		return x.ID - y.ID
	}), nil
}

// laidOut reports whether the root file system is where the layout puts it:
// with lvm and bcache that is a virtual device on top of the boot disk, with
// blank it is nowhere. The files that the firmware and the boot loader read
// must be on the boot disk: a layout that was applied before the boot disk was
// chosen is not the one.
func laidOut(layout string, disks []providers.MAASBlockDevice, bootDisk int) bool {
	if bootsFromAnother(disks, bootDisk) {
		return false
	}
	switch layout {
	case "blank":
		return !slices.ContainsFunc(disks, func(d providers.MAASBlockDevice) bool { return slices.Contains(d.MountPoints, "/") })
	case "lvm", "bcache":
		return slices.ContainsFunc(disks, func(d providers.MAASBlockDevice) bool {
			return d.Type == "virtual" && slices.Contains(d.MountPoints, "/")
		})
	}
	return rootOn(disks, bootDisk)
}

func bootsFromAnother(disks []providers.MAASBlockDevice, id int) bool {
	return slices.ContainsFunc(disks, func(d providers.MAASBlockDevice) bool {
		return d.ID != id && (slices.Contains(d.MountPoints, "/boot") || slices.Contains(d.MountPoints, "/boot/efi"))
	})
}

func rootOn(disks []providers.MAASBlockDevice, id int) bool {
	return slices.ContainsFunc(disks, func(d providers.MAASBlockDevice) bool {
		return d.ID == id && slices.Contains(d.MountPoints, "/")
	})
}
