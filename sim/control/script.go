package simcontrol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Phases of a fault of a request: before the effect, or after it.
const (
	Before = "before_commit" // the effect does not happen
	After  = "after_commit"  // the effect stays; the answer is lost, cut or an error
)

// FaultSpec describes a fault of a simulator.
type FaultSpec struct {
	Kind   int      // when it is applied, as the simulator numbers it
	Phase  string   // the phase of a line that names none
	Ops    []string // the calls that a line which names none is for
	Detail string
}

// Fault is one line of a fault script.
type Fault struct {
	ID   int    `json:"id"`   // given by AddFault
	Name string `json:"name"` // one of FaultNames
	// Op narrows the fault to a call, such as create_session, or to a stage or an event that the
	// simulator names. "" takes the default of the fault, mostly any.
	Op string `json:"op,omitempty"`
	// Machine narrows it to a machine of MAAS, by system_id, hostname or MAC; "" is any.
	Machine string `json:"machine,omitempty"`
	// Tag narrows it to calls about what has this tag at the cloud, or is asked to get it; "" is
	// any. A call that names nothing with a tag, such as one for the types, never has it.
	Tag string `json:"tag,omitempty"`
	// Count is how often it is applied; 0 is once, a negative number until it is cleared.
	Count int `json:"count,omitempty"`
	// Phase is before_commit or after_commit; "" takes the fault's own.
	Phase string `json:"phase,omitempty"`
	// Params refine a fault, such as delay.
	Params  map[string]string `json:"params,omitempty"`
	Applied int               `json:"applied"` // how often it was applied so far
}

// Is reports whether the line asks for a variant of the fault.
func (f *Fault) Is(variant string) bool { return strings.EqualFold(f.Params["variant"], variant) }

// Duration returns a parameter, or fallback where the line has none.
func (f *Fault) Duration(name string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(f.Params[name]); err == nil {
		return d
	}
	return fallback
}

// Number returns a parameter, or fallback where the line has none.
func (f *Fault) Number(name string, fallback int64) int64 {
	if n, err := strconv.ParseInt(f.Params[name], 10, 64); err == nil {
		return n
	}
	return fallback
}

// Script is the fault script of a simulator. AddFault, Faults and ClearFaults take Lock. The other
// methods are called while it is held.
type Script struct {
	Lock  sync.Locker
	Specs map[string]FaultSpec
	// Selector is the field that narrows a line to a thing, machine or tag; "" is none.
	Selector string
	// CheckParam refuses a parameter of a fault; nil refuses each.
	CheckParam func(fault, name, value string) error

	lines []*Fault
	last  int
}

// FaultNames lists the faults with a line each.
func (s *Script) FaultNames() map[string]string {
	out := map[string]string{}
	for name, f := range s.Specs {
		out[name] = f.Detail
	}
	return out
}

// AddFault adds a line to the script and returns its id.
func (s *Script) AddFault(f Fault) (int, error) {
	spec, known := s.Specs[f.Name]
	switch {
	case !known:
		return 0, fmt.Errorf("fault %q is unknown: see FaultNames", f.Name)
	case f.Machine != "" && s.Selector != "machine", f.Tag != "" && s.Selector != "tag":
		return 0, fmt.Errorf("fault %s: machine is for MAAS alone, and tag for the cloud", f.Name)
	case f.Phase == "":
		f.Phase = spec.Phase
	case f.Phase != Before && f.Phase != After:
		return 0, fmt.Errorf("phase %q is unknown: use %s or %s", f.Phase, Before, After)
	}
	for name, value := range f.Params {
		if s.CheckParam == nil {
			return 0, fmt.Errorf("parameter %q is unknown: these faults have none", name)
		}
		if err := s.CheckParam(f.Name, name, value); err != nil {
			return 0, err
		}
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.Lock.Lock()
	defer s.Lock.Unlock()
	s.last++
	f.ID, f.Applied = s.last, 0
	s.lines = append(s.lines, &f)
	return f.ID, nil
}

// Faults returns copies of the lines, spent ones included.
func (s *Script) Faults() []Fault {
	s.Lock.Lock()
	defer s.Lock.Unlock()
	return ValuesOf(s.lines)
}

// ClearFaults removes one line, or all when id is 0.
func (s *Script) ClearFaults(id int) {
	s.Lock.Lock()
	defer s.Lock.Unlock()
	s.lines = slices.DeleteFunc(s.lines, func(f *Fault) bool { return id == 0 || f.ID == id })
}

// Added is how many lines were added so far.
func (s *Script) Added() int { return s.last }

// Each calls apply with each line that is not spent, in order, and counts those that it applied.
// apply may use the script.
func (s *Script) Each(apply func(f *Fault, spec FaultSpec) bool) {
	for _, f := range slices.Clone(s.lines) {
		if !f.isSpent() && apply(f, s.Specs[f.Name]) {
			f.Applied++
		}
	}
}

// Take returns the first line that is not spent and that is due, and counts it as applied; nil for
// none.
func (s *Script) Take(due func(f *Fault, spec FaultSpec) bool) *Fault {
	f := s.Peek(due)
	if f != nil {
		f.Applied++
	}
	return f
}

// Peek is Take for a line that is not applied yet.
func (s *Script) Peek(due func(f *Fault, spec FaultSpec) bool) *Fault {
	for _, f := range s.lines {
		if !f.isSpent() && due(f, s.Specs[f.Name]) {
			return f
		}
	}
	return nil
}

// On returns the first line of a fault that is a state: it is on until it is cleared, whatever its
// count.
func (s *Script) On(name string) *Fault {
	for _, f := range s.lines {
		if f.Name == name {
			f.Applied++
			return f
		}
	}
	return nil
}

func (f *Fault) isSpent() bool { return f.Count >= 0 && f.Applied >= f.Count }
