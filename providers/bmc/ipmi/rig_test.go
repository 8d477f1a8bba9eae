package ipmi_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/ipmi"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	ipmisim "github.com/slipway-cloud/slipway/sim/ipmi"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	simUser     = "operator"
	simPassword = "Tr0ub4dor&3-long" // 16 bytes: ipmi_sim knows no longer one
	simGUID     = "7d0e15d86c2144c5a9b5f24fa1d3ce11"
)

// simSpeed is virtual seconds a wall second: a power-on of 3 s takes 6 ms.
const simSpeed = 500

// peerMissing skips, or fails where peers are required (CI).
func peerMissing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// fast are the waits for simulators, with room for a busy test machine.
func fast() ipmi.Options {
	return ipmi.Options{
		Timeout: 500 * time.Millisecond, Retries: 5, PollMin: 5 * time.Millisecond, PollMax: 50 * time.Millisecond,
		PowerTimeout: 20 * time.Second, GracefulTimeout: 20 * time.Second, ConflictWait: 10 * time.Millisecond, VerifyWait: 2 * time.Second,
	}
}

func bare() ipmi.Options {
	o := fast()
	o.AcceptBareBootFlags = true
	return o
}

// openIPMI is one BMC of ipmi_sim behind a relay.
type openIPMI struct {
	sim    *ipmisim.OpenIPMI
	relay  *ipmisim.Relay
	target providers.BMCTarget
}

func newOpenIPMI(t *testing.T, commands ...string) *openIPMI {
	t.Helper()
	guid, err := hex.DecodeString(simGUID)
	require.NoError(t, err)
	sim, err := ipmisim.StartOpenIPMI(t.Context(), ipmisim.OpenIPMIOptions{
		Dir: t.TempDir(), User: simUser, Password: simPassword, GUID: [16]byte(guid), Commands: commands,
	})
	if errors.Is(err, ipmisim.ErrNotInstalled) {
		peerMissing(t, err.Error()+": no independent BMC checks the provider")
	}
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	r := newRelay(t, sim.Address())
	return &openIPMI{sim: sim, relay: r, target: providers.BMCTarget{Rule: providers.SimulatedAddresses(),
		Address: r.Address(), User: simUser, Password: providers.NewSecret(simPassword), CipherSuite: ipmi.CipherSuite3,
	}}
}

func newRelay(t *testing.T, target string) *ipmisim.Relay {
	t.Helper()
	r, err := ipmisim.StartRelay(t.Context(), target)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func (s *openIPMI) controls(t *testing.T) int {
	n, err := s.sim.Controls()
	require.NoError(t, err)
	return n
}

// reference is one BMC of go-ipmi behind a relay.
type reference struct {
	machine *simhw.Machine
	bmc     *ipmisim.Reference
	relay   *ipmisim.Relay
	target  providers.BMCTarget
}

// The sensors of the reference: one analog, one of a power supply.
const (
	sensorInlet  = 0x10
	sensorSupply = 0x20
)

func newReference(t *testing.T, suites ...int) *reference {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	m := simhw.NewMachine(ctx, simhw.NewClock(simSpeed), simhw.GPUServer("Supermicro", 7))
	m.SetBMC("", simUser, "Tr0ub4dor&3-20-bytes")
	bmc, err := ipmisim.StartReference(ctx, ipmisim.ReferenceOptions{
		Machine: m, Suites: suites, EventCapacity: 10,
		Sensors: [][]byte{
			ipmisim.SensorRecord(1, sensorInlet, 0x01, 0x01, "Inlet Temp"),
			ipmisim.SensorRecord(2, sensorSupply, 0x08, 0x6f, "PSU1 Status"),
		},
		Readings: map[byte][]byte{sensorInlet: {0x19, 0xc0, 0xc0}, sensorSupply: {0, 0xc0, 0x01, 0x80}},
	})
	require.NoError(t, err)
	t.Cleanup(bmc.Close)
	r := newRelay(t, bmc.Address())
	spec := m.Spec()
	return &reference{machine: m, bmc: bmc, relay: r, target: providers.BMCTarget{Rule: providers.SimulatedAddresses(),
		Address: r.Address(), User: spec.BMCUser, Password: providers.NewSecret(spec.BMCPassword),
	}}
}

func open(t *testing.T, target providers.BMCTarget, o ipmi.Options) *ipmi.BMC {
	t.Helper()
	b, err := ipmi.Opener{Options: o}.OpenBMC(target)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b.(*ipmi.BMC)
}

func requireKind(t *testing.T, err error, want providers.Kind) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, providers.KindOf(err), "%v", err)
}

// ipmitool runs the client of the ipmitool project; the password goes by the
// environment.
func ipmitool(t *testing.T, target providers.BMCTarget, suite string, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("ipmitool")
	if err != nil {
		peerMissing(t, "ipmitool is not installed (apt-get install ipmitool): no independent client checks the reference BMC")
	}
	host, port, _ := strings.Cut(target.Address, ":")
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(60*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-I", "lanplus", "-C", suite, "-H", host, "-p", port, "-U", target.User, "-E"}, args...)...)
	cmd.Env = append(os.Environ(), "IPMI_PASSWORD="+target.Password.Reveal())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// emulator turns bytes into arguments of ipmi_sim's commands.
func emulator(b []byte) string {
	var out strings.Builder
	for _, v := range b {
		fmt.Fprintf(&out, " 0x%02x", v)
	}
	return out.String()
}
