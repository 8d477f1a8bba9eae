package ipmi_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/ipmi"
	ipmisim "github.com/slipway-cloud/slipway/sim/ipmi"
	"github.com/slipway-cloud/slipway/test/conformance"
)

var bootTargets = []providers.BootTarget{providers.BootPXE, providers.BootHDD, providers.BootCD, providers.BootSetup}

// OpenIPMI's server shares nothing with us: suite 3, and boot flags of which
// only the device reads back.
func TestConformanceOnOpenIPMI(t *testing.T) {
	t.Parallel()
	conformance.ExerciseBMC(t, func(t *testing.T) conformance.BMCFixture {
		s := newOpenIPMI(t)
		lacks := conformance.IPMILacks()
		lacks.BootMode = true
		return conformance.BMCFixture{
			Opener: ipmi.Opener{Options: bare()}, Target: s.target, Timeout: time.Minute,
			WrongPassword: true, Graceful: conformance.GracefulWorks, BootTargets: []providers.BootTarget{providers.BootPXE, providers.BootHDD, providers.BootCD},
			Logins: s.relay.Logins, Resets: func() int { return s.controls(t) },
			Lacks: lacks, HideReadings: func() {}, // it has no sensors to begin with
		}
	})
}

// go-ipmi's server: suite 17, all boot flags, sensors and an inventory record.
func TestConformanceOnTheReference(t *testing.T) {
	t.Parallel()
	for suite, name := range map[int]string{ipmi.CipherSuite17: "suite 17", ipmi.CipherSuite3: "suite 3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.ExerciseBMC(t, func(t *testing.T) conformance.BMCFixture {
				r := newReference(t, suite)
				r.target.CipherSuite = suite
				return conformance.BMCFixture{
					Opener: ipmi.Opener{Options: fast()}, Target: r.target, Timeout: time.Minute,
					WrongPassword: true, Graceful: conformance.GracefulWorks, BootTargets: bootTargets,
					Logins: r.relay.Logins, Resets: r.bmc.Controls, Lacks: conformance.IPMILacks(),
					HideReadings: func() { r.bmc.SetReading(sensorInlet) },
				}
			})
		})
	}
}

func TestConformanceOnRealGear(t *testing.T) {
	t.Parallel()
	f, ok := conformance.RealIPMI(os.Getenv, ipmi.Opener{})
	if !ok {
		t.Skip("no real BMC is given; set SLIPWAY_TEST_IPMI_ADDRESS, _USER and _PASSWORD to run the suite on one")
	}
	require.NotEmpty(t, f.Target.User, "SLIPWAY_TEST_IPMI_USER")
	conformance.ExerciseBMC(t, func(*testing.T) conformance.BMCFixture { return f })
}

// The reference shares codecs with the provider, so ipmitool checks it: both
// see the same machine.
func TestReference_PassesIpmitool(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	for _, suite := range []string{"17", "3"} {
		out, err := ipmitool(t, r.target, suite, "chassis", "power", "status")
		require.NoError(t, err, out)
		require.Contains(t, out, "is off")
	}
	out, err := ipmitool(t, r.target, "17", "chassis", "bootdev", "pxe", "options=efiboot")
	require.NoError(t, err, out)
	b := open(t, r.target, fast())
	got, err := b.BootOverride(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.BootOverride{Target: providers.BootPXE, Enabled: "Once", Mode: "UEFI", FromURI: "ipmi:boot-flags"}, got)
	_, err = b.SetBootOnce(t.Context(), providers.BootHDD, false)
	require.NoError(t, err)
	out, err = ipmitool(t, r.target, "17", "chassis", "bootparam", "get", "5")
	require.NoError(t, err, out)
	for _, line := range []string{"Boot Flag Valid", "only next boot", "legacy", "Force Boot from default Hard-Drive"} {
		require.Contains(t, out, line)
	}
	_, err = b.SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
	out, err = ipmitool(t, r.target, "17", "chassis", "power", "status")
	require.NoError(t, err, out)
	require.Contains(t, out, "is on")

	system, err := b.Identify(t.Context())
	require.NoError(t, err)
	spec := r.machine.Spec()
	require.Equal(t, spec.UUID, system.UUID)
	require.Equal(t, spec.Serial, system.Serial)
	require.Equal(t, spec.Model, system.Model)
	require.Equal(t, spec.Vendor, system.Manufacturer)
	out, err = ipmitool(t, r.target, "17", "fru", "print", "0")
	require.NoError(t, err, out)
	require.Contains(t, out, spec.Serial)
	require.Contains(t, out, spec.Model)
	out, err = ipmitool(t, r.target, "17", "sdr", "elist")
	require.NoError(t, err, out)
	require.Contains(t, out, "PSU1 Status")
	r.bmc.AddEvent(firstEvent, 0x08, sensorSupply, 0x01)
	out, err = ipmitool(t, r.target, "17", "sel", "list")
	require.NoError(t, err, out)
	require.Contains(t, out, "03/01/26")
	require.Contains(t, out, "Failure detected")
	out, err = ipmitool(t, r.target, "17", "sel", "clear")
	require.NoError(t, err, out)
	require.Empty(t, r.bmc.Events())
}

