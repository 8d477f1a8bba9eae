package chaos

import (
	"math/rand/v2"
	"slices"
)

// Generate makes n cases for the plugs: first one clean run of each path, then
// each stage with each kind of trouble, then each point not met so far, and
// from there on single troubles and pairs by chance. The same seed gives the
// same cases; a smaller n gives the first of them.
func Generate(plugs []*Plug, n int, seed uint64) []Case {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x5117)), met: map[string]bool{}} //nolint:gosec // chance, not secrecy
	for _, p := range plugs {
		g.clean(p)
	}
	for _, p := range plugs {
		g.stagesByKinds(p)
	}
	for _, p := range plugs {
		g.everyPoint(p)
	}
	for len(g.cases) < n {
		g.byChance(plugs[g.rng.IntN(len(plugs))])
	}
	return g.cases[:n]
}

type generator struct {
	rng   *rand.Rand
	cases []Case
	met   map[string]bool // path and point
}

func (g *generator) add(p *Plug, path *Path, hits ...Hit) {
	for _, h := range hits {
		g.met[path.Name+h.Point.String()] = true
	}
	g.cases = append(g.cases, Case{Job: p.Kind, Path: path.Name, Hits: append(slices.Clone(path.First), hits...)})
}

func (g *generator) clean(p *Plug) {
	for i := range p.Paths {
		g.add(p, &p.Paths[i])
	}
}

// stagesByKinds takes a remote activity of each stage through all kinds.
func (g *generator) stagesByKinds(p *Plug) {
	for _, stage := range p.Stages {
		path, points := remoteOf(p, stage)
		for _, k := range Kinds() {
			if path == nil || (k == Cancel && path.NoCancel) {
				continue
			}
			g.add(p, path, g.hit(points[g.rng.IntN(len(points))], k))
		}
	}
}

// remoteOf is the first path that runs a remote activity in the stage.
func remoteOf(p *Plug, stage string) (*Path, []Point) {
	for i := range p.Paths {
		var points []Point
		for _, at := range p.Paths[i].Points {
			if at.Stage == stage && !at.Local {
				points = append(points, at)
			}
		}
		if len(points) > 0 {
			return &p.Paths[i], points
		}
	}
	return nil, nil
}

// everyPoint meets the points that no case has met yet.
func (g *generator) everyPoint(p *Plug) {
	for i := range p.Paths {
		path := &p.Paths[i]
		for _, at := range path.Points {
			if !g.met[path.Name+at.String()] {
				g.add(p, path, g.anyHit(path, at))
			}
		}
	}
}

func (g *generator) byChance(p *Plug) {
	path := &p.Paths[g.rng.IntN(len(p.Paths))]
	first := g.anyHit(path, path.Points[g.rng.IntN(len(path.Points))])
	if g.rng.IntN(2) == 0 || first.Kind == Cancel {
		g.add(p, path, first)
		return
	}
	second := g.anyHit(path, path.Points[g.rng.IntN(len(path.Points))])
	for second.Kind == Cancel || (second.Point == first.Point && !first.repeats()) {
		// A cancellation would cut the first one off, and what is not executed
		// again can be struck but once.
		second = g.anyHit(path, path.Points[g.rng.IntN(len(path.Points))])
	}
	g.add(p, path, first, second)
}

// repeats reports whether a hit is sure to have its point executed again.
func (h Hit) repeats() bool {
	switch h.Kind {
	case CrashBefore, CrashAfter, AnswerLost, Timeout, WorkerKilled:
		return true
	case AnswerTwice, PostgresKilled, SiteCut, Cancel:
	}
	return false
}

func (g *generator) anyHit(path *Path, at Point) Hit {
	all := Kinds()
	for {
		h := g.hit(at, all[g.rng.IntN(len(all))])
		if h.Kind != Cancel || !path.NoCancel {
			return h
		}
	}
}

func (g *generator) hit(at Point, k Kind) Hit {
	v := variants(k, at.Local)
	return Hit{Point: at, Kind: k, Variant: v[g.rng.IntN(len(v))]}
}
