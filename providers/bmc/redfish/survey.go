package redfish

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/providers"
)

// maxParts bounds the parts of a survey.
const maxParts = 512

// parts gathers the parts of a machine from resources that the health of the same survey has read.
type parts struct {
	b       *BMC
	op      *operation
	out     []providers.BMCPart
	seen    map[string]bool
	gaps    map[providers.PartKind]bool
	partial []string
}

// Survey reads every part of the machine with its health, each resource once. A resource that could
// not be read is named, and its kinds of parts are not in Whole.
func (b *BMC) Survey(ctx context.Context, device bool) (providers.Survey, error) {
	op := newOperation("survey", b.opts.MaxListRequests)
	op.kept = newKeptDocs()
	var out providers.Survey
	r, err := b.rollUp(ctx, op, device)
	if err != nil {
		return out, err
	}
	out.Health = r.report
	out.Probes, out.LeftOut = r.probes.list()
	p := &parts{b: b, op: op, seen: map[string]bool{}, gaps: map[providers.PartKind]bool{}}
	if err := p.gather(ctx); err != nil {
		return out, err
	}
	out.Parts, out.Partial = p.out, p.partial
	for _, k := range hardware.Kinds() {
		if !p.gaps[k] {
			out.Whole = append(out.Whole, k)
		}
	}
	b.secrets.scrub(&out)
	return out, nil
}

