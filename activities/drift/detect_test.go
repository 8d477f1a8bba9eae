package drift

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// TestDetectors_MatchCatalogue: each detector of nodes and BMCs has its function, each
// function its line, and what can be adopted is written down.
func TestDetectors_MatchCatalogue(t *testing.T) {
	t.Parallel()
	byName := detectors()
	names := map[string]bool{}
	for _, d := range lifecycle.DriftDetectors() {
		require.False(t, names[d.Name], "%s stands there twice", d.Name)
		names[d.Name] = true
		ofNode := d.Scope == lifecycle.DriftOfNode || d.Scope == lifecycle.DriftOfBMC
		require.Equal(t, ofNode, byName[d.Name] != nil, d.Name)
		require.Equal(t, ofNode, len(d.Expects) > 0, "%s says which nodes it looks at", d.Name)
		require.NotEmpty(t, d.Finds+d.Next+d.Closes, d.Name)
		require.NotEmpty(t, d.Evidence, d.Name)
		require.NotEmpty(t, d.Sources, d.Name)
		if d.Quarantines {
			require.Equal(t, lifecycle.DriftCritical, d.Severity, d.Name)
			require.True(t, slices.Contains(d.Expects, lifecycle.NodeActive) && ofNode, d.Name)
		}
	}
	require.GreaterOrEqual(t, len(names), 20)
	for name := range byName {
		require.True(t, names[name], "%s is not in the catalogue", name)
	}
}

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// healthyFacts returns the facts of an active node without any fault.
func healthyFacts() Facts {
	hour, sync := at.Add(-time.Hour), at.Add(-time.Minute)
	until := at.Add(20 * time.Hour)
	mib, none := int64(1024), ""
	return Facts{
		Now: at, Listed: at, User: "slipway", Policy: DefaultPolicy(),
		Node: NodeFacts{ID: "node_1", Status: lifecycle.NodeActive, Hostname: "gpu-1", MACs: []string{"aa"}, SystemID: "abc123", StateChangedAt: hour},
		Machine: &Machine{
			SystemID: "abc123", Hostname: "gpu-1", Status: providers.MAASDeployed, Power: "on", Owner: "slipway", Serial: "S1", UUID: "U1", MACs: []string{"AA"},
			Addresses: []string{"10.0.0.1"}, HWSync: true, SyncInterval: spec.Duration(15 * time.Minute), LastSync: &sync, DeployedBy: "job_1", PowerAddress: "https://10.1.1.1",
		},
		BMC:       &BMCFacts{ID: "bmc_1", Address: "10.1.1.1", Protocol: "redfish", PinSHA256: "p"},
		Look:      &LookFacts{Address: "10.1.1.1", ProbedAt: at, AnsweredAt: &at, PinSHA256: "P", Health: "OK", HealthAt: &at},
		Heartbeat: &HeartbeatFacts{BootID: "b1", Allocation: &none, AgentVersion: "1.0.0", ReceivedAt: at.Add(-10 * time.Second), ReportBootID: "b1", ReportedAt: &hour, Report: &spec.HealthReport{MemoryMiB: &mib, GPUs: make([]spec.GPUReport, 2), NICs: []spec.NICReport{{MAC: "aa", Up: true}}, Disks: []spec.DiskReport{{Name: "sda", Boot: true}, {Name: "sdb"}}, Driver: "550.1"}},
		Identity:  &IdentityFacts{Generation: 1, NotBefore: &hour, NotAfter: &until},
		Network:   &driftdb.NetworkProbe{Asked: spec.ProbeNetworkArgs{Targets: []spec.ProbeTarget{{Name: "maas"}}}, Output: []byte(`{"tried":1}`)},
		SKU:       &spec.SKUSpec{GPUs: 2, NICsUp: 1, DataDisks: 1, MinMemoryMiB: 1024, DriverMinVersion: "550"},
		Profile:   &spec.ProfileSpec{RequireHWSync: true},
		Mark: &Mark{BootID: "b1", DeployedBy: "job_1", Hostname: "gpu-1", Serial: "s1", UUID: "u1", MACs: []string{"aa"}, Addresses: []string{"10.0.0.1"}, MarkedAt: hour,
			BMCParts: "d1", AgentParts: "a1", DPUModes: []string{"MT1=NIC"}, PartsAt: hour},
		Parts: &PartsFacts{BMCDigest: "d1", AgentDigest: "a1", Modes: []string{"MT1=NIC"}, BMCAt: &at, AgentAt: &at},
	}
}

