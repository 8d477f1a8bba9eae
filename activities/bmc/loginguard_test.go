package bmc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

func (l *lab) resolve(job string) error {
	_, err := l.acts.ResolvePowerCredentials(l.t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: job}, BMCID: l.bmcID})
	return err
}

func requireClass(t *testing.T, err error, want lifecycle.FailureClass) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(want), app.Type(), app.Message())
}

func (l *lab) fault(f redfishsim.Fault) {
	l.t.Helper()
	require.NoError(l.t, l.sim.AddFault(f))
}

// changedByHand gives the BMC another password behind Slipway's back.
func (l *lab) changedByHand() {
	spec := l.hw.Spec()
	l.hw.SetBMC(spec.BMCAddress, spec.BMCUser, "Changed-by-hand-1")
}

func TestManyJobsWithAWrongPasswordTryItOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Supermicro", 1, nil)
	l.changedByHand()
	var wg sync.WaitGroup
	errs := make(chan error, 6)
	for i := range cap(errs) {
		wg.Go(func() { errs <- l.resolve(string(rune('a' + i))) })
	}
	wg.Wait()
	for range cap(errs) {
		requireClass(t, <-errs, lifecycle.FailBMCAuthRejected)
	}
	require.Equal(t, 1, l.sim.Counters().FailedLogins, "the first rejection stops all others")
	require.NotNil(t, l.record().AuthBlockedAt)

	_, err := l.acts.PrepareRotation(t.Context(), l.in("prepare"))
	requireClass(t, err, lifecycle.FailBMCAuthRejected)
	require.NoError(t, l.truth.ClearBMCBlock(t.Context(), l.bmcID))
	require.Zero(t, l.record().WrongLogins)
	requireClass(t, l.resolve("a"), lifecycle.FailBMCAuthRejected)
	require.Equal(t, 2, l.sim.Counters().FailedLogins, "an operator who clears the block allows one more")
}

// A worker that was taken for lost may still be at it: its job's next execution
// shares the turn, and both compare with the same count of tries.
func TestTwoExecutionsOfOneJobCountOneTryEach(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	rec, err := l.truth.TakeBMCLogin(t.Context(), l.bmcID, "a", time.Minute)
	require.NoError(t, err)
	again, err := l.truth.TakeBMCLogin(t.Context(), l.bmcID, "a", time.Minute)
	require.NoError(t, err)
	entry := loginRow(l.bmcID)
	require.NoError(t, l.truth.CountBMCLogin(t.Context(), l.bmcID, "a", time.Now(), false, rec.WrongLogins+rec.OpenLogins, entry))
	err = l.truth.CountBMCLogin(t.Context(), l.bmcID, "a", time.Now(), false, again.WrongLogins+again.OpenLogins, entry)
	require.ErrorIs(t, err, db.ErrLoginTaken, "it compared with a count that is no longer so")
	require.Equal(t, 1, l.record().OpenLogins)
}

// A server that is onboarded under another hostname has a second record of the
// same BMC: it is no way around the block.
func TestABlockHoldsForEveryRecordOfABMC(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	l.changedByHand()
	requireClass(t, l.resolve("a"), lifecycle.FailBMCAuthRejected)
	first := l.record()
	second, err := l.truth.CreateBMC(t.Context(), db.NewBMC{
		Address: first.Address + "/", Protocol: first.Protocol, CredentialRef: first.CredentialRef, PinSHA256: first.PinSHA256,
	})
	require.NoError(t, err)
	l.bmcID = second.ID
	err = l.resolve("b")
	requireClass(t, err, lifecycle.FailBMCAuthRejected)
	require.ErrorContains(t, err, "are stopped under its other record "+first.ID)
	require.Equal(t, 1, l.sim.Counters().FailedLogins)
	require.NoError(t, l.truth.ClearBMCBlock(t.Context(), first.ID))
	requireClass(t, l.resolve("b"), lifecycle.FailBMCAuthRejected)
	require.Equal(t, 2, l.sim.Counters().FailedLogins, "an operator allowed one more")
}

func TestEveryRejectionStopsLogins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vendor string
		fault  redfishsim.FaultName
		want   lifecycle.FailureClass
	}{
		"rejected": {"Dell", redfishsim.FaultAuthReject, lifecycle.FailBMCAuthRejected},
		"locked":   {"Lenovo", redfishsim.FaultLockout, lifecycle.FailBMCLocked},
		"factory":  {"NVIDIA", redfishsim.FaultPasswordChange, lifecycle.FailBMCAuthRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, c.vendor, 1, nil)
			l.fault(redfishsim.Fault{Name: c.fault})
			requireClass(t, l.resolve("a"), c.want)
			before := l.sim.Counters().Requests
			requireClass(t, l.resolve("b"), lifecycle.FailBMCAuthRejected)
			require.Equal(t, before, l.sim.Counters().Requests, "nothing is sent any more")
		})
	}
}

