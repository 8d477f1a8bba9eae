package chaos

import (
	"math/rand/v2"
	"slices"
)

// Class says why a case is part of an elastic run.
type Class string

// The classes, in the order in which they are played.
const (
	ClassKnown     Class = "known"     // in the committed list of earlier findings
	ClassStratum   Class = "stratum"   // one of each job kind with each kind of fault
	ClassExploring Class = "exploring" // random, by the seed
)

// Stratum is a kind of fault that jobs of a scenario set can meet. An elastic run plays one case of
// each stratum for which there is time.
type Stratum struct {
	ScenarioSet *ScenarioSet
	Kind        Kind
}

func (s Stratum) String() string { return s.ScenarioSet.Name + " x " + string(s.Kind) }

// Strata lists the strata of the sets.
func Strata(sets []*ScenarioSet) []Stratum {
	var out []Stratum
	for _, p := range sets {
		for _, k := range Kinds() {
			if len(stagesWith(p, k)) > 0 && p.requires(k) {
				out = append(out, Stratum{p, k})
			}
		}
	}
	return out
}

// strataOrder returns the order in which strata are played, as indices: first those that an earlier
// run left out, in its order, then the others in an order that the seed draws. So each stratum has
// the same chance where not all can be played, and what was left out longest comes first.
func strataOrder(strata []Stratum, first []string, seed uint64) []int {
	order := rand.New(rand.NewPCG(seed, 0x04de4)).Perm(len(strata)) //nolint:gosec // chance, not secrecy
	place := func(i int) int {
		if at := slices.Index(first, strata[i].String()); at >= 0 {
			return at
		}
		return len(first)
	}
	slices.SortStableFunc(order, func(a, b int) int { return place(a) - place(b) })
	return order
}

// StratumCases returns one case of each stratum, in the order of Strata. The seed draws the stage,
// the path and the point in it, and the variant.
func StratumCases(sets []*ScenarioSet, seed uint64) []Case {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x57a7)), met: map[string]bool{}} //nolint:gosec // chance, not secrecy
	g.everyStratum(sets)
	return g.cases
}

func (g *generator) everyStratum(sets []*ScenarioSet) {
	for _, s := range Strata(sets) {
		stages := stagesWith(s.ScenarioSet, s.Kind)
		places := placesOf(s.ScenarioSet, stages[g.rng.IntN(len(stages))], s.Kind)
		at := places[g.rng.IntN(len(places))]
		g.add(s.ScenarioSet, at.path, g.fault(at.point, s.Kind))
	}
}

// place is a point on one of the paths that run it.
type place struct {
	path  *Path
	point Point
}

// placesOf lists the points of a stage that a fault of this kind can meet.
func placesOf(p *ScenarioSet, stage string, k Kind) []place {
	var out []place
	for i := range p.Paths {
		path := &p.Paths[i]
		if path.NoCancel && (Fault{Kind: k}).ends() {
			continue
		}
		for _, at := range path.Points {
			if at.Stage == stage && k.at(at) {
				out = append(out, place{path, at})
			}
		}
	}
	return out
}

// stagesWith lists the stages of a scenario set that a fault of this kind can meet.
func stagesWith(p *ScenarioSet, k Kind) []string {
	return slices.DeleteFunc(slices.Clone(p.Stages), func(stage string) bool { return len(placesOf(p, stage, k)) == 0 })
}

// Explorer draws random cases with one fault or two. The same seed gives the same cases.
type Explorer struct {
	sets []*ScenarioSet
	g    *generator
}

// NewExplorer returns an explorer of the sets.
func NewExplorer(sets []*ScenarioSet, seed uint64) *Explorer {
	return &Explorer{sets, &generator{rng: rand.New(rand.NewPCG(seed, 0xe791)), met: map[string]bool{}}} //nolint:gosec // chance, not secrecy
}

// Next draws the next case.
func (e *Explorer) Next() Case {
	e.g.cases = e.g.cases[:0]
	e.g.byChance(e.sets[e.g.rng.IntN(len(e.sets))])
	return e.g.cases[0]
}
