// Package conformance holds the conformance suites of the provider
// interfaces: one suite a capability, run against the simulator and, when an
// address is given, against the real thing, so that the simulator cannot drift
// into a world of its own.
package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// Graceful says what a machine does with a graceful shutdown.
type Graceful int

// The answers to a graceful shutdown.
const (
	GracefulNotTried Graceful = iota // real gear whose system may not listen
	GracefulWorks                    // offered, and the system goes down
	GracefulRefused                  // not offered by the BMC
)

// BMCFixture is one machine under test with its power on or off. Counters are
// nil where they cannot be observed, as on real gear.
type BMCFixture struct {
	Opener providers.BMCOpener
	Target providers.BMCTarget
	// Timeout bounds each operation; 0 means 5 minutes.
	Timeout time.Duration
	// ReadOnly leaves power and boot override alone.
	ReadOnly bool
	// WrongPassword allows one login with a wrong password, which counts
	// towards a lockout.
	WrongPassword bool
	Graceful      Graceful
	// BootTargets are targets the BMC offers; each is set once and cleared.
	BootTargets []providers.BootTarget
	// Logins counts login attempts seen by the BMC since it started.
	Logins func() int
	// Resets counts reset requests seen by the BMC since it started.
	Resets func() int
	// Lacks are what the protocol or the device cannot tell; the suite checks
	// that it then says nothing rather than something made up.
	Lacks BMCLacks
	// HideReadings makes a part of the machine unreadable for Health, so that the
	// suite can check that this does not pass for OK; nil where it cannot be
	// arranged.
	HideReadings func()
}

// BMCLacks declares differences in capability. The zero value is a Redfish BMC
// over TLS.
type BMCLacks struct {
	Pin       bool                   // no certificate: nothing to pin, and a pin is no obstacle
	Addresses bool                   // no MAC addresses of the machine
	Drives    bool                   // no drives and no media
	Lockout   bool                   // does not tell after how many wrong logins it locks
	BootMode  bool                   // does not tell whether an override is for UEFI
	Targets   []providers.BootTarget // boot targets that it must refuse as unsupported
}

func (f BMCFixture) context(t *testing.T) context.Context {
	limit := f.Timeout
	if limit == 0 {
		limit = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func (f BMCFixture) open(t *testing.T) providers.BMC {
	t.Helper()
	return f.openTarget(t, f.Target)
}

func (f BMCFixture) openTarget(t *testing.T, target providers.BMCTarget) providers.BMC {
	t.Helper()
	b, err := f.Opener.OpenBMC(target)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// aside lets a second client look, and closes it: BMCs have few sessions.
func (f BMCFixture) aside(t *testing.T, look func(providers.BMC)) {
	t.Helper()
	b := f.open(t)
	look(b)
	require.NoError(t, b.Close(t.Context()))
}

// count reads a counter that may be missing.
func count(c func() int) int {
	if c == nil {
		return 0
	}
	return c()
}

// ExerciseBMC runs the suite. newFixture is called once a subtest and may
// return a fresh machine or the same one; subtests do not run in parallel,
// since real gear is one machine.
func ExerciseBMC(t *testing.T, newFixture func(t *testing.T) BMCFixture) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, f BMCFixture)
	}{
		{"probe needs no login", exerciseProbe},
		{"identity is stable", exerciseIdentify},
		{"health and inventory", exerciseLists},
		{"power on and off", exercisePower},
		{"graceful shutdown", exerciseGraceful},
		{"boot once", exerciseBoot},
		{"close ends the session", exerciseClose},
		{"pin mismatch", exercisePin},
		{"wrong password is tried once", exerciseWrongPassword},
		{"what it lacks it says", exerciseLacks},
		{"health is not OK when a part is unread", exerciseUnreadablePart},
		{"nobody there", exerciseUnreachable},
		{"a silent peer ends with the context", exerciseSilence},
		{"concurrent use", exerciseConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newFixture(t)) })
	}
}

func exerciseProbe(t *testing.T, f BMCFixture) {
	before := count(f.Logins)
	target := f.Target
	target.PinSHA256 = ""
	ident, err := f.openTarget(t, target).Probe(f.context(t))
	require.NoError(t, err)
	require.NotEqual(t, ident.RedfishVersion == "", ident.IPMIVersion == "", "the version of the protocol that is spoken, and of no other")
	if f.Lacks.Pin || strings.HasPrefix(target.Address, "http://") {
		require.Empty(t, ident.PinSHA256)
	} else {
		require.Len(t, ident.PinSHA256, 64)
	}
	if f.Target.PinSHA256 != "" && !f.Lacks.Pin {
		require.Equal(t, strings.ToLower(f.Target.PinSHA256), ident.PinSHA256)
	}
	require.Equal(t, before, count(f.Logins))
}

