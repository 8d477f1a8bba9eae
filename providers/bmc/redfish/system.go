package redfish

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Probe reads the service root without any login. It accepts whatever
// certificate is shown, so that a changed one can be looked at: compare the
// returned pin with the approved one.
func (b *BMC) Probe(ctx context.Context) (providers.BMCIdent, error) {
	var (
		mu  sync.Mutex
		pin string
	)
	g := &guard{base: b.base, opts: b.opts, secrets: b.secrets,
		transport: newTransport(b.conn.trust.probeConfig(func(p string) { mu.Lock(); pin = p; mu.Unlock() }), b.target.Rule, b.opts)}
	defer g.transport.CloseIdleConnections()
	_, root, err := open(ctx, newOperation("probe", 2), g)
	if err != nil {
		return providers.BMCIdent{}, err
	}
	vendor := root.text("Vendor")
	if vendor == "" {
		for name := range root.sub("Oem") { // older roots name the vendor only by the key of their extension
			vendor = max(vendor, name)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return providers.BMCIdent{
		Vendor: b.secrets.text(vendor), Product: b.secrets.text(root.text("Product")),
		RedfishVersion: b.secrets.text(root.text("RedfishVersion")), UUID: strings.ToLower(root.text("UUID")),
		PinSHA256: pin,
	}, nil
}

// Close logs out and frees the session. It is safe to call twice.
func (b *BMC) Close(ctx context.Context) error { return b.conn.close(ctx) }

// system reads the chosen system.
func (b *BMC) system(ctx context.Context, op *operation) (doc, string, error) {
	b.mu.Lock()
	uri := b.systemURI
	b.mu.Unlock()
	if uri == "" {
		chosen, err := b.chooseSystem(ctx, op)
		if err != nil {
			return nil, "", err
		}
		b.mu.Lock()
		b.systemURI = chosen
		b.mu.Unlock()
		uri = chosen
	}
	d, err := b.conn.get(ctx, op, uri)
	return d, uri, err
}

// chooseSystem finds the configured system, or the only one that can be reset:
// GPU boards list a second "system" for the baseboard, in any order.
func (b *BMC) chooseSystem(ctx context.Context, op *operation) (string, error) {
	if err := b.conn.ready(ctx, op); err != nil {
		return "", err
	}
	fail := func(kind providers.Kind, message string) (string, error) {
		return "", &providers.Error{Kind: kind, Op: op.name, Message: message}
	}
	systems := b.conn.root.link("Systems")
	if systems == "" {
		return fail(providers.KindUnsupported, "the BMC lists no systems")
	}
	uris, err := b.conn.members(ctx, op, systems)
	if err != nil {
		return "", err
	}
	want := b.target.SystemID
	for _, u := range uris {
		if want != "" && (u == want || baseName(u) == want) {
			return u, nil
		}
	}
	var resettable, names []string
	for _, u := range uris {
		d, err := b.conn.get(ctx, op, u)
		if err != nil {
			return "", err
		}
		if want != "" && d.text("Id") == want {
			return u, nil
		}
		names = append(names, baseName(u))
		if resetTarget(d) != "" {
			resettable = append(resettable, u)
		}
	}
	list := b.secrets.text(strings.Join(names, ", "))
	switch {
	case want != "":
		return fail(providers.KindNotFound, "the BMC has no system with the configured id; it lists: "+list)
	case len(resettable) == 0:
		return fail(providers.KindUnsupported, "no system of this BMC can be reset; it lists: "+list)
	case len(resettable) > 1:
		return fail(providers.KindInvalid, "the BMC has several systems that can be reset; configure the system id, one of: "+list)
	}
	return resettable[0], nil
}

func resetTarget(system doc) string {
	return system.sub("Actions", "#ComputerSystem.Reset").text("target")
}

// Power reads the power state now.
func (b *BMC) Power(ctx context.Context) (providers.PowerState, error) {
	d, _, err := b.system(ctx, newOperation("power", b.opts.MaxRequests))
	if err != nil {
		return providers.PowerUnknown, err
	}
	return powerOf(d), nil
}

func powerOf(system doc) providers.PowerState {
	switch schemas.PowerState(system.text("PowerState")) {
	case schemas.OnPowerState:
		return providers.PowerOn
	case schemas.OffPowerState:
		return providers.PowerOff
	case schemas.PoweringOnPowerState:
		return providers.PowerPoweringOn
	case schemas.PoweringOffPowerState:
		return providers.PowerPoweringOff
	default:
		return providers.PowerUnknown
	}
}

// Identify reads the system's identity, power and health. A value that the system leaves empty is
// taken from the chassis that it links, and else stays empty: another chassis is another part (a
// cable cartridge, a GPU board, a power shelf), and its serial number is not the machine's.
func (b *BMC) Identify(ctx context.Context) (providers.BMCSystem, error) {
	op := newOperation("identify", b.opts.MaxRequests)
	d, uri, err := b.system(ctx, op)
	if err != nil {
		return providers.BMCSystem{}, err
	}
	uuid, _ := spec.NormalUUID(d.text("UUID"))
	out := providers.BMCSystem{
		ID: d.text("Id"), URI: uri,
		Manufacturer: d.text("Manufacturer"), Model: d.text("Model"), Serial: b.serial(d),
		UUID: uuid, Power: powerOf(d), Health: healthOf(d.sub("Status")),
	}
	if out.Serial != "" {
		out.SerialSource = "system " + out.ID
	}
	if err := b.count(ctx, op, &out, uri, d); err != nil {
		return providers.BMCSystem{}, err
	}
	if err := b.fillFromChassis(ctx, op, &out, d.sub("Links").links("Chassis")); err != nil {
		return providers.BMCSystem{}, err
	}
	out.MACs, err = b.macs(ctx, op, d, b.chassisOf(ctx, op, d))
	if providers.IsKind(err, providers.KindTooBig) {
		out.Partial = append(out.Partial, "network ports: "+reason(err))
		err = nil
	}
	if err != nil {
		return providers.BMCSystem{}, err
	}
	b.secrets.scrub(&out)
	return out, nil
}

// count takes memory and processors from the system, then from what its own
// collections list, then from another system behind the same BMC: on some
// boards only that one counts them. A DPU's are not the host's.
func (b *BMC) count(ctx context.Context, op *operation, s *providers.BMCSystem, uri string, system doc) error {
	take := func(d doc) {
		if gib, _ := d.sub("MemorySummary").number("TotalSystemMemoryGiB"); s.MemoryGiB <= 0 {
			s.MemoryGiB = max(0, gib)
		}
		if n, _ := d.sub("ProcessorSummary").number("Count"); s.ProcessorCount <= 0 {
			s.ProcessorCount = max(0, int(n))
		}
	}
	take(system)
	if s.MemoryGiB == 0 {
		err := b.each(ctx, op, system.link("Memory"), func(_ string, d doc) {
			mib, _ := d.number("CapacityMiB")
			s.MemoryGiB += max(0, mib) / 1024
		})
		if err != nil {
			return err
		}
	}
	if s.ProcessorCount == 0 {
		err := b.each(ctx, op, system.link("Processors"), func(_ string, d doc) {
			if kind := d.text("ProcessorType"); kind == "" || kind == string(schemas.CPUProcessorType) {
				s.ProcessorCount++
			}
		})
		if err != nil {
			return err
		}
	}
	if s.MemoryGiB > 0 && s.ProcessorCount > 0 {
		return nil
	}
	return b.each(ctx, op, b.conn.root.link("Systems"), func(u string, d doc) {
		if u != uri && d.text("SystemType") != string(schemas.DPUSystemType) {
			take(d)
		}
	})
}

// each hands on the members of a collection that are there and can be read.
func (b *BMC) each(ctx context.Context, op *operation, link string, f func(string, doc)) error {
	if link == "" {
		return nil
	}
	uris, err := b.conn.members(ctx, op, link)
	if err != nil && !listable(err) {
		return err
	}
	for _, u := range uris {
		d, err := b.conn.get(ctx, op, u)
		switch {
		case err == nil && !absent(d):
			f(u, d)
		case err != nil && !listable(err):
			return err
		}
	}
	return nil
}

// chassisOf lists the chassis of a system, those it links first.
func (b *BMC) chassisOf(ctx context.Context, op *operation, system doc) []string {
	out := system.sub("Links").links("Chassis")
	all := b.conn.root.link("Chassis")
	if all == "" {
		return out
	}
	found, _ := b.conn.members(ctx, op, all) // an unreadable list leaves the linked ones
	for _, u := range found {
		if !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}

func (b *BMC) fillFromChassis(ctx context.Context, op *operation, s *providers.BMCSystem, chassis []string) error {
	for _, u := range chassis {
		if s.Serial != "" && s.Model != "" && s.Manufacturer != "" {
			return nil
		}
		d, err := b.conn.get(ctx, op, u)
		if err != nil {
			if listable(err) {
				s.Partial = append(s.Partial, u+": "+reason(err))
				continue
			}
			return err
		}
		if serial := b.serial(d); s.Serial == "" && serial != "" {
			s.Serial, s.SerialSource = serial, "chassis "+baseName(u)
		}
		for field, key := range map[*string]string{&s.Model: "Model", &s.Manufacturer: "Manufacturer"} {
			if *field == "" {
				*field = d.text(key)
			}
		}
	}
	return nil
}

// serial returns the serial number of a resource. A secret in it is hidden first: NormalSerial
// changes characters of it, and no later look would know it.
func (b *BMC) serial(d doc) string {
	text := d.text("SerialNumber")
	if b.conn.secrets.secretIn(text) {
		return providers.Hidden
	}
	return spec.NormalSerial(text)
}

// passable reports a failure of one resource that does not concern the whole
// BMC, so that its neighbours are worth reading.
func passable(err error) bool {
	var pe *providers.Error
	if !errors.As(err, &pe) {
		return false
	}
	switch pe.Kind {
	case providers.KindNotFound, providers.KindUnsupported, providers.KindProtocol, providers.KindForbidden, providers.KindInvalid:
		return true
	default:
		return pe.Kind == providers.KindUnavailable && pe.Status == 500
	}
}

// macs lists the addresses of the system's own network ports, lower case with
// colons, sorted. The interface between host and BMC is left out. An empty
// list with an unreadable part is an error, never "no ports"; where the requests
// ran out, KindTooBig comes with the addresses that were found until then.
func (b *BMC) macs(ctx context.Context, op *operation, system doc, chassis []string) ([]string, error) {
	found := map[string]bool{}
	var skipped error
	walk := func(link string, take func(doc) error) error {
		if link == "" {
			return nil
		}
		uris, err := b.conn.members(ctx, op, link)
		for _, u := range uris {
			d, gerr := b.conn.get(ctx, op, u)
			if gerr == nil {
				gerr = take(d)
			}
			if gerr != nil && !listable(gerr) {
				return gerr
			}
			skipped = errors.Join(skipped, gerr)
		}
		if err != nil && !listable(err) {
			return err
		}
		if providers.KindOf(err) != providers.KindNotFound {
			skipped = errors.Join(skipped, err)
		}
		return nil
	}
	add := func(d doc) error {
		if d.sub("Links").link("HostInterface") == "" {
			addMACs(found, d)
		}
		return nil
	}
	if err := walk(system.link("EthernetInterfaces"), add); err != nil {
		return nil, err
	}
	for _, u := range chassis {
		if len(found) > 0 {
			break
		}
		if err := b.adapterMACs(ctx, op, u, walk, add); err != nil {
			return nil, err
		}
	}
	out := make([]string, 0, len(found))
	for m := range found {
		out = append(out, m)
	}
	slices.Sort(out)
	switch {
	case op.budget.Load() < 0:
		return out, &providers.Error{Kind: providers.KindTooBig, Op: op.name, Message: "the BMC needs more requests than this operation may make"}
	case len(out) == 0 && skipped != nil:
		return nil, renamed(op, skipped)
	}
	return out, nil
}

// adapterMACs reads the network adapters of a chassis, where some BMCs show
// the ports of add-in cards that the system does not list.
func (b *BMC) adapterMACs(ctx context.Context, op *operation, chassis string,
	walk func(string, func(doc) error) error, add func(doc) error) error {
	d, err := b.conn.get(ctx, op, chassis)
	if err != nil {
		if listable(err) {
			return nil
		}
		return err
	}
	return walk(d.link("NetworkAdapters"), func(adapter doc) error {
		for _, part := range []string{"NetworkDeviceFunctions", "Ports", "NetworkPorts"} {
			if err := walk(adapter.link(part), add); err != nil {
				return err
			}
		}
		return nil
	})
}

func addMACs(found map[string]bool, d doc) {
	candidates := []string{d.text("PermanentMACAddress"), d.text("MACAddress"),
		d.sub("Ethernet").text("PermanentMACAddress"), d.sub("Ethernet").text("MACAddress")}
	candidates = append(candidates, d.texts("AssociatedNetworkAddresses")...)
	candidates = append(candidates, d.sub("Ethernet").texts("AssociatedMACAddresses")...)
	for _, c := range candidates {
		hw, err := net.ParseMAC(c)
		if err == nil && len(hw) == 6 && hw.String() != "00:00:00:00:00:00" {
			found[hw.String()] = true
		}
	}
}
