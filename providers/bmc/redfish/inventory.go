package redfish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// lister gathers an inventory and what of it could not be read.
type lister struct {
	b   *BMC
	op  *operation
	out providers.BMCInventory
}

// Inventory lists drives, media slots, sensors, logs and accounts. A part that
// cannot be read is named in Partial and its neighbours are still listed; an
// error is returned only when the BMC as a whole does not answer.
func (b *BMC) Inventory(ctx context.Context) (providers.BMCInventory, error) {
	op := newOperation("inventory", b.opts.MaxListRequests)
	system, uri, err := b.system(ctx, op)
	if err != nil {
		return providers.BMCInventory{}, err
	}
	l := &lister{b: b, op: op}
	systems, err := l.links(ctx, b.conn.root.link("Systems"))
	if err != nil {
		return providers.BMCInventory{}, err
	}
	others, err := l.read(ctx, slices.DeleteFunc(systems, func(u string) bool { return u == uri }))
	if err != nil {
		return providers.BMCInventory{}, err
	}
	chassis, err := l.docsOf(ctx, b.conn.root.link("Chassis"))
	if err != nil {
		return providers.BMCInventory{}, err
	}
	managers, err := l.docsOf(ctx, b.conn.root.link("Managers"))
	if err != nil {
		return providers.BMCInventory{}, err
	}
	holders := append([]doc{system}, managers...)
	steps := []func() error{
		func() error { return l.drives(ctx, system, chassis) },
		func() error { return l.media(ctx, holders) },
		func() error { return l.sensors(ctx, chassis) },
		func() error { return l.logs(ctx, slices.Concat(holders, others, chassis)) },
		func() error { return l.accounts(ctx, b.conn.root.link("AccountService")) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return providers.BMCInventory{}, err
		}
	}
	b.secrets.scrub(&l.out)
	return l.out, nil
}

// reason is the short form of an error for a list of partial reads.
func reason(err error) string {
	var pe *providers.Error
	if !errors.As(err, &pe) {
		return "unreadable"
	}
	if pe.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d)", pe.Kind, pe.Status)
	}
	return string(pe.Kind)
}

// partial records an unreadable part and returns err when the whole BMC is
// concerned.
func (l *lister) partial(link string, err error) error {
	if !listable(err) {
		return err
	}
	if len(l.out.Partial) < maxFindings {
		l.out.Partial = append(l.out.Partial, l.b.secrets.text(link)+": "+reason(err))
	}
	return nil
}

// links lists a collection, marking it partial when it cannot be read whole.
func (l *lister) links(ctx context.Context, link string) ([]string, error) {
	if link == "" {
		return nil, nil
	}
	uris, err := l.b.conn.members(ctx, l.op, link)
	if err != nil {
		err = l.partial(link, err)
	}
	return uris, err
}

// docsOf reads every member of a collection.
func (l *lister) docsOf(ctx context.Context, link string) ([]doc, error) {
	uris, err := l.links(ctx, link)
	if err != nil {
		return nil, err
	}
	return l.read(ctx, uris)
}

func (l *lister) read(ctx context.Context, uris []string) ([]doc, error) {
	var out []doc
	for _, u := range uris {
		d, err := l.b.conn.get(ctx, l.op, u)
		if err != nil {
			if err := l.partial(u, err); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, d)
	}
	return out, nil
}

// drives lists the drives that the storage of the system and the chassis link,
// each once. SimpleStorage fills in only where nothing else lists any.
func (l *lister) drives(ctx context.Context, system doc, chassis []doc) error {
	storage, err := l.docsOf(ctx, system.link("Storage"))
	if err != nil {
		return err
	}
	var uris []string
	for _, d := range storage {
		uris = append(uris, d.links("Drives")...)
	}
	for _, d := range chassis {
		uris = append(uris, d.sub("Links").links("Drives")...)
	}
	slices.Sort(uris)
	drives, err := l.read(ctx, slices.Compact(uris))
	if err != nil {
		return err
	}
	if len(uris) == 0 {
		simple, err := l.docsOf(ctx, system.link("SimpleStorage"))
		if err != nil {
			return err
		}
		for _, d := range simple {
			drives = append(drives, d.docs("Devices")...)
		}
	}
	for _, d := range drives {
		if absent(d) {
			continue // an empty bay
		}
		size, _ := d.number("CapacityBytes")
		l.out.Drives = append(l.out.Drives, providers.BMCDrive{
			Name: d.text("Name"), Model: d.text("Model"), Serial: d.text("SerialNumber"),
			Protocol: d.text("Protocol"), CapacityBytes: int64(max(0, size)),
		})
	}
	return nil
}

// isInserted reports whether a slot has a medium. Some makes have no Inserted: an image then means
// the same.
func isInserted(slot doc) bool {
	return slot.flag("Inserted") || (slot["Inserted"] == nil && slot.text("Image") != "")
}

// media lists the virtual media slots of the managers and the system. A slot
// without an InsertMedia action takes a PATCH of Image and Inserted.
func (l *lister) media(ctx context.Context, holders []doc) error {
	seen := map[string]bool{}
	for _, h := range holders {
		uris, err := l.links(ctx, h.link("VirtualMedia"))
		if err != nil {
			return err
		}
		for _, u := range uris {
			if seen[u] {
				continue
			}
			seen[u] = true
			got, err := l.read(ctx, []string{u})
			if err != nil {
				return err
			}
			for _, d := range got {
				l.out.MediaSlots = append(l.out.MediaSlots, providers.BMCMediaSlot{
					URI: u, Types: d.texts("MediaTypes"),
					Inserted:  isInserted(d),
					HasInsert: d.sub("Actions", "#VirtualMedia.InsertMedia").text("target") != "",
				})
			}
		}
	}
	return nil
}

// sensors counts the sensors of every chassis without reading each.
func (l *lister) sensors(ctx context.Context, chassis []doc) error {
	for _, d := range chassis {
		uris, err := l.links(ctx, d.link("Sensors"))
		if err != nil {
			return err
		}
		l.out.Sensors += len(uris)
	}
	return nil
}

func (l *lister) logs(ctx context.Context, holders []doc) error {
	seen := map[string]bool{}
	for _, h := range holders {
		link := h.link("LogServices")
		if seen[link] {
			continue // managers and chassis often share the system's list
		}
		seen[link] = true
		uris, err := l.links(ctx, link)
		if err != nil {
			return err
		}
		for _, u := range uris {
			if !slices.Contains(l.out.LogServices, u) {
				l.out.LogServices = append(l.out.LogServices, u)
			}
		}
	}
	return nil
}

// accounts lists the names in use and the lockout policy. A missing threshold
// stays nil: it is not the same as 0.
func (l *lister) accounts(ctx context.Context, link string) error {
	if link == "" {
		return nil
	}
	got, err := l.read(ctx, []string{link})
	if err != nil || len(got) == 0 {
		return err
	}
	service := got[0]
	if n, ok := service.number("AccountLockoutThreshold"); ok {
		threshold := int(n)
		l.out.LockoutThreshold = &threshold
	}
	if s, ok := service.number("AccountLockoutDuration"); ok {
		l.out.LockoutDuration = time.Duration(max(0, min(s, 1e9))) * time.Second
	}
	accounts, err := l.docsOf(ctx, service.link("Accounts"))
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if name := a.text("UserName"); name != "" {
			l.out.Accounts = append(l.out.Accounts, name)
		}
	}
	return nil
}
