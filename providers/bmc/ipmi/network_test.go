package ipmi_test

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/ipmi"
	ipmisim "github.com/slipway-cloud/slipway/sim/ipmi"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Offsets in a datagram.
const (
	atType    = 5
	inSession = 0xc0 // payload type IPMI, encrypted and signed
)

// nth lets every nth datagram of a direction meet f.
func nth(n int64, dir ipmisim.Direction, f func([]byte) [][]byte) func(ipmisim.Direction, []byte) [][]byte {
	var seen atomic.Int64
	return func(d ipmisim.Direction, p []byte) [][]byte {
		if d == dir && seen.Add(1)%n == 0 {
			return f(p)
		}
		return [][]byte{p}
	}
}

func drop([]byte) [][]byte { return nil }

// A network that loses, doubles and damages costs time and nothing else: off
// and on may be sent again, and the outcome is read.
func TestABadNetworkIsRiddenOut(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]func(ipmisim.Direction, []byte) [][]byte{
		"requests are lost":    nth(4, ipmisim.ToBMC, drop),
		"answers are lost":     nth(4, ipmisim.FromBMC, drop),
		"requests are doubled": nth(3, ipmisim.ToBMC, func(p []byte) [][]byte { return [][]byte{p, p} }),
		"answers are doubled":  nth(1, ipmisim.FromBMC, func(p []byte) [][]byte { return [][]byte{p, p} }),
		"answers are cut":      nth(5, ipmisim.FromBMC, func(p []byte) [][]byte { return [][]byte{p[:len(p)/2]} }),
		"answers are damaged":  nth(5, ipmisim.FromBMC, func(p []byte) [][]byte { return [][]byte{flip(p, len(p)-20)} }),
		"noise before answers": nth(1, ipmisim.FromBMC, func(p []byte) [][]byte { return [][]byte{[]byte("noise"), flip(p, 7), p} }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReference(t)
			r.relay.Tamper(tamper)
			o := fast()
			o.Timeout = 100 * time.Millisecond
			b := open(t, r.target, o)
			for _, step := range []struct {
				intent providers.PowerIntent
				want   providers.PowerState
			}{{providers.IntentOn, providers.PowerOn}, {providers.IntentForceOff, providers.PowerOff}} {
				got, err := b.SetPower(t.Context(), step.intent)
				require.NoError(t, err)
				require.Equal(t, step.want, got)
			}
			override, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
			require.NoError(t, err)
			require.Equal(t, providers.BootPXE, override.Target)
		})
	}
}

func flip(p []byte, at int) []byte {
	out := append([]byte(nil), p...)
	out[max(at, 0)] ^= 0x55
	return out
}

// afterLogin lets the login through and then hands session traffic to f.
func afterLogin(f func(d ipmisim.Direction, n int64, p []byte) [][]byte) func(ipmisim.Direction, []byte) [][]byte {
	var count [2]atomic.Int64
	return func(d ipmisim.Direction, p []byte) [][]byte {
		if len(p) <= atType || p[atType] != inSession {
			return [][]byte{p}
		}
		return f(d, count[d].Add(1), p)
	}
}

// A graceful shutdown is a button: pressed once, whatever becomes of the
// answer, and the state is watched.
func TestAGracefulShutdownIsSentOnce(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	o := fast()
	o.Timeout = 100 * time.Millisecond
	b := open(t, r.target, o)
	_, err := b.SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
	before := r.bmc.Controls()
	// The first request of the session's rest reads, the second shuts down.
	r.relay.Tamper(afterLogin(func(d ipmisim.Direction, n int64, p []byte) [][]byte {
		if d == ipmisim.FromBMC && n == 2 {
			return nil
		}
		return [][]byte{p}
	}))
	state, err := b.SetPower(t.Context(), providers.IntentGracefulOff)
	require.NoError(t, err)
	require.Equal(t, providers.PowerOff, state)
	require.Equal(t, before+1, r.bmc.Controls())
}

// When a change was sent and nothing answers any more, its outcome is
// uncertain; when nothing was sent it is not.
func TestALostAnswerToAChangeIsUncertain(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	o := fast()
	o.Timeout, o.Retries, o.PowerTimeout = 50*time.Millisecond, 1, 200*time.Millisecond
	b := open(t, r.target, o)
	_, err := b.Power(t.Context())
	require.NoError(t, err)
	r.relay.Tamper(afterLogin(func(d ipmisim.Direction, n int64, p []byte) [][]byte {
		if d == ipmisim.FromBMC && n >= 2 {
			return nil
		}
		return [][]byte{p}
	}))
	_, err = b.SetPower(t.Context(), providers.IntentOn)
	requireKind(t, err, providers.KindUncertain)
	r.relay.Tamper(func(ipmisim.Direction, []byte) [][]byte { return nil })
	_, err = b.SetPower(t.Context(), providers.IntentOn)
	requireKind(t, err, providers.KindUnreachable)
}