// gather walks systems, chassis, managers and firmware. A host that is off hides parts on some
// makes, so that those it lists are not all there are.
func (p *parts) gather(ctx context.Context) error {
	root := func(name string, kinds ...providers.PartKind) string {
		link := p.b.conn.root.link(name)
		if link == "" { // a BMC that is still starting shows no collection: nothing of it is gone
			for _, k := range kinds {
				p.gaps[k] = true
			}
		}
		return link
	}
	systems := []providers.PartKind{hardware.Board, hardware.DPU, hardware.CPU, hardware.GPU, hardware.Memory, hardware.Drive}
	inside := []providers.PartKind{hardware.Chassis, hardware.Board, hardware.NIC, hardware.DPU, hardware.PSU, hardware.Drive}
	steps := []func() error{
		func() error { return p.each(ctx, root("Systems", systems...), systems, p.system) },
		func() error { return p.each(ctx, root("Chassis", inside...), inside, p.chassis) },
		func() error { return p.ports(ctx) },
		func() error {
			return p.each(ctx, root("Managers", hardware.BMC), []providers.PartKind{hardware.BMC}, func(_ context.Context, uri string, d doc) error {
				p.add(hardware.BMC, uri, d)
				return nil
			})
		},
		func() error { return p.firmware(ctx, root("UpdateService", hardware.Firmware)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// miss records that parts of these kinds may be missing, and returns err when the whole BMC is
// concerned. Time that ran out leaves what was read.
func (p *parts) miss(ctx context.Context, link string, err error, kinds ...providers.PartKind) error {
	if !listable(err) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	for _, k := range kinds {
		p.gaps[k] = true
	}
	if len(p.partial) < maxFindings {
		p.partial = append(p.partial, p.b.secrets.text(link)+": "+reason(err))
	}
	return nil
}

// each calls f for the members of a collection that are there. A member that cannot be read leaves
// a gap in kinds.
func (p *parts) each(ctx context.Context, link string, kinds []providers.PartKind, f func(context.Context, string, doc) error) error {
	if link == "" {
		return nil
	}
	uris, err := p.b.conn.members(ctx, p.op, link)
	if err != nil {
		if err := p.miss(ctx, link, err, kinds...); err != nil {
			return err
		}
	}
	return p.read(ctx, uris, kinds, f)
}

func (p *parts) read(ctx context.Context, uris []string, kinds []providers.PartKind, f func(context.Context, string, doc) error) error {
	for _, u := range uris {
		d, err := p.b.conn.get(ctx, p.op, u)
		switch {
		case err != nil:
			err = p.miss(ctx, u, err, kinds...)
		case !absent(d):
			err = f(ctx, u, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add lists a part once. A list that is full leaves a gap.
func (p *parts) add(kind providers.PartKind, uri string, d doc) {
	if p.seen[uri] {
		return
	}
	p.seen[uri] = true
	part := p.part(kind, uri, d)
	if kind == hardware.DPU && part.Serial != "" {
		for i, other := range p.out {
			if other.Kind == kind && other.Serial == part.Serial { // a card, and the system on it
				fillPart(&p.out[i], part)
				return
			}
		}
	}
	if len(p.out) >= maxParts {
		p.gaps[kind] = true
		return
	}
	p.out = append(p.out, part)
}

// part reads the fields that parts have in common.
func (p *parts) part(kind providers.PartKind, uri string, d doc) providers.BMCPart {
	first := func(values ...string) string {
		i := slices.IndexFunc(values, func(v string) bool { return v != "" })
		if i < 0 {
			return ""
		}
		return p.b.secrets.text(values[i])
	}
	place := d.sub("PhysicalLocation", "PartLocation")
	if place == nil {
		place = d.sub("Location", "PartLocation")
	}
	var controller doc
	if list := d.docs("Controllers"); len(list) > 0 {
		controller = list[0]
	}
	return providers.BMCPart{
		Kind: kind, URI: p.b.secrets.text(uri), Name: first(d.text("Name"), d.text("Id")), Manufacturer: first(d.text("Manufacturer")), Model: first(d.text("Model")),
		Serial: first(d.text("SerialNumber")), PartNumber: first(d.text("PartNumber"), d.text("SparePartNumber")),
		Firmware: first(d.text("FirmwareVersion"), d.text("Revision"), d.text("BiosVersion"), controller.text("FirmwarePackageVersion"), d.text("Version")),
		Slot:     first(place.text("ServiceLabel"), place.text("LocationOrdinalValue"), d.text("Socket"), d.text("DeviceLocator")),
		MAC:      strings.ToLower(first(d.text("PermanentMACAddress"), d.text("MACAddress"))),
	}
}

// fillPart takes from the second what the first leaves empty.
func fillPart(into *providers.BMCPart, from providers.BMCPart) {
	for to, value := range map[*string]string{
		&into.Manufacturer: from.Manufacturer, &into.Model: from.Model, &into.PartNumber: from.PartNumber, &into.Firmware: from.Firmware,
		&into.Slot: from.Slot, &into.Mode: from.Mode,
	} {
		if *to == "" {
			*to = value
		}
	}
}

// system lists a system, its processors, memory and drives. The parts on a DPU's board are its own.
func (p *parts) system(ctx context.Context, uri string, d doc) error {
	if d.text("SystemType") == string(schemas.DPUSystemType) {
		return p.dpu(ctx, uri, d)
	}
	p.add(hardware.Board, uri, d)
	if power := d.text("PowerState"); power != "" && power != string(schemas.OnPowerState) {
		for _, k := range []providers.PartKind{hardware.CPU, hardware.GPU, hardware.Memory, hardware.NIC, hardware.DPU, hardware.Drive} {
			p.gaps[k] = true
		}
	}
	processors := []providers.PartKind{hardware.CPU, hardware.GPU, hardware.Board}
	err := p.each(ctx, d.link("Processors"), processors, func(_ context.Context, u string, d doc) error {
		switch d.text("ProcessorType") {
		case "", string(schemas.CPUProcessorType):
			p.add(hardware.CPU, u, d)
		case string(schemas.GPUProcessorType):
			p.add(hardware.GPU, u, d)
		default:
			p.add(hardware.Board, u, d)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = p.each(ctx, d.link("Memory"), []providers.PartKind{hardware.Memory}, func(_ context.Context, u string, d doc) error {
		p.add(hardware.Memory, u, d)
		return nil
	})
	if err != nil {
		return err
	}
	drives := []providers.PartKind{hardware.Drive}
	return p.each(ctx, d.link("Storage"), drives, func(ctx context.Context, _ string, d doc) error {
		return p.read(ctx, d.links("Drives"), drives, p.drive)
	})
}

func (p *parts) drive(_ context.Context, uri string, d doc) error {
	p.add(hardware.Drive, uri, d)
	return nil
}

// dpu lists a DPU with its mode, which NVIDIA's firmware tells in its own section of the system, in
// a resource that the section links, or among the settings of its BIOS.
func (p *parts) dpu(ctx context.Context, uri string, d doc) error {
	own := d.sub("Oem", "Nvidia")
	mode := own.text("Mode")
	for _, at := range []struct{ link, section string }{{own.link(), ""}, {d.link("Bios"), "Attributes"}} {
		if mode != "" || at.link == "" {
			continue
		}
		more, err := p.b.conn.get(ctx, p.op, at.link)
		if err != nil {
			if err := p.miss(ctx, at.link, err, hardware.DPU); err != nil {
				return err
			}
			continue
		}
		if at.section != "" {
			more = more.sub(at.section)
		}
		if mode = more.text("Mode"); mode == "" {
			mode = more.text("NicMode")
		}
	}
	before := len(p.out)
	p.add(hardware.DPU, uri, d)
	part := providers.BMCPart{Mode: dpuMode(mode)}
	if len(p.out) > before {
		fillPart(&p.out[before], part)
		return nil
	}
	for i, other := range p.out { // the card was listed before
		if other.Kind == hardware.DPU && other.Serial != "" && other.Serial == d.text("SerialNumber") {
			fillPart(&p.out[i], part)
		}
	}
	return nil
}

// dpuMode reads DpuMode, NicMode and how older firmware calls them.
func dpuMode(s string) string {
	switch s = strings.ToLower(s); {
	case strings.HasPrefix(s, "nic"):
		return hardware.ModeNIC
	case strings.HasPrefix(s, "dpu"), strings.HasPrefix(s, "ecpf"), strings.HasPrefix(s, "embedded"):
		return hardware.ModeDPU
	}
	return ""
}

// chassis lists a chassis or board with its adapters, power supplies and drives. A chassis around a
// processor is that processor, which its system lists.
func (p *parts) chassis(ctx context.Context, uri string, d doc) error {
	if len(d.sub("Links").links("Processors")) == 0 {
		kind := hardware.Board
		switch d.text("ChassisType") {
		case "", "Rack", "Blade", "Enclosure", "StandAlone", "RackMount", "Sled", "Drawer", "Shelf", "Pod", "Zone", "Sidecar":
			kind = hardware.Chassis
		}
		p.add(kind, uri, d)
	}
	cards := []providers.PartKind{hardware.NIC, hardware.DPU}
	err := p.each(ctx, d.link("NetworkAdapters"), cards, func(ctx context.Context, u string, d doc) error {
		if strings.Contains(strings.ToLower(d.text("Model")+" "+d.text("Name")), "bluefield") {
			return p.dpu(ctx, u, d)
		}
		p.add(hardware.NIC, u, d)
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.supplies(ctx, d); err != nil {
		return err
	}
	return p.read(ctx, d.sub("Links").links("Drives"), []providers.PartKind{hardware.Drive}, p.drive)
}

// supplies lists power supplies, from the newer collection where there is one.
func (p *parts) supplies(ctx context.Context, d doc) error {
	for _, part := range []string{"PowerSubsystem", "Power"} {
		link := d.link(part)
		if link == "" {
			continue
		}
		more, err := p.b.conn.get(ctx, p.op, link)
		if err != nil {
			if err := p.miss(ctx, link, err, hardware.PSU); err != nil {
				return err
			}
			continue
		}
		for i, s := range more.docs("PowerSupplies") {
			uri := s.text("@odata.id")
			if uri == "" {
				uri = link + "#/PowerSupplies/" + s.text("MemberId")
			}
			if i < maxParts && !absent(s) {
				p.add(hardware.PSU, uri, s)
			}
		}
		if list := more.link("PowerSupplies"); list != "" {
			return p.each(ctx, list, []providers.PartKind{hardware.PSU}, func(_ context.Context, u string, d doc) error {
				p.add(hardware.PSU, u, d)
				return nil
			})
		}
		if len(more.docs("PowerSupplies")) > 0 {
			return nil
		}
	}
	return nil
}

// ports lists the network ports of the host where no chassis lists a card.
func (p *parts) ports(ctx context.Context) error {
	if slices.ContainsFunc(p.out, func(x providers.BMCPart) bool { return x.Kind == hardware.NIC }) {
		return nil
	}
	system, _, err := p.b.system(ctx, p.op)
	if err != nil {
		if providers.IsKind(err, providers.KindUnsupported) {
			return nil // a switch tray or power shelf
		}
		return p.miss(ctx, "host", err, hardware.NIC)
	}
	return p.each(ctx, system.link("EthernetInterfaces"), []providers.PartKind{hardware.NIC}, func(_ context.Context, u string, d doc) error {
		if d.sub("Links").link("HostInterface") == "" {
			p.add(hardware.NIC, u, d)
		}
		return nil
	})
}

// firmware lists the items of firmware.
func (p *parts) firmware(ctx context.Context, service string) error {
	if service == "" {
		return nil
	}
	kinds := []providers.PartKind{hardware.Firmware}
	d, err := p.b.conn.get(ctx, p.op, service)
	if err != nil {
		return p.miss(ctx, service, err, kinds...)
	}
	return p.each(ctx, d.link("FirmwareInventory"), kinds, func(_ context.Context, u string, d doc) error {
		p.add(hardware.Firmware, u, d)
		return nil
	})
}
