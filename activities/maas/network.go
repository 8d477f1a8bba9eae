package maas

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// NodeNetwork is the network that a node's first address is in.
type NodeNetwork struct {
	CIDR string `json:"cidr,omitempty"`
}

// ReadNetwork reads which subnet of MAAS the machine's first address is in. It returns none when
// the address is in no subnet that MAAS has. Read-only.
func (a *Activities) ReadNetwork(ctx context.Context, in MachineIn) (NodeNetwork, error) {
	m, got, err := a.openMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return NodeNetwork{}, err
	}
	subnets, err := m.Subnets(ctx)
	if err != nil {
		return NodeNetwork{}, fault.MAAS(ctx, err)
	}
	for _, text := range got.IPAddresses {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		for _, s := range subnets {
			if p, err := netip.ParsePrefix(s.CIDR); err == nil && p.Contains(ip) {
				return NodeNetwork{CIDR: s.CIDR}, nil
			}
		}
	}
	return NodeNetwork{}, nil
}

// NetworkIn is the input of ApplyRoCE and EnsurePXEInterfaceAuto.
type NetworkIn struct {
	contract.JobRef
	SystemID string `json:"system_id"`
	Hostname string `json:"hostname"`
	// Strict refuses a boot interface whose cable is reported unplugged.
	Strict bool `json:"strict,omitempty"`
}

// ApplyRoCE gives the RoCE ports the MTU, tags and addresses of the records kept for this site and
// hostname. No record is a configuration error, since the profile asks for RoCE. A port that is
// right already is left alone.
func (a *Activities) ApplyRoCE(ctx context.Context, in NetworkIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	wanted, err := a.Store.RoCEAssignment(ctx, in.SiteID, in.Hostname)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return contract.MachineFacts{}, fault.Internal(ctx, err)
	}
	if err != nil {
		return contract.MachineFacts{}, fault.New(lifecycle.FailConfiguration,
			"the profile enables RoCE but site and hostname %s have no RoCE assignment; add one, or use another profile", in.Hostname)
	}
	ifaces, err := m.Interfaces(ctx, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	}
	subnets, err := m.Subnets(ctx)
	if err != nil {
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	}
	out := contract.MachineFacts{SystemID: in.SystemID, Done: true}
	for _, w := range wanted {
		i := slices.IndexFunc(ifaces, func(f providers.MAASInterface) bool {
			return f.Name == w.Interface || strings.EqualFold(f.MAC, w.Interface)
		})
		if i < 0 {
			return out, fault.New(lifecycle.FailConfiguration, "RoCE interface %q is not on machine %s", w.Interface, in.SystemID)
		}
		if err := applyPort(ctx, m, in, w, ifaces[i], subnets, &out); err != nil {
			return out, err
		}
	}
	out.Note = fmt.Sprintf("%d RoCE ports", len(wanted))
	return out, nil
}

func applyPort(ctx context.Context, m providers.MAAS, in NetworkIn, w spec.RoCEPort, f providers.MAASInterface, subnets []providers.MAASSubnet, out *contract.MachineFacts) error {
	var missing []string
	for _, t := range w.Tags {
		if !slices.Contains(f.Tags, t) {
			missing = append(missing, t)
		}
	}
	if (w.MTU > 0 && f.MTU != w.MTU) || len(missing) > 0 {
		out.Done = out.Done && !in.ObserveOnly
		if !in.ObserveOnly {
			if err := m.UpdateInterface(ctx, in.SystemID, f.ID, w.MTU, missing); err != nil {
				return fault.MAAS(ctx, err)
			}
		}
	}
	if w.IP == "" || slices.ContainsFunc(f.Links, func(l providers.MAASLink) bool { return l.IP == w.IP }) {
		return nil
	}
	i := slices.IndexFunc(subnets, func(s providers.MAASSubnet) bool { return s.CIDR == w.SubnetCIDR })
	if i < 0 {
		return fault.New(lifecycle.FailConfiguration, "MAAS has no subnet %s for RoCE interface %q", w.SubnetCIDR, w.Interface)
	}
	if in.ObserveOnly {
		out.Done = false
		return nil
	}
	for _, l := range f.Links { // an address of an earlier record must not stay beside the new one
		if l.SubnetID != subnets[i].ID || l.Mode == "link_up" {
			continue
		}
		if err := m.UnlinkSubnet(ctx, in.SystemID, f.ID, l.ID); err != nil && !providers.IsKind(err, providers.KindNotFound) {
			return fault.MAAS(ctx, err)
		}
	}
	if err := m.LinkStatic(ctx, in.SystemID, f.ID, subnets[i].ID, w.IP); err != nil && !hasAddress(ctx, m, in.SystemID, f.ID, w.IP) {
		return fault.MAAS(ctx, err)
	}
	return nil
}

// hasAddress settles a link that MAAS answered with an error: an execution that
// was taken for lost may have made it, and then its address is "in use".
func hasAddress(ctx context.Context, m providers.MAAS, systemID string, ifaceID int, ip string) bool {
	ifaces, err := m.Interfaces(ctx, systemID)
	return err == nil && slices.ContainsFunc(ifaces, func(f providers.MAASInterface) bool {
		return f.ID == ifaceID && slices.ContainsFunc(f.Links, func(l providers.MAASLink) bool { return l.IP == ip })
	})
}

