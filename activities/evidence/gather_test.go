package evidence_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/acttest"
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

// MAAS's record may list a disk that is gone, and MAAS does not say which disks it erased.
func TestCertifyNode_DiskKnownToMAASOnly(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "DATA", "GONE")
	f := acttest.Must(w, w.acts.CertifyNode, in)
	require.Len(t, f.Unproven, 1)
	require.Contains(t, f.Unproven[0], "GONE: not seen")
	c, _ := w.last()
	require.Equal(t, []string{"nvme0n1 DATA purge verified", "sda BOOT clear verified", "sdgone GONE none not"}, disks(c))
	require.Equal(t, evidence.VerdictNotVerified, c.Verdict)

	// A node that nobody but MAAS has ever looked into is proven by nothing.
	other := newCertifyFixture(t)
	in.JobRef, in.AgentUnreachable, in.Release = other.Ref, "never enrolled; off", erased("BOOT")
	require.Contains(t, strings.Join(acttest.Must(other, other.acts.CertifyNode, in).Unproven, "\n"), "BOOT: not seen")
}

// Names change from boot to boot, and MAAS has its own. Namespaces of one drive share its serial
// number, and differ in name.
func TestCertifyNode_MatchesDisksBySerial(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", func(scrub, validate *lifecycle.TaskResult) {
		scrub.Devices = append(scrub.Devices, disk("nvme2n1", "TWICE", lifecycle.SanitizePurge, true), disk("nvme2n2", "TWICE", lifecycle.SanitizePurge, true))
		validate.Devices = append(validate.Devices[:0], disk("nvme1n1", "DATA", lifecycle.SanitizeNone, true),
			disk("nvme2n1", "TWICE", lifecycle.SanitizeNone, true), disk("nvme2n2", "TWICE", lifecycle.SanitizeNone, false))
	})
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "DATA")
	in.InitialDisks = []lifecycle.DeviceResult{disk("sdz", "DATA", lifecycle.SanitizeNone, false), disk("sdy", "BOOT", lifecycle.SanitizeNone, false)}
	f := acttest.Must(w, w.acts.CertifyNode, in)
	require.Equal(t, []string{"disk nvme2n2 TWICE: as reported"}, f.Unproven)
	c, _ := w.last()
	require.Equal(t, []string{"nvme0n1 DATA purge verified", "nvme2n1 TWICE purge verified", "nvme2n2 TWICE purge not", "sda BOOT clear verified"}, disks(c))
}

// A disk that was reported when the job began, or after the restart, and not by the scrub, is not
// verified in any mode.
func TestCertifyNode_DiskThatScrubDidNotSee(t *testing.T) {
	t.Parallel()
	for _, mode := range []lifecycle.DecommissionMode{lifecycle.ModeSoftReset, lifecycle.ModeStorageCleanup, lifecycle.ModeReimage, lifecycle.ModeFull} {
		w := newCertifyFixture(t)
		w.Enrol(1)
		w.scrubbed("", func(_, validate *lifecycle.TaskResult) {
			validate.Devices = append(validate.Devices, disk("sdc", "LATE", lifecycle.SanitizeNone, true))
		})
		in := w.certifyIn(mode)
		in.InitialDisks = []lifecycle.DeviceResult{disk("sdb", "LOST", lifecycle.SanitizeNone, false), disk("nvme0n1", "DATA", lifecycle.SanitizeNone, false)}
		in.Release = erased("BOOT", "DATA", "LOST")
		got := strings.Join(acttest.Must(w, w.acts.CertifyNode, in).Unproven, "\n")
		require.Contains(t, got, "LOST: not seen", mode)
		require.Contains(t, got, "LATE: the validation saw it", mode)
		require.Equal(t, 2, strings.Count(got, "disk "), got)
	}
}