func TestDetectors_ClearForHealthyNode(t *testing.T) {
	t.Parallel()
	for name, detect := range detectors() {
		require.Equal(t, Clear, detect(healthyFacts()).State, "%s: %+v", name, detect(healthyFacts()))
	}
}

// TestDetectors_UnknownWithoutFacts: facts that are missing, a region that was not
// read and a node that has just moved open nothing, and close nothing that they
// cannot see.
func TestDetectors_UnknownWithoutFacts(t *testing.T) {
	t.Parallel()
	for name, detect := range detectors() {
		require.NotEqual(t, Found, detect(Facts{}).State, "%s of no facts", name)
	}
	ofMAAS := []string{
		lifecycle.DriftMachineAbsent, lifecycle.DriftExternallyReleased, lifecycle.DriftExternallyDeployed, lifecycle.DriftBusyWithoutJob,
		lifecycle.DriftFailedOrBroken, lifecycle.DriftMachineLocked, lifecycle.DriftOtherOwner, lifecycle.DriftPoweredOff, lifecycle.DriftPowerUnknown,
		lifecycle.DriftHWSyncStale, lifecycle.DriftHWSyncOff, lifecycle.DriftHostnameChanged, lifecycle.DriftMACsChanged, lifecycle.DriftHardwareChanged,
		lifecycle.DriftAddressesChanged, lifecycle.DriftBMCAddressChanged,
	}
	moved := at.Add(-30 * time.Second)
	for what, change := range map[string]func(*Facts){
		"a region that was not read":      func(f *Facts) { f.Listed = time.Time{} },
		"a node that has just moved":      func(f *Facts) { f.Node.StateChangedAt = moved },
		"a node whose job has just ended": func(f *Facts) { f.LastJobAt = &moved },
	} {
		for _, name := range ofMAAS {
			f := healthyFacts()
			f.Machine = nil
			change(&f)
			require.Equal(t, Unknown, detectors()[name](f).State, "%s of %s", name, what)
		}
	}
	ofReports := []string{lifecycle.DriftGPUCount, lifecycle.DriftGPUFault, lifecycle.DriftMemory, lifecycle.DriftDisks, lifecycle.DriftNICs, lifecycle.DriftDriver, lifecycle.DriftAgentElsewhere}
	for what, change := range map[string]func(*Facts){
		"a silent agent":         func(f *Facts) { f.Heartbeat.ReceivedAt = at.Add(-time.Hour) },
		"a report of a boot ago": func(f *Facts) { f.Heartbeat.ReportBootID = "b0" },
		"no report":              func(f *Facts) { f.Heartbeat.Report = nil },
	} {
		for _, name := range ofReports {
			f := healthyFacts()
			change(&f)
			require.Equal(t, Unknown, detectors()[name](f).State, "%s of %s", name, what)
		}
	}
}

