package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Order tells a worker what one execution of an activity is to suffer; the zero
// Order is none.
type Order struct {
	JobID   string `json:"job_id,omitempty"`
	Index   int    `json:"index,omitempty"` // among the job's hits
	Kind    Kind   `json:"kind,omitempty"`
	Variant string `json:"variant,omitempty"`
}

// Conductor decides at each boundary. Worker processes reach it over HTTP.
type Conductor interface {
	// Enter is asked before each execution of an activity of a job.
	Enter(ctx context.Context, jobID string, at Point) (Order, error)
	// Leave is told after it.
	Leave(ctx context.Context, jobID string, at Point) error
	// Strike carries out the part of an order that is not the worker's own, and
	// marks it as struck. It does not return to a worker that is killed.
	Strike(ctx context.Context, o Order) error
}

// Director holds what the jobs of a theatre are to suffer.
type Director struct {
	mu   sync.Mutex
	jobs map[string]*plot
	seen map[Point]int
	deed deed
}

// deed carries out what the outside of a worker suffers.
type deed func(ctx context.Context, worker, jobID string, h Hit) error

// plot is what one job suffers.
type plot struct {
	hits []Hit
	by   []string // the worker that was given the order, "" for none
	done []bool   // struck
	// inside is which workers execute an activity now, overlaps how often one
	// was begun while another execution of it lasted.
	inside   map[Point][]string
	overlaps map[Point]int
	begun    map[Point]int
}

func newDirector(d deed) *Director {
	return &Director{jobs: map[string]*plot{}, seen: map[Point]int{}, deed: d}
}

// Plan says what a job is to suffer, before it starts.
func (d *Director) Plan(jobID string, hits []Hit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[jobID] = &plot{
		hits: hits, by: make([]string, len(hits)), done: make([]bool, len(hits)), inside: map[Point][]string{}, overlaps: map[Point]int{},
		begun: map[Point]int{},
	}
}

// Overlaps is how often an activity of a job was begun while another execution
// of it lasted: then both may have sent what neither had read.
func (d *Director) Overlaps(jobID, activity string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.jobs[jobID]; p != nil {
		return of(p.overlaps, activity)
	}
	return 0
}

// Executions is how often an activity of a job was begun, twice for one that is
// executed twice on order.
func (d *Director) Executions(jobID, activity string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.jobs[jobID]; p != nil {
		return of(p.begun, activity)
	}
	return 0
}

func of(counted map[Point]int, activity string) int {
	n := 0
	for at, times := range counted {
		if at.Activity == activity {
			n += times
		}
	}
	return n
}

// Worker is the conductor of one worker.
func (d *Director) Worker(name string) Conductor { return &seat{d, name} }

// Died takes back the orders that a worker took to its grave unstruck.
func (d *Director) Died(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.jobs {
		for i := range p.hits {
			if p.by[i] == worker && !p.done[i] {
				p.by[i] = ""
			}
		}
		for at, in := range p.inside {
			p.inside[at] = slices.DeleteFunc(in, func(one string) bool { return one == worker })
		}
	}
}

// Missed lists the hits of a job that never struck.
func (d *Director) Missed(jobID string) []Hit {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Hit
	if p := d.jobs[jobID]; p != nil {
		for i, h := range p.hits {
			if !p.done[i] {
				out = append(out, h)
			}
		}
	}
	return out
}

// Seen counts the executions at each point so far.
func (d *Director) Seen() map[Point]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.seen)
}

// seat is a worker's place at the director's table.
type seat struct {
	d      *Director
	worker string
}

// Enter implements Conductor: the first hit at this point that nobody has.
func (s *seat) Enter(_ context.Context, jobID string, at Point) (Order, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	p := s.d.jobs[jobID]
	if p == nil {
		return Order{}, nil
	}
	s.d.seen[at]++
	p.begun[at]++
	if len(p.inside[at]) > 0 {
		p.overlaps[at]++
	}
	p.inside[at] = append(p.inside[at], s.worker)
	for i, h := range p.hits {
		if h.Point == at && p.by[i] == "" {
			p.by[i] = s.worker
			if h.Kind == AnswerTwice {
				p.begun[at]++
			}
			if h.Kind == AnswerTwice && h.Variant == "together" {
				p.overlaps[at]++
			}
			return Order{JobID: jobID, Index: i, Kind: h.Kind, Variant: h.Variant}, nil
		}
	}
	return Order{}, nil
}

// Leave implements Conductor.
func (s *seat) Leave(_ context.Context, jobID string, at Point) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if p := s.d.jobs[jobID]; p != nil {
		if i := slices.Index(p.inside[at], s.worker); i >= 0 {
			p.inside[at] = slices.Delete(p.inside[at], i, i+1)
		}
	}
	return nil
}

// Strike implements Conductor.
func (s *seat) Strike(ctx context.Context, o Order) error {
	s.d.mu.Lock()
	p := s.d.jobs[o.JobID]
	if p == nil || o.Index < 0 || o.Index >= len(p.hits) {
		s.d.mu.Unlock()
		return fmt.Errorf("no hit %d of job %s", o.Index, o.JobID)
	}
	h := p.hits[o.Index]
	p.done[o.Index] = true
	s.d.mu.Unlock()
	return s.d.deed(ctx, s.worker, o.JobID, h)
}
