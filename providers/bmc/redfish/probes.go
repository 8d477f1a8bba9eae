package redfish

import (
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/providers"
)

// maxProbes bounds the probes of a survey.
const maxProbes = 512

// probes gathers the health of parts, as many of each health as a survey keeps: thousands of parts
// that are well hide none that is not.
type probes struct {
	by      map[string][]providers.BMCProbe
	dropped int
}

func (p *probes) add(probe providers.BMCProbe) {
	if p.by == nil {
		p.by = map[string][]providers.BMCProbe{}
	}
	if len(p.by[probe.Health]) >= maxProbes {
		p.dropped++
		return
	}
	p.by[probe.Health] = append(p.by[probe.Health], probe)
}

// none returns whether no part told anything.
func (p *probes) none() bool { return len(p.by) == 0 }

// list returns the probes, the worst first, and how many were left out.
func (p *probes) list() ([]providers.BMCProbe, int) {
	var out []providers.BMCProbe
	for _, health := range []string{"Critical", "Warning", "Unknown", "OK"} {
		out = append(out, p.by[health]...)
	}
	if len(out) <= maxProbes {
		return out, p.dropped
	}
	return out[:maxProbes:maxProbes], p.dropped + len(out) - maxProbes
}

// categoryWords say the category of a part by its path, the first that fits.
var categoryWords = []struct {
	word     string
	category providers.ProbeCategory
}{
	{"/leakdetect", hardware.CategoryLeak},
	{"/thermal", hardware.CategoryThermal},
	{"/power", hardware.CategoryPower},
	{"/drives/", hardware.CategoryDrive},
	{"/storage", hardware.CategoryDrive},
	{"/memory", hardware.CategoryMemory},
	{"/networkadapters", hardware.CategoryNetwork},
}

// categoryOf tells the category of a part by its path and what it says of itself.
func categoryOf(label string, d doc) providers.ProbeCategory {
	low := strings.ToLower(label)
	for _, c := range categoryWords {
		if strings.Contains(low, c.word) {
			return c.category
		}
	}
	if d.text("ProcessorType") == "GPU" || strings.Contains(strings.ToLower(baseName(label)), "gpu") {
		return hardware.CategoryGPU
	}
	return hardware.CategoryDevice
}
