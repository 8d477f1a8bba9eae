package decommission_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func (w *site) CompareSettings(_ context.Context, in bmcact.SettingsIn) (contract.SettingsFacts, error) {
	return does(w, "compare:"+in.AllocationID, func() contract.SettingsFacts {
		return contract.SettingsFacts{Done: len(w.changed) == 0, Count: 9, Changed: w.changed}
	})
}

func (w *site) rotates(name string) (contract.RotationFacts, error) {
	return does(w, name, func() contract.RotationFacts {
		return contract.RotationFacts{CandidateRef: "bmc/new", CurrentRef: "bmc/old", Committed: name == "commit"}
	})
}

func (w *site) PrepareRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return w.rotates("prepare")
}

func (w *site) ApplyRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return w.rotates("apply")
}

func (w *site) VerifyRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return w.rotates("verify")
}

func (w *site) CommitRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return w.rotates("commit")
}

func (w *site) UndoRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return w.rotates("undo")
}

func (w *site) UpdatePowerLogin(context.Context, maasact.PowerLoginIn) (contract.MachineFacts, error) {
	return does(w, "login", w.seen)
}

func leftByRoot(t *testing.T) *fixture {
	t.Helper()
	left := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := setup(t, lifecycle.ModeReimage)
	b.site.facts.TenantRoot, b.site.facts.TenantLeft, b.site.facts.LastTenancy = true, &left, "alc_9"
	return b
}

// TestReimage_ChangedBMC: no certificate is signed, and the node stays out of service, while the
// BMC shows what it did not show before a root tenant. It goes on once the BMC is as it was.
func TestReimage_ChangedBMC(t *testing.T) {
	t.Parallel()
	b := leftByRoot(t)
	b.site.changed = []string{"accounts/7 is new: root2"}
	p := b.parkedAt(12 * time.Hour)
	b.After(13*time.Hour, func() {
		require.Zero(t, b.count("certify"))
		b.site.changed = nil
	})
	b.at(14*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailFirmwareChanged, p.Failure.Class)
	require.Contains(t, p.Failure.Message, "root2")
	require.Equal(t, lifecycle.NodeQuarantined, p.node)
	require.True(t, b.site.bmcChecked)
	require.Equal(t, 1, b.count("commit"))
}

// TestReimage_UnknownTenant: where nobody knows what the BMC was, the certificate is not told that
// it was compared.
func TestReimage_UnknownTenant(t *testing.T) {
	t.Parallel()
	b := leftByRoot(t)
	b.site.facts.LastTenancy = ""
	b.run()
	require.Positive(t, b.count("certify"))
	require.False(t, b.site.bmcChecked)
	require.Zero(t, b.count("prepare"))
}

// TestReimage_GoesOnWithItsRotation: a retry ends a rotation that was interrupted before it asks
// the BMC anything, since no login is proven until then.
func TestReimage_GoesOnWithItsRotation(t *testing.T) {
	t.Parallel()
	b := leftByRoot(t)
	b.site.fail["apply"] = []error{stagetest.Failure(lifecycle.FailBMCPinMismatch)}
	calls := 0
	b.After(12*time.Hour, func() { calls = len(b.site.calls) })
	b.at(13*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	later := b.site.calls[calls:]
	require.Less(t, slices.Index(later, "commit"), slices.Index(later, "compare:alc_9"))
	require.Equal(t, 1, b.count("certify"))
	require.True(t, b.site.bmcChecked)
}

// TestReimage_EndsItsRotation: a job that is taken back in the middle of a rotation ends it.
func TestReimage_EndsItsRotation(t *testing.T) {
	t.Parallel()
	b := leftByRoot(t)
	b.site.fail["apply"] = []error{stagetest.Failure(lifecycle.FailBMCPinMismatch)}
	p := b.parkedAt(12 * time.Hour)
	b.at(13*time.Hour, lifecycle.ActionCancel)
	b.run()
	require.Equal(t, lifecycle.StageValidateClean, p.Failure.Stage)
	require.Equal(t, 1, b.count("undo"))
	require.Zero(t, b.count("commit"))
}
