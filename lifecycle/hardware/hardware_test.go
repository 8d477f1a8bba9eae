package hardware_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func gpu(serial, firmware string) hardware.Part {
	return hardware.Part{Kind: hardware.GPU, URI: "/gpu/" + serial, Model: "H100", Serial: serial, Firmware: firmware}
}

func what(changes []hardware.Change) (out []string) {
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%s %s %s", c.Kind, c.ID, c.What))
	}
	return out
}

// TestMerge_Changes: the first reading is no change, a part that is not told of stays, and a part
// is gone only where its whole kind was read.
func TestMerge_Changes(t *testing.T) {
	t.Parallel()
	whole := []hardware.Kind{hardware.GPU}
	first := hardware.Merge(hardware.Inventory{}, []hardware.Part{gpu("A", "1"), gpu("B", "1")}, whole, noon)
	require.Len(t, first.Parts, 2)
	require.Empty(t, first.Changes)
	require.NotEmpty(t, first.Digest())

	later := noon.Add(time.Hour)
	partial := hardware.Merge(first, []hardware.Part{gpu("A", "1")}, nil, later)
	require.Empty(t, partial.Changes, "a reading with a gap")
	require.Equal(t, first.Digest(), partial.Digest())
	require.Equal(t, noon, partial.Parts[1].LastSeen)
	require.Equal(t, later, partial.Parts[0].LastSeen)
	require.Equal(t, noon, partial.Parts[0].FirstSeen)

	blank := gpu("A", "")
	same := hardware.Merge(partial, []hardware.Part{blank, gpu("B", "1")}, whole, later)
	require.Empty(t, same.Changes, "what is not told is no change")
	require.Equal(t, first.Digest(), same.Digest())

	swapped := hardware.Merge(same, []hardware.Part{gpu("A", "2"), gpu("C", "1")}, whole, later)
	require.ElementsMatch(t, []string{"gpu A firmware", "gpu B gone", "gpu C added"}, what(swapped.Changes))
	require.NotEqual(t, first.Digest(), swapped.Digest())
	back := hardware.Merge(swapped, []hardware.Part{gpu("A", "1"), gpu("B", "1")}, whole, later)
	require.Equal(t, first.Digest(), back.Digest(), "it is what it was")

	drive := hardware.Part{Kind: hardware.Drive, URI: "/d", Serial: "D"}
	more := hardware.Merge(first, []hardware.Part{gpu("A", "1"), gpu("B", "1"), drive}, whole, later)
	require.Empty(t, more.Changes, "a kind that was never read whole may have been there")
}

// TestMerge_Identity: two parts with one serial number, and those without any, have an id of their
// place.
func TestMerge_Identity(t *testing.T) {
	t.Parallel()
	cpld := func(uri string) hardware.Part {
		return hardware.Part{Kind: hardware.Board, URI: uri, Serial: "CPLDSerialNumber", Model: "MAX10"}
	}
	got := hardware.Merge(hardware.Inventory{}, []hardware.Part{cpld("/a"), cpld("/b"), {Kind: hardware.Board, URI: "/c"}, {Kind: hardware.NIC, URI: "/n", MAC: "52:54:00:00:00:01"}},
		nil, noon).Parts
	require.Len(t, got, 4)
	ids := map[string]bool{}
	for _, k := range got {
		ids[k.ID] = true
		require.Equal(t, k.Kind == hardware.Board, k.Derived, k.URI)
	}
	require.Len(t, ids, 4)
}

// TestMerge_OfABMCThatLies: a million parts, endless texts and other serial numbers in every
// reading stay within the bounds, and the GPUs are kept.
func TestMerge_OfABMCThatLies(t *testing.T) {
	t.Parallel()
	var now hardware.Inventory
	for reading := range 20 {
		parts := make([]hardware.Part, 0, 20_001)
		for i := range 20_000 {
			parts = append(parts, hardware.Part{Kind: hardware.Drive, URI: fmt.Sprint(i), Serial: fmt.Sprintf("%d-%d", reading, i), Model: strings.Repeat("x", 5000) + "\x00\x1b[2J"})
		}
		parts = append(parts, gpu("A", "1"))
		now = hardware.Merge(now, parts, hardware.Kinds(), noon.Add(time.Duration(reading)*time.Hour))
	}
	require.Len(t, now.Parts, hardware.MaxParts)
	require.LessOrEqual(t, len(now.Changes), hardware.MaxChanges)
	require.Positive(t, now.LeftOut)
	require.Equal(t, hardware.GPU, now.Parts[0].Kind)
	for _, k := range now.Parts {
		require.LessOrEqual(t, len(k.Model), 200)
		require.NotContains(t, k.Model, "\x1b")
	}
}

