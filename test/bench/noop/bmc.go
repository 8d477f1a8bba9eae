package noop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/slipway-cloud/slipway/providers"
)

// BMCs opens a BMC at any address; serial, UUID and MACs follow from it.
type BMCs struct{}

var _ providers.BMCOpener = BMCs{}

// OpenBMC implements providers.BMCOpener.
func (BMCs) OpenBMC(t providers.BMCTarget) (providers.BMC, error) { return bmc{t}, nil }

type bmc struct{ target providers.BMCTarget }

func (b bmc) sum() [32]byte { return sha256.Sum256([]byte(b.target.Address)) }

func (b bmc) Probe(context.Context) (providers.BMCIdent, error) {
	sum := b.sum()
	return providers.BMCIdent{Vendor: "Noop", Product: "noop", RedfishVersion: "1.15.0", PinSHA256: hex.EncodeToString(sum[:])}, nil
}

// Identify needs the password, as a real BMC does.
func (b bmc) Identify(context.Context) (providers.BMCSystem, error) {
	if b.target.User != BMCUser || b.target.Password.Reveal() != BMCPassword {
		return providers.BMCSystem{}, &providers.Error{Kind: providers.KindUnauthorized, Op: "noop.identify", Status: 401, Message: "wrong login"}
	}
	s := b.sum()
	return providers.BMCSystem{
		ID: "1", URI: "/redfish/v1/Systems/1", Manufacturer: "Noop", Model: "GPU server", Serial: "S" + hex.EncodeToString(s[:6]),
		UUID:  fmt.Sprintf("%x-%x-%x-%x-%x", s[:4], s[4:6], s[6:8], s[8:10], s[10:16]),
		MACs:  []string{fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", s[0], s[1], s[2], s[3], s[4])},
		Power: providers.PowerOff, Health: "OK", MemoryGiB: 2048, ProcessorCount: 2,
	}, nil
}

func (b bmc) Power(context.Context) (providers.PowerState, error) { return providers.PowerOff, nil }

func (b bmc) SetPower(_ context.Context, intent providers.PowerIntent) (providers.PowerState, error) {
	if intent == providers.IntentOn {
		return providers.PowerOn, nil
	}
	return providers.PowerOff, nil
}

func (b bmc) SetBootOnce(_ context.Context, target providers.BootTarget, _ bool) (providers.BootOverride, error) {
	return providers.BootOverride{Target: target, Enabled: "Once"}, nil
}

func (b bmc) BootOverride(context.Context) (providers.BootOverride, error) {
	return providers.BootOverride{Target: providers.BootNone, Enabled: "Disabled"}, nil
}

func (b bmc) Health(context.Context) (providers.BMCHealth, error) {
	return providers.BMCHealth{Overall: "OK"}, nil
}

func (b bmc) Inventory(context.Context) (providers.BMCInventory, error) {
	return providers.BMCInventory{}, nil
}

func (b bmc) Survey(context.Context, bool) (providers.Survey, error) {
	return providers.Survey{Health: providers.BMCHealth{Overall: "OK"}}, nil
}

func (b bmc) Logs(context.Context, func(providers.BMCLogEntry) bool) (providers.BMCLogs, error) {
	return providers.BMCLogs{}, nil
}

func (b bmc) Close(context.Context) error { return nil }
