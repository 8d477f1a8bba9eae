package bmc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// must runs one step and checks what holds at every moment.
func (l *lab) must(step rotateStep) contract.RotationFacts {
	l.t.Helper()
	f, err := step(l.t.Context(), l.in("test"))
	require.NoError(l.t, err)
	l.safe(true)
	return f
}

func TestARotationStepByStepEachTwice(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Lenovo", 2, nil)
	before := l.hw.Spec().BMCPassword
	for range 2 {
		f := l.must(l.acts.PrepareRotation)
		require.Equal(t, contract.RotationFacts{
			BMCID: l.bmcID, CurrentRef: "bmc/rack", CandidateRef: l.record().CandidateRef, FromRef: "bmc/rack",
			Slot: contract.SlotCurrent, Note: "the new password is made and stored",
		}, f)
	}
	candidate := l.record().CandidateRef
	require.Equal(t, before, l.hw.Spec().BMCPassword)
	require.Zero(t, l.sim.Counters().Logins, "nothing is sent")
	for range 2 {
		require.True(t, l.must(l.acts.ApplyRotation).Applied)
	}
	require.Equal(t, 1, l.sim.Counters().Logins)
	for range 2 {
		require.True(t, l.must(l.acts.VerifyRotation).Verified)
	}
	for range 2 {
		f := l.must(l.acts.CommitRotation)
		require.True(t, f.Committed)
		require.Equal(t, candidate, f.CurrentRef)
	}
	for _, step := range []rotateStep{l.acts.PrepareRotation, l.acts.ApplyRotation, l.acts.VerifyRotation, l.acts.UndoRotation} {
		require.True(t, l.must(step).Committed, "a repetition of an ended rotation changes nothing")
	}
	c := l.sim.Counters()
	require.Equal(t, 2, c.Logins)
	require.Equal(t, 1, c.PasswordChanges)
	require.Zero(t, c.FailedLogins)
	rec := l.record()
	require.Equal(t, "bmc/rack", rec.PreviousRef)
	require.NotNil(t, rec.RotatedAt)
	rows, err := l.truth.ListBMCRotations(t.Context(), l.bmcID, "", 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, lifecycle.RotationRotated, rows[0].Outcome)
}

func TestAStepOutOfOrderIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 2, nil)
	for _, step := range []rotateStep{l.acts.ApplyRotation, l.acts.VerifyRotation, l.acts.CommitRotation} {
		_, err := step(t.Context(), l.in("test"))
		requireClass(t, err, lifecycle.FailStateDisagreement)
	}
	l.must(l.acts.PrepareRotation)
	l.must(l.acts.ApplyRotation)
	_, err := l.acts.CommitRotation(t.Context(), l.in("test"))
	requireClass(t, err, lifecycle.FailStateDisagreement)
	require.Equal(t, "bmc/rack", l.record().CredentialRef, "what no login has proven is not committed")
}

// TestALoginSetByHandMeanwhileIsTheOneThatIsRotated: the stored login was wrong,
// and an operator set one of another user while the job was parked. A candidate for
// the first user would leave a password that no slot has a login for.
func TestALoginSetByHandMeanwhileIsTheOneThatIsRotated(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 2, nil)
	first := l.must(l.acts.PrepareRotation).CandidateRef
	l.hw.SetBMC(l.hw.Spec().BMCAddress, "operator", "Set-by-hand-1")
	_, err := l.vault.Put(t.Context(), "bmc/by-hand", providers.NewSecret(`{"username": "operator", "password": "Set-by-hand-1"}`))
	require.NoError(t, err)
	rec := l.record()
	rec.CredentialRef = "bmc/by-hand"
	_, err = l.truth.UpdateBMC(t.Context(), rec)
	require.NoError(t, err)
	require.True(t, l.must(l.acts.ApplyRotation).Applied)
	require.NotEqual(t, first, l.record().CandidateRef)
	require.True(t, l.must(l.acts.VerifyRotation).Verified)
	f := l.must(l.acts.CommitRotation)
	login, err := providers.ResolveLogin(t.Context(), l.vault, providers.SecretRef(f.CurrentRef), simulatedLogin())
	require.NoError(t, err)
	require.Equal(t, "operator", login.Username)
	require.Zero(t, l.sim.Counters().FailedLogins)
}

