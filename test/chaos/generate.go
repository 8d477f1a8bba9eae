package chaos

import (
	"math/rand/v2"
	"slices"
)

// Generate makes n cases for the sets: first one clean run of each path, then each set with each
// kind of fault, each stage with each kind of fault, each point not met so far, and from there on
// single faults and pairs by chance. The same seed gives the same cases; a smaller n gives the
// first of them.
func Generate(sets []*ScenarioSet, n int, seed uint64) []Case {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x5117)), met: map[string]bool{}} //nolint:gosec // chance, not secrecy
	for _, p := range sets {
		g.clean(p)
	}
	g.everyStratum(sets)
	for _, p := range sets {
		g.stagesByKinds(p)
	}
	for _, p := range sets {
		g.everyPoint(p)
	}
	for len(g.cases) < n {
		g.byChance(sets[g.rng.IntN(len(sets))])
	}
	return g.cases[:n]
}

type generator struct {
	rng   *rand.Rand
	cases []Case
	met   map[string]bool
}

// meeting names a stage of a scenario set together with a kind of fault.
func meeting(p *ScenarioSet, stage string, k Kind) string {
	return p.Name + " " + stage + " x " + string(k)
}

// key is what a point counts as: the same on all straight paths of a kind, which
// share their stages, and another in each clean-up.
func key(p *ScenarioSet, path *Path, at Point) string {
	if len(path.First) == 0 {
		return string(p.Kind) + " " + at.String()
	}
	return string(p.Kind) + "/" + path.Name + " " + at.String()
}

func (g *generator) add(p *ScenarioSet, path *Path, faults ...Fault) {
	for _, h := range faults {
		g.met[key(p, path, h.Point)] = true
		g.met[meeting(p, h.Point.Stage, h.Kind)] = true
	}
	g.cases = append(g.cases, Case{Job: p.Kind, Path: path.Name, Faults: append(slices.Clone(path.First), faults...)})
}

func (g *generator) clean(p *ScenarioSet) {
	for i := range p.Paths {
		g.add(p, &p.Paths[i])
	}
}

// stagesByKinds takes a remote activity of each stage through all kinds that it has not met yet,
// each time on one of the paths that run the stage.
func (g *generator) stagesByKinds(p *ScenarioSet) {
	for _, stage := range p.Stages {
		for _, k := range Kinds() {
			if ways := remoteOf(p, stage, k); len(ways) > 0 && p.requires(k) && !g.met[meeting(p, stage, k)] {
				w := ways[g.rng.IntN(len(ways))]
				g.add(p, w.path, g.fault(w.points[g.rng.IntN(len(w.points))], k))
			}
		}
	}
}

// way is a path with those of its points that are wanted.
type way struct {
	path   *Path
	points []Point
}

// remoteOf lists the paths that run a remote activity in the stage to which this
// fault can come; those that begin with a cancellation only where there is no
// other.
func remoteOf(p *ScenarioSet, stage string, k Kind) []way {
	var straight, undone []way
	for i := range p.Paths {
		w := way{path: &p.Paths[i]}
		for _, at := range w.path.Points {
			if at.Stage == stage && !at.Local && k.at(at) && (!Fault{Kind: k}.ends() || !w.path.NoCancel) {
				w.points = append(w.points, at)
			}
		}
		switch {
		case len(w.points) == 0:
		case len(w.path.First) > 0:
			undone = append(undone, w)
		default:
			straight = append(straight, w)
		}
	}
	if len(straight) > 0 {
		return straight
	}
	return undone
}

// everyPoint meets the points that no case has met yet.
func (g *generator) everyPoint(p *ScenarioSet) {
	for i := range p.Paths {
		path := &p.Paths[i]
		for _, at := range path.Points {
			if !g.met[key(p, path, at)] {
				g.add(p, path, g.anyFault(path, at))
			}
		}
	}
}

func (g *generator) byChance(p *ScenarioSet) {
	path := &p.Paths[g.rng.IntN(len(p.Paths))]
	first := g.anyFault(path, path.Points[g.rng.IntN(len(path.Points))])
	if g.rng.IntN(2) == 0 || first.ends() {
		g.add(p, path, first)
		return
	}
	second := g.anyFault(path, path.Points[g.rng.IntN(len(path.Points))])
	for second.ends() || (second.Point == first.Point && !first.repeats()) {
		// A cancellation would cut the first one off, and what is not executed
		// again can be injected but once.
		second = g.anyFault(path, path.Points[g.rng.IntN(len(path.Points))])
	}
	g.add(p, path, first, second)
}

// ends reports whether a fault may be the last that its job meets.
func (h Fault) ends() bool { return h.Kind == Cancel || h.Kind == ReleaseAsked }

// repeats reports whether a fault is sure to have its point executed again.
func (h Fault) repeats() bool {
	switch h.Kind {
	case CrashBefore, CrashAfter, AnswerLost, Timeout, WorkerKilled:
		return true
	case AnswerTwice, PostgresKilled, SiteCut, Cancel, ReleaseAsked, AgentKilled, AgentCut:
	}
	return false
}

func (g *generator) anyFault(path *Path, at Point) Fault {
	all := slices.DeleteFunc(Kinds(), func(k Kind) bool { return !k.at(at) })
	for {
		h := g.fault(at, all[g.rng.IntN(len(all))])
		if !h.ends() || !path.NoCancel {
			return h
		}
	}
}

func (g *generator) fault(at Point, k Kind) Fault {
	v := variants(k, at)
	return Fault{Point: at, Kind: k, Variant: v[g.rng.IntN(len(v))]}
}