// TestCombine: the worst decides, a category that nothing tells is unknown, and nothing is ok where
// nothing was read.
func TestCombine(t *testing.T) {
	t.Parallel()
	at := noon
	fine := hardware.NewProbe(hardware.SourceAgent, hardware.CategoryGPU, "GPU 0", hardware.ClassOK, "", &at)
	probes, class := hardware.Combine(nil)
	require.Equal(t, hardware.ClassUnknown, class)
	require.Len(t, probes, len(hardware.Categories()))
	for _, p := range probes {
		require.Equal(t, hardware.ClassUnknown, p.Class)
		require.Nil(t, p.ObservedAt)
	}
	probes, class = hardware.Combine([]hardware.Probe{fine})
	require.Equal(t, hardware.ClassOK, class)
	require.Equal(t, hardware.ClassOK, probes[len(probes)-1].Class, "the worst come first")
	_, class = hardware.Combine([]hardware.Probe{fine, hardware.NewProbe(hardware.SourceBMC, hardware.CategoryDevice, "", hardware.ClassUnknown, "not read", nil)})
	require.Equal(t, hardware.ClassUnknown, class, "a source that was not read")
	bad := hardware.NewProbe(hardware.SourceBMC, hardware.CategoryLeak, "/leak", hardware.ClassCritical, "", &at)
	probes, class = hardware.Combine([]hardware.Probe{fine, bad})
	require.Equal(t, hardware.ClassCritical, class)
	require.Equal(t, bad, probes[0])
	again := hardware.NewProbe(hardware.SourceBMC, hardware.CategoryLeak, "/leak", hardware.ClassOK, "", nil)
	require.Equal(t, bad.ID, again.ID, "the id is of the part, not of how it is")
}

// TestAgentProbes: what the agent does not tell, and what it told before it fell silent, is never
// ok.
func TestAgentProbes(t *testing.T) {
	t.Parallel()
	yes, no, none, some, mib := true, false, 0, 3, int64(4096)
	report := &spec.HealthReport{
		MemoryMiB: &mib, NICs: []spec.NICReport{{Name: "eno1", Up: true}}, Disks: []spec.DiskReport{{Name: "sda", Boot: true}},
		GPUs: []spec.GPUReport{
			{UUID: "ok", UncorrectedECC: &none, RemapFailed: &no}, {UUID: "failed", RemapFailed: &yes}, {UUID: "ecc", UncorrectedECC: &some, RemapFailed: &no}, {UUID: "silent"},
			{UUID: "stuck", UncorrectedECC: &none, RemapFailed: &no, RecoveryAction: "Reboot"},
		},
		Units: []spec.UnitReport{{Name: "gpud.service", State: "active"}, {Name: "nvidia-fabricmanager.service", State: "failed"}, {Name: "nvidia-dcgm.service", State: "absent"}},
	}
	classes := func(probes []hardware.Probe) map[string]hardware.Class {
		out := map[string]hardware.Class{}
		for _, p := range probes {
			require.NotContains(t, out, p.Target)
			out[p.Target] = p.Class
		}
		return out
	}
	require.Equal(t, map[string]hardware.Class{
		"GPU 0 ok": hardware.ClassOK, "GPU 1 failed": hardware.ClassCritical, "GPU 2 ecc": hardware.ClassWarning, "GPU 3 silent": hardware.ClassUnknown, "GPU 4 stuck": hardware.ClassCritical,
		"GPUs": hardware.ClassCritical, "network cards": hardware.ClassWarning, "memory": hardware.ClassWarning, "data disks": hardware.ClassWarning,
		"unit gpud.service": hardware.ClassOK, "unit nvidia-fabricmanager.service": hardware.ClassCritical, "unit nvidia-dcgm.service": hardware.ClassUnknown,
	}, classes(hardware.AgentProbes(report, &spec.SKUSpec{GPUs: 8, NICsUp: 2, DataDisks: 1, MinMemoryMiB: 8192}, &noon, true)))
	for target, class := range classes(hardware.AgentProbes(report, nil, &noon, false)) {
		require.Equal(t, hardware.ClassUnknown, class, target)
	}
	require.Equal(t, hardware.ClassUnknown, hardware.AgentProbes(nil, nil, nil, false)[0].Class)
}

// TestLogEntry: a text has a bound, a clock that cannot be right is not believed, and an id that
// comes again is another entry.
func TestLogEntry(t *testing.T) {
	t.Parallel()
	e := hardware.LogEntry{Service: "/sel", ID: "1", Severity: "Doom", Message: strings.Repeat("é", 2000) + "\n"}.Bounded()
	require.LessOrEqual(t, len(e.Message), hardware.MaxLogText)
	require.Equal(t, "Unknown", e.Severity)
	require.Equal(t, noon, e.At(noon))
	e.Created = time.Date(1970, 3, 18, 12, 6, 5, 0, time.UTC)
	require.Equal(t, noon, e.At(noon))
	e.Created = noon.Add(48 * time.Hour)
	require.Equal(t, noon, e.At(noon))
	e.Created = noon.Add(-time.Hour)
	require.Equal(t, noon.Add(-time.Hour), e.At(noon))
	other := e
	other.Message = "another"
	require.NotEqual(t, e.Digest(), other.Digest())
	require.Equal(t, e.Digest(), e.Bounded().Digest())
}