func TestAChangedPinWaitsForApproval(t *testing.T) {
	t.Parallel()
	l := newLab(t, "HPE", 1, nil)
	require.NoError(t, l.resolve("a"))
	approved := l.record().PinSHA256
	l.fault(redfishsim.Fault{Name: redfishsim.FaultCertificateChange})
	logins := l.sim.Counters().Logins
	for range 4 { // a password that never left is no wrong try, however often
		requireClass(t, l.resolve("a"), lifecycle.FailBMCPinMismatch)
	}
	rec := l.record()
	require.Equal(t, approved, rec.PinSHA256, "nothing is approved by itself")
	require.Len(t, rec.PinPending, 64)
	require.NotEqual(t, approved, rec.PinPending)
	require.Nil(t, rec.AuthBlockedAt)
	require.Zero(t, rec.OpenLogins)
	require.Equal(t, logins, l.sim.Counters().Logins)
	require.NoError(t, l.truth.SetBMCPin(t.Context(), l.bmcID, rec.PinPending))
	require.NoError(t, l.resolve("a"))
}

// unanswering is a BMC that takes passwords and never says what it thinks of them.
type unanswering struct {
	providers.BMC
	tries *atomic.Int64
}

func (m unanswering) OpenBMC(t providers.BMCTarget) (providers.BMC, error) {
	b, err := redfish.Opener{}.OpenBMC(t)
	return unanswering{b, m.tries}, err
}

func (m unanswering) Login(context.Context) error {
	m.tries.Add(1)
	return &providers.Error{Kind: providers.KindUnreachable, Op: "unanswering.login", Message: "no answer"}
}

func (m unanswering) LoginSent() bool { return true }

func TestTriesWithoutAnAnswerAreCountedAsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		threshold int
		told      bool
		allowed   int64
	}{
		"unknown": {0, false, 2}, "three": {3, true, 1}, "four": {4, true, 2}, "five": {5, true, 3}, "never": {0, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "Dell", 1, nil)
			if c.told {
				require.NoError(t, l.truth.SetBMCLockout(t.Context(), l.bmcID, &c.threshold, 10*time.Minute))
			}
			var tries atomic.Int64
			l.acts.Openers = map[string]providers.BMCOpener{"redfish": unanswering{tries: &tries}}
			for round := int64(1); round <= 2; round++ {
				for range 8 {
					requireClass(t, l.resolve("a"), lifecycle.FailBMCUnreachable)
				}
				require.Equal(t, round*c.allowed, tries.Load())
				l.hw.Clock().Step(16 * time.Minute)
			}
		})
	}
}

// Two records of one BMC share its account: tried by turns, each within its own
// count, they would lock it.
func TestTriesCountByAddressHoweverManyRecordsHaveIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		threshold *int
		allowed   int64
	}{"unknown": {nil, 2}, "three": {new(3), 1}, "four": {new(4), 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "Dell", 1, nil)
			first := l.record()
			if c.threshold != nil { // the BMC said it under its first record only
				require.NoError(t, l.truth.SetBMCLockout(t.Context(), first.ID, c.threshold, 20*time.Minute))
			}
			second, err := l.truth.CreateBMC(t.Context(), db.NewBMC{
				Address: first.Address + "/", Protocol: first.Protocol, CredentialRef: first.CredentialRef, PinSHA256: first.PinSHA256,
			})
			require.NoError(t, err)
			var tries atomic.Int64
			l.acts.Openers = map[string]providers.BMCOpener{"redfish": unanswering{tries: &tries}}
			for i := range 8 {
				l.bmcID = []string{second.ID, first.ID}[i%2]
				requireClass(t, l.resolve("a"), lifecycle.FailBMCUnreachable)
			}
			require.Equal(t, c.allowed, tries.Load())
			l.hw.Clock().Step(16 * time.Minute)
			l.bmcID = second.ID
			requireClass(t, l.resolve("a"), lifecycle.FailBMCUnreachable)
			want := c.allowed
			if c.threshold == nil {
				want++ // a BMC that tells no window has one of 15 minutes
			}
			require.Equal(t, want, tries.Load(), "the window that the BMC told holds for all its records")
		})
	}
}

func TestOneLoginAtATimeHoweverManyRecordsABMCHas(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	first := l.record()
	second, err := l.truth.CreateBMC(t.Context(), db.NewBMC{Address: first.Address + "/", Protocol: first.Protocol, CredentialRef: first.CredentialRef})
	require.NoError(t, err)
	_, err = l.truth.TakeBMCLogin(t.Context(), first.ID, "a", time.Minute)
	require.NoError(t, err)
	_, err = l.truth.TakeBMCLogin(t.Context(), second.ID, "b", time.Minute)
	require.ErrorIs(t, err, db.ErrLoginTaken)
	_, err = l.truth.TakeBMCLogin(t.Context(), second.ID, "a", time.Minute)
	require.NoError(t, err, "its own turn")
	require.NoError(t, l.truth.CountBMCLogin(t.Context(), first.ID, "a", time.Now(), false, 0, loginRow(first.ID)))
	require.ErrorIs(t, l.truth.CountBMCLogin(t.Context(), second.ID, "a", time.Now(), false, 0, loginRow(first.ID)), db.ErrLoginTaken, "a try under the other record came between")
	require.NoError(t, l.truth.ReleaseBMCLogin(t.Context(), first.ID, "a"))
	require.NoError(t, l.truth.ReleaseBMCLogin(t.Context(), second.ID, "a"))
	_, err = l.truth.TakeBMCLogin(t.Context(), second.ID, "b", time.Minute)
	require.NoError(t, err)
	_, err = l.truth.TakeBMCLogin(t.Context(), "bmc_unknown", "b", time.Minute)
	require.ErrorIs(t, err, db.ErrNotFound)
}