func exerciseIdentify(t *testing.T, f BMCFixture) {
	ctx := f.context(t)
	first, err := f.open(t).Identify(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, first.ID)
	require.NotEmpty(t, first.URI)
	require.NotEmpty(t, first.Serial+first.UUID, "a machine without serial and UUID cannot be told from another")
	require.Equal(t, strings.TrimSpace(first.Serial), first.Serial)
	require.Contains(t, []string{"OK", "Warning", "Critical", "Unknown"}, first.Health)
	for _, m := range first.MACs {
		require.Regexp(t, `^([0-9a-f]{2}:){5}[0-9a-f]{2}$`, m)
	}
	again, err := f.open(t).Identify(ctx)
	require.NoError(t, err)
	first.Power, again.Power = "", ""
	first.Health, again.Health = "", ""
	require.Equal(t, first, again)
}

func exerciseLists(t *testing.T, f BMCFixture) {
	ctx := f.context(t)
	b := f.open(t)
	health, err := b.Health(ctx)
	require.NoError(t, err)
	require.Contains(t, []string{"OK", "Warning", "Critical", "Unknown"}, health.Overall)
	require.Equal(t, health.Overall == "Warning" || health.Overall == "Critical", len(health.Problems) > 0, "%+v", health)
	inventory, err := b.Inventory(ctx)
	require.NoError(t, err)
	for _, m := range inventory.MediaSlots {
		require.NotEmpty(t, m.URI)
	}
	for _, a := range inventory.Accounts {
		require.NotEmpty(t, a)
	}
	survey, err := b.Survey(ctx, false)
	require.NoError(t, err)
	require.Equal(t, health.Overall, survey.Health.Overall)
	for i, p := range survey.Probes {
		require.NotEmpty(t, p.Category, p.Target)
		if i > 0 && p.Health == "Critical" {
			require.Equal(t, "Critical", survey.Probes[i-1].Health, "the worst come first")
		}
	}
	for _, p := range survey.Parts {
		require.NotEmpty(t, p.Kind, p.URI)
		require.NotEmpty(t, p.URI)
	}
	logs, err := b.Logs(ctx, func(providers.BMCLogEntry) bool { return false })
	require.NoError(t, err)
	for _, e := range logs.Entries {
		require.NotEmpty(t, e.ID, "%+v", e)
	}
	again, err := b.Logs(ctx, func(e providers.BMCLogEntry) bool {
		return slices.ContainsFunc(logs.Entries, func(old providers.BMCLogEntry) bool { return old.Service == e.Service && old.ID == e.ID })
	})
	require.NoError(t, err)
	require.Less(t, len(again.Entries), len(logs.Entries)+1, "what is known is not told again, but for what came meanwhile")
}

func changeable(t *testing.T, f BMCFixture) {
	if f.ReadOnly {
		t.Skip("this machine is tested without changing it; set SLIPWAY_TEST_BMC_POWER=1 to allow it")
	}
}

// restore puts the power back as it was found.
func restore(t *testing.T, f BMCFixture, b providers.BMC) {
	t.Helper()
	before, err := b.Power(f.context(t))
	require.NoError(t, err)
	intent := providers.IntentForceOff
	if before == providers.PowerOn || before == providers.PowerPoweringOn {
		intent = providers.IntentOn
	}
	t.Cleanup(func() {
		again, err := f.Opener.OpenBMC(f.Target)
		require.NoError(t, err)
		defer func() { _ = again.Close(context.Background()) }()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		_, err = again.SetPower(ctx, intent)
		require.NoError(t, err, "the machine could not be put back as it was found")
	})
}

func exercisePower(t *testing.T, f BMCFixture) {
	changeable(t, f)
	b := f.open(t)
	restore(t, f, b)
	for _, step := range []struct {
		intent providers.PowerIntent
		want   providers.PowerState
		resets bool // a reset request is needed
	}{
		{providers.IntentForceOff, providers.PowerOff, true},
		{providers.IntentForceOff, providers.PowerOff, false},
		{providers.IntentOn, providers.PowerOn, true},
		{providers.IntentOn, providers.PowerOn, false},
		{providers.IntentForceOff, providers.PowerOff, true},
	} {
		ctx := f.context(t)
		now, err := b.Power(ctx)
		require.NoError(t, err)
		before := count(f.Resets)
		got, err := b.SetPower(ctx, step.intent)
		require.NoError(t, err, step.intent)
		require.Equal(t, step.want, got)
		f.aside(t, func(other providers.BMC) {
			read, err := other.Power(ctx)
			require.NoError(t, err)
			require.Equal(t, step.want, read, "another reader sees the same")
		})
		if !step.resets || now == step.want {
			require.Equal(t, before, count(f.Resets), "a state already there needs no request")
		} else if f.Resets != nil {
			require.Greater(t, f.Resets(), before)
		}
	}
}

