package evidence_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	"github.com/slipway-cloud/slipway/contract"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/acttest"
)

var started = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// certifyFixture is a node with a job, and the activity that certifies it.
type certifyFixture struct {
	*acttest.Fixture
	acts *evidenceact.Activities
}

func newCertifyFixture(t *testing.T) *certifyFixture {
	t.Helper()
	w := &certifyFixture{Fixture: acttest.New(t)}
	w.acts = &evidenceact.Activities{Store: w.Store, Ring: &signing.Ring{Store: w.Store, Secrets: w.Secrets}}
	w.Register(w.acts)
	return w
}

// last returns the node's newest certificate, and how many there are.
func (w *certifyFixture) last() (evidence.Certificate, int) {
	w.Helper()
	rows, err := evidencedb.CertificatesOfNode(w.Context(), w.Store, w.Ref.NodeID)
	require.NoError(w, err)
	require.NotEmpty(w, rows)
	var c evidence.Certificate
	require.NoError(w, json.Unmarshal(rows[len(rows)-1].Payload, &c))
	return c, len(rows)
}

func (w *certifyFixture) certifyIn(mode lifecycle.DecommissionMode) evidenceact.CertifyIn {
	return evidenceact.CertifyIn{JobRef: w.Ref, Kind: contract.KindDecommission, Mode: mode, StartedAt: started}
}

// scrubbed leaves the results of a scrub and a validation; touch changes both
// before they are reported.
func (w *certifyFixture) scrubbed(key string, touch func(scrub, validate *lifecycle.TaskResult)) {
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
	w.Heartbeat("boot-1", 1, 0, nil)
	w.RunTask(lifecycle.TaskKindScrub, key+"scrub", spec.ScrubArgs{RunID: "r"}, scrub)
	w.Heartbeat("boot-2", 1, 0, nil)
	w.RunTask(lifecycle.TaskKindValidate, key+"validate", spec.ValidateArgs{RunID: "r"}, validate)
}

func erased(serials ...string) *contract.ReleaseFacts {
	f := &contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc123"}, Erased: true}
	for _, s := range serials {
		f.Disks = append(f.Disks, lifecycle.DeviceResult{Name: "sd" + strings.ToLower(s), Serial: s})
	}
	return f
}

// The certificate of a soft reset lists the disk that it kept, and its job succeeds.
func TestCertifyNode_SoftResetListsKeptDisk(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	f := acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictNotVerified), f.Verdict)
	c, n := w.last()
	require.Equal(t, 1, n)
	require.Equal(t, []string{"disk sda BOOT: kept, not erased: soft_reset leaves the installed system on this disk"}, c.Failures)
	require.Equal(t, "boot-1", c.Run.BootBefore)
	require.Equal(t, "boot-2", c.Run.BootAfter)
	requireTimes(t, c)
	require.NotNil(t, c.SanitizedSince, "of who left before the scrub nothing is there")

	again := acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.Equal(t, f.CertificateID, again.CertificateID, "the same evidence is the same link")
	_, n = w.last()
	require.Equal(t, 1, n)
}

// TestCertifyNode_AtTheSameTime: executions of one run that overlap sign one link, also one that is
// not clean.
func TestCertifyNode_AtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			_, err := w.acts.CertifyNode(t.Context(), w.certifyIn(lifecycle.ModeSoftReset))
			return err
		})
	}
	require.NoError(t, all.Wait())
	_, n := w.last()
	require.Equal(t, 1, n)
}

// MAAS's erasure counts for the system's disk, by serial number.
func TestCertifyNode_ReleaseProvesSystemDisk(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeReimage)
	require.Contains(t, strings.Join(acttest.Must(w, w.acts.CertifyNode, in).Unproven, "\n"), "BOOT")
	in.Release = erased("OTHER")
	require.Contains(t, strings.Join(acttest.Must(w, w.acts.CertifyNode, in).Unproven, "\n"), "BOOT", "another disk is no proof for this one")
	in.Release = erased("BOOT", "DATA")
	f := acttest.Must(w, w.acts.CertifyNode, in)
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
	bundle, err := w.acts.Ring.Bundle(t.Context(), w.Ref.NodeID)
	require.NoError(t, err)
	_, problems := evidence.Verify(bundle, bundle.Keys)
	require.Empty(t, problems)
}

func TestCertifyNode_ProtectedDiskIsUnproven(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", func(scrub, _ *lifecycle.TaskResult) {
		scrub.Devices = append(scrub.Devices, lifecycle.DeviceResult{Kind: "disk", Name: "sdb", Serial: "SAFE", Method: lifecycle.SanitizeNone, Detail: "protected"})
	})
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "SAFE")
	require.Equal(t, []string{"disk sdb SAFE: protected"}, acttest.Must(w, w.acts.CertifyNode, in).Unproven)
}

func TestCertifyNode_ValidationOverridesScrub(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", func(_, validate *lifecycle.TaskResult) {
		validate.OK, validate.Code = false, lifecycle.TaskCodeStepFailed
		validate.Devices[0].Verified, validate.Devices[0].Detail = false, "a block is not blank"
		validate.Steps = append(validate.Steps, lifecycle.StepResult{Name: "disks_blank", Detail: "nvme0n1"})
	})
	f := acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
	require.Equal(t, []string{"step node.validate/disks_blank: nvme0n1", "disk nvme0n1 DATA: a block is not blank"}, f.Unproven)
	w.scrubbed("again/", nil)
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset)).Unproven, "the newest results count")
}