func TestOneProtocolNeverStandsInForTheOther(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	rec := l.record()
	rec.Protocol = "ipmi"
	_, err := l.truth.UpdateBMC(t.Context(), rec)
	require.NoError(t, err)
	l.acts.Opener = redfish.Opener{}
	requireClass(t, l.resolve("a"), lifecycle.FailConfiguration)
	require.Zero(t, l.sim.Counters().Logins)
}

func TestNobodyGuessesWhileAPasswordIsOnItsWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, "NVIDIA", 1, nil)
	f, err := l.acts.PrepareRotation(t.Context(), l.in("prepare"))
	require.NoError(t, err)
	require.NoError(t, l.resolve("other"), "prepared: the current login is live")
	require.NoError(t, l.truth.MoveBMCRotation(t.Context(), l.bmcID, f.CandidateRef, lifecycle.RotationPrepared, lifecycle.RotationSend))
	requireClass(t, l.resolve("other"), lifecycle.FailBMCUnreachable)
	_, err = l.acts.ApplyRotation(t.Context(), l.in("apply"))
	require.NoError(t, err)
	requireClass(t, l.resolve("other"), lifecycle.FailBMCUnreachable)
	_, err = l.acts.VerifyRotation(t.Context(), l.in("verify"))
	require.NoError(t, err)
	require.NoError(t, l.resolve("other"), "verified: the candidate is live, before the commit too")
	require.Equal(t, 1, l.sim.Counters().FailedLogins, "the one try that found out")
}

// observed calls after with what a BMC said of a login, before the worker hears it.
type observed struct {
	redfish.Opener
	after func(error)
}

type observedBMC struct {
	providers.BMC
	login providers.BMCLogin
	after func(error)
}

func (j observed) OpenBMC(t providers.BMCTarget) (providers.BMC, error) {
	b, err := j.Opener.OpenBMC(t)
	if err != nil {
		return nil, err
	}
	return observedBMC{b, b.(providers.BMCLogin), j.after}, nil
}

func (b observedBMC) Login(ctx context.Context) error {
	err := b.login.Login(ctx)
	b.after(err)
	return err
}

func (b observedBMC) LoginSent() bool { return b.login.LoginSent() }

// TestARejectionIsWrittenDownThoughTheDatabaseIsAwayForASecond: it is away from
// the moment when the BMC says no. Nobody may try that password again.
func TestARejectionIsWrittenDownThoughTheDatabaseIsAwayForASecond(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Supermicro", 1, nil)
	l.acts.NoteFor = 0
	l.changedByHand()
	l.acts.Openers["redfish"] = observed{after: func(error) {
		l.x.die()
		time.AfterFunc(time.Second, func() { l.x.restart() })
	}}
	requireClass(t, l.resolve("a"), lifecycle.FailBMCAuthRejected)
	rec := l.record()
	require.NotNil(t, rec.AuthBlockedAt, "all further logins are stopped")
	require.Equal(t, 1, rec.WrongLogins)
	require.Zero(t, rec.OpenLogins)
	require.Empty(t, rec.LoginBy)
	requireClass(t, l.resolve("b"), lifecycle.FailBMCAuthRejected)
	require.Equal(t, 1, l.sim.Counters().FailedLogins)
}

// TestNobodyIsLetInOnARejectionThatIsNotWrittenDown: the database stays away for
// longer than that is tried. The right to log in stays with the job, and the try
// stays counted.
func TestNobodyIsLetInOnARejectionThatIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Supermicro", 1, nil)
	l.changedByHand()
	l.acts.Openers["redfish"] = observed{after: func(error) { l.x.die() }}
	requireClass(t, l.resolve("a"), lifecycle.FailBMCAuthRejected)
	l.x.restart()
	rec := l.record()
	require.Nil(t, rec.AuthBlockedAt)
	require.Equal(t, 1, rec.OpenLogins)
	require.Equal(t, "a", rec.LoginBy)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := l.acts.ResolvePowerCredentials(ctx, bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "b"}, BMCID: l.bmcID})
	require.Error(t, err)
	require.Equal(t, 1, l.sim.Counters().FailedLogins, "nobody else tries the password")
}

func loginRow(bmcID string) db.Entry {
	return db.Entry{ResourceKind: "bmc", ResourceID: bmcID, Kind: db.EntryCall, Name: "login", Actor: db.Actor{Owner: lifecycle.OwnerJob}}
}