func TestUndoKeepsWhatTheBMCTakes(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Supermicro", 2, nil)
	require.True(t, l.must(l.acts.UndoRotation).Undone, "nothing was begun")

	require.True(t, l.must(l.acts.CheckRotationEnded).Undone, "and nothing is left")

	l.must(l.acts.PrepareRotation)
	left := l.must(l.acts.CheckRotationEnded)
	require.False(t, left.Undone)
	require.Contains(t, left.Note, "is still open")
	f := l.must(l.acts.UndoRotation)
	require.True(t, f.Undone)
	require.True(t, l.must(l.acts.CheckRotationEnded).Undone)
	require.Equal(t, "bmc/rack", f.CurrentRef)
	require.Zero(t, l.sim.Counters().Logins, "nothing was sent, so nothing need be asked")

	again := l.must(l.acts.PrepareRotation)
	require.NotEmpty(t, again.CandidateRef, "the same job may begin again after an undo")
	l.fault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Count: 3})
	_, err := l.acts.ApplyRotation(t.Context(), l.in("test"))
	l.sim.ClearFaults()
	requireClass(t, err, lifecycle.FailBMCUnreachable)
	l.hw.Clock().Step(3600e9)
	f = l.must(l.acts.UndoRotation)
	require.Equal(t, "bmc/rack", f.CurrentRef, "the candidate was rejected and the old login proven")

	l.newJob()
	l.hw.Clock().Step(3600e9)
	l.must(l.acts.PrepareRotation)
	l.must(l.acts.ApplyRotation)
	f = l.must(l.acts.UndoRotation)
	require.True(t, l.must(l.acts.CheckRotationEnded).Undone)
	require.Equal(t, l.record().CredentialRef, f.CurrentRef)
	require.NotEqual(t, "bmc/rack", f.CurrentRef, "the BMC has the new password: it stays")
	require.Equal(t, l.hw.Spec().BMCPassword, l.password(f.CurrentRef, true))
}

func TestARefusedPasswordIsReplacedByALongerOne(t *testing.T) {
	t.Parallel()
	l := newLab(t, "HPE", 2, nil)
	first := l.must(l.acts.PrepareRotation).CandidateRef
	require.Len(t, l.password(first, true), 16)
	l.fault(redfishsim.Fault{Name: redfishsim.FaultPasswordRefused, Count: 1})
	_, err := l.acts.ApplyRotation(t.Context(), l.in("test"))
	requireClass(t, err, lifecycle.FailConfiguration)
	l.safe(true)
	l.must(l.acts.ApplyRotation)
	require.Len(t, l.hw.Spec().BMCPassword, 20)
	l.must(l.acts.VerifyRotation)
	l.must(l.acts.CommitRotation)
}

func TestAPasswordThatTheBMCOnlySaysItTook(t *testing.T) {
	t.Parallel()
	l := newLab(t, "NVIDIA", 2, nil)
	l.must(l.acts.PrepareRotation)
	l.fault(redfishsim.Fault{Name: redfishsim.FaultPasswordIgnored, Count: 1})
	l.must(l.acts.ApplyRotation)
	requireClass(t, l.resolve("other"), lifecycle.FailBMCUnreachable)
	l.safe(true) // a login of another job has not stopped all logins
	_, err := l.acts.VerifyRotation(t.Context(), l.in("test"))
	requireClass(t, err, lifecycle.FailBMCUnreachable)
	l.safe(true)
	require.True(t, l.must(l.acts.VerifyRotation).Verified, "a repetition changes it once more")
	require.Equal(t, 1, l.sim.Counters().FailedLogins)
}

func TestLengthsThatABMCDemandsAreKept(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 2, func(p *redfishsim.Personality) { p.MinPassword, p.MaxPassword = 18, 18 })
	l.must(l.acts.PrepareRotation)
	l.must(l.acts.ApplyRotation)
	require.Len(t, l.hw.Spec().BMCPassword, 18)

	m := newLab(t, "Dell", 3, func(p *redfishsim.Personality) { p.MinPassword, p.MaxPassword = 30, 40 })
	m.must(m.acts.PrepareRotation)
	_, err := m.acts.ApplyRotation(t.Context(), m.in("test"))
	requireClass(t, err, lifecycle.FailConfiguration)
	require.Contains(t, err.Error(), "30 to 40")
}

func TestAFactoryBMCIsRotatedBeforeAnythingElseIsRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, "NVIDIA", 2, nil)
	l.fault(redfishsim.Fault{Name: redfishsim.FaultPasswordChange})
	l.must(l.acts.PrepareRotation)
	l.must(l.acts.ApplyRotation)
	l.must(l.acts.VerifyRotation)
	l.must(l.acts.CommitRotation)
	require.NoError(t, l.resolve("other"), "the system may be read now")
}