// ipmi_sim must have kept the settings that it was given.
func TestOpenIPMISeesWhatWasAsked(t *testing.T) {
	t.Parallel()
	s := newOpenIPMI(t,
		"mc_add_fru_data 0x20 0 256 data"+emulator(ipmisim.Inventory("Example", "GPU-8", "SN0042")),
		"main_sdr_add 0x20"+emulator(ipmisim.SensorRecord(1, sensorSupply, 0x08, 0x6f, "PSU1 Status")),
		"sensor_add 0x20 0 0x20 0x08 0x6f",
		"sensor_set_event_support 0x20 0 0x20 disable scanning per-state 000000000000000 000000000000000 000000000000000 000000000000000",
		"sensor_set_bit 0x20 0 0x20 0 1 0",
	)
	b := open(t, s.target, bare())
	ctx := t.Context()
	system, err := b.Identify(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"Example", "GPU-8", "SN0042"}, []string{system.Manufacturer, system.Model, system.Serial})
	tool, err := ipmitool(t, s.target, "3", "mc", "guid")
	require.NoError(t, err, tool)
	require.Contains(t, strings.ToLower(tool), system.UUID)

	health, err := b.Health(ctx)
	require.NoError(t, err)
	require.Equal(t, "OK", health.Overall, "%+v", health)

	_, err = b.SetPower(ctx, providers.IntentOn)
	require.NoError(t, err)
	on, err := s.sim.On()
	require.NoError(t, err)
	require.True(t, on)
	_, err = b.SetBootOnce(ctx, providers.BootPXE, true)
	require.NoError(t, err)
	device, err := s.sim.BootDevice()
	require.NoError(t, err)
	require.Equal(t, "pxe", device)
	require.NoError(t, s.sim.SetOn(false), "somebody pulls the plug")
	state, err := b.Power(ctx)
	require.NoError(t, err)
	require.Equal(t, providers.PowerOff, state)
}

// Without the rig's tolerance ipmi_sim's flags count as what they are: not set.
func TestBootFlagsThatDoNotReadBackAreAnError(t *testing.T) {
	t.Parallel()
	s := newOpenIPMI(t)
	o := fast()
	o.VerifyWait = 100 * time.Millisecond
	_, err := open(t, s.target, o).SetBootOnce(t.Context(), providers.BootPXE, true)
	requireKind(t, err, providers.KindProtocol)
	require.Contains(t, err.Error(), "does not show it as set")
}

// A BMC without the suite is not tried with another one.
func TestNoOtherSuiteIsTried(t *testing.T) {
	t.Parallel()
	r := newReference(t, ipmi.CipherSuite3)
	_, err := open(t, r.target, fast()).Power(t.Context())
	requireKind(t, err, providers.KindUnsupported)
	require.Contains(t, err.Error(), "cipher suite 17")
	require.Zero(t, r.relay.Logins())
	require.Equal(t, 1, r.relay.Sessions())

	s := newOpenIPMI(t)
	s.target.CipherSuite = 0
	o := fast()
	o.Timeout, o.Retries = 100*time.Millisecond, -1
	_, err = open(t, s.target, o).Power(t.Context())
	requireKind(t, err, providers.KindUnavailable)
	require.Contains(t, err.Error(), "cipher suite 17", "ipmi_sim says nothing to a suite that it does not know")
}