// Whoever is in between can swap the algorithms, which the login does not
// cover: such an answer ends it before the password is used.
func TestADowngradeIsRefused(t *testing.T) {
	t.Parallel()
	const openSessionAnswer = 0x11
	for name, at := range map[string]int{"authentication": 16 + 16, "integrity": 16 + 24, "encryption": 16 + 32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReference(t)
			r.relay.Tamper(func(d ipmisim.Direction, p []byte) [][]byte {
				if d == ipmisim.FromBMC && p[atType] == openSessionAnswer {
					p = append([]byte(nil), p...)
					p[at] = 0
				}
				return [][]byte{p}
			})
			_, err := open(t, r.target, fast()).Power(t.Context())
			requireKind(t, err, providers.KindUnsupported)
			require.Zero(t, r.relay.Logins())
		})
	}
}

// An answer that is sent again later does not count again.
func TestAnOldAnswerDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	o := fast()
	o.Timeout, o.Retries = runenv.Patience(100*time.Millisecond), -1
	b := open(t, r.target, o)
	var old []byte // the relay's lock guards it
	var replay atomic.Bool
	r.relay.Tamper(afterLogin(func(d ipmisim.Direction, n int64, p []byte) [][]byte {
		switch {
		case d == ipmisim.FromBMC && n == 2: // the first is the privilege level
			old = p
		case d == ipmisim.FromBMC && replay.Load():
			return [][]byte{old}
		}
		return [][]byte{p}
	}))
	_, err := b.Power(t.Context())
	require.NoError(t, err)
	for range 63 { // until the request's own number comes round
		_, err = b.Power(t.Context())
		require.NoError(t, err)
	}
	replay.Store(true)
	_, err = b.Power(t.Context())
	requireKind(t, err, providers.KindUnreachable)
}

// A wrong password is noticed in the BMC's own proof and not sent on, so it
// does not count towards a lockout.
func TestAWrongPasswordIsNotProven(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	r.target.Password = providers.NewSecret("wrong")
	_, err := open(t, r.target, fast()).Identify(t.Context())
	requireKind(t, err, providers.KindUnauthorized)
	require.Equal(t, 1, r.relay.Logins())
	require.Zero(t, r.relay.Proofs())
	r.target.User = "nobody"
	_, err = open(t, r.target, fast()).Identify(t.Context())
	requireKind(t, err, providers.KindUnauthorized)
}

// A RAKP 1 that the network doubles makes the BMC change its random number, so that it refuses a
// right proof. Such a refusal is no rejected login.
func TestADoubledDatagramIsNoRejectedLogin(t *testing.T) {
	t.Parallel()
	const rakp1 = 0x12
	r := newReference(t)
	var times atomic.Int64
	r.relay.Tamper(func(d ipmisim.Direction, p []byte) [][]byte {
		if d == ipmisim.ToBMC && p[atType] == rakp1 && times.Add(1) == 1 {
			return [][]byte{p, p}
		}
		return [][]byte{p}
	})
	_, err := open(t, r.target, fast()).Power(t.Context())
	require.NoError(t, err)

	r = newReference(t)
	r.relay.Tamper(func(d ipmisim.Direction, p []byte) [][]byte {
		if d == ipmisim.ToBMC && p[atType] == rakp1 {
			return [][]byte{p, p}
		}
		return [][]byte{p}
	})
	// Doubled always: the BMC never takes it, and that is an operator's matter.
	if _, err = open(t, r.target, fast()).Power(t.Context()); err != nil {
		requireKind(t, err, providers.KindUnauthorized)
		require.Contains(t, err.Error(), "the stored password fits")
		require.Equal(t, 2, r.relay.Proofs())
	}
}

// garbageBMC answers every datagram with what answer makes.
func garbageBMC(t *testing.T, answer func(request []byte) []byte) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			for range 20 {
				_, _ = c.WriteTo(answer(buf[:n]), from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// Garbage ends in an error within the time of the tries, never in a panic and
// never in a rejected login.
func TestGarbageEndsInAnErrorInTime(t *testing.T) {
	t.Parallel()
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rand.IntN(256)) //nolint:gosec // noise
		}
		return b
	}
	for name, answer := range map[string]func([]byte) []byte{
		"noise":           func([]byte) []byte { return random(rand.IntN(300)) }, //nolint:gosec // noise
		"nothing":         func([]byte) []byte { return nil },
		"an echo":         func(r []byte) []byte { return append([]byte(nil), r...) },
		"a framed noise":  func([]byte) []byte { return append([]byte{6, 0, 0xff, 7, 6}, random(60)...) },
		"a huge datagram": func([]byte) []byte { return append([]byte{6, 0, 0xff, 7, 6, 0x11}, random(3000)...) },
		"a damaged echo":  func(r []byte) []byte { return append(append([]byte(nil), r[:len(r)/2]...), random(20)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := fast()
			o.Timeout, o.Retries = 50*time.Millisecond, 2
			b := open(t, providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: garbageBMC(t, answer), User: simUser, Password: providers.NewSecret(simPassword)}, o)
			ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
			defer cancel()
			began := time.Now()
			for _, call := range []func() error{
				func() error { _, err := b.Probe(ctx); return err },
				func() error { _, err := b.Identify(ctx); return err },
				func() error { _, err := b.SetPower(ctx, providers.IntentOn); return err },
				func() error { _, err := b.Health(ctx); return err },
			} {
				err := call()
				require.Contains(t, []providers.Kind{providers.KindProtocol, providers.KindUnreachable}, providers.KindOf(err), "%v", err)
				require.NotContains(t, err.Error(), simPassword)
			}
			require.Less(t, time.Since(began), runenv.Patience(15*time.Second), runenv.Deadline+"it took too long")
		})
	}
}

