package redfish

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// ofKind lists the parts of a kind.
func ofKind(s providers.Survey, kind hardware.Kind) (out []hardware.Part) {
	for _, p := range s.Parts {
		if p.Kind == kind {
			out = append(out, p)
		}
	}
	return out
}

func newlyRead(providers.BMCLogEntry) bool { return false }

// TestSurvey_OfTheRecordedGH200 reads the whole tree: parts with health, and logs.
func TestSurvey_OfTheRecordedGH200(t *testing.T) {
	t.Parallel()
	const critical = "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_1"
	b := serveTree(t, "nvidia_gh200", func(tree map[string][]byte) {
		tree[critical] = []byte(strings.ReplaceAll(string(tree[critical]), `"Health": "OK"`, `"Health": "Critical"`))
	})
	s, err := b.Survey(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, "Critical", s.Health.Overall)
	require.Equal(t, hardware.PartHealth{Target: critical, Category: hardware.CategoryGPU, Health: "Critical"}, s.Probes[0], "the worst comes first")
	require.Zero(t, s.LeftOut)
	gpus := ofKind(s, hardware.GPU)
	require.Len(t, gpus, 2)
	require.Equal(t, "1640124000373", gpus[1].Serial)
	require.Equal(t, "2342-888-A1", gpus[1].PartNumber)
	require.Equal(t, "96.00.A6.00.01", gpus[1].Firmware)
	require.Equal(t, "NVIDIA GH200 96GB HBM3", gpus[1].Model)
	require.Len(t, ofKind(s, hardware.CPU), 4, "of the host, and as the baseboard sees them")
	require.Len(t, ofKind(s, hardware.BMC), 2)
	require.NotEmpty(t, ofKind(s, hardware.Firmware))
	require.Empty(t, ofKind(s, hardware.Drive))
	boards := ofKind(s, hardware.Board)
	require.True(t, slices.ContainsFunc(boards, func(p hardware.Part) bool { return p.Serial == "1580624650610" && p.Model == "P3809" }), "%+v", boards)

	logs, err := b.Logs(t.Context(), newlyRead)
	require.NoError(t, err)
	byService := map[string]int{}
	for _, e := range logs.Entries {
		byService[e.Service]++
		require.NotEmpty(t, e.ID)
		require.False(t, e.Created.IsZero(), "%+v", e)
		require.NotContains(t, strings.ToLower(e.Service), "postcodes")
	}
	for _, service := range []string{"Systems/System_0/LogServices/SEL", "Systems/HGX_Baseboard_0/LogServices/EventLog", "Managers/BMC_0/LogServices/Journal"} {
		require.Equal(t, 5, byService["/redfish/v1/"+service], service)
	}
	all := len(logs.Entries)
	logs, err = b.Logs(t.Context(), func(e providers.BMCLogEntry) bool { return e.ID == "205745" })
	require.NoError(t, err)
	require.Equal(t, all-2, len(logs.Entries), "what is known is not told again")
}

// TestSurvey_OfTheRecordedDell: a BlueField among the network cards is a DPU with its model.
func TestSurvey_OfTheRecordedDell(t *testing.T) {
	t.Parallel()
	b := serveTree(t, "dell_poweredge_r750")
	s, err := b.Survey(t.Context(), false)
	require.NoError(t, err)
	dpus := ofKind(s, hardware.DPU)
	require.Len(t, dpus, 1)
	require.Equal(t, "BlueField-2 SmartNIC Main Card", dpus[0].Model)
	require.Equal(t, "MT2242XZ00QA", dpus[0].Serial)
	require.Equal(t, "MBF2H5", dpus[0].PartNumber)
	require.Empty(t, dpus[0].Mode, "iDRAC does not tell it")
	require.NotEmpty(t, dpus[0].Firmware)
	require.Len(t, ofKind(s, hardware.Drive), 3)
	supplies := ofKind(s, hardware.PSU)
	require.Len(t, supplies, 2)
	require.NotEmpty(t, supplies[0].Serial)
	logs, err := b.Logs(t.Context(), newlyRead)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(logs.Entries, func(e providers.BMCLogEntry) bool {
		return strings.HasSuffix(e.Service, "/Sel") && e.ID == "1024" && e.Created.Equal(time.Date(2024, 6, 11, 5, 13, 0, 0, time.UTC))
	}), "%+v", logs.Entries)
}

