package decommission_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

var started = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func (w *world) certifyIn(mode lifecycle.DecommissionMode) decommission.CertifyIn {
	return decommission.CertifyIn{JobRef: w.ref, Kind: contract.KindDecommission, Mode: mode, StartedAt: started}
}

// scrubbed leaves the results of a scrub and a validation; touch changes both
// before they are reported.
func (w *world) scrubbed(key string, touch func(scrub, validate *lifecycle.TaskResult)) {
	w.Helper()
	scrub := lifecycle.TaskResult{
		OK: true, BootID: "boot-1", Output: json.RawMessage(`{"boot_disks": ["BOOT"], "protected": ["SAFE"]}`),
		Steps: []lifecycle.StepResult{{Name: "disks", OK: true, EndedAt: started.Add(time.Hour)}},
		Devices: []lifecycle.DeviceResult{
			{Kind: "disk", Name: "nvme0n1", Serial: "DATA", Method: lifecycle.SanitizePurge, Tool: "nvme", Verified: true, Detail: "blank"},
			{Kind: "disk", Name: "sda", Serial: "BOOT", Method: lifecycle.SanitizeNone, Detail: "the agent runs from it"},
			{Kind: "gpu", Name: "GPU-1", Serial: "G1", Method: lifecycle.SanitizeClear, Verified: true},
		},
	}
	validate := lifecycle.TaskResult{
		OK: true, BootID: "boot-2", Steps: []lifecycle.StepResult{{Name: "fresh_boot", OK: true, EndedAt: started.Add(2 * time.Hour)}},
		Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Serial: "DATA", Method: lifecycle.SanitizeNone, Verified: true, Detail: "sampled"}},
	}
	if touch != nil {
		touch(&scrub, &validate)
	}
	w.beat("boot-1", 0, nil)
	w.task(lifecycle.TaskKindScrub, key+"scrub", spec.ScrubArgs{RunID: "r"}, scrub)
	w.beat("boot-2", 0, nil)
	w.task(lifecycle.TaskKindValidate, key+"validate", spec.ValidateArgs{RunID: "r"}, validate)
}

func erased(serials ...string) *contract.ReleaseFacts {
	f := &contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc123"}, Erased: true}
	for _, s := range serials {
		f.Disks = append(f.Disks, lifecycle.DeviceResult{Name: "sd" + strings.ToLower(s), Serial: s})
	}
	return f
}

// TestASoftResetSaysWhatItKept: its certificate is honest and its job succeeds.
func TestASoftResetSaysWhatItKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", nil)
	f := must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictNotVerified), f.Verdict)
	c, n := w.last()
	require.Equal(t, 1, n)
	require.Equal(t, []string{"disk sda BOOT: kept, not erased: soft_reset leaves the installed system on this disk"}, c.Failures)
	require.Equal(t, "boot-1", c.Run.BootBefore)
	require.Equal(t, "boot-2", c.Run.BootAfter)
	require.Equal(t, started.Add(2*time.Hour), c.Run.EndedAt.UTC())

	again := must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.Equal(t, f.CertificateID, again.CertificateID, "the same evidence is the same link")
	_, n = w.last()
	require.Equal(t, 1, n)
}

// TestMAASsErasureStandsForTheSystemDisk, by serial number, and for nothing that
// the task protected.
func TestMAASsErasureStandsForTheSystemDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeReimage)
	require.Contains(t, strings.Join(must(w, w.acts.CertifyNode, in).Unproven, "\n"), "BOOT")
	in.Release = erased("OTHER")
	require.Contains(t, strings.Join(must(w, w.acts.CertifyNode, in).Unproven, "\n"), "BOOT", "another disk is no proof for this one")
	in.Release = erased("BOOT", "DATA")
	f := must(w, w.acts.CertifyNode, in)
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictClean), f.Verdict)
	c, n := w.last()
	require.Equal(t, 3, n, "later evidence is a new link of the chain")
	for _, d := range c.Devices {
		switch d.Serial {
		case "BOOT":
			require.Equal(t, lifecycle.SanitizeClear, d.Method, "MAAS does not say how, so no more is claimed")
		case "DATA":
			require.Equal(t, lifecycle.SanitizePurge, d.Method, "the better proof stands")
		}
	}
	bundle, err := w.acts.Ring.Bundle(t.Context(), w.ref.NodeID)
	require.NoError(t, err)
	_, problems := evidence.Verify(bundle, bundle.Keys)
	require.Empty(t, problems)
}

// TestAProtectedDiskIsNoProof of anything, whatever MAAS says.
func TestAProtectedDiskIsNoProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", func(scrub, _ *lifecycle.TaskResult) {
		scrub.Devices = append(scrub.Devices, lifecycle.DeviceResult{Kind: "disk", Name: "sdb", Serial: "SAFE", Method: lifecycle.SanitizeNone, Detail: "protected"})
	})
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "SAFE")
	require.Equal(t, []string{"disk sdb SAFE: protected"}, must(w, w.acts.CertifyNode, in).Unproven)
}

// TestWhatAValidationFoundTakesAProofBack.
func TestWhatAValidationFoundTakesAProofBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", func(_, validate *lifecycle.TaskResult) {
		validate.OK, validate.Code = false, lifecycle.TaskCodeStepFailed
		validate.Devices[0].Verified, validate.Devices[0].Detail = false, "a block is not blank"
		validate.Steps = append(validate.Steps, lifecycle.StepResult{Name: "disks_blank", Detail: "nvme0n1"})
	})
	f := must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.Equal(t, []string{"step node.validate/disks_blank: nvme0n1", "disk nvme0n1 DATA: a block is not blank"}, f.Unproven)
	w.scrubbed("again/", nil)
	require.Empty(t, must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven, "the newest results count")
}

// TestAReleaseWithoutErasing is excused by the profile for the system disk of a
// node that leaves, and for nothing else.
func TestAReleaseWithoutErasing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = &contract.ReleaseFacts{Fallback: "MAAS failed to erase; the profile allows it"}
	f := must(w, w.acts.CertifyNode, in)
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictNotVerified), f.Verdict, "the certificate says it all the same")
	in.Mode = lifecycle.ModeReimage
	require.Len(t, must(w, w.acts.CertifyNode, in).Unproven, 2, "the next tenant would get that disk")
}

// TestADarkNode: what nobody looked at is not verified, and a node that leaves
// powered off needs its disks erased, every one that is known.
func TestADarkNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.beat("boot-1", 0, &spec.HealthReport{
		GPUs: []spec.GPUReport{{UUID: "GPU-1", Serial: "G1"}}, Disks: []spec.DiskReport{{Name: "sda", Serial: "BOOT", Boot: true}, {Name: "nvme0n1", Serial: "DATA"}},
	})
	in := w.certifyIn(lifecycle.ModeFull)
	in.Dark = "silent; off"
	in.Release = erased("BOOT")
	require.Equal(t, []string{"disk nvme0n1 DATA: not looked at"}, must(w, w.acts.CertifyNode, in).Unproven)
	in.Release = erased("BOOT", "DATA")
	f := must(w, w.acts.CertifyNode, in)
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictNotVerified), f.Verdict)
	c, _ := w.last()
	require.Contains(t, strings.Join(c.Failures, "\n"), "GPU-1")

	in.Release = nil
	other := newWorld(t)
	in.JobRef = other.ref
	require.Equal(t, []string{"no disk of the machine is known to be erased"}, must(other, other.acts.CertifyNode, in).Unproven)
}
