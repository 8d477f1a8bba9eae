package conformance

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// exerciseLacks holds a BMC to what its fixture declares: what cannot be told
// is empty, and what can be told is there.
func exerciseLacks(t *testing.T, f BMCFixture) {
	ctx := f.context(t)
	b := f.open(t)
	system, err := b.Identify(ctx)
	require.NoError(t, err)
	require.Equal(t, f.Lacks.Addresses, len(system.MACs) == 0, "MAC addresses: %v", system.MACs)
	inventory, err := b.Inventory(ctx)
	require.NoError(t, err)
	if f.Lacks.Drives {
		require.Empty(t, inventory.Drives)
		require.Empty(t, inventory.MediaSlots)
	}
	if f.Lacks.Lockout {
		require.Nil(t, inventory.LockoutThreshold, "not told is not zero, which would mean no lockout")
	}
	for _, target := range f.Lacks.Targets {
		require.NotContains(t, f.BootTargets, target)
		if f.ReadOnly {
			continue
		}
		_, err := b.SetBootOnce(ctx, target, true)
		require.Equal(t, providers.KindUnsupported, providers.KindOf(err), "%s: %v", target, err)
	}
	if f.ReadOnly || !slices.Contains(f.BootTargets, providers.BootPXE) {
		return
	}
	set, err := b.SetBootOnce(ctx, providers.BootPXE, true)
	require.NoError(t, err)
	if f.Lacks.BootMode {
		require.Empty(t, set.Mode)
	}
	_, err = b.SetBootOnce(ctx, providers.BootNone, true)
	require.NoError(t, err)
}

func exerciseUnreadablePart(t *testing.T, f BMCFixture) {
	if f.HideReadings == nil {
		t.Skip("no part of this machine can be made unreadable from outside")
	}
	f.HideReadings()
	health, err := f.open(t).Health(f.context(t))
	if err != nil {
		require.NotEmpty(t, providers.KindOf(err), "%v", err)
		return
	}
	require.NotEqual(t, "OK", health.Overall, "%+v", health)
	require.NotEmpty(t, health.Unknown, "the part that was not read is named")
}

// exerciseUnreachable talks to a port where nobody listens.
func exerciseUnreachable(t *testing.T, f BMCFixture) {
	target := f.Target
	target.Address = elsewhere(target.Address, "127.0.0.1:1")
	b := f.openTarget(t, target)
	ctx := f.context(t)
	_, err := b.Power(ctx)
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "%v", err)
	_, err = b.SetPower(ctx, providers.IntentForceOff)
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "nothing was sent, so nothing is uncertain: %v", err)
	require.NotContains(t, err.Error(), f.Target.Password.Reveal())
}

// elsewhere keeps the scheme of an address and changes where it leads.
func elsewhere(address, host string) string {
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return (&url.URL{Scheme: scheme, Host: host}).String()
	}
	return host
}

// silentPeer listens on one port for TCP and UDP, takes everything and answers
// nothing.
func silentPeer(t *testing.T) string {
	t.Helper()
	for range 20 {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		tcp, err := net.Listen("tcp", udp.LocalAddr().String())
		if err != nil { // taken by somebody else
			_ = udp.Close()
			continue
		}
		t.Cleanup(func() { _, _ = udp.Close(), tcp.Close() })
		return udp.LocalAddr().String()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return ""
}

// exerciseSilence: the context ends a call and a Close, whatever waits inside.
func exerciseSilence(t *testing.T, f BMCFixture) {
	target := f.Target
	target.Address = elsewhere(target.Address, silentPeer(t))
	b := f.openTarget(t, target)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := b.Power(ctx); return err },
		func(ctx context.Context) error { _, err := b.Probe(ctx); return err },
		func(ctx context.Context) error { _, err := b.SetPower(ctx, providers.IntentForceOff); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		cancel()
		require.Error(t, err)
		require.NotEmpty(t, providers.KindOf(err), "%v", err)
		require.NotEqual(t, providers.KindUnauthorized, providers.KindOf(err))
		require.Less(t, time.Since(began), 2*time.Second)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.open(t).Power(ended)
	require.Error(t, err, "no call begins when its time is over")
}

// exerciseConcurrent: one value may be used from many sides at once.
func exerciseConcurrent(t *testing.T, f BMCFixture) {
	ctx := f.context(t)
	b := f.open(t)
	want, err := b.Power(ctx)
	require.NoError(t, err)
	var all sync.WaitGroup
	failures := make(chan error, 32)
	for range 8 {
		all.Go(func() {
			got, err := b.Power(ctx)
			if err == nil && got != want {
				err = &providers.Error{Kind: providers.KindProtocol, Message: "read " + string(got) + " where another read " + string(want)}
			}
			failures <- err
			_, err = b.BootOverride(ctx)
			failures <- err
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}