// EnsurePXEInterfaceAuto leaves exactly one AUTO link on the boot interface.
// MAAS's link_subnet always adds another, so the links are read first and
// extras are removed.
func (a *Activities) EnsurePXEInterfaceAuto(ctx context.Context, in NetworkIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	got, err := machine(ctx, m, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	out := facts(got)
	boot, err := bootInterface(ctx, m, got, in)
	if err != nil {
		return out, err
	}
	subnet, err := subnetOf(ctx, m, boot)
	if err != nil {
		return out, err
	}
	keep, extra := sortLinks(boot.Links, subnet.ID)
	if keep == 1 && len(extra) == 0 {
		out.Done, out.Note = true, boot.Name+" has its one AUTO link"
		return out, nil
	}
	if in.ObserveOnly {
		return out, nil
	}
	if past(got.Status) && got.Status != providers.MAASReady && got.Status != providers.MAASAllocated {
		return out, fault.New(lifecycle.FailStateDisagreement, "machine %s is %s; its links can no longer be changed", in.SystemID, got.Status)
	}
	return out, fixLinks(ctx, m, in.SystemID, boot, subnet, keep, extra)
}

func fixLinks(ctx context.Context, m providers.MAAS, systemID string, boot providers.MAASInterface, subnet providers.MAASSubnet, keep int, extra []int) error {
	for _, id := range extra {
		if err := m.UnlinkSubnet(ctx, systemID, boot.ID, id); err != nil && !providers.IsKind(err, providers.KindNotFound) {
			return fault.MAAS(ctx, err)
		}
	}
	if keep == 0 {
		if err := m.LinkSubnet(ctx, systemID, boot.ID, subnet.ID, "AUTO"); err != nil {
			if providers.IsKind(err, providers.KindInvalid) {
				return fault.New(lifecycle.FailPXEUnfixable, "MAAS refused an AUTO link of %s on %s: %v", boot.Name, subnet.CIDR, err)
			}
			return fault.MAAS(ctx, err)
		}
	}
	ifaces, err := m.Interfaces(ctx, systemID)
	if err != nil {
		return fault.MAAS(ctx, err)
	}
	for _, f := range ifaces {
		if f.ID != boot.ID {
			continue
		}
		if n, rest := sortLinks(f.Links, subnet.ID); n == 1 && len(rest) == 0 {
			return nil
		}
	}
	// Another look, another attempt: a link may have been added meanwhile.
	return fault.New(lifecycle.FailMAASUnavailable, "%s does not show exactly one AUTO link yet", boot.Name)
}

func bootInterface(ctx context.Context, m providers.MAAS, got providers.MAASMachine, in NetworkIn) (providers.MAASInterface, error) {
	ifaces, err := m.Interfaces(ctx, in.SystemID)
	if err != nil {
		return providers.MAASInterface{}, fault.MAAS(ctx, err)
	}
	i := slices.IndexFunc(ifaces, func(f providers.MAASInterface) bool {
		return f.ID == got.BootInterfaceID || (got.BootInterfaceMAC != "" && strings.EqualFold(f.MAC, got.BootInterfaceMAC))
	})
	if i < 0 {
		return providers.MAASInterface{}, fault.New(lifecycle.FailPXEUnfixable, "MAAS knows no boot interface of %s; commission it with the PXE port cabled", in.SystemID)
	}
	boot := ifaces[i]
	if boot.VLANID == 0 {
		return boot, fault.New(lifecycle.FailPXEUnfixable, "boot interface %s is on no VLAN; connect it in MAAS", boot.Name)
	}
	if in.Strict && !boot.LinkConnected {
		return boot, fault.New(lifecycle.FailPXEUnfixable, "boot interface %s has no link; check its cable", boot.Name)
	}
	return boot, nil
}

func subnetOf(ctx context.Context, m providers.MAAS, boot providers.MAASInterface) (providers.MAASSubnet, error) {
	subnets, err := m.Subnets(ctx)
	if err != nil {
		return providers.MAASSubnet{}, fault.MAAS(ctx, err)
	}
	var on []providers.MAASSubnet
	for _, s := range subnets {
		if s.VLANID == boot.VLANID {
			on = append(on, s)
		}
	}
	for _, l := range boot.Links { // a subnet that is linked already is preferred
		if i := slices.IndexFunc(on, func(s providers.MAASSubnet) bool { return s.ID == l.SubnetID && l.Mode == "auto" }); i >= 0 {
			return on[i], nil
		}
	}
	if len(on) == 0 {
		return providers.MAASSubnet{}, fault.New(lifecycle.FailPXEUnfixable, "the VLAN of boot interface %s has no subnet", boot.Name)
	}
	return slices.MinFunc(on, func(x, y providers.MAASSubnet) int { return x.ID - y.ID }), nil
}

// sortLinks counts the AUTO link to keep on the subnet (0 or 1) and lists the
// ids of the links that must go.
func sortLinks(links []providers.MAASLink, subnetID int) (keep int, extra []int) {
	for _, l := range links {
		if l.Mode == "auto" && l.SubnetID == subnetID && keep == 0 {
			keep = 1
			continue
		}
		if l.Mode != "link_up" {
			extra = append(extra, l.ID)
		}
	}
	return keep, extra
}
