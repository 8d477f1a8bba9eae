package ipmi

import (
	"context"
	"errors"
	"strings"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// systemID is the one system that IPMI knows.
const systemID = "chassis"

// Identify reads the UUID, and manufacturer, model and serial as far as the
// inventory record (FRU 0) tells them. There are no MAC addresses, no memory
// and no processors over IPMI: they stay empty. Health is that of the chassis
// alone and never OK, since the chassis cannot say so; Health reads more.
func (b *BMC) Identify(ctx context.Context) (providers.BMCSystem, error) {
	const op = "ipmi.identify"
	status, err := b.status(ctx, op)
	if err != nil {
		return providers.BMCSystem{}, err
	}
	out := providers.BMCSystem{ID: systemID, URI: "ipmi:" + systemID, Power: providers.PowerOff, Health: "Unknown"}
	if status.PowerIsOn {
		out.Power = providers.PowerOn
	}
	if worst, _ := chassisFaults(status); worst != healthOK {
		out.Health = worst.String()
	}
	uuid, err := b.uuid(ctx, op)
	if err != nil {
		return providers.BMCSystem{}, err
	}
	out.UUID, _ = spec.NormalUUID(uuid)
	f, err := b.fru(ctx, op)
	if err != nil && !tolerable(err) {
		return providers.BMCSystem{}, err
	}
	out.Manufacturer, out.Model, out.Serial = b.clean(f.manufacturer), b.clean(f.model), b.clean(f.serial)
	if out.Serial != "" {
		out.SerialSource = "FRU"
	}
	if out.UUID == "" && out.Serial == "" {
		return providers.BMCSystem{}, &providers.Error{Kind: providers.KindUnsupported, Op: op,
			Message: "the BMC tells neither a UUID nor a serial over IPMI, so the machine cannot be told from another; use Redfish for it"}
	}
	return out, nil
}

// uuid asks for the system's GUID, and takes the one of the login from a BMC
// that does not know the command.
func (b *BMC) uuid(ctx context.Context, op string) (string, error) {
	var g app.GetSystemGUIDResponse
	err := b.ask(ctx, op, &app.GetSystemGUIDRequest{}, &g, reads)
	switch {
	case err != nil && !tolerable(err):
		return "", err
	case err == nil && uuidOf(g.GUID) != "":
		return uuidOf(g.GUID), nil
	}
	release, err := b.take(ctx, op)
	if err != nil {
		return "", err
	}
	defer release()
	if b.session == nil {
		return "", nil
	}
	return uuidOf(b.session.keys.guid), nil
}

// tolerable: the BMC answered, and what it said concerns this one part.
func tolerable(err error) bool {
	_, answered := codeOf(err)
	var pe *providers.Error
	return answered || (errors.As(err, &pe) && pe.Kind == providers.KindProtocol && pe.Err == nil)
}

// uuidOf reads a GUID. BMCs send it in any of three byte orders; the one that
// makes a well-formed UUID (version and variant) is taken, and SMBIOS's, which
// the operating system shows, where that decides nothing. All zero and all one
// is no UUID.
func uuidOf(guid [16]byte) string {
	blank := true
	for _, v := range guid {
		blank = blank && (v == guid[0])
	}
	if blank && (guid[0] == 0 || guid[0] == 0xff) {
		return ""
	}
	for _, mode := range []types.GUIDMode{types.GUIDModeSMBIOS, types.GUIDModeIPMI, types.GUIDModeRFC4122} {
		if u, err := types.ParseGUID(guid[:], mode); err == nil && u[8]>>6 == 2 && u[6]>>4 >= 1 && u[6]>>4 <= 8 {
			return u.String()
		}
	}
	u, err := types.ParseGUID(guid[:], types.GUIDModeSMBIOS)
	if err != nil {
		return ""
	}
	return u.String()
}

// clean bounds a text of the BMC to printable ASCII and withholds one that
// repeats the password, also between characters that are not printable.
func (b *BMC) clean(s string) string {
	printable := strings.TrimSpace(strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, s))
	if known := providers.NewRedaction(b.target.Password); known.Found(s) || known.Found(printable) {
		return "[withheld: it repeats a secret]"
	}
	return printable[:min(len(printable), 64)]
}
