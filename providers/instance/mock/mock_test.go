package mock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	"github.com/slipway-cloud/slipway/test/conformance"
)

type clock struct{ at time.Time }

func newClock() *clock { return &clock{time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)} }

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.ExerciseCloud(t, func(t *testing.T) conformance.CloudFixture {
		c := newClock()
		return conformance.CloudFixture{
			Cloud: mock.New(0, func() time.Time { return c.at }), Zone: "mock-1", Type: "MOCK-GPU", Image: "any", InstanceID: "inst_1",
			Pass: func() { c.at = c.at.Add(time.Second) },
		}
	})
}

// TestProvider_FollowsElapsedTime: each part of an instance is reached at its percentage of the
// duration, and not before.
func TestProvider_FollowsElapsedTime(t *testing.T) {
	t.Parallel()
	for stated, whole := range map[time.Duration]time.Duration{0: time.Minute, 100 * time.Second: 100 * time.Second, time.Hour: time.Hour} {
		followElapsedTime(t, stated, whole)
	}
}

// followElapsedTime follows a server of a provider with a stated duration, which takes the whole
// one.
func followElapsedTime(t *testing.T, stated, whole time.Duration) {
	t.Helper()
	c := newClock()
	p := mock.New(stated, func() time.Time { return c.at })
	ctx, begin := t.Context(), c.at
	s, err := p.Create(ctx, providers.CloudCreate{Zone: "mock-1", InstanceID: "inst_1"})
	require.NoError(t, err)
	target, worker := providers.CloudTarget{Zone: "mock-1", InstanceID: "inst_1", ServerID: s.ID}, providers.WorkerTarget{InstanceID: "inst_1"}
	_, err = p.GrowVolume(ctx, target, 1)
	require.NoError(t, err)
	require.NoError(t, p.Start(ctx, target))
	view := func() providers.CloudServer {
		s, err := p.Server(ctx, "mock-1", target.ServerID)
		require.NoError(t, err)
		return s
	}
	is := func(done bool, err error) bool { return err == nil && done }
	looks := []struct {
		percent int
		done    func() bool
	}{
		{25, func() bool { return is(p.GrowVolume(ctx, target, 1)) }},
		{30, func() bool { return view().State == providers.CloudRunning }},
		{40, func() bool { return view().Address != "" }},
		{45, func() bool { return is(p.VerifyGroup(ctx, target, providers.CloudSources{})) }},
		{50, func() bool { return is(p.ReachSSH(ctx, worker)) }},
		{60, func() bool {
			phases, err := p.Install(ctx, worker, providers.WorkerInstall{Model: "m"})
			return err == nil && len(phases.Done) == len(lifecycle.WorkerPhases())
		}},
		{70, func() bool { _, err := p.Models(ctx, worker); return err == nil }},
		{80, func() bool {
			models, err := p.Models(ctx, worker)
			return err == nil && len(models) == 1 && models[0] == "m"
		}},
		{90, func() bool { return p.Complete(ctx, worker, "m") == nil }},
		{95, func() bool { return is(p.Readyz(ctx, worker)) }},
	}
	for _, look := range looks {
		over := begin.Add(whole * time.Duration(look.percent) / 100)
		c.at = over.Add(-time.Millisecond)
		require.False(t, look.done(), "%d %% of %s is early", look.percent, whole)
		c.at = over
		require.True(t, look.done(), "%d %% of %s is over", look.percent, whole)
	}
}