// TestDetectors_EdgeCases of single detectors that no simulator comes to.
func TestDetectors_EdgeCases(t *testing.T) {
	t.Parallel()
	old, gone := at.Add(-23*time.Minute), at.Add(-time.Second)
	for name, c := range map[string]struct {
		detector string
		change   func(*Facts)
		want     State
		key      string
	}{
		"sync within one and a half intervals": {lifecycle.DriftHWSyncStale, func(f *Facts) { s := at.Add(-22 * time.Minute); f.Machine.LastSync = &s }, Clear, ""},
		"sync beyond it":                       {lifecycle.DriftHWSyncStale, func(f *Facts) { f.Machine.LastSync = &old }, Found, "2026-11-21T11:37:00Z"},
		"a sync that never came":               {lifecycle.DriftHWSyncStale, func(f *Facts) { f.Machine.LastSync = nil }, Found, "never"},
		"off, and the agent is heard":          {lifecycle.DriftPoweredOff, func(f *Facts) { f.Machine.Power = "off" }, Unknown, ""},
		"off, and the agent is silent":         {lifecycle.DriftPoweredOff, func(f *Facts) { f.Machine.Power, f.Heartbeat = "off", nil }, Found, "off"},
		"off, and the BMC says on": {lifecycle.DriftPoweredOff, func(f *Facts) {
			f.Machine.Power, f.Heartbeat, f.Look.Power, f.Look.PowerAt = "off", nil, "On", &at
		}, Clear, ""},
		"off, and another BMC said on": {lifecycle.DriftPoweredOff, func(f *Facts) {
			f.Machine.Power, f.Heartbeat, f.Look.Power, f.Look.PowerAt, f.Look.Address = "off", nil, "On", &at, "10.9.9.9"
		}, Found, "off"},
		"a deployment after a job":     {lifecycle.DriftExternallyDeployed, func(f *Facts) { f.Machine.DeployedBy = "job_2"; j := at.Add(-30 * time.Minute); f.LastJobAt = &j }, Clear, ""},
		"a deployment without a mark":  {lifecycle.DriftExternallyDeployed, func(f *Facts) { f.Mark.DeployedBy = "" }, Clear, ""},
		"a deployment of nobody's":     {lifecycle.DriftExternallyDeployed, func(f *Facts) { f.Machine.DeployedBy = "" }, Found, "none of Slipway's jobs"},
		"a machine in rescue mode":     {lifecycle.DriftBusyWithoutJob, func(f *Facts) { f.Machine.Status = providers.MAASRescueMode }, Found, "Rescue mode"},
		"a failed test":                {lifecycle.DriftFailedOrBroken, func(f *Facts) { f.Machine.Status = providers.MAASFailedTesting }, Found, "Failed testing"},
		"two probes without an answer": {lifecycle.DriftBMCUnreachable, func(f *Facts) { f.Look.Failures = 2 }, Unknown, ""},
		"a BMC at another address":     {lifecycle.DriftBMCUnreachable, func(f *Facts) { f.Look.Failures, f.Look.Address = 9, "10.9.9.9" }, Unknown, ""},
		"a certificate at a fifth":     {lifecycle.DriftAgentCertificate, func(f *Facts) { u := at.Add(15 * time.Minute); f.Identity.NotAfter = &u }, Clear, ""},
		"a certificate that has ended": {lifecycle.DriftAgentCertificate, func(f *Facts) { f.Identity.NotAfter = &gone }, Found, "1"},
		"an agent that is no release":  {lifecycle.DriftAgentOld, func(f *Facts) { f.Policy.MinAgent, f.Heartbeat.AgentVersion = "2.0.0", "dev" }, Clear, ""},
		"an agent of another scheme":   {lifecycle.DriftAgentOld, func(f *Facts) { f.Policy.MinAgent, f.Heartbeat.AgentVersion = "2.0.0", "v1.9.9" }, Found, "v1.9.9"},
		"more disks than the SKU has": {lifecycle.DriftDisks, func(f *Facts) {
			f.Heartbeat.Report.Disks = append(f.Heartbeat.Report.Disks, spec.DiskReport{Name: "sdc"})
		}, Clear, ""},
		"more GPUs than the SKU has": {lifecycle.DriftGPUCount, func(f *Facts) { f.Heartbeat.Report.GPUs = make([]spec.GPUReport, 3) }, Found, "3 of 2"},
		"memory that cannot be read": {lifecycle.DriftMemory, func(f *Facts) { f.Heartbeat.Report.MemoryMiB = nil }, Unknown, ""},
		"GPUs that cannot be read":   {lifecycle.DriftGPUCount, func(f *Facts) { f.Heartbeat.Report.GPUs, f.Heartbeat.Report.GPUError = nil, "no driver" }, Found, "unreadable"},
		"one card of many is its own": {lifecycle.DriftAgentElsewhere, func(f *Facts) {
			f.Heartbeat.Report.NICs = append(f.Heartbeat.Report.NICs, spec.NICReport{MAC: "docker"})
		}, Clear, ""},
		"a clock that is behind":              {lifecycle.DriftClockSkew, func(f *Facts) { f.Heartbeat.SkewMS = -31_000 }, Found, "behind"},
		"a name in other letters":             {lifecycle.DriftHostnameChanged, func(f *Facts) { f.Machine.Hostname = "GPU-1" }, Clear, ""},
		"a serial that is not known":          {lifecycle.DriftHardwareChanged, func(f *Facts) { f.Machine.Serial = "" }, Clear, ""},
		"a machine without addresses":         {lifecycle.DriftAddressesChanged, func(f *Facts) { f.Machine.Addresses = nil }, Clear, ""},
		"power that is an error":              {lifecycle.DriftPowerUnknown, func(f *Facts) { f.Machine.Power = "error" }, Found, "error"},
		"parts that one reading told more of": {lifecycle.DriftPartsChanged, func(f *Facts) { f.Parts.BMCDigest = "d2" }, Clear, ""},
		"a change before the baseline": {lifecycle.DriftPartsChanged, func(f *Facts) {
			f.Parts.BMCDigest, f.Parts.BMCChanges = "d2", []hardware.Change{{At: f.Mark.PartsAt, Kind: hardware.GPU, ID: "G1", What: "gone"}}
		}, Clear, ""},
		"a GPU that is gone": {lifecycle.DriftPartsChanged, func(f *Facts) {
			f.Parts.BMCDigest, f.Parts.BMCChanges = "d2", []hardware.Change{{At: at, Kind: hardware.GPU, ID: "G1", What: "gone"}}
		}, Found, "d2 a1"},
		"a GPU that is back": {lifecycle.DriftPartsChanged, func(f *Facts) {
			f.Parts.BMCChanges = []hardware.Change{{At: at, Kind: hardware.GPU, ID: "G1", What: "added"}, {At: at, Kind: hardware.GPU, ID: "G1", What: "gone"}}
		}, Clear, ""},
		"a DPU that is new":        {lifecycle.DriftDPUMode, func(f *Facts) { f.Parts.Modes = []string{"MT1=NIC", "MT2=DPU"} }, Clear, ""},
		"a DPU that tells no mode": {lifecycle.DriftDPUMode, func(f *Facts) { f.Parts.Modes = nil }, Clear, ""},
		"a DPU in another mode":    {lifecycle.DriftDPUMode, func(f *Facts) { f.Parts.Modes = []string{"MT1=DPU"} }, Found, "MT1=DPU"},
		"a node without a machine": {lifecycle.DriftMachineAbsent, func(f *Facts) { f.Node.SystemID, f.Machine = "", nil }, Clear, ""},
		"nobody's machine":         {lifecycle.DriftOtherOwner, func(f *Facts) { f.Machine.Owner = "" }, Clear, ""},
	} {
		f := healthyFacts()
		c.change(&f)
		got := detectors()[c.detector](f)
		require.Equal(t, c.want, got.State, "%s: %+v", name, got)
		require.Equal(t, c.key, got.Key, name)
	}
}

