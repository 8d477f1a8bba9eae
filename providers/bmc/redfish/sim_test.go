package redfish

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/simhw"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/bmcsim"
	"github.com/slipway-cloud/slipway/providers/providertest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// simSpeed is virtual seconds a wall second: a power-on of 3 s takes 6 ms.
const simSpeed = 500

// sim is one simulated machine with its BMC.
type sim struct {
	t       *testing.T
	machine *simhw.Machine
	server  *bmcsim.Server
	target  providers.BMCTarget
}

// newSim starts the BMC of a vendor over TLS, with its pin approved.
func newSim(t *testing.T, vendor string, rules ...func(*bmcsim.Personality)) *sim {
	t.Helper()
	// t.Context ends before the cleanups of a test, which still put power back.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	m := simhw.NewMachine(ctx, simhw.NewClock(simSpeed), simhw.GPUServer(vendor, 7))
	server, err := bmcsim.New(bmcsim.Options{Machine: m, TLS: true, Adjust: func(p *bmcsim.Personality) {
		p.SessionTimeout = 240 * time.Hour // a slow test machine must not look like an idle client
		for _, r := range rules {
			r(p)
		}
	}})
	require.NoError(t, err)
	url, stop, err := server.Start(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	spec := m.Spec()
	return &sim{t: t, machine: m, server: server, target: providers.BMCTarget{
		Address: url, User: spec.BMCUser, Password: providers.NewSecret(spec.BMCPassword), PinSHA256: pinOf(t, server.CertificatePEM()),
	}}
}

func pinOf(t *testing.T, certificate []byte) string {
	t.Helper()
	block, _ := pem.Decode(certificate)
	require.NotNil(t, block)
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// simOptions fit the waits to the speed of the simulated clock, with room for
// a busy test machine.
func simOptions() Options {
	o := fast()
	o.RequestTimeout = 5 * time.Second
	o.PowerTimeout, o.GracefulTimeout = 5*time.Second, 5*time.Second
	o.ConflictWait, o.ConflictRetries = 10*time.Millisecond, 40
	o.LostAnswerWait = 2 * time.Second
	o.TaskTimeout = 2 * time.Second
	return o
}

func (s *sim) open() *BMC { return openTarget(s.t, s.target, simOptions()) }

func (s *sim) fault(f bmcsim.Fault) {
	s.t.Helper()
	require.NoError(s.t, s.server.AddFault(f))
}

func (s *sim) resets() int {
	n := 0
	for _, k := range s.server.Counters().Resets {
		n += k
	}
	return n
}

func (s *sim) logins() int {
	c := s.server.Counters()
	return c.Logins + c.FailedLogins + c.BasicLogins
}

// on brings the machine up behind the BMC's back.
func (s *sim) on() {
	s.machine.PowerOn("test")
	require.Eventually(s.t, func() bool { return s.machine.Power() == simhw.On }, runenv.Patience(5*time.Second), time.Millisecond)
}

// eachVendor runs a test on a fresh machine of every personality.
func eachVendor(t *testing.T, run func(t *testing.T, s *sim)) {
	t.Helper()
	for _, vendor := range bmcsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			run(t, newSim(t, vendor))
		})
	}
}

func TestConformanceOnTheSimulator(t *testing.T) {
	t.Parallel()
	for _, vendor := range bmcsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			providertest.ExerciseBMC(t, func(t *testing.T) providertest.BMCFixture {
				s := newSim(t, vendor)
				return providertest.BMCFixture{
					Opener: Opener{Options: simOptions()}, Target: s.target, Timeout: time.Minute,
					WrongPassword: true, Graceful: providertest.GracefulWorks,
					BootTargets: []providers.BootTarget{providers.BootPXE, providers.BootUEFIHTTP, providers.BootCD, providers.BootHDD, providers.BootSetup},
					Logins:      s.logins, Resets: s.resets,
					Blind: func() {
						s.fault(bmcsim.Fault{Name: bmcsim.FaultUnavailable, Method: http.MethodGet, Path: "/Managers/"})
					},
				}
			})
		})
	}
}

func TestSimulatorWithoutGracefulShutdown(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Supermicro", func(p *bmcsim.Personality) { p.ResetTypes = []string{"On", "ForceOff"} })
	s.on()
	_, err := s.open().SetPower(t.Context(), providers.IntentGracefulOff)
	requireKind(t, err, providers.KindUnsupported)
	require.Zero(t, s.resets())
}

