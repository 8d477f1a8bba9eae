package ipmi

import (
	"context"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// Inventory counts the sensors and lists the event log and the accounts. IPMI
// tells no drives, no media slots and no lockout: they are empty, and the
// threshold is nil.
func (b *BMC) Inventory(ctx context.Context) (providers.BMCInventory, error) {
	const op = "ipmi.inventory"
	var out providers.BMCInventory
	partial := func(what string, err error) error {
		if !tolerable(err) && !providers.IsKind(err, providers.KindTooBig) {
			return err
		}
		out.Partial = append(out.Partial, what+": "+string(providers.KindOf(err)))
		return nil
	}
	records, err := b.sensors(ctx, op)
	out.Sensors = len(records)
	if err != nil {
		if err = partial("sensors", err); err != nil {
			return out, err
		}
	}
	if err := b.eventLog(ctx, op, &out); err != nil {
		if err = partial("event log", err); err != nil {
			return out, err
		}
	}
	if out.Accounts, err = b.accounts(ctx, op); err != nil {
		if err = partial("accounts", err); err != nil {
			return out, err
		}
	}
	return out, nil
}

// eventLog notes the system event log where there is one. An empty log is a
// log: reading its first entry answers 0xCB, which is no error.
func (b *BMC) eventLog(ctx context.Context, op string, out *providers.BMCInventory) error {
	var info storage.GetSELInfoResponse
	err := b.ask(ctx, op, &storage.GetSELInfoRequest{}, &info, reads)
	switch {
	case providers.IsKind(err, providers.KindUnsupported):
		return nil
	case err != nil && !providers.IsKind(err, providers.KindNotFound):
		return err
	}
	out.LogServices = append(out.LogServices, "SEL")
	if info.OperationSupport.Overflow {
		out.Partial = append(out.Partial, "event log: it is full and newer events are lost; clear it")
	}
	return nil
}

// accounts lists the names in use. A slot that cannot be read is an error of
// the whole, so that a list is never shorter than it looks.
func (b *BMC) accounts(ctx context.Context, op string) ([]string, error) {
	var out []string
	last := 1
	for id := 1; id <= min(last, b.opts.MaxRecords); id++ {
		var access app.GetUserAccessResponse
		req := &app.GetUserAccessRequest{ChannelNumber: types.ChannelNumberSelf, UserID: uint8(id)} //nolint:gosec // at most 63, below
		if err := b.ask(ctx, op, req, &access, reads); err != nil {
			return out, fmt.Errorf("account %d: %w", id, err)
		}
		last = int(access.MaxUsersIDCount & 0x3f)
		var name app.GetUsernameResponse
		err := b.ask(ctx, op, &app.GetUsernameRequest{UserID: uint8(id)}, &name, reads) //nolint:gosec // at most 63
		if code, refused := codeOf(err); refused && code == completion(types.CodeRequestDataFieldInvalid) {
			continue // a slot that never had a name
		}
		if err != nil {
			return out, fmt.Errorf("account %d: %w", id, err)
		}
		if n := b.clean(name.Username); n != "" {
			out = append(out, n)
		}
	}
	return out, nil
}
