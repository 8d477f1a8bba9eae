package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Order tells a worker what fault one execution of an activity gets; the zero
// Order is none.
type Order struct {
	JobID   string `json:"job_id,omitempty"`
	Index   int    `json:"index,omitempty"` // among the job's faults
	Kind    Kind   `json:"kind,omitempty"`
	Variant string `json:"variant,omitempty"`
}

// Injector decides at each boundary. Worker processes reach it over HTTP.
type Injector interface {
	// Enter is asked before each execution of an activity of a job.
	Enter(ctx context.Context, jobID string, at Point) (Order, error)
	// Leave is told after it.
	Leave(ctx context.Context, jobID string, at Point) error
	// Inject carries out the part of an order that is not the worker's own, and
	// marks it as injected. It does not return to a worker that is killed.
	Inject(ctx context.Context, o Order) error
}

// FaultPlans holds what the jobs of an environment get.
type FaultPlans struct {
	mu     sync.Mutex
	jobs   map[string]*faultPlan
	seen   map[Point]int
	begun  map[string]bool // workers that have executed an activity
	inject injectFunc
}

// injectFunc carries out the faults outside a worker.
type injectFunc func(ctx context.Context, worker, jobID string, h Fault) error

// faultPlan holds the faults of one job.
type faultPlan struct {
	faults []Fault
	by     []string // the worker that was given the order, "" for none
	done   []bool   // injected
	// inside is which workers execute an activity now, overlaps how often one
	// was begun while another execution of it lasted.
	inside   map[Point][]string
	overlaps map[Point]int
	begun    map[Point]int
}

func newFaultPlans(f injectFunc) *FaultPlans {
	return &FaultPlans{jobs: map[string]*faultPlan{}, seen: map[Point]int{}, begun: map[string]bool{}, inject: f}
}

// Plan sets the faults of a job, before it starts.
func (d *FaultPlans) Plan(jobID string, faults []Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[jobID] = &faultPlan{
		faults: faults, by: make([]string, len(faults)), done: make([]bool, len(faults)), inside: map[Point][]string{}, overlaps: map[Point]int{},
		begun: map[Point]int{},
	}
}

// Overlaps is how often an activity of a job was begun while another execution
// of it lasted: then both may have sent what neither had read.
func (d *FaultPlans) Overlaps(jobID, activity string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.jobs[jobID]; p != nil {
		return of(p.overlaps, activity)
	}
	return 0
}

// Executions is how often an activity of a job was begun, twice for one that is
// executed twice on order.
func (d *FaultPlans) Executions(jobID, activity string) int {
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

// Worker is the injector of one worker.
func (d *FaultPlans) Worker(name string) Injector { return &workerInjector{d, name} }

// HasBegun reports whether a worker has executed an activity of a job.
func (d *FaultPlans) HasBegun(worker string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun[worker]
}

// Died takes back the orders that a killed worker had not carried out.
func (d *FaultPlans) Died(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.begun, worker)
	for _, p := range d.jobs {
		for i := range p.faults {
			if p.by[i] == worker && !p.done[i] {
				p.by[i] = ""
			}
		}
		for at, in := range p.inside {
			p.inside[at] = slices.DeleteFunc(in, func(one string) bool { return one == worker })
		}
	}
}

// Missed lists the faults of a job that never injected.
func (d *FaultPlans) Missed(jobID string) []Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Fault
	if p := d.jobs[jobID]; p != nil {
		for i, h := range p.faults {
			if !p.done[i] {
				out = append(out, h)
			}
		}
	}
	return out
}

// Seen counts the executions at each point so far.
func (d *FaultPlans) Seen() map[Point]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.seen)
}

// workerInjector is a worker's place at the plans's table.
type workerInjector struct {
	d      *FaultPlans
	worker string
}

// Enter implements Injector: the first fault at this point that nobody has.
func (s *workerInjector) Enter(_ context.Context, jobID string, at Point) (Order, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.begun[s.worker] = true
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
	for i, h := range p.faults {
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

// Leave implements Injector.
func (s *workerInjector) Leave(_ context.Context, jobID string, at Point) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if p := s.d.jobs[jobID]; p != nil {
		if i := slices.Index(p.inside[at], s.worker); i >= 0 {
			p.inside[at] = slices.Delete(p.inside[at], i, i+1)
		}
	}
	return nil
}

// Inject implements Injector.
func (s *workerInjector) Inject(ctx context.Context, o Order) error {
	s.d.mu.Lock()
	p := s.d.jobs[o.JobID]
	if p == nil || o.Index < 0 || o.Index >= len(p.faults) {
		s.d.mu.Unlock()
		return fmt.Errorf("no fault %d of job %s", o.Index, o.JobID)
	}
	h := p.faults[o.Index]
	p.done[o.Index] = true
	s.d.mu.Unlock()
	return s.d.inject(ctx, s.worker, o.JobID, h)
}