// A profile that allows a release without erasing excuses the system's disk in a full decommission.
func TestCertifyNode_ReleaseWithoutErasing(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Enrol(1)
	w.scrubbed("", nil)
	in := w.certifyIn(lifecycle.ModeFull)
	in.Release = &contract.ReleaseFacts{Fallback: "MAAS failed to erase; the profile allows it"}
	f := acttest.Must(w, w.acts.CertifyNode, in)
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictNotVerified), f.Verdict, "the certificate says it all the same")
	in.Mode = lifecycle.ModeReimage
	require.Len(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven, 2, "the next tenant would get that disk")
}

// In a full decommission of a node whose agent is unreachable, all known disks must be erased.
func TestCertifyNode_AgentUnreachable(t *testing.T) {
	t.Parallel()
	w := newCertifyFixture(t)
	w.Heartbeat("boot-1", 1, 0, &spec.HealthReport{
		GPUs: []spec.GPUReport{{UUID: "GPU-1", Serial: "G1"}}, Disks: []spec.DiskReport{{Name: "sda", Serial: "BOOT", Boot: true}, {Name: "nvme0n1", Serial: "DATA"}},
	})
	in := w.certifyIn(lifecycle.ModeFull)
	in.AgentUnreachable = "silent; off"
	in.Release = erased("BOOT")
	require.Equal(t, []string{"disk nvme0n1 DATA: not looked at"}, acttest.Must(w, w.acts.CertifyNode, in).Unproven)
	in.Release = erased("BOOT", "DATA")
	f := acttest.Must(w, w.acts.CertifyNode, in)
	require.Empty(t, f.Unproven)
	require.Equal(t, string(evidence.VerdictNotVerified), f.Verdict)
	c, _ := w.last()
	require.Contains(t, strings.Join(c.Failures, "\n"), "GPU-1")

	in.Release = nil
	other := newCertifyFixture(t)
	in.JobRef = other.Ref
	require.Equal(t, []string{"no disk of the machine is known to be erased"}, acttest.Must(other, other.acts.CertifyNode, in).Unproven)
}

// requireTimes checks that every time of a certificate is there, and that they are in order.
func requireTimes(t *testing.T, c evidence.Certificate) {
	t.Helper()
	require.False(t, c.Run.StartedAt.IsZero())
	require.False(t, c.Run.EndedAt.After(c.IssuedAt), "the run ended %s, signed %s", c.Run.EndedAt, c.IssuedAt)
	require.NotEmpty(t, c.Steps)
	for _, s := range c.Steps {
		require.False(t, s.StartedAt.Before(c.Run.StartedAt), "%s started %s, the run %s", s.Name, s.StartedAt, c.Run.StartedAt)
		require.False(t, s.EndedAt.Before(s.StartedAt), "%s started %s and ended %s", s.Name, s.StartedAt, s.EndedAt)
		require.False(t, s.EndedAt.After(c.Run.EndedAt), "%s ended %s, the run %s", s.Name, s.EndedAt, c.Run.EndedAt)
	}
}

// TestCertifyNode_TimesOfEveryMode: no time of a signed document is missing or out of order,
// whatever the node's clock says, in every mode, with and without MAAS and an agent.
func TestCertifyNode_TimesOfEveryMode(t *testing.T) {
	t.Parallel()
	clocks := map[string]func(*lifecycle.StepResult){
		"none": func(s *lifecycle.StepResult) { s.StartedAt, s.EndedAt = time.Time{}, time.Time{} },
		"past": func(s *lifecycle.StepResult) {
			s.StartedAt, s.EndedAt = time.Unix(0, 0), time.Unix(1, 0)
		},
		"future": func(s *lifecycle.StepResult) {
			s.StartedAt, s.EndedAt = time.Now().AddDate(9, 0, 0), time.Now().AddDate(9, 0, 1)
		},
		"backwards": func(s *lifecycle.StepResult) { s.StartedAt, s.EndedAt = time.Now(), time.Now().Add(-time.Hour) },
	}
	for _, info := range lifecycle.DecommissionModes() {
		for clock, set := range clocks {
			t.Run(string(info.Mode)+"/"+clock, func(t *testing.T) {
				t.Parallel()
				w := newCertifyFixture(t)
				w.Enrol(1)
				in := w.certifyIn(info.Mode)
				w.scrubbed("", func(scrub, validate *lifecycle.TaskResult) {
					set(&scrub.Steps[0])
					set(&validate.Steps[0])
				})
				in.NotVerified, in.Release = []string{"the boot order"}, erased("BOOT", "DATA")
				acttest.Must(w, w.acts.CertifyNode, in)
				c, n := w.last()
				require.Equal(t, 1, n)
				requireTimes(t, c)
				acttest.Must(w, w.acts.CertifyNode, in)
				_, n = w.last()
				require.Equal(t, 1, n, "the times of the same evidence are the same")

				silent := newCertifyFixture(t)
				in.JobRef, in.AgentUnreachable = silent.Ref, "never enrolled; off"
				acttest.Must(silent, silent.acts.CertifyNode, in)
				c, _ = silent.last()
				requireTimes(t, c)
			})
		}
	}
}
