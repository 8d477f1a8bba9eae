package decommission_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// disk is one that a task has reported.
func disk(name, serial string, m lifecycle.SanitizeMethod, verified bool) lifecycle.DeviceResult {
	return lifecycle.DeviceResult{Kind: "disk", Name: name, Serial: serial, Method: m, Verified: verified, Detail: "as reported"}
}

// disks are those of a certificate, "name serial method verified".
func disks(c evidence.Certificate) []string {
	var out []string
	for _, d := range c.Devices {
		if d.Kind == "disk" {
			out = append(out, strings.Join([]string{d.Name, d.Serial, string(d.Method), map[bool]string{true: "verified", false: "not"}[d.Verified]}, " "))
		}
	}
	slices.Sort(out)
	return out
}

// TestWhatOnlyMAASKnowsIsNotErased: its record may be of a disk that is long
// gone, and MAAS does not say which it erased.
func TestWhatOnlyMAASKnowsIsNotErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "DATA", "GONE")
	f := must(w, w.acts.CertifyNode, in)
	require.Len(t, f.Unproven, 1)
	require.Contains(t, f.Unproven[0], "GONE: not seen")
	c, _ := w.last()
	require.Equal(t, []string{"nvme0n1 DATA purge verified", "sda BOOT clear verified", "sdgone GONE none not"}, disks(c))
	require.Equal(t, evidence.VerdictNotVerified, c.Verdict)

	// A node that nobody but MAAS has ever looked into is proven by nothing.
	other := newWorld(t)
	in.JobRef, in.Dark, in.Release = other.ref, "never enrolled; off", erased("BOOT")
	require.Contains(t, strings.Join(must(other, other.acts.CertifyNode, in).Unproven, "\n"), "BOOT: not seen")
}

// TestADiskOfAnotherNameIsTheSameDisk: names move from boot to boot, and MAAS has
// its own. Namespaces of one drive have its serial number, and the name tells them
// apart.
func TestADiskOfAnotherNameIsTheSameDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.scrubbed("", func(scrub, validate *lifecycle.TaskResult) {
		scrub.Devices = append(scrub.Devices, disk("nvme2n1", "TWICE", lifecycle.SanitizePurge, true), disk("nvme2n2", "TWICE", lifecycle.SanitizePurge, true))
		validate.Devices = append(validate.Devices[:0], disk("nvme1n1", "DATA", lifecycle.SanitizeNone, true),
			disk("nvme2n1", "TWICE", lifecycle.SanitizeNone, true), disk("nvme2n2", "TWICE", lifecycle.SanitizeNone, false))
	})
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "DATA")
	in.Known = []lifecycle.DeviceResult{disk("sdz", "DATA", lifecycle.SanitizeNone, false), disk("sdy", "BOOT", lifecycle.SanitizeNone, false)}
	f := must(w, w.acts.CertifyNode, in)
	require.Equal(t, []string{"disk nvme2n2 TWICE: as reported"}, f.Unproven)
	c, _ := w.last()
	require.Equal(t, []string{"nvme0n1 DATA purge verified", "nvme2n1 TWICE purge verified", "nvme2n2 TWICE purge not", "sda BOOT clear verified"}, disks(c))
}

// TestADiskThatWhoErasedDidNotSee is not verified, in any mode: it was listed when
// the job began, or it turned up when the node had booted anew.
func TestADiskThatWhoErasedDidNotSee(t *testing.T) {
	t.Parallel()
	for _, mode := range []lifecycle.DecommissionMode{lifecycle.ModeSoftReset, lifecycle.ModeStorageCleanup, lifecycle.ModeReimage, lifecycle.ModeFull} {
		w := newWorld(t)
		w.enrol()
		w.scrubbed("", func(_, validate *lifecycle.TaskResult) {
			validate.Devices = append(validate.Devices, disk("sdc", "LATE", lifecycle.SanitizeNone, true))
		})
		in := w.certifyIn(mode)
		in.Known = []lifecycle.DeviceResult{disk("sdb", "LOST", lifecycle.SanitizeNone, false), disk("nvme0n1", "DATA", lifecycle.SanitizeNone, false)}
		in.Release = erased("BOOT", "DATA", "LOST")
		got := strings.Join(must(w, w.acts.CertifyNode, in).Unproven, "\n")
		require.Contains(t, got, "LOST: not seen", mode)
		require.Contains(t, got, "LATE: the validation saw it", mode)
		require.Equal(t, 2, strings.Count(got, "disk "), got)
	}
}

// TestNoScrubNoProof: a validation after a scrub that a person adopted, or that
// was of mounts only, says that disks are blank and not who erased them.
func TestNoScrubNoProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.beat("boot-1", 0, nil)
	w.task(lifecycle.TaskKindScrub, "mounts", spec.ScrubArgs{RunID: "r", Steps: []string{"mounts"}}, lifecycle.TaskResult{OK: true, BootID: "boot-1"})
	w.beat("boot-2", 0, nil)
	w.task(lifecycle.TaskKindValidate, "look", spec.ValidateArgs{RunID: "r"}, lifecycle.TaskResult{
		OK: true, BootID: "boot-2", Devices: []lifecycle.DeviceResult{disk("sda", "S1", lifecycle.SanitizeNone, true)},
	})
	got := strings.Join(must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven, "\n")
	require.Contains(t, got, "step gpu.scrub: nothing is known of a scrub")
	require.Contains(t, got, "sda S1: the validation saw it")
}

// leaves puts a tenant on the node and ends it.
func (w *world) leaves() {
	w.Helper()
	c, err := pgx.Connect(w.Context(), w.dsn)
	require.NoError(w, err)
	defer func() { require.NoError(w, c.Close(w.Context())) }()
	_, err = c.Exec(w.Context(), "UPDATE nodes SET allocation_id = 'alloc_1' WHERE id = $1", w.ref.NodeID)
	require.NoError(w, err)
	f := must(w, w.acts.EndAllocation, decommission.AllocationIn{JobRef: w.ref, AllocationID: "alloc_1"})
	require.Empty(w, f.AllocationID)
	require.NotNil(w, f.TenantLeft)
}

// TestACertificateTakesTheTenantsMark where it proves what the mode is asked for,
// of what the tenant left before the scrub.
func TestACertificateTakesTheTenantsMark(t *testing.T) {
	t.Parallel()
	marked := func(w *world) bool {
		return must(w, w.acts.LookAtLeaving, w.ref).TenantLeft != nil
	}
	w := newWorld(t)
	w.enrol()
	w.leaves()
	first := must(w, w.acts.EndAllocation, decommission.AllocationIn{JobRef: w.ref, AllocationID: "alloc_1"}).TenantLeft
	require.NotNil(t, first, "an answer that was lost is read anew")
	w.scrubbed("", func(scrub, _ *lifecycle.TaskResult) { scrub.Devices[0].Verified = false })
	require.NotEmpty(t, must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven)
	require.True(t, marked(w), "it proves nothing")
	w.scrubbed("again/", nil)
	require.Empty(t, must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven)
	require.False(t, marked(w), "its disk is kept, and what is a tenant's is gone from it")

	w = newWorld(t)
	w.enrol()
	w.scrubbed("", nil)
	w.leaves()
	must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.True(t, marked(w), "the tenant left after the scrub")

	w = newWorld(t)
	w.enrol()
	w.leaves()
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = &contract.ReleaseFacts{Fallback: "MAAS failed to erase; the profile allows it"}
	require.Empty(t, must(w, w.acts.CertifyNode, in).Unproven)
	require.True(t, marked(w), "excused is not clean")
}