func TestSimulatedIdentity(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		spec := s.machine.Spec()
		b := s.open()
		got, err := b.Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, spec.Serial, got.Serial, "from the chassis where the system hides it")
		require.Equal(t, spec.Model, got.Model)
		require.Equal(t, spec.UUID, got.UUID)
		require.InDelta(t, float64(spec.MemoryMiB)/1024, got.MemoryGiB, 0)
		for _, nic := range spec.NICs {
			require.Contains(t, got.MACs, nic.MAC)
		}
		require.Len(t, got.MACs, len(spec.NICs))
		inv, err := b.Inventory(t.Context())
		require.NoError(t, err)
		require.Empty(t, inv.Partial)
		require.Len(t, inv.Drives, len(spec.Disks))
		rules := s.server.Personality()
		require.Len(t, inv.MediaSlots, len(rules.Media))
		for _, m := range inv.MediaSlots {
			require.Equal(t, !rules.MediaByPatch, m.HasInsert)
		}
		require.Positive(t, inv.Sensors)
		require.NotEmpty(t, inv.Accounts)
		require.Len(t, inv.LogServices, len(rules.SystemLogs)+len(rules.ManagerLogs))
	})
}

func TestSimulatedPowerCycle(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.on()
		boots := make(chan simhw.BootSource, 4)
		s.machine.Subscribe(func(e simhw.Event) {
			if e.Kind == simhw.EventBoot {
				boots <- e.Source
			}
		})
		before := s.machine.BootID()
		res, err := PowerCycle(t.Context(), s.open(), CycleOptions{Settle: time.Millisecond, Boot: providers.BootCD, UEFI: true})
		require.NoError(t, err)
		require.Equal(t, CycleOn, res.Step)
		require.NotEqual(t, before, s.machine.BootID())
		require.Equal(t, simhw.BootOther, <-boots, "the override was followed")
		require.Equal(t, 2, s.resets())
		require.Equal(t, "Disabled", s.machine.BootOverride().Enabled, "once is once")
	})
}

func TestSimulatedHealth(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		b := s.open()
		sys, err := b.Identify(t.Context())
		require.NoError(t, err)
		well, err := b.Health(t.Context())
		require.NoError(t, err)
		require.Equal(t, "OK", well.Overall, "%+v", well)
		require.NoError(t, s.server.SetHealth("/redfish/v1/Chassis/"+s.server.Personality().ChassisID, "Critical"), sys.URI)
		ill, err := b.Health(t.Context())
		require.NoError(t, err)
		require.Equal(t, "Critical", ill.Overall)
		require.NotEmpty(t, ill.Problems)
	})
}

// A change whose answer is lost took effect once, and is not sent again.
func TestSimulatedLostAnswers(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.on()
		b := s.open()
		s.fault(bmcsim.Fault{Name: bmcsim.FaultLostAnswer, Count: 1})
		state, err := b.SetPower(t.Context(), providers.IntentForceOff)
		require.NoError(t, err)
		require.Equal(t, providers.PowerOff, state)
		require.Equal(t, 1, s.resets())

		s.fault(bmcsim.Fault{Name: bmcsim.FaultLostAnswer, Count: 1})
		got, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
		require.NoError(t, err)
		require.Equal(t, providers.BootPXE, got.Target)
	})
}

func TestSimulatedBMCResetInTheMiddle(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.on()
		s.fault(bmcsim.Fault{Name: bmcsim.FaultBMCReset, Count: 1})
		_, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
		requireKind(t, err, providers.KindUncertain)
		require.Eventually(t, func() bool {
			again := s.open()
			defer func() { _ = again.Close(context.Background()) }()
			state, err := again.SetPower(t.Context(), providers.IntentForceOff)
			return err == nil && state == providers.PowerOff
		}, runenv.Patience(10*time.Second), 5*time.Millisecond)
		require.Equal(t, 1, s.machine.Counters().PowerOffs, "the repeat found it off")
		require.Equal(t, 1, s.resets())
	})
}

func TestSimulatedPowerFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault bmcsim.Fault
		kind  providers.Kind // "" = the goal is reached all the same
	}{
		{"On refused for a while", bmcsim.Fault{Name: bmcsim.FaultConflictOn, Count: 5}, ""},
		{"task with absolute location", bmcsim.Fault{Name: bmcsim.FaultAsyncAbsolute}, ""},
		{"task without location", bmcsim.Fault{Name: bmcsim.FaultAsyncNoLocation}, ""},
		{"task elsewhere", bmcsim.Fault{Name: bmcsim.FaultAsyncAbsolute, URL: "https://127.0.0.1:9"}, providers.KindForeign},
		{"slow power", bmcsim.Fault{Name: bmcsim.FaultDelayedPower, Delay: 20 * time.Second}, ""},
		{"ignored power", bmcsim.Fault{Name: bmcsim.FaultIgnoredPower}, providers.KindUncertain},
		{"unavailable", bmcsim.Fault{Name: bmcsim.FaultUnavailable}, providers.KindUnavailable},
		{"echo", bmcsim.Fault{Name: bmcsim.FaultEcho, Path: "Reset"}, providers.KindInvalid},
		{"weak tags", bmcsim.Fault{Name: bmcsim.FaultWeakETag}, ""},
		{"read is garbage", bmcsim.Fault{Name: bmcsim.FaultGarbage, Path: "/Systems"}, providers.KindProtocol},
		{"read hangs", bmcsim.Fault{Name: bmcsim.FaultHangBody}, providers.KindUnreachable},
		{"read is huge", bmcsim.Fault{Name: bmcsim.FaultHugeBody}, providers.KindTooBig},
		{"redirect", bmcsim.Fault{Name: bmcsim.FaultRedirect}, providers.KindForeign},
		{"redirect elsewhere", bmcsim.Fault{Name: bmcsim.FaultRedirect, URL: "https://127.0.0.1:9"}, providers.KindForeign},
		{"endless collection", bmcsim.Fault{Name: bmcsim.FaultNextLinkLoop}, providers.KindProtocol},
		{"foreign members", bmcsim.Fault{Name: bmcsim.FaultForeignLink}, providers.KindForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachVendor(t, func(t *testing.T, s *sim) {
				s.fault(c.fault)
				o := simOptions()
				if c.fault.Name == bmcsim.FaultHangBody {
					o.RequestTimeout = 300 * time.Millisecond
				}
				if c.fault.Name == bmcsim.FaultIgnoredPower {
					o.PowerTimeout = 100 * time.Millisecond
				}
				state, err := openTarget(t, s.target, o).SetPower(t.Context(), providers.IntentOn)
				if c.kind == "" {
					require.NoError(t, err)
					require.Equal(t, providers.PowerOn, state)
					require.Equal(t, 1, s.machine.Counters().PowerOns)
					return
				}
				requireKind(t, err, c.kind)
				require.NotContains(t, err.Error(), s.machine.Spec().BMCPassword)
			})
		})
	}
}

func TestSimulatedBootFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault bmcsim.Fault
		kind  providers.Kind
	}{
		{"ignored", bmcsim.Fault{Name: bmcsim.FaultIgnoredOverride}, providers.KindProtocol},
		{"in POST", bmcsim.Fault{Name: bmcsim.FaultPOST}, providers.KindBusy},
		{"weak tags", bmcsim.Fault{Name: bmcsim.FaultWeakETag}, ""},
		{"unavailable", bmcsim.Fault{Name: bmcsim.FaultUnavailable}, providers.KindUnavailable},
		{"lost", bmcsim.Fault{Name: bmcsim.FaultLostAnswer, Count: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachVendor(t, func(t *testing.T, s *sim) {
				s.fault(c.fault)
				got, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
				if c.kind != "" {
					requireKind(t, err, c.kind)
					return
				}
				require.NoError(t, err)
				require.Equal(t, providers.BootPXE, got.Target)
				require.Equal(t, "Pxe", s.machine.BootOverride().Target)
				require.Equal(t, "Once", s.machine.BootOverride().Enabled)
			})
		})
	}
}

func TestSimulatedLoginFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault bmcsim.Fault
		kind  providers.Kind
	}{
		{"rejected", bmcsim.Fault{Name: bmcsim.FaultAuthReject}, providers.KindUnauthorized},
		{"no token", bmcsim.Fault{Name: bmcsim.FaultNoToken}, providers.KindProtocol},
		{"no location", bmcsim.Fault{Name: bmcsim.FaultNoLocation}, ""},
		{"session table full", bmcsim.Fault{Name: bmcsim.FaultSessionsFull}, providers.KindUnavailable},
		{"factory password", bmcsim.Fault{Name: bmcsim.FaultPasswordChange}, providers.KindPasswordChangeRequired},
		{"foreign session", bmcsim.Fault{Name: bmcsim.FaultForeignLink, Method: "POST", Path: "Sessions"}, providers.KindForeign},
		{"echo", bmcsim.Fault{Name: bmcsim.FaultEcho}, providers.KindInvalid},
		{"other certificate", bmcsim.Fault{Name: bmcsim.FaultCertificateChange}, providers.KindPinMismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachVendor(t, func(t *testing.T, s *sim) {
				s.fault(c.fault)
				b := s.open()
				for range 3 {
					_, err := b.Power(t.Context())
					if c.kind == "" {
						require.NoError(t, err)
						continue
					}
					requireKind(t, err, c.kind)
					require.NotContains(t, err.Error(), s.machine.Spec().BMCPassword)
				}
				require.LessOrEqual(t, s.logins(), 1, "one login a BMC value")
				require.NoError(t, b.Close(t.Context()))
				if c.kind == "" || c.kind == providers.KindPasswordChangeRequired {
					require.Zero(t, s.server.Counters().Sessions, "no session is left behind")
				}
			})
		})
	}
}

func TestSimulatedLockout(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.fault(bmcsim.Fault{Name: bmcsim.FaultLockout, Count: 1})
		b := s.open()
		want := providers.KindUnauthorized // most makes do not tell the two apart
		if s.server.Personality().SaysLocked {
			want = providers.KindLocked
		}
		for range 3 {
			_, err := b.Power(t.Context())
			requireKind(t, err, want)
		}
		require.Equal(t, 1, s.logins())
	})
}

func TestSimulatedSessionThatEnds(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		b := s.open()
		_, err := b.Power(t.Context())
		require.NoError(t, err)
		s.fault(bmcsim.Fault{Name: bmcsim.FaultSessionDropped, Count: 1})
		for range 2 {
			_, err = b.Power(t.Context())
			requireKind(t, err, providers.KindUnavailable)
		}
		require.Equal(t, 1, s.logins())
		_, err = s.open().Power(t.Context())
		require.NoError(t, err, "a new value logs in again")
	})
}

// Every fault of the simulator is met by a test above.
func TestEveryFaultIsMet(t *testing.T) {
	t.Parallel()
	met := map[bmcsim.FaultName]bool{bmcsim.FaultIgnoredGraceful: true}
	for _, f := range []bmcsim.FaultName{
		bmcsim.FaultAuthReject, bmcsim.FaultLockout, bmcsim.FaultPasswordChange, bmcsim.FaultNoToken, bmcsim.FaultNoLocation,
		bmcsim.FaultSessionsFull, bmcsim.FaultSessionDropped, bmcsim.FaultConflictOn, bmcsim.FaultWeakETag, bmcsim.FaultAsyncAbsolute,
		bmcsim.FaultAsyncNoLocation, bmcsim.FaultDelayedPower, bmcsim.FaultIgnoredPower, bmcsim.FaultIgnoredOverride, bmcsim.FaultPOST,
		bmcsim.FaultEcho, bmcsim.FaultHangBody, bmcsim.FaultHugeBody, bmcsim.FaultGarbage, bmcsim.FaultRedirect, bmcsim.FaultNextLinkLoop,
		bmcsim.FaultForeignLink, bmcsim.FaultUnavailable, bmcsim.FaultLostAnswer, bmcsim.FaultBMCReset, bmcsim.FaultCertificateChange, bmcsim.FaultPasswordRefused, bmcsim.FaultPasswordIgnored,
	} {
		met[f] = true
	}
	for _, f := range bmcsim.FaultNames() {
		require.True(t, met[f], "no test of the provider meets the fault %s", f)
	}
}

func TestSimulatedSystemThatDoesNotListen(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.on()
		s.fault(bmcsim.Fault{Name: bmcsim.FaultIgnoredGraceful})
		o := simOptions()
		o.GracefulTimeout = 100 * time.Millisecond
		state, err := openTarget(t, s.target, o).SetPower(t.Context(), providers.IntentGracefulOff)
		requireKind(t, err, providers.KindUncertain)
		require.Equal(t, providers.PowerOn, state)
		state, err = s.open().SetPower(t.Context(), providers.IntentForceOff)
		require.NoError(t, err)
		require.Equal(t, providers.PowerOff, state)
	})
}
