package redfish

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	boardURI = "/redfish/v1/Systems/HGX_Baseboard_0"
	gpuURI   = boardURI + "/Processors/GPU_0"
)

// withBoard puts a GPU board behind the same BMC, as a system that nobody can reset.
func withBoard(t *testing.T) *stub {
	t.Helper()
	s := machine(t)
	s.put("/redfish/v1/Systems", collection(boardURI, sysURI))
	s.put(boardURI, obj{
		"Id": "HGX_Baseboard_0", "Status": obj{"Health": "OK", "HealthRollup": "OK"}, "Processors": ref(boardURI + "/Processors"),
		"MemorySummary": obj{"TotalSystemMemoryGiB": 190}, "ProcessorSummary": obj{"Count": 2},
	})
	s.put(boardURI+"/Processors", collection(gpuURI))
	s.put(gpuURI, obj{"ProcessorType": "GPU", "Status": obj{"Health": "OK"}})
	return s
}

// TestHealthCoversEverySystem: a GPU board is a system of its own, and the host's roll-up does not
// cover it.
func TestHealthCoversEverySystem(t *testing.T) {
	t.Parallel()
	s := withBoard(t)
	got, err := s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.BMCHealth{Overall: "OK"}, got)

	s.set(gpuURI, "Status", obj{"Health": "Critical"})
	got, err = s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.BMCHealth{Overall: "Critical", Problems: []string{gpuURI + ": Critical"}}, got)

	s.set(gpuURI, "Status", obj{"Health": "OK"})
	s.set(boardURI, "Status", obj{"Health": "OK", "HealthRollup": "Warning"})
	got, err = s.open().Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Warning", got.Overall)

	s.on("GET "+boardURI, refuse(http.StatusInternalServerError, "Base.1.8.InternalError", ""))
	b := openTarget(t, providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: s.srv.URL, User: testUser,
		Password: providers.NewSecret(testPassword), SystemID: "1"}, fast())
	got, err = b.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Unknown", got.Overall, "what was not read is never OK")
	require.Equal(t, []string{boardURI + ": unavailable (HTTP 500)"}, got.Unknown)
}

// TestCountsComeFromTheMemberThatHasThem: the host's own, then its parts, then another system.
func TestCountsComeFromTheMemberThatHasThem(t *testing.T) {
	t.Parallel()
	s := withBoard(t)
	identify := func() providers.BMCSystem {
		got, err := s.open().Identify(t.Context())
		require.NoError(t, err)
		return got
	}
	got := identify()
	require.InDelta(t, 190, got.MemoryGiB, 0)
	require.Equal(t, 2, got.ProcessorCount)
	s.set(boardURI, "SystemType", "DPU")
	got = identify()
	require.Zero(t, got.MemoryGiB, "a DPU's memory is not the host's")
	require.Zero(t, got.ProcessorCount)
	s.set(boardURI, "SystemType", "Physical")

	s.set(sysURI, "Memory", ref(sysURI+"/Memory"))
	s.put(sysURI+"/Memory", collection(sysURI+"/Memory/0", sysURI+"/Memory/1", sysURI+"/Memory/2"))
	for i := range 2 {
		s.put(fmt.Sprintf("%s/Memory/%d", sysURI, i), obj{"CapacityMiB": 65536, "Status": obj{"State": "Enabled"}})
	}
	s.put(sysURI+"/Memory/2", obj{"CapacityMiB": 65536, "Status": obj{"State": "Absent"}})
	s.set(sysURI, "Processors", ref(sysURI+"/Processors"))
	s.put(sysURI+"/Processors", collection(sysURI+"/Processors/0", sysURI+"/Processors/gpu"))
	s.put(sysURI+"/Processors/0", obj{"ProcessorType": "CPU"})
	s.put(sysURI+"/Processors/gpu", obj{"ProcessorType": "GPU"})
	got = identify()
	require.InDelta(t, 128, got.MemoryGiB, 0)
	require.Equal(t, 1, got.ProcessorCount)

	s.set(sysURI, "MemorySummary", obj{"TotalSystemMemoryGiB": 960})
	s.set(sysURI, "ProcessorSummary", obj{"Count": 4})
	got = identify()
	require.InDelta(t, 960, got.MemoryGiB, 0)
	require.Equal(t, 4, got.ProcessorCount)
}

// TestManyChassisAreReadInPart: what the requests reached is told, with what they did not.
func TestManyChassisAreReadInPart(t *testing.T) {
	t.Parallel()
	s := withBoard(t)
	var all []string
	for i := range 60 {
		u := fmt.Sprintf("/redfish/v1/Chassis/C%02d", i)
		all = append(all, u)
		s.put(u, obj{"Status": obj{"Health": "OK"}})
	}
	s.put("/redfish/v1/Chassis", collection(append(all, chassisURI)...))
	s.set(gpuURI, "Status", obj{"Health": "Warning"})
	o := fast()
	o.MaxRequests, o.MaxListRequests = 30, 40
	b := openTarget(t, s.target(), o)

	sys, err := b.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "SN1", sys.Serial)
	require.Equal(t, []string{"network ports: too_big"}, sys.Partial)

	health, err := b.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Warning", health.Overall)
	require.Contains(t, health.Unknown, chassisURI+": too_big")
	s.set(gpuURI, "Status", obj{"Health": "OK"})
	health, err = b.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Unknown", health.Overall, "parts are missing")

	inv, err := b.Inventory(t.Context())
	require.NoError(t, err)
	require.Contains(t, inv.Partial, chassisURI+": too_big")
}

func TestLogsOfEverySystemAreListed(t *testing.T) {
	t.Parallel()
	s := withBoard(t)
	s.set(boardURI, "LogServices", ref(boardURI+"/LogServices"))
	s.put(boardURI+"/LogServices", collection(boardURI+"/LogServices/EventLog"))
	got, err := s.open().Inventory(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{boardURI + "/LogServices/EventLog"}, got.LogServices)
}