func TestSurvey_OfTheRecordedLenovo(t *testing.T) {
	t.Parallel()
	s, err := serveTree(t, "lenovo_thinksystem_sr670").Survey(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, ofKind(s, hardware.Drive), 2)
	require.NotEmpty(t, ofKind(s, hardware.GPU))
	require.NotEmpty(t, ofKind(s, hardware.PSU))
}

// personality opens a simulated BMC.
func personality(t *testing.T, name string) (*BMC, *redfishsim.Server) {
	t.Helper()
	fleet := simhw.NewFleet(t.Context(), simhw.NewClock(20))
	vendor, _, _ := strings.Cut(name, "-")
	m, err := fleet.Add(simhw.GPUServer(vendor, 1))
	require.NoError(t, err)
	sim, err := redfishsim.New(redfishsim.Options{Machine: m, Personality: name, Seed: 7})
	require.NoError(t, err)
	url, stop, err := sim.Start(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	m.PowerOn("test")
	login := m.Spec()
	b := openTarget(t, providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: url, User: login.BMCUser, Password: providers.NewSecret(login.BMCPassword)}, Options{})
	return b, sim
}

// TestSurvey_OfEachPersonality: identity, health with a planted critical part, parts with ids, and
// logs.
func TestSurvey_OfEachPersonality(t *testing.T) {
	t.Parallel()
	for _, name := range append(redfishsim.Names(), redfishsim.Variants()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, sim := personality(t, name)
			_, err := b.SetPower(t.Context(), providers.IntentOn)
			require.NoError(t, err)
			s, err := b.Survey(t.Context(), false)
			require.NoError(t, err)
			require.Equal(t, "OK", s.Health.Overall, "%+v", s.Health)
			require.Empty(t, s.Partial)
			require.ElementsMatch(t, hardware.Kinds(), s.Whole)
			for _, kind := range []hardware.Kind{hardware.Chassis, hardware.BMC, hardware.Drive, hardware.PSU, hardware.NIC, hardware.Firmware} {
				if name == "NVIDIA-BlueField" && kind == hardware.Drive {
					continue // its system is the DPU
				}
				require.NotEmpty(t, ofKind(s, kind), kind)
			}
			sim.AddLogEntry("Critical", "a planted fault")
			logs, err := b.Logs(t.Context(), newlyRead)
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(logs.Entries, func(e providers.BMCLogEntry) bool {
				return e.Message == "a planted fault" && e.Severity == "Critical" && !e.Created.IsZero()
			}))
			if name == "NVIDIA-BlueField" {
				require.Len(t, ofKind(s, hardware.DPU), 1)
				return
			}
			target := ofKind(s, hardware.GPU)[0].URI
			require.NoError(t, sim.SetHealth(strings.TrimSuffix(target, "/"), "Critical"))
			s, err = b.Survey(t.Context(), false)
			require.NoError(t, err)
			require.Equal(t, "Critical", s.Health.Overall)
			require.Equal(t, target, s.Probes[0].Target)
			require.Equal(t, hardware.CategoryGPU, s.Probes[0].Category)
		})
	}
}

// TestSurvey_DPUsAndLeaks of a node of a rack: DPUs in the host have a mode, and a leak is
// critical.
func TestSurvey_DPUsAndLeaks(t *testing.T) {
	t.Parallel()
	b, sim := personality(t, "NVIDIA-GB200")
	require.NoError(t, sim.SetDPUMode(1, redfishsim.ModeNIC))
	s, err := b.Survey(t.Context(), false)
	require.NoError(t, err)
	dpus := ofKind(s, hardware.DPU)
	require.Len(t, dpus, 2, "a card and the system on it are one: %+v", dpus)
	require.Equal(t, hardware.ModeDPU, dpus[0].Mode)
	require.Equal(t, hardware.ModeNIC, dpus[1].Mode)
	for _, d := range dpus {
		require.Equal(t, "BlueField-3 DPU", d.Model)
		require.NotEmpty(t, d.Serial)
		require.NotEmpty(t, d.Firmware)
	}
	const leak = "/redfish/v1/Chassis/BMC_0/ThermalSubsystem/LeakDetection/LeakDetectors/Chassis_0_LeakDetector_1_Manifold"
	require.NoError(t, sim.SetHealth(leak, "Critical"))
	s, err = b.Survey(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, hardware.PartHealth{Target: leak, Category: hardware.CategoryLeak, Health: "Critical"}, s.Probes[0])
	health, err := b.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Critical", health.Overall, "who accepts a machine asks the same")
}

