package redfish

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/conformance"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// simSpeed is virtual seconds a wall second: a power-on of 3 s takes 6 ms.
const simSpeed = 500

// sim is one simulated machine with its BMC.
type sim struct {
	t       *testing.T
	machine *simhw.Machine
	server  *redfishsim.Server
	target  providers.BMCTarget
}

// newSim starts the BMC of a personality over TLS, with its pin approved.
func newSim(t *testing.T, vendor string, rules ...func(*redfishsim.Personality)) *sim {
	t.Helper()
	// t.Context ends before the cleanups of a test, which still put power back.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	maker, _, _ := strings.Cut(vendor, "-")
	m := simhw.NewMachine(ctx, simhw.NewClock(simSpeed), simhw.GPUServer(maker, 7))
	server, err := redfishsim.New(redfishsim.Options{Machine: m, Personality: vendor, TLS: true, Adjust: func(p *redfishsim.Personality) {
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
	return &sim{t: t, machine: m, server: server, target: providers.BMCTarget{Rule: providers.SimulatedAddresses(),
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
	o.ConnectTimeout, o.RequestTimeout = runenv.Patience(5*time.Second), runenv.Patience(5*time.Second)
	o.PowerTimeout, o.GracefulTimeout = 5*time.Second, 5*time.Second
	o.ConflictWait, o.ConflictRetries = 10*time.Millisecond, 40
	o.LostAnswerWait = 2 * time.Second
	o.TaskTimeout = 2 * time.Second
	return o
}

func (s *sim) open() *BMC { return openTarget(s.t, s.target, simOptions()) }

func (s *sim) fault(f redfishsim.Fault) {
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
	for _, vendor := range redfishsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			run(t, newSim(t, vendor))
		})
	}
}

func TestConformanceOnTheSimulator(t *testing.T) {
	t.Parallel()
	for _, vendor := range slices.Concat(redfishsim.Names(), redfishsim.Variants()) {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			conformance.ExerciseBMC(t, func(t *testing.T) conformance.BMCFixture {
				s := newSim(t, vendor)
				return conformance.BMCFixture{
					Opener: Opener{Options: simOptions()}, Target: s.target, Timeout: time.Minute,
					WrongPassword: true, Graceful: conformance.GracefulWorks,
					BootTargets: s.bootTargets(), Logins: s.logins, Resets: s.resets,
					HideReadings: func() {
						s.fault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Method: http.MethodGet, Path: "/Managers/"})
					},
				}
			})
		})
	}
}

func TestSimulatorWithoutGracefulShutdown(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Supermicro", func(p *redfishsim.Personality) { p.ResetTypes = []string{"On", "ForceOff"} })
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
		s.fault(redfishsim.Fault{Name: redfishsim.FaultLostAnswer, Count: 1})
		state, err := b.SetPower(t.Context(), providers.IntentForceOff)
		require.NoError(t, err)
		require.Equal(t, providers.PowerOff, state)
		require.Equal(t, 1, s.resets())

		s.fault(redfishsim.Fault{Name: redfishsim.FaultLostAnswer, Count: 1})
		got, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
		require.NoError(t, err)
		require.Equal(t, providers.BootPXE, got.Target)
	})
}