// TestEvaluate_ByNodeState.
func TestEvaluate_ByNodeState(t *testing.T) {
	t.Parallel()
	released, _ := lifecycle.DriftDetectorOf(lifecycle.DriftExternallyReleased)
	f := healthyFacts()
	f.Machine.Status = providers.MAASReady
	for status, want := range map[lifecycle.NodeStatus]State{
		lifecycle.NodeActive: Found, lifecycle.NodeOffline: Found, lifecycle.NodeQuarantined: Clear, lifecycle.NodeRetired: Clear,
		lifecycle.NodeEnrolling: Unknown, lifecycle.NodeDraining: Unknown, lifecycle.NodeRemoving: Unknown, lifecycle.NodeBootstrapIssued: Clear,
	} {
		f.Node.Status = status
		require.Equal(t, want, evaluate(released, externallyReleased, f, false).State, "%s", status)
	}
	f.Node.Status = lifecycle.NodeQuarantined
	for _, upstream := range []providers.MAASStatus{
		providers.MAASReady, providers.MAASBroken, providers.MAASDeployed, providers.MAASFailedDeployment, providers.MAASFailedCommissioning, providers.MAASFailedTesting,
	} {
		f.Machine.Status = upstream
		require.Equal(t, Clear, evaluate(released, externallyReleased, f, false).State, "%s", upstream)
	}
	f.Machine.Status = providers.MAASReady
	require.Equal(t, Found, evaluate(released, externallyReleased, f, true).State, "what it was quarantined for is still looked for")
}

// The baseline is set once, completed by later passes, and replaced after a job.
func TestBaseline_SetAndReplaced(t *testing.T) {
	t.Parallel()
	f := healthyFacts()
	_, changed := f.nextBaseline()
	require.False(t, changed, "nothing new")
	f.Mark = nil
	first, changed := f.nextBaseline()
	require.True(t, changed)
	require.Equal(t, "b1", first.BootID)
	require.Equal(t, "job_1", first.DeployedBy)
	f = healthyFacts()
	f.Heartbeat.BootID, f.Machine.Hostname = "b2", "other"
	_, changed = f.nextBaseline()
	require.False(t, changed, "drift is not accounted for by itself")
	half := at.Add(-30 * time.Minute)
	f.LastJobAt = &half
	next, changed := f.nextBaseline()
	require.True(t, changed)
	require.Equal(t, "b2", next.BootID)
	require.Equal(t, "other", next.Hostname)
	f.LiveJob = "job_2"
	_, changed = f.nextBaseline()
	require.False(t, changed, "not while a job is at work")
	f = healthyFacts()
	f.Mark.Addresses = nil
	next, changed = f.nextBaseline()
	require.True(t, changed)
	require.Equal(t, []string{"10.0.0.1"}, next.Addresses)
	f.Node.Status = lifecycle.NodeQuarantined
	_, changed = f.nextBaseline()
	require.False(t, changed)
}