// TestCertifyNode_DisksRecorded: after a tenant who was root the drives of the node's record are
// required, in any spelling, and no disk that only his agent has reported.
func TestCertifyNode_DisksRecorded(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeReimage)
	in.Release = erased("BOOT", "DATA")
	in.DisksRecorded, in.InitialDisks = true, []lifecycle.DeviceResult{disk("", "BOOT", lifecycle.SanitizeNone, false), disk("", "data", lifecycle.SanitizeNone, false)}
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven)
	in.InitialDisks = append(in.InitialDisks, disk("", "LOST", lifecycle.SanitizeNone, false))
	require.Equal(t, []string{"disk  LOST: not seen: the node's record lists it, and it is not among what the scrub has reported"},
		acttest.Must(w, w.acts.CertifyNode, in).Unproven)

	off := newCertifyFixture(t)
	off.Enrol(1)
	off.Heartbeat("boot-1", 1, 0, &spec.HealthReport{Disks: []spec.DiskReport{{Name: "sda", Serial: "INVENTED"}}})
	in = off.certifyIn(lifecycle.ModeFull)
	in.AgentUnreachable, in.Release = "switched off", erased("TWICE", "TWICE")
	in.Release.Disks[1].Name = "sdb"
	require.Contains(t, strings.Join(acttest.Must(off, off.acts.CertifyNode, in).Unproven, "\n"), "INVENTED", "of any other tenant the report counts")
	twice := disk("", "twice", lifecycle.SanitizeNone, false)
	in.DisksRecorded, in.InitialDisks = true, []lifecycle.DeviceResult{twice, twice}
	require.Empty(t, acttest.Must(off, off.acts.CertifyNode, in).Unproven)
	in.InitialDisks = append(in.InitialDisks, disk("", "LOST", lifecycle.SanitizeNone, false))
	require.Contains(t, strings.Join(acttest.Must(off, off.acts.CertifyNode, in).Unproven, "\n"), "LOST: not looked at")
}

// After a scrub that an operator adopted, or of mounts only, a validation says that disks are blank
// and not who erased them.
func TestCertifyNode_NeedsScrubOfDisks(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.Heartbeat("boot-1", 1, 0, nil)
	w.RunTask(lifecycle.TaskKindScrub, "mounts", spec.ScrubArgs{RunID: "r", Steps: []string{"mounts"}}, lifecycle.TaskResult{OK: true, BootID: "boot-1"})
	w.Heartbeat("boot-2", 1, 0, nil)
	w.RunTask(lifecycle.TaskKindValidate, "look", spec.ValidateArgs{RunID: "r"}, lifecycle.TaskResult{
		OK: true, BootID: "boot-2", Devices: []lifecycle.DeviceResult{disk("sda", "S1", lifecycle.SanitizeNone, true)},
	})
	got := strings.Join(acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven, "\n")
	require.Contains(t, got, "step gpu.scrub: nothing is known of a scrub")
	require.Contains(t, got, "sda S1: the validation saw it")
}

// endAllocation puts a tenant on the node and ends the allocation.
func (w *certifyFixture) endAllocation() {
	w.Helper()
	dbtest.EndTenancy(w.T, w.Store, w.StartAllocation())
	require.NoError(w, dbtest.SetTenantRoot(w.Context(), w.Store, false))
	require.True(w, w.needsSanitizing())
}

// TestCertifyNode_SaysWhatWasNotLookedAt names settings of the BMC that were not compared.
func TestCertifyNode_SaysWhatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeReimage)
	in.NotVerified = []string{"the BMC shows none of its settings"}
	acttest.Must(w, w.acts.CertifyNode, in)
	c, _ := w.last()
	last := c.Steps[len(c.Steps)-1]
	require.Equal(t, []string{"bmc.settings", "not verified: the BMC shows none of its settings"}, []string{last.Name, last.Skipped})
}

// TestCertifyNode_RootTenantsSystem: what the system of a root tenant says of itself ends nothing.
func TestCertifyNode_RootTenantsSystem(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.endAllocation()
	require.NoError(t, dbtest.SetTenantRoot(t.Context(), w.Store, true))
	w.scrubbed("", nil)
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven)
	require.True(t, w.needsSanitizing(), "its own system says so")
}

