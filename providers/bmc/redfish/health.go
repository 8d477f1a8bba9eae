package redfish

import (
	"context"
	"errors"
	"slices"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/providers"
)

// healthOf reads Status.Health; Unknown when the BMC does not say.
func healthOf(status doc) string {
	switch h := schemas.Health(status.text("Health")); h {
	case schemas.OKHealth, schemas.WarningHealth, schemas.CriticalHealth:
		return string(h)
	}
	return "Unknown"
}

// maxFindings bounds what a report lists.
const maxFindings = 256

// rollup gathers the health of members. The roll-up a BMC computes itself is
// missing on some makes, so it only ever adds to what the members say.
type rollup struct {
	b       *BMC
	op      *operation
	worst   string
	unread  bool // a part could not be read, or the system itself does not say
	report  providers.BMCHealth
	probes  probes
	visited map[string]bool
}

// Health rolls up the system, its processors, memory, storage and drives, then
// every further system behind the same BMC (GPU boards and DPUs are systems of
// their own, and a host's own roll-up does not cover them), the chassis with
// fans, temperatures and power supplies, and the managers. A part that does not
// tell its health is listed as Unknown; one that could not be read, or that the
// operation's requests did not reach, makes the whole Unknown unless something
// is known to be worse.
func (b *BMC) Health(ctx context.Context) (providers.BMCHealth, error) {
	r, err := b.rollUp(ctx, newOperation("health", b.opts.MaxListRequests), false)
	if err != nil {
		return providers.BMCHealth{}, err
	}
	return r.report, nil
}

