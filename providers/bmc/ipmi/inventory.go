package ipmi

import (
	"context"

	"github.com/bougou/go-ipmi/pkg/command/storage"

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
	out.Accounts, err = b.accountNames(ctx, op)
	if err != nil {
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