// needsSanitizing reports whether a tenant has left the node and nothing proves it clean since.
func (w *certifyFixture) needsSanitizing() bool {
	w.Helper()
	n, err := w.Store.Node(w.Context(), w.Ref.NodeID)
	require.NoError(w, err)
	return n.TenantLeftAt != nil
}

// A certificate ends that the node must be sanitized when it proves what the mode requires, of a
// scrub that began after the allocation had ended.
func TestCertifyNode_EndsSanitizationRequired(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.endAllocation()
	w.scrubbed("", func(scrub, _ *lifecycle.TaskResult) { scrub.Devices[0].Verified = false })
	require.NotEmpty(t, acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven)
	require.True(t, w.needsSanitizing(), "it proves nothing")
	w.scrubbed("again/", nil)
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven)
	require.False(t, w.needsSanitizing(), "its disk is kept, and what is a tenant's is gone from it")

	w = newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	w.endAllocation()
	acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.True(t, w.needsSanitizing(), "the tenant left after the scrub")

	w = newCertifyFixture(t)
	w.Enrol(1)
	w.endAllocation()
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = &contract.ReleaseFacts{Fallback: "MAAS failed to erase; the profile allows it"}
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven)
	require.True(t, w.needsSanitizing(), "excused is not clean")
}

// The installed system's disk is required too, and so is one that the live system does not see.
func TestCertifyNode_LiveSystemNeedsEveryDisk(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.UsePXENode("52:54:00:aa:00:08", lifecycle.ModeDeprovision)
	w.Enrol(1)
	in := evidenceact.CertifyIn{
		JobRef: w.Ref, Kind: contract.KindNodeOperation, Mode: lifecycle.ModeDeprovision, StartedAt: time.Now().Truncate(time.Microsecond),
		Netboot: &contract.NetbootFacts{Installed: true, Disks: []lifecycle.DeviceResult{{Kind: "disk", Name: "sda", Serial: "S0"}, {Kind: "disk", Name: "nvme0n1", Serial: "S1"}}},
	}
	w.RunTask(lifecycle.TaskKindScrub, "scrub/1", spec.ScrubArgs{RunID: w.Ref.JobID}, lifecycle.TaskResult{OK: true, BootID: "live-1", Devices: []lifecycle.DeviceResult{disk("sdb", "S0", lifecycle.SanitizePurge, true)}})
	got := acttest.Must(w, w.acts.CertifyNode, in)
	require.Len(t, got.Unproven, 1, "names move from system to system, serial numbers do not")
	require.Contains(t, got.Unproven[0], "does not see it")
	c, _ := w.last()
	require.NotEqual(t, "clean", string(c.Verdict))
	require.Empty(t, c.Subject.SiteID)

	w.RunTask(lifecycle.TaskKindScrub, "scrub/2", spec.ScrubArgs{RunID: w.Ref.JobID}, lifecycle.TaskResult{
		OK: true, BootID: "live-1", Output: []byte(`{"boot_disks": ["S0"]}`), Devices: []lifecycle.DeviceResult{
			{Kind: "disk", Name: "sda", Serial: "S0", Method: lifecycle.SanitizeNone, Detail: "the agent runs from it"}, disk("nvme0n1", "S1", lifecycle.SanitizePurge, true),
		},
	})
	require.Len(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven, 1, "a live system that runs from a disk is none")

	w.RunTask(lifecycle.TaskKindScrub, "scrub/3", spec.ScrubArgs{RunID: w.Ref.JobID}, lifecycle.TaskResult{OK: true, BootID: "live-1"})
	in.Netboot = &contract.NetbootFacts{}
	require.Contains(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven, "no disk of the machine is known to be erased")
	in.Netboot.Installed = true
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven, "a machine that is known to have no disk")
}