// A session that lay idle is opened again before it is used, since the BMC may
// have dropped it; a BMC that dropped it early costs one call.
func TestIdleSession_OpenedAgain(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	o := fast()
	o.SessionIdle = time.Nanosecond
	b := open(t, r.target, o)
	for range 6 { // more than the BMC has sessions: each one is closed
		_, err := b.Power(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 6, r.relay.Logins())
	require.NoError(t, b.Close(t.Context()))
	_, err := b.Power(t.Context())
	requireKind(t, err, providers.KindInvalid)
}

func TestNoErrorHoldsASecret(t *testing.T) {
	t.Parallel()
	const secret = "S3cret-in-the-open"
	r := newReference(t)
	silent := providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: "127.0.0.1:1", User: simUser, Password: providers.NewSecret(secret)}
	rejecting := r.target
	rejecting.Password = providers.NewSecret(secret)
	long := r.target
	long.Password = providers.NewSecret(secret + secret)
	zero := r.target
	zero.Password = providers.NewSecret(secret + "\x00")
	for _, target := range []providers.BMCTarget{silent, rejecting, long, zero} {
		b, err := ipmi.Opener{Options: fast()}.OpenBMC(target)
		if err == nil {
			_, err = b.Identify(t.Context())
			_ = b.Close(t.Context())
		}
		require.Error(t, err)
		for e := err; e != nil; {
			require.NotContains(t, e.Error(), secret)
			u, ok := e.(interface{ Unwrap() error }) //nolint:errorlint // every layer is looked at
			if !ok {
				break
			}
			e = u.Unwrap()
		}
	}
}

func TestWhatCannotBeUsedIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	good := providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: "127.0.0.1", User: simUser, Password: providers.NewSecret(simPassword)}
	for name, change := range map[string]func(*providers.BMCTarget){
		"no address":     func(b *providers.BMCTarget) { b.Address = " " },
		"a URL":          func(b *providers.BMCTarget) { b.Address = "https://127.0.0.1" },
		"a login in it":  func(b *providers.BMCTarget) { b.Address = "a@127.0.0.1" },
		"no port at all": func(b *providers.BMCTarget) { b.Address = "127.0.0.1:http" },
		"port 0":         func(b *providers.BMCTarget) { b.Address = "127.0.0.1:0" },
		"no host":        func(b *providers.BMCTarget) { b.Address = ":623" },
		"half an IPv6":   func(b *providers.BMCTarget) { b.Address = "fe80::zz" },
		"long password":  func(b *providers.BMCTarget) { b.Password = providers.NewSecret(strings.Repeat("x", 21)) },
		"long user":      func(b *providers.BMCTarget) { b.User = strings.Repeat("x", 17) },
		"suite 0 is 17":  nil,
		"suite 1":        func(b *providers.BMCTarget) { b.CipherSuite = 1 },
		"suite -1":       func(b *providers.BMCTarget) { b.CipherSuite = -1 },
	} {
		target := good
		if change != nil {
			change(&target)
		}
		_, err := ipmi.Opener{}.OpenBMC(target)
		if change == nil {
			require.NoError(t, err, name)
			continue
		}
		requireKind(t, err, providers.KindInvalid)
	}
	for _, address := range []string{"bmc1", "bmc1:6230", "::1", "[::1]:623", "127.0.0.1"} {
		good.Address = address
		_, err := ipmi.Opener{}.OpenBMC(good)
		require.NoError(t, err, address)
	}
	good.Address, good.User = "127.0.0.1:1", ""
	_, err := open(t, good, fast()).Power(t.Context())
	requireKind(t, err, providers.KindInvalid)
}

func TestAnNMINeedsASystemThatIsOn(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	b := open(t, r.target, fast())
	_, err := b.SetPower(t.Context(), providers.IntentNMI)
	requireKind(t, err, providers.KindStateConflict)
	_, err = b.SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
	_, err = b.SetPower(t.Context(), providers.IntentNMI)
	requireKind(t, err, providers.KindInvalid) // the reference has no NMI
	_, err = b.SetPower(t.Context(), "spin")
	requireKind(t, err, providers.KindInvalid)
}
