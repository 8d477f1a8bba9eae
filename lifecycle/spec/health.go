package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// CheckHealth lists what keeps a report from meeting its SKU; an empty list is
// the proof behind NeedHealthy. Unknown is not healthy.
func (s SKUSpec) CheckHealth(r HealthReport) []string {
	var bad []string
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if s.GPUs > 0 {
		if r.GPUError != "" {
			fail("GPUs could not be read: %s", r.GPUError)
		} else if len(r.GPUs) != s.GPUs {
			fail("%d GPUs expected, %d found", s.GPUs, len(r.GPUs))
		}
	}
	for i, g := range r.GPUs {
		s.checkGPU(fmt.Sprintf("GPU %d", i), g, fail)
	}
	if s.DriverMinVersion != "" && compareVersions(r.Driver, s.DriverMinVersion) < 0 {
		fail("driver %s or newer expected, %q found", s.DriverMinVersion, r.Driver)
	}
	if up := countUp(r.NICs); up < s.NICsUp {
		fail("%d NICs up expected, %d found", s.NICsUp, up)
	}
	data := 0
	for _, d := range r.Disks {
		if !d.Boot {
			data++
		}
	}
	if data < s.DataDisks {
		fail("%d data disks expected, %d found", s.DataDisks, data)
	}
	if s.MinMemoryMiB > 0 && (r.MemoryMiB == nil || *r.MemoryMiB < s.MinMemoryMiB) {
		fail("at least %d MiB of memory expected, %s found", s.MinMemoryMiB, orUnknown(r.MemoryMiB))
	}
	return bad
}

func (s SKUSpec) checkGPU(name string, g GPUReport, fail func(string, ...any)) {
	if s.GPUModelContains != "" && !strings.Contains(g.Model, s.GPUModelContains) {
		fail("%s: model with %q expected, %q found", name, s.GPUModelContains, g.Model)
	}
	if s.GPUMemoryMiB > 0 && (g.MemoryMiB == nil || *g.MemoryMiB < s.GPUMemoryMiB) {
		fail("%s: at least %d MiB expected, %s found", name, s.GPUMemoryMiB, orUnknown(g.MemoryMiB))
	}
	if s.RequireECC {
		if g.ECCEnabled == nil || !*g.ECCEnabled {
			fail("%s: ECC is not known to be enabled", name)
		}
		if g.UncorrectedECC == nil {
			fail("%s: uncorrected ECC errors are unknown", name)
		} else if *g.UncorrectedECC > s.MaxUncorrectedECC {
			fail("%s: %d uncorrected ECC errors", name, *g.UncorrectedECC)
		}
		if g.RemapFailed == nil || g.RemapPending == nil {
			fail("%s: row remaps are unknown; with MIG on they read N/A", name)
		}
	}
	if g.RemapFailed != nil && *g.RemapFailed {
		fail("%s: a row remap has failed", name)
	}
	if g.RemapPending != nil && *g.RemapPending {
		fail("%s: a row remap is pending", name)
	}
	if g.RecoveryAction != "" {
		fail("%s: the driver's recovery action is %q", name, g.RecoveryAction)
	}
}

func countUp(nics []NICReport) int {
	n := 0
	for _, nic := range nics {
		if nic.Up {
			n++
		}
	}
	return n
}

func orUnknown(v *int64) string {
	if v == nil {
		return "unknown"
	}
	return strconv.FormatInt(*v, 10) + " MiB"
}

// compareVersions compares dotted numbers; an unreadable version is older than
// any other.
func compareVersions(a, b string) int {
	pa, pb := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(pa), len(pb)) {
		x, y := part(pa, i), part(pb, i)
		if x != y {
			return x - y
		}
	}
	return 0
}

func part(p []string, i int) int {
	if i >= len(p) {
		return 0
	}
	n, err := strconv.Atoi(p[i])
	if err != nil {
		return -1
	}
	return n
}

// OlderVersion says whether version a is older than b. A text that is no version of dotted numbers,
// such as dev, is neither older nor newer.
func OlderVersion(a, b string) bool {
	a, b = strings.TrimPrefix(a, "v"), strings.TrimPrefix(b, "v")
	if part(strings.Split(a, "."), 0) < 0 || part(strings.Split(b, "."), 0) < 0 {
		return false
	}
	return compareVersions(a, b) < 0
}