func TestOldGenerationsAreDeletedAndSharedOnesNever(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 2, nil)
	var refs []string
	for range 4 {
		l.newJob()
		refs = append(refs, l.must(l.acts.PrepareRotation).CandidateRef)
		l.must(l.acts.ApplyRotation)
		l.must(l.acts.VerifyRotation)
		l.must(l.acts.CommitRotation)
	}
	l.password("bmc/rack", true) // other BMCs may have it
	for i, ref := range refs {
		_, err := l.vault.Resolve(t.Context(), providers.SecretRef(ref), simulatedLogin())
		if i < 2 {
			require.True(t, providers.IsKind(err, providers.KindNotFound), ref)
			continue
		}
		require.NoError(t, err, "the live one and the one before are kept")
	}
}

func TestAnotherJobTakesOverALostRotation(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Lenovo", 2, nil)
	candidate := l.must(l.acts.PrepareRotation).CandidateRef
	l.must(l.acts.ApplyRotation)
	_, err := l.truth.TakeBMCLogin(t.Context(), l.bmcID, l.job, 3600e9)
	require.NoError(t, err)
	l.newJob()
	f := l.must(l.acts.PrepareRotation)
	require.Equal(t, candidate, f.CandidateRef)
	require.True(t, f.Applied)
	l.must(l.acts.VerifyRotation)
	require.Equal(t, candidate, l.must(l.acts.CommitRotation).CurrentRef)
	require.Equal(t, 1, l.sim.Counters().PasswordChanges)
}

// sentAndDoubted brings a rotation to prepared with a candidate that was sent: the BMC rejected it
// once, while it restarted, and takes it since.
func (l *lab) sentAndDoubted() (candidate string) {
	l.t.Helper()
	candidate = l.must(l.acts.PrepareRotation).CandidateRef
	require.NoError(l.t, l.truth.MoveBMCRotation(l.t.Context(), l.bmcID, candidate, lifecycle.RotationPrepared, lifecycle.RotationSend))
	spec := l.hw.Spec()
	l.hw.SetBMC(spec.BMCAddress, spec.BMCUser, l.password(candidate, true))
	require.NoError(l.t, l.truth.MoveBMCRotation(l.t.Context(), l.bmcID, candidate, lifecycle.RotationApplying, lifecycle.RotationRefuse))
	l.safe(true)
	return candidate
}

// patiently repeats a step once, after the time that the BMC's lockout takes, where that allows no
// second login at once.
func (l *lab) patiently(step rotateStep) contract.RotationFacts {
	l.t.Helper()
	f, err := step(l.t.Context(), l.in("test"))
	l.safe(true)
	if err == nil {
		return f
	}
	requireClass(l.t, err, lifecycle.FailBMCUnreachable)
	l.passTime(err)
	return l.must(step)
}

// TestUndo_ProvesTheLoginAfterASend checks that a candidate that was sent once is not dropped
// unless the login before is proven, whatever the BMC said of it.
func TestUndo_ProvesTheLoginAfterASend(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Supermicro", 2, nil)
	candidate := l.sentAndDoubted()
	f := l.patiently(l.acts.UndoRotation)
	require.Equal(t, candidate, f.CurrentRef, "the BMC has the new password: it stays")
	require.True(t, l.must(l.acts.CheckRotationEnded).Undone)
	require.Equal(t, 1, l.sim.Counters().FailedLogins)

	l = newLab(t, "Supermicro", 2, nil)
	candidate = l.sentAndDoubted()
	require.True(t, l.must(l.acts.ApplyRotation).Applied, "a retry finds out too")
	require.True(t, l.patiently(l.acts.VerifyRotation).Verified)
	require.Equal(t, candidate, l.must(l.acts.CommitRotation).CurrentRef)
}

// TestUndo_KeepsACandidateWhenNoLoginIsTaken checks that logins stop after both were rejected, and
// that nothing is dropped.
func TestUndo_KeepsACandidateWhenNoLoginIsTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Lenovo", 2, nil)
	candidate := l.sentAndDoubted()
	l.changedByHand()
	_, err := l.acts.UndoRotation(t.Context(), l.in("test"))
	require.Error(t, err)
	rec := l.record()
	require.Equal(t, candidate, rec.CandidateRef)
	require.NotEmpty(t, l.password(candidate, true))
	for range 3 {
		_, err = l.acts.UndoRotation(t.Context(), l.in("test"))
		require.Error(t, err)
	}
	require.LessOrEqual(t, l.sim.Counters().FailedLogins, 3, "no login is tried for ever")
	require.Zero(t, l.sim.Counters().Lockouts)
	require.Equal(t, candidate, l.record().CandidateRef)
}
