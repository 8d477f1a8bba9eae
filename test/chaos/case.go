package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
)

// Point is an activity boundary: one activity of one stage.
type Point struct {
	Stage    string `json:"stage"`
	Activity string `json:"activity"`
	// Local marks a local activity: it runs inside a workflow task.
	Local bool `json:"local,omitempty"`
}

func (p Point) String() string { return p.Stage + "." + p.Activity }

// Kind is a kind of fault.
type Kind string

// The kinds of fault.
const (
	CrashBefore    Kind = "crash_before"    // the execution dies before it did anything
	CrashAfter     Kind = "crash_after"     // it dies after the effect and before the answer
	AnswerLost     Kind = "answer_lost"     // the effect is there; the answer comes too late or as a lost connection
	AnswerTwice    Kind = "answer_twice"    // it is executed twice; the second answer counts
	Timeout        Kind = "timeout"         // it hangs past its timeout
	WorkerKilled   Kind = "worker_killed"   // the worker process gets SIGKILL
	PostgresKilled Kind = "postgres_killed" // every database backend of the worker is terminated
	SiteCut        Kind = "site_cut"        // MAAS and the BMC are out of reach for some seconds
	Cancel         Kind = "cancel"          // an operator cancels at this moment; it may be the execution's last
	ReleaseAsked   Kind = "release_asked"   // the tenant gives the node back at this moment of its provision
	AgentKilled    Kind = "agent_killed"    // the node's agent gets SIGKILL around the task that it is asked for
	AgentCut       Kind = "agent_cut"       // agents cannot reach the control plane, or never hear its answers, for some seconds
)

// Kinds lists every kind of fault, in the order of the report.
func Kinds() []Kind {
	return []Kind{CrashBefore, CrashAfter, AnswerLost, AnswerTwice, Timeout, WorkerKilled, PostgresKilled, SiteCut, Cancel, ReleaseAsked, AgentKilled, AgentCut}
}

// runTask is the activity that asks a node's agent; faults of agents come there
// alone.
const runTask = "RunTask"

// at reports whether a fault of this kind can come at a point.
func (k Kind) at(p Point) bool { return len(variants(k, p)) > 0 }

// variants lists the ways in which a fault comes at a point.
func variants(k Kind, at Point) []string {
	local := at.Local
	switch k {
	case CrashBefore, CrashAfter:
		if local {
			return []string{"panic", "error"}
		}
		return []string{"silent", "panic"}
	case AnswerLost:
		if local {
			return []string{"late"}
		}
		return []string{"late", "error"}
	case AnswerTwice:
		return []string{"in_a_row", "together"}
	case Timeout:
		if local {
			return []string{"frozen", "wakes"}
		}
		return []string{"frozen", "wakes", "deadline"}
	case WorkerKilled, PostgresKilled:
		return []string{"before", "during", "after"}
	case SiteCut:
		return []string{"refused_before", "hangs_before", "refused_during", "hangs_during", "refused_after", "hangs_after"}
	case Cancel:
		if local {
			return []string{"before", "after"}
		}
		return []string{"before", "after", "dies"}
	case ReleaseAsked:
		if !slices.Contains(contract.Stages(contract.KindAllocationProvision), at.Stage) {
			return nil
		}
		if local {
			return []string{"before", "after"}
		}
		return []string{"before", "during", "after"}
	case AgentKilled:
		if at.Activity == runTask {
			return []string{"asked", "working", "done"}
		}
	case AgentCut:
		if at.Activity == runTask {
			return []string{"refused", "hangs", "unanswered"}
		}
	}
	return nil
}

// Fault is one fault at one point.
type Fault struct {
	Point   Point
	Kind    Kind
	Variant string
}

func (h Fault) String() string { return fmt.Sprintf("%s=%s.%s", h.Point, h.Kind, h.Variant) }

// Case is one job and its faults, in this order where two meet at one
// point. No fault at all is a clean run, which shows that the checks hold.
type Case struct {
	Job    contract.JobKind
	Path   string
	Faults []Fault
}

// String is the text that replays the case.
func (c Case) String() string {
	faults := make([]string, 0, len(c.Faults))
	for _, h := range c.Faults {
		faults = append(faults, h.String())
	}
	return fmt.Sprintf("%s/%s:%s", c.Job, c.Path, strings.Join(faults, "+"))
}

// Has reports whether the case has a fault of one of these kinds.
func (c Case) Has(of ...Kind) bool {
	return slices.ContainsFunc(c.Faults, func(h Fault) bool { return slices.Contains(of, h.Kind) })
}

// ParseCase reads what String wrote: KIND/PATH:STAGE.ACTIVITY=TROUBLE.VARIANT,
// faults joined by a plus sign.
func ParseCase(text string, sets []*ScenarioSet) (Case, error) {
	head, tail, _ := strings.Cut(strings.TrimSpace(text), ":")
	kind, path, _ := strings.Cut(head, "/")
	i := slices.IndexFunc(sets, func(p *ScenarioSet) bool { return string(p.Kind) == kind })
	if j := slices.IndexFunc(sets, func(p *ScenarioSet) bool { return string(p.Kind) == kind && p.path(path) != nil }); j >= 0 {
		i = j
	}
	if i < 0 {
		return Case{}, fmt.Errorf("case %q: no job kind %q; write KIND/PATH:STAGE.ACTIVITY=TROUBLE.VARIANT", text, kind)
	}
	p := sets[i].path(path)
	if p == nil {
		return Case{}, fmt.Errorf("case %q: %s has no path %q; it has %s", text, kind, path, strings.Join(sets[i].pathNames(), ", "))
	}
	c := Case{Job: sets[i].Kind, Path: path}
	if tail == "" {
		return c, nil
	}
	for _, one := range strings.Split(tail, "+") {
		h, err := parseFault(one, p)
		if err != nil {
			return Case{}, fmt.Errorf("case %q: %w", text, err)
		}
		c.Faults = append(c.Faults, h)
	}
	return c, nil
}

func parseFault(text string, p *Path) (Fault, error) {
	where, what, _ := strings.Cut(text, "=")
	points := slices.Clone(p.Points)
	for _, h := range p.First {
		points = append(points, h.Point)
	}
	i := slices.IndexFunc(points, func(at Point) bool { return at.String() == where })
	if i < 0 {
		return Fault{}, fmt.Errorf("path %s has no point %q", p.Name, where)
	}
	kind, variant, _ := strings.Cut(what, ".")
	known := variants(Kind(kind), points[i])
	if !slices.Contains(known, variant) {
		return Fault{}, fmt.Errorf("fault %q is unknown at %s; %s has the variants %v", what, where, kind, known)
	}
	return Fault{Point: points[i], Kind: Kind(kind), Variant: variant}, nil
}
