package ipmi

import (
	"context"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// deviceOf maps a target to a boot device selector (table 28-14).
func deviceOf(target providers.BootTarget) (types.BootDeviceSelector, bool) {
	switch target {
	case providers.BootNone:
		return types.BootDeviceSelectorNoOverride, true
	case providers.BootPXE:
		return types.BootDeviceSelectorForcePXE, true
	case providers.BootHDD:
		return types.BootDeviceSelectorForceHardDrive, true
	case providers.BootCD:
		return types.BootDeviceSelectorForceCDROM, true
	case providers.BootSetup:
		return types.BootDeviceSelectorForceBIOSSetup, true
	default:
		return 0, false
	}
}

func targetOf(device types.BootDeviceSelector) providers.BootTarget {
	for _, t := range []providers.BootTarget{providers.BootPXE, providers.BootHDD, providers.BootCD, providers.BootSetup, providers.BootNone} {
		if d, _ := deviceOf(t); d == device {
			return t
		}
	}
	return providers.BootTarget("") // a device that Slipway does not ask for
}

// bootSource names where an override was read.
const bootSource = "ipmi:boot-flags"

// SetBootOnce sets and verifies a one-time override. An override that is set already is not sent
// again. Before the override, the BMC is asked not to drop the flags after a minute, as the
// specification lets it when no power command follows.
//
// Errors: KindUnsupported for a target that IPMI has no device for,
// KindUncertain after a lost answer that a re-read did not settle,
// KindProtocol when the BMC accepts and does not apply.
func (b *BMC) SetBootOnce(ctx context.Context, target providers.BootTarget, uefi bool) (providers.BootOverride, error) {
	const op = "ipmi.set_boot_once"
	device, ok := deviceOf(target)
	if !ok {
		return providers.BootOverride{}, &providers.Error{Kind: providers.KindUnsupported, Op: op, Message: "IPMI has no boot device for " + string(target)}
	}
	flags, err := b.bootFlags(ctx, op)
	if err != nil && !absent(err) {
		return providers.BootOverride{}, err
	}
	if err == nil && b.inForce(flags, device, uefi) {
		return b.override(flags), nil
	}
	keep := &chassis.SetSystemBootOptionsParamRequest{ParamSelector: types.BootOptionParamSelector_BMCBootFlagValidBitClear, ParamData: []byte{1 << 3}}
	if _, err := b.run(ctx, op, keep, changes); err != nil {
		if _, answered := codeOf(err); !answered {
			return providers.BootOverride{}, err
		}
	}
	// The valid bit also with no override: cleared flags are "use the default".
	want := types.BootOptionParam_BootFlags{BootFlagsValid: true, BIOSBootType: types.BIOSBootType(uefi), BootDeviceSelector: device}
	set := &chassis.SetSystemBootOptionsParamRequest{ParamSelector: types.BootOptionParamSelector_BootFlags, ParamData: want.Pack()}
	if _, err := b.run(ctx, op, set, changes); err != nil && !providers.IsKind(err, providers.KindUncertain) {
		return providers.BootOverride{}, err
	}
	return b.verify(ctx, op, device, uefi)
}

// verify reads back until the override shows.
func (b *BMC) verify(ctx context.Context, op string, device types.BootDeviceSelector, uefi bool) (providers.BootOverride, error) {
	limit, cancel := context.WithTimeout(ctx, b.opts.VerifyWait)
	defer cancel()
	for pause := b.opts.PollMin; ; pause = min(2*pause, b.opts.PollMax) {
		flags, err := b.bootFlags(ctx, op)
		switch {
		case err == nil && b.inForce(flags, device, uefi):
			return b.override(flags), nil
		case err != nil && !passes(err):
			return providers.BootOverride{}, err
		}
		if werr := poll.Sleep(limit, pause); werr == nil {
			continue
		}
		if err != nil || ctx.Err() != nil {
			return providers.BootOverride{}, &providers.Error{Kind: providers.KindUncertain, Op: op, Err: cause(err),
				Message: "the boot override was sent and could not be read back; read it before repeating"}
		}
		return b.override(flags), &providers.Error{Kind: providers.KindProtocol, Op: op,
			Message: "the BMC accepted the boot override and does not show it as set"}
	}
}

// inForce compares device, validity, persistence and boot type, or the device
// alone where the rig of ipmi_sim asks for that.
func (b *BMC) inForce(f types.BootOptionParam_BootFlags, device types.BootDeviceSelector, uefi bool) bool {
	if f.BootDeviceSelector != device {
		return false
	}
	if b.opts.AcceptBareBootFlags || device == types.BootDeviceSelectorNoOverride {
		return true
	}
	return f.BootFlagsValid && !f.Persist && bool(f.BIOSBootType) == uefi
}

// BootOverride reads the override now in force.
func (b *BMC) BootOverride(ctx context.Context) (providers.BootOverride, error) {
	flags, err := b.bootFlags(ctx, "ipmi.boot_override")
	if err != nil {
		return providers.BootOverride{}, err
	}
	return b.override(flags), nil
}

func (b *BMC) override(f types.BootOptionParam_BootFlags) providers.BootOverride {
	out := providers.BootOverride{Target: targetOf(f.BootDeviceSelector), Enabled: "Once", FromURI: bootSource}
	switch {
	case f.BootDeviceSelector == types.BootDeviceSelectorNoOverride, !f.BootFlagsValid && !b.opts.AcceptBareBootFlags:
		out.Target, out.Enabled = providers.BootNone, "Disabled"
	case f.Persist:
		out.Enabled = "Continuous"
	}
	switch {
	case out.Enabled == "Disabled" || !f.BootFlagsValid:
	case bool(f.BIOSBootType):
		out.Mode = "UEFI"
	default:
		out.Mode = "Legacy"
	}
	return out
}

func (b *BMC) bootFlags(ctx context.Context, op string) (types.BootOptionParam_BootFlags, error) {
	var res chassis.GetSystemBootOptionsParamResponse
	var flags types.BootOptionParam_BootFlags
	err := b.ask(ctx, op, &chassis.GetSystemBootOptionsParamRequest{ParamSelector: types.BootOptionParamSelector_BootFlags}, &res, reads)
	if code, ok := codeOf(err); ok && code == noBootFlags {
		return flags, &providers.Error{Kind: providers.KindUnsupported, Op: op, Err: code, Message: "the BMC has no boot flags (completion code 0x80)"}
	}
	if err != nil {
		return flags, err
	}
	err = decode(op, &flags, res.ParamData)
	flags.BootFlagsValid = flags.BootFlagsValid && !res.ParameterInValid
	return flags, err
}

// noBootFlags is the code for a boot parameter that the BMC does not have.
const noBootFlags = 0x80