func exerciseGraceful(t *testing.T, f BMCFixture) {
	changeable(t, f)
	if f.Graceful == GracefulNotTried {
		t.Skip("whether the system listens to a graceful shutdown is not known for this machine")
	}
	ctx := f.context(t)
	b := f.open(t)
	restore(t, f, b)
	_, err := b.SetPower(ctx, providers.IntentOn)
	require.NoError(t, err)
	before := count(f.Resets)
	state, err := b.SetPower(ctx, providers.IntentGracefulOff)
	if f.Graceful == GracefulRefused {
		require.Equal(t, providers.KindUnsupported, providers.KindOf(err), "%v", err)
		require.Equal(t, providers.PowerOn, state)
		require.Equal(t, before, count(f.Resets), "what is not offered is not sent")
		return
	}
	require.NoError(t, err)
	require.Equal(t, providers.PowerOff, state)
}

func exerciseBoot(t *testing.T, f BMCFixture) {
	changeable(t, f)
	ctx := f.context(t)
	b := f.open(t)
	restore(t, f, b)
	// Real procedure: the override is set while the system is off.
	_, err := b.SetPower(ctx, providers.IntentForceOff)
	require.NoError(t, err)
	for _, target := range f.BootTargets {
		for range 2 {
			got, err := b.SetBootOnce(ctx, target, true)
			require.NoError(t, err, target)
			require.Equal(t, target, got.Target)
			require.Contains(t, []string{"Once", "Continuous"}, got.Enabled)
		}
		f.aside(t, func(other providers.BMC) {
			read, err := other.BootOverride(ctx)
			require.NoError(t, err)
			require.Equal(t, target, read.Target)
			require.NotEmpty(t, read.FromURI)
		})
	}
	cleared, err := b.SetBootOnce(ctx, providers.BootNone, true)
	require.NoError(t, err)
	require.True(t, cleared.Enabled == "Disabled" || cleared.Target == providers.BootNone, "%+v", cleared)
}

func exerciseClose(t *testing.T, f BMCFixture) {
	ctx := f.context(t)
	b := f.open(t)
	_, err := b.Power(ctx)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, b.Close(ended), "a session is freed even when the caller's time is up")
	require.NoError(t, b.Close(ctx))
	_, err = b.Power(ctx)
	require.Error(t, err)
}

func exercisePin(t *testing.T, f BMCFixture) {
	if strings.HasPrefix(f.Target.Address, "http://") {
		t.Skip("a BMC over plain HTTP shows no certificate")
	}
	before := count(f.Logins)
	target := f.Target
	target.PinSHA256 = strings.Repeat("5a", 32)
	b := f.openTarget(t, target)
	if f.Lacks.Pin {
		_, err := b.Identify(f.context(t))
		require.NoError(t, err, "a pin left over from another protocol")
		return
	}
	_, err := b.Identify(f.context(t))
	require.Equal(t, providers.KindPinMismatch, providers.KindOf(err), "%v", err)
	_, err = b.SetPower(f.context(t), providers.IntentForceOff)
	require.Equal(t, providers.KindPinMismatch, providers.KindOf(err), "%v", err)
	require.Equal(t, before, count(f.Logins), "no login is sent to a BMC that is not the approved one")
}

func exerciseWrongPassword(t *testing.T, f BMCFixture) {
	if !f.WrongPassword {
		t.Skip("a wrong password counts towards a lockout; set SLIPWAY_TEST_BMC_WRONG_PASSWORD=1 to allow one")
	}
	const wrong = "not-it-6b2f" // IPMI allows 20 bytes
	before := count(f.Logins)
	target := f.Target
	target.Password = providers.NewSecret(wrong)
	b := f.openTarget(t, target)
	for range 3 {
		_, err := b.Identify(f.context(t))
		require.Equal(t, providers.KindUnauthorized, providers.KindOf(err), "%v", err)
		require.NotContains(t, err.Error(), wrong)
	}
	_, err := b.SetPower(f.context(t), providers.IntentForceOff)
	require.Equal(t, providers.KindUnauthorized, providers.KindOf(err), "%v", err)
	if f.Logins != nil {
		require.Equal(t, before+1, f.Logins(), "one login attempt and no more")
	}
}