func TestSimulatedBMCResetInTheMiddle(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.on()
		s.fault(redfishsim.Fault{Name: redfishsim.FaultBMCReset, Count: 1})
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
		fault redfishsim.Fault
		kind  providers.Kind // "" = the goal is reached all the same
	}{
		{"On refused for a while", redfishsim.Fault{Name: redfishsim.FaultConflictOn, Count: 5}, ""},
		{"task with absolute location", redfishsim.Fault{Name: redfishsim.FaultAsyncAbsolute}, ""},
		{"task without location", redfishsim.Fault{Name: redfishsim.FaultAsyncNoLocation}, ""},
		{"task elsewhere", redfishsim.Fault{Name: redfishsim.FaultAsyncAbsolute, URL: "https://127.0.0.1:9"}, providers.KindForeign},
		{"slow power", redfishsim.Fault{Name: redfishsim.FaultDelayedPower, Delay: 20 * time.Second}, ""},
		{"ignored power", redfishsim.Fault{Name: redfishsim.FaultIgnoredPower}, providers.KindUncertain},
		{"unavailable", redfishsim.Fault{Name: redfishsim.FaultUnavailable}, providers.KindUnavailable},
		{"echo", redfishsim.Fault{Name: redfishsim.FaultEcho, Path: "Reset"}, providers.KindInvalid},
		{"weak tags", redfishsim.Fault{Name: redfishsim.FaultWeakETag}, ""},
		{"read is garbage", redfishsim.Fault{Name: redfishsim.FaultGarbage, Path: "/Systems"}, providers.KindProtocol},
		{"read hangs", redfishsim.Fault{Name: redfishsim.FaultHangBody}, providers.KindUnreachable},
		{"read is huge", redfishsim.Fault{Name: redfishsim.FaultHugeBody}, providers.KindTooBig},
		{"redirect", redfishsim.Fault{Name: redfishsim.FaultRedirect}, providers.KindForeign},
		{"redirect elsewhere", redfishsim.Fault{Name: redfishsim.FaultRedirect, URL: "https://127.0.0.1:9"}, providers.KindForeign},
		{"endless collection", redfishsim.Fault{Name: redfishsim.FaultNextLinkLoop}, providers.KindProtocol},
		{"foreign members", redfishsim.Fault{Name: redfishsim.FaultForeignLink}, providers.KindForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachVendor(t, func(t *testing.T, s *sim) {
				s.fault(c.fault)
				o := simOptions()
				if c.fault.Name == redfishsim.FaultHangBody {
					o.RequestTimeout = 300 * time.Millisecond
				}
				if c.fault.Name == redfishsim.FaultIgnoredPower {
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
		fault redfishsim.Fault
		kind  providers.Kind
	}{
		{"ignored", redfishsim.Fault{Name: redfishsim.FaultIgnoredOverride}, providers.KindProtocol},
		{"in POST", redfishsim.Fault{Name: redfishsim.FaultPOST}, providers.KindBusy},
		{"weak tags", redfishsim.Fault{Name: redfishsim.FaultWeakETag}, ""},
		{"unavailable", redfishsim.Fault{Name: redfishsim.FaultUnavailable}, providers.KindUnavailable},
		{"lost", redfishsim.Fault{Name: redfishsim.FaultLostAnswer, Count: 1}, ""},
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
		fault redfishsim.Fault
		kind  providers.Kind
	}{
		{"rejected", redfishsim.Fault{Name: redfishsim.FaultAuthReject}, providers.KindUnauthorized},
		{"no token", redfishsim.Fault{Name: redfishsim.FaultNoToken}, providers.KindProtocol},
		{"no location", redfishsim.Fault{Name: redfishsim.FaultNoLocation}, ""},
		{"session table full", redfishsim.Fault{Name: redfishsim.FaultSessionsFull}, providers.KindUnavailable},
		{"factory password", redfishsim.Fault{Name: redfishsim.FaultPasswordChange}, providers.KindPasswordChangeRequired},
		{"foreign session", redfishsim.Fault{Name: redfishsim.FaultForeignLink, Method: "POST", Path: "Sessions"}, providers.KindForeign},
		{"echo", redfishsim.Fault{Name: redfishsim.FaultEcho}, providers.KindInvalid},
		{"other certificate", redfishsim.Fault{Name: redfishsim.FaultCertificateChange}, providers.KindPinMismatch},
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
		s.fault(redfishsim.Fault{Name: redfishsim.FaultLockout, Count: 1})
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
		s.fault(redfishsim.Fault{Name: redfishsim.FaultSessionDropped, Count: 1})
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
	met := map[redfishsim.FaultName]bool{redfishsim.FaultIgnoredGraceful: true}
	for _, f := range []redfishsim.FaultName{
		redfishsim.FaultAuthReject, redfishsim.FaultLockout, redfishsim.FaultPasswordChange, redfishsim.FaultNoToken, redfishsim.FaultNoLocation,
		redfishsim.FaultSessionsFull, redfishsim.FaultSessionDropped, redfishsim.FaultConflictOn, redfishsim.FaultWeakETag, redfishsim.FaultAsyncAbsolute,
		redfishsim.FaultAsyncNoLocation, redfishsim.FaultDelayedPower, redfishsim.FaultIgnoredPower, redfishsim.FaultIgnoredOverride, redfishsim.FaultPOST,
		redfishsim.FaultEcho, redfishsim.FaultHangBody, redfishsim.FaultHugeBody, redfishsim.FaultGarbage, redfishsim.FaultRedirect, redfishsim.FaultNextLinkLoop,
		redfishsim.FaultForeignLink, redfishsim.FaultUnavailable, redfishsim.FaultLostAnswer, redfishsim.FaultBMCReset, redfishsim.FaultCertificateChange, redfishsim.FaultPasswordRefused, redfishsim.FaultPasswordIgnored,
	} {
		met[f] = true
	}
	for _, f := range redfishsim.FaultNames() {
		require.True(t, met[f], "no test of the provider meets the fault %s", f)
	}
}

func TestSimulatedSystemThatDoesNotListen(t *testing.T) {
	t.Parallel()
	eachVendor(t, func(t *testing.T, s *sim) {
		s.on()
		s.fault(redfishsim.Fault{Name: redfishsim.FaultIgnoredGraceful})
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