// rollUp reads the health of every part. A device is no machine: its BMC has no host.
func (b *BMC) rollUp(ctx context.Context, op *operation, device bool) (*rollup, error) {
	if op.kept == nil {
		op.kept = newKeptDocs()
	}
	r := &rollup{b: b, op: op, worst: "OK", visited: map[string]bool{}}
	var host func() error
	switch system, uri, err := b.system(ctx, op); {
	case err == nil:
		r.visited[uri] = true
		r.note(uri, system)
		r.unread = healthOf(system.sub("Status")) == "Unknown"
		host = func() error { return r.system(ctx, uri, system) }
	case device && providers.IsKind(err, providers.KindUnsupported):
		host = func() error { return nil }
	default:
		return nil, err
	}
	steps := []func() error{
		host,
		func() error { return r.collection(ctx, b.conn.root.link("Systems"), r.system) },
		func() error { return r.collection(ctx, b.conn.root.link("Chassis"), r.chassis) },
		func() error { return r.collection(ctx, b.conn.root.link("Managers"), nil) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.report.Overall = r.worst
	if r.worst == "OK" && (r.unread || r.probes.none()) {
		r.report.Overall = "Unknown"
	}
	return r, nil
}

// system reads the parts of one system.
func (r *rollup) system(ctx context.Context, uri string, d doc) error {
	for _, part := range []string{"ProcessorSummary", "MemorySummary"} {
		if s := d.sub(part); s.sub("Status") != nil {
			r.note(uri+"#/"+part, s)
		}
	}
	for _, part := range []string{"Processors", "Memory"} {
		if err := r.collection(ctx, d.link(part), nil); err != nil {
			return err
		}
	}
	return r.collection(ctx, d.link("Storage"), r.storage)
}

// note takes the status of one part.
func (r *rollup) note(label string, d doc) {
	status := d.sub("Status")
	if absent(d) {
		return
	}
	health := healthOf(status)
	switch up := healthOf(doc{"Health": status["HealthRollup"]}); {
	case up == "Critical", up == "Warning" && health != "Critical":
		health = up
	}
	if d.flag("FailurePredicted") && health != "Critical" {
		health = "Warning"
	}
	label = r.b.secrets.text(label)
	r.probes.add(providers.BMCProbe{Target: label, Category: categoryOf(label, d), Health: health})
	switch health {
	case "OK":
	case "Unknown":
		r.unknown(label)
	default:
		if health == "Critical" || r.worst == "OK" {
			r.worst = health
		}
		if len(r.report.Problems) < maxFindings {
			r.report.Problems = append(r.report.Problems, label+": "+health)
		}
	}
}

func (r *rollup) unknown(label string) {
	if len(r.report.Unknown) < maxFindings {
		r.report.Unknown = append(r.report.Unknown, label)
	}
}

// absent reports a part that the machine has a place for and does not have.
func absent(d doc) bool { return d.sub("Status").text("State") == string(schemas.AbsentState) }

// listable reports a failure that leaves the other parts of a list worth having:
// of one resource, of a link that leads elsewhere, and of the operation's
// requests, which are used up.
func listable(err error) bool {
	return passable(err) || providers.IsKind(err, providers.KindForeign) || providers.IsKind(err, providers.KindTooBig)
}

// failed records a part that could not be read and returns err when the whole
// BMC is concerned. Time that ran out leaves what was read, as requests do.
func (r *rollup) failed(ctx context.Context, link string, err error) error {
	if !listable(err) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	r.unread = true
	label := r.b.secrets.text(link)
	r.unknown(label + ": " + reason(err))
	r.probes.add(providers.BMCProbe{Target: label, Category: categoryOf(label, nil), Health: "Unknown", Note: reason(err)})
	return nil
}

// resource reads one part, notes it and hands it to deeper.
func (r *rollup) resource(ctx context.Context, link string, deeper func(context.Context, string, doc) error) error {
	if r.visited[link] {
		return nil
	}
	r.visited[link] = true
	d, err := r.b.conn.get(ctx, r.op, link)
	if err != nil {
		return r.failed(ctx, link, err)
	}
	r.note(link, d)
	if deeper != nil {
		return deeper(ctx, link, d)
	}
	return nil
}

func (r *rollup) collection(ctx context.Context, link string, deeper func(context.Context, string, doc) error) error {
	if link == "" {
		return nil
	}
	uris, err := r.b.conn.members(ctx, r.op, link)
	if err != nil {
		if err := r.failed(ctx, link, err); err != nil {
			return err
		}
	}
	for _, u := range uris {
		if err := r.resource(ctx, u, deeper); err != nil {
			return err
		}
	}
	return nil
}

func (r *rollup) storage(ctx context.Context, _ string, d doc) error {
	for _, link := range d.links("Drives") {
		if err := r.resource(ctx, link, nil); err != nil {
			return err
		}
	}
	return nil
}

// chassis reads fans, temperatures and power supplies: inline in the older
// Thermal and Power resources, or as collections of the newer subsystems.
func (r *rollup) chassis(ctx context.Context, _ string, d doc) error {
	for _, part := range []struct {
		old, fresh string
		lists      []string
		collection string
	}{
		{"Thermal", "ThermalSubsystem", []string{"Fans", "Temperatures"}, "Fans"},
		{"Power", "PowerSubsystem", []string{"PowerSupplies"}, "PowerSupplies"},
	} {
		var err error
		if link := d.link(part.old); link != "" {
			err = r.inline(ctx, link, part.lists)
		} else if link := d.link(part.fresh); link != "" {
			err = r.subsystem(ctx, link, part.collection)
		}
		if err != nil {
			return err
		}
	}
	if err := r.collection(ctx, d.link("NetworkAdapters"), nil); err != nil {
		return err
	}
	return r.leaks(ctx, d.link("ThermalSubsystem"))
}

// leaks reads the leak detectors of a chassis that is cooled by liquid.
func (r *rollup) leaks(ctx context.Context, link string) error {
	if link == "" {
		return nil
	}
	d, err := r.b.conn.get(ctx, r.op, link)
	if err != nil {
		return r.failed(ctx, link, err)
	}
	at := d.link("LeakDetection")
	if at == "" {
		return nil
	}
	return r.resource(ctx, at, func(ctx context.Context, _ string, d doc) error {
		return r.collection(ctx, d.link("LeakDetectors"), nil)
	})
}

func (r *rollup) inline(ctx context.Context, link string, lists []string) error {
	if r.visited[link] {
		return nil
	}
	r.visited[link] = true
	d, err := r.b.conn.get(ctx, r.op, link)
	if err != nil {
		return r.failed(ctx, link, err)
	}
	for _, list := range lists {
		for _, item := range d.docs(list) {
			name := item.text("Name")
			if name == "" {
				name = item.text("MemberId")
			}
			r.note(link+"#/"+list+"/"+name, item)
		}
	}
	return nil
}

func (r *rollup) subsystem(ctx context.Context, link, collection string) error {
	if r.visited[link] {
		return nil
	}
	r.visited[link] = true
	d, err := r.b.conn.get(ctx, r.op, link)
	if err != nil {
		return r.failed(ctx, link, err)
	}
	if slices.Contains([]string{"Warning", "Critical"}, healthOf(d.sub("Status"))) {
		r.note(link, d)
	}
	return r.collection(ctx, d.link(collection), nil)
}
