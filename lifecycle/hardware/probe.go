package hardware

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Category is what a part is to health.
type Category string

// The categories. CategoryDevice is every part that is none of the others.
const (
	CategoryGPU     Category = "gpu"
	CategoryThermal Category = "thermal"
	CategoryMemory  Category = "memory"
	CategoryPower   Category = "power"
	CategoryDrive   Category = "drive"
	CategoryNetwork Category = "network"
	CategoryLeak    Category = "leak"
	CategoryDevice  Category = "device"
)

// Categories lists every category.
func Categories() []Category {
	return []Category{CategoryGPU, CategoryThermal, CategoryMemory, CategoryPower, CategoryDrive, CategoryNetwork, CategoryLeak, CategoryDevice}
}

// Class says how well something is. A value that was not read is ClassUnknown, never ClassOK.
type Class string

// The classes.
const (
	ClassOK       Class = "ok"
	ClassUnknown  Class = "unknown"
	ClassWarning  Class = "warning"
	ClassCritical Class = "critical"
)

// ClassOf reads a health of Redfish: OK, Warning, Critical; everything else is unknown.
func ClassOf(health string) Class {
	switch health {
	case "OK":
		return ClassOK
	case "Warning":
		return ClassWarning
	case "Critical":
		return ClassCritical
	}
	return ClassUnknown
}

// rank orders classes, the worst last.
func (c Class) rank() int {
	return slices.Index([]Class{ClassOK, ClassUnknown, ClassWarning, ClassCritical}, c)
}

// Source is who says how well a part is.
type Source string

// The sources: the node's agent, its BMC, and what the reconciler has found.
const (
	SourceAgent Source = "agent"
	SourceBMC   Source = "bmc"
	SourceDrift Source = "drift"
)

// Probe is the health of one thing as one source says. ObservedAt is nil for what was never read.
type Probe struct {
	ID         string
	Source     Source
	Category   Category
	Target     string
	Class      Class
	Note       string
	ObservedAt *time.Time
}

// PartHealth is the health of one part as a BMC told it.
type PartHealth struct {
	Target   string   `json:"target"`
	Category Category `json:"category"`
	Health   string   `json:"health"` // OK, Warning, Critical, Unknown
	Note     string   `json:"note,omitempty"`
}

// Bounded returns the health of a part as it is kept.
func (p PartHealth) Bounded() PartHealth {
	p.Target, p.Note = clip(p.Target), clip(p.Note)
	return p
}

// probeID is stable over readings: it names source, category and target.
func probeID(source Source, category Category, target string) string {
	sum := sha256.Sum256([]byte(string(source) + "\x00" + string(category) + "\x00" + target))
	return string(source) + "-" + string(category) + "-" + hex.EncodeToString(sum[:6])
}

// NewProbe returns a probe with its id.
func NewProbe(source Source, category Category, target string, class Class, note string, at *time.Time) Probe {
	return Probe{ID: probeID(source, category, target), Source: source, Category: category, Target: clip(target), Class: class, Note: clip(note), ObservedAt: at}
}

// Combine returns all probes, the worst first, and how the whole is: as its worst, and unknown
// where a category was told by nobody. Such a category has a probe that says so. It is never ok for
// a node of which nothing was read.
func Combine(all []Probe) ([]Probe, Class) {
	told := map[Category]bool{}
	for _, p := range all {
		told[p.Category] = true
	}
	out := slices.Clone(all)
	overall := ClassOK
	for _, c := range Categories() {
		if !told[c] {
			out = append(out, NewProbe(SourceBMC, c, "", ClassUnknown, "nothing tells it", nil))
		}
	}
	read := false
	for _, p := range all {
		read = read || p.Class != ClassUnknown
		if p.Class.rank() > overall.rank() && (p.Class != ClassUnknown || p.Target == "") {
			overall = p.Class
		}
	}
	if !read && overall == ClassOK {
		overall = ClassUnknown
	}
	slices.SortStableFunc(out, func(a, b Probe) int {
		if d := b.Class.rank() - a.Class.rank(); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, overall
}

// CategoryOfDetector returns what a finding of a detector is about.
func CategoryOfDetector(detector string) Category {
	for _, c := range []struct {
		word     string
		category Category
	}{
		{"gpu", CategoryGPU}, {"driver", CategoryGPU}, {"memory", CategoryMemory}, {"disk", CategoryDrive}, {"nics", CategoryNetwork}, {"macs", CategoryNetwork},
		{"network", CategoryNetwork}, {"address", CategoryNetwork}, {"power", CategoryPower},
	} {
		if strings.Contains(detector, c.word) {
			return c.category
		}
	}
	return CategoryDevice
}
