package sanitize

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Load reads what the job goes by, once.
func (s *State) Load(ctx workflow.Context, at string) error {
	if s.StartedAt.IsZero() {
		s.StartedAt = workflow.Now(ctx).UTC()
	}
	if err := s.ReadNode(ctx, at); err != nil || s.Loaded {
		return err
	}
	if !s.IsPXE() && s.InitialDisks == nil {
		s.InitialDisks = s.Node.Disks
		if s.distrustsReport() && len(s.Node.Drives) > 0 {
			s.InitialDisks, s.DisksRecorded = recordedDisks(s.Node.Drives), true
		}
	}
	in := maasact.NodeConfigIn{JobRef: s.Job.At(at), Keys: !s.ModeInfo().Operation || s.IsPXE()}
	f, err := stage.Do(ctx, stage.KindMAASCall, "read site, profile, SKU", maas.LoadNodeConfig, in)
	if err == nil {
		s.Config, s.Loaded = f, true
	}
	return err
}

// ProtectedFromRelease returns why MAAS must not release the machine: it erases every disk, also
// those that are protected.
func (s *State) ProtectedFromRelease() string {
	if len(s.Node.ProtectSerials) == 0 || s.Node.SystemID == "" || !slices.Contains(s.ModeInfo().Stages, lifecycle.StageReleaseMAAS) {
		return ""
	}
	return lifecycle.ProtectedFromRelease(s.Node.ProtectSerials, !s.TenantRelease && !s.Node.TenantRoot)
}

// EnsurePoweredOff switches the machine off, or only looks, and reports whether everybody
// who can tell reads it off: MAAS, and the BMC where it is known. Somebody must.
func (s *State) EnsurePoweredOff(ctx workflow.Context, at string, observe bool) (off bool, err error) {
	var said []contract.PowerFacts
	if s.Node.SystemID != "" {
		in := s.MachineIn(at)
		in.ObserveOnly = observe
		f, err := stage.Do(ctx, stage.KindBMCCall, "power off by MAAS", maas.PowerOffByMAAS, in)
		if err != nil {
			return false, err
		}
		s.RecordPower(f)
		if f.State == "on" || f.State == "off" {
			said = append(said, f)
		}
	}
	if s.Node.BMCID != "" {
		in := bmcact.PowerIn{JobRef: s.Job.At(at), BMCID: s.Node.BMCID, CAPEM: s.Config.Site.BMCCAPEM}
		in.ObserveOnly = observe
		f, err := stage.Do(ctx, stage.KindBMCCall, "power off at the BMC", bmc.PowerOffByBMC, in)
		if err != nil {
			return false, err
		}
		s.RecordPower(f)
		said = append(said, f)
	}
	for _, f := range said {
		if !f.Done {
			return false, nil
		}
	}
	return len(said) > 0, nil
}
