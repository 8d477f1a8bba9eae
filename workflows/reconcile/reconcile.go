// Package reconcile is the workflow that a Schedule starts for each site every
// few minutes to compare what stands in PostgreSQL with the site's region, BMCs
// and agents. It only sequences; activities/drift says what is done.
package reconcile

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/drift"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/workflows/pass"
)

var acts *drift.Activities

// The longest that each part may take.
const (
	shortLimit = time.Minute
	listLimit  = 10 * time.Minute
	visitLimit = 20 * time.Minute
	pageLimit  = 2 * time.Minute
	// pagesPerRun bounds a run's history: 50,000 nodes.
	pagesPerRun = 100
)

// Input is a Schedule's, and what a run that was full hands on to the next.
type Input struct {
	contract.ReconcileInput
	Carried *State `json:"carried,omitempty"`
}

// Pass runs one pass for a site, or the part of it that fits a run.
func Pass(ctx workflow.Context, in Input) (drift.Report, error) {
	w := run{ctx: ctx}
	if in.Carried != nil {
		w.state = *in.Carried
	} else if err := w.begin(in.SiteID); err != nil || w.state.Pass.Gone {
		return drift.Report{}, err
	}
	more, err := w.pages()
	if err != nil {
		return w.finish(err)
	}
	if more {
		in.Carried = &w.state
		return drift.Report{}, workflow.NewContinueAsNewError(ctx, contract.ReconcilePass.Workflow, in)
	}
	return w.finish(w.rest())
}

// State goes from run to run.
type State struct {
	Pass   drift.Pass   `json:"pass"`
	Report drift.Report `json:"report"`
	After  string       `json:"after,omitempty"`
}

type run struct {
	ctx   workflow.Context
	state State
}

// begin opens the pass and reads what lies outside. A region or BMCs that
// cannot be read keep nothing else from being compared.
func (w *run) begin(siteID string) error {
	if err := w.do("begins the pass", shortLimit, acts.BeginPass, drift.BeginIn{SiteID: siteID}, &w.state.Pass); err != nil || w.state.Pass.Gone {
		return err
	}
	r := &w.state.Report
	if err := w.do("reads the region's list", listLimit, acts.ListMachines, w.state.Pass, &r.List); err != nil {
		w.problem("the region was not read", err)
		r.List.Problem = "reading it failed here: " + pass.Reason(err)
	} else if r.List.Problem != "" {
		r.Problems = append(r.Problems, "the region was not read: "+r.List.Problem)
	}
	w.state.Pass.Listed = r.List.Problem == ""
	if err := w.do("asks BMCs", visitLimit, acts.VisitBMCs, w.state.Pass, &r.BMCs); err != nil {
		w.problem("BMCs were not asked", err)
	}
	if err := w.do("has nodes probe their networks", pageLimit, acts.ProbeNetworks, w.state.Pass, &r.Networks); err != nil {
		w.problem("networks of nodes were not probed", err)
	}
	return nil
}

// pages compares nodes page by page; more says that the run is full.
func (w *run) pages() (more bool, err error) {
	for range pagesPerRun {
		var out drift.PageOut
		if err := w.do("compares a page of nodes", pageLimit, acts.ComparePage, drift.PageIn{Pass: w.state.Pass, After: w.state.After}, &out); err != nil {
			return false, err
		}
		w.state.Report.Add(out.PassCounts)
		if w.state.After = out.After; out.After == "" {
			return false, nil
		}
	}
	return true, nil
}

// rest is what needs all pages: sets, and quarantines.
func (w *run) rest() error {
	var sets drift.PassCounts
	if err := w.do("looks for duplicates and unknown machines", pageLimit, acts.CompareSets, w.state.Pass, &sets); err != nil {
		return err
	}
	w.state.Report.Add(sets)
	return w.do("quarantines", pageLimit, acts.QuarantineDrifted, w.state.Pass, &w.state.Report.Quarantine)
}

// finish notes the pass, whatever became of it.
func (w *run) finish(failed error) (drift.Report, error) {
	if failed != nil {
		w.problem("the pass was not finished", failed)
	}
	r := w.state.Report
	in := drift.FinishIn{Pass: w.state.Pass, Report: r, Problem: strings.Join(r.Problems, "; ")}
	return r, w.do("notes the pass", shortLimit, acts.FinishPass, in, nil)
}

func (w *run) problem(what string, err error) {
	w.state.Report.Problems = append(w.state.Report.Problems, what+": "+pass.Reason(err))
}

func (w *run) do(summary string, limit time.Duration, activity, in, out any) error {
	return pass.Do(w.ctx, summary, limit, activity, out, in)
}