// TestSurvey_OfAnEndlessTree: requests end, what was read stays, and kinds with a gap are not
// whole.
func TestSurvey_OfAnEndlessTree(t *testing.T) {
	t.Parallel()
	b, sim := personality(t, "Dell")
	_, err := b.SetPower(t.Context(), providers.IntentOn) // a host that is off hides parts
	require.NoError(t, err)
	require.NoError(t, sim.AddFault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Method: "GET", Path: "/redfish/v1/Systems/System.Embedded.1/Memory/DIMM.3", Status: 500}))
	s, err := b.Survey(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, "Unknown", s.Health.Overall, "what was not read is never OK")
	require.NotContains(t, s.Whole, hardware.Memory)
	require.Contains(t, s.Whole, hardware.GPU)

	b.opts.MaxListRequests = 12
	s, err = b.Survey(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, "Unknown", s.Health.Overall)
	require.NotEmpty(t, s.Partial)
	require.NotContains(t, s.Whole, hardware.GPU)
}

// TestProbes_OfABMCThatLies: tens of thousands of parts that are well hide none that is not.
func TestProbes_OfABMCThatLies(t *testing.T) {
	t.Parallel()
	var p probes
	for i := range 50_000 {
		p.add(providers.BMCProbe{Target: fmt.Sprint(i), Health: []string{"OK", "Unknown", "Warning"}[i%3]})
	}
	p.add(providers.BMCProbe{Target: "the GPU", Category: hardware.CategoryGPU, Health: "Critical"})
	list, dropped := p.list()
	require.Len(t, list, maxProbes)
	require.Equal(t, "the GPU", list[0].Target)
	require.Equal(t, 50_001-maxProbes, dropped)
}

// TestLogs_OfABMCThatLies: entries have bounds in number and size, and a list that leads back ends.
func TestLogs_OfABMCThatLies(t *testing.T) {
	t.Parallel()
	b, sim := personality(t, "Dell")
	sim.AddLogEntry("Warning", strings.Repeat("x", 100_000)+"\x1b[2J")
	require.NoError(t, sim.AddFault(redfishsim.Fault{Name: redfishsim.FaultNextLinkLoop, Path: "/redfish/v1/Managers/iDRAC.Embedded.1/LogServices/Sel/Entries"}))
	logs, err := b.Logs(t.Context(), newlyRead)
	require.NoError(t, err)
	require.NotEmpty(t, logs.Entries)
	require.LessOrEqual(t, len(logs.Entries), maxLogEntries)
	for _, e := range logs.Entries {
		require.LessOrEqual(t, len(e.Message), maxLogText)
		require.NotContains(t, e.Message, "\x1b")
	}
}

// TestSurvey_OfRackDevices: what has no host is read all the same, and its critical part is found;
// a machine's BMC without a host is an error.
func TestSurvey_OfRackDevices(t *testing.T) {
	t.Parallel()
	for _, name := range redfishsim.RackDevices() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, sim := personality(t, name)
			s, err := b.Survey(t.Context(), true)
			require.NoError(t, err)
			require.Equal(t, "OK", s.Health.Overall, "%+v", s.Health)
			require.Len(t, ofKind(s, hardware.Chassis), 1)
			require.NotEmpty(t, ofKind(s, hardware.PSU))
			require.NotEmpty(t, ofKind(s, hardware.BMC)[0].Firmware)
			require.NoError(t, sim.SetHealth("/redfish/v1/Chassis/"+baseName(ofKind(s, hardware.Chassis)[0].URI), "Critical"))
			s, err = b.Survey(t.Context(), true)
			require.NoError(t, err)
			require.Equal(t, "Critical", s.Health.Overall)
			_, err = b.Survey(t.Context(), false)
			requireKind(t, err, providers.KindUnsupported)
			_, err = b.Power(t.Context())
			requireKind(t, err, providers.KindUnsupported)
			sim.AddLogEntry("Warning", "a fan is slow")
			logs, err := b.Logs(t.Context(), newlyRead)
			require.NoError(t, err)
			require.NotEmpty(t, logs.Entries)
		})
	}
}
