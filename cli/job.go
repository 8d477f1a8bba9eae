package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// jobWhat is the job's kind, with its mode where it has one.
func jobWhat(j client.Job) string {
	if j.Mode == "" {
		return j.Kind
	}
	return j.Kind + ": " + j.Mode
}

// outcome says whether a job in this state moves by itself, and how it ended.
func outcome(status string) (done, well bool) {
	s := lifecycle.JobStatus(status)
	return s.Parked() || lifecycle.Job.Terminal(s) || s == lifecycle.JobGaveUp, s == lifecycle.JobCompleted || s == lifecycle.JobReconciled
}

func (a *app) jobCommand() *cobra.Command {
	cmd := group("job", "Jobs", a.jobList(), a.jobShow(), a.jobPlan(), a.jobActionLog())
	for name, action := range map[string]lifecycle.Action{
		"retry": lifecycle.ActionRetryStage, "resume": lifecycle.ActionResume, "rerun": lifecycle.ActionRerun, "restart-clean": lifecycle.ActionRestartClean,
		"cancel": lifecycle.ActionCancel, "adopt": lifecycle.ActionAdopt, "mark-manual": lifecycle.ActionMarkManual,
	} {
		cmd.AddCommand(a.jobAction(name, action))
	}
	return cmd
}

// jobListing is a list command over jobs of every kind or of one.
type jobListing struct {
	short string
	list  func(jobFilter) lister[client.ListJob]
	// what heads the column that tells them apart.
	what string
	of   func(client.Job) string
	// ofEveryKind adds the flags that only a list of every kind has.
	ofEveryKind bool
}

// jobFilter is what a list of jobs is narrowed by; "" is no condition.
type jobFilter struct {
	node, status, kind, batch string
	waiting                   bool // for an operator
}

// editors narrow a list to the jobs that wait for an operator, where that is asked for.
func (f jobFilter) editors() []client.Option {
	if !f.waiting {
		return nil
	}
	return []client.Option{client.Query("needs_human", "true")}
}

func (f jobFilter) jobs() *client.ListJobsParams {
	return &client.ListJobsParams{
		NodeID: optional[string](f.node), Status: optional[string](f.status), Kind: optional[string](f.kind), BatchID: optional[string](f.batch),
	}
}

func (f jobFilter) decommissions() *client.ListDecommissionsParams {
	return &client.ListDecommissionsParams{NodeID: optional[string](f.node), Status: optional[string](f.status)}
}

func (a *app) jobList() *cobra.Command {
	return a.listJobs(jobListing{
		list:  func(f jobFilter) lister[client.ListJob] { return list(a.api.ListJobs, f.jobs(), f.editors()...) },
		short: "List jobs, newest first", what: "KIND", of: jobWhat, ofEveryKind: true,
	})
}

func (a *app) listJobs(l jobListing) *cobra.Command {
	var filter jobFilter
	var limit int
	cmd := &cobra.Command{Use: "list", Short: l.short, Args: cobra.NoArgs}
	f := cmd.Flags()
	f.BoolVar(&filter.waiting, "needs-human", false, "only those that wait for an operator")
	f.StringVar(&filter.node, "node", "", "only those of this node, by hostname or id")
	f.IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	f.StringVar(&filter.status, "status", "", "only those in this state")
	if l.ofEveryKind {
		f.StringVar(&filter.kind, "kind", "", "only jobs of this kind")
		f.StringVar(&filter.batch, "batch", "", "only jobs of this batch, by name or id")
	}
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if filter.node != "" {
			id, err := a.nodeOf(cmd.Context(), filter.node)
			if err != nil {
				return err
			}
			filter.node = id
		}
		if filter.batch != "" {
			id, err := a.batchOf(cmd.Context(), filter.batch)
			if err != nil {
				return err
			}
			filter.batch = id
		}
		r, err := listAll(cmd.Context(), l.list(filter), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListJob) error {
			t := a.table("ID", l.what, "NODE", "STATUS", "REACHED", "STAGE", "FAILURE", "SINCE")
			for _, j := range got.Data {
				t.row(j.ID, l.of(j), orDash(j.Hostname), j.Status, percent(j.ReachedPercent), orDash(j.Stage), orDash(j.FailureClass), a.when(j.CreatedAt))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) jobShow() *cobra.Command {
	return a.showJobOf("job", list(a.api.ListJobs, nil), a.api.GetJob)
}

// showJobOf is the show command of a list of jobs.
func (a *app) showJobOf(what string, all lister[client.ListJob], get func(context.Context, string, ...client.Option) (client.Answer[client.Job], error)) *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{Use: "show JOB", Short: "Show a " + what + " and its stages, by id or the hostname of its node", Args: cobra.ExactArgs(1)}
	w.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.newestOf(cmd.Context(), args[0], all, what)
		if err != nil {
			return err
		}
		if w.on {
			return a.watchJob(cmd.Context(), id, w)
		}
		r, err := get(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.showJob(cmd.Context(), id, r)
	})
	return cmd
}

func (a *app) showJob(ctx context.Context, id string, r client.Answer[client.Job]) error {
	return show(a, r, func(j client.Job) error {
		if err := a.jobFields(j); err != nil {
			return err
		}
		t := a.table("#", "STAGE", "STATE", "TRIES", "TOOK", "MESSAGE")
		for _, s := range j.Stages {
			t.row(s.Ordinal, s.Name, s.State, s.Attempts, orDash(took(s)), s.Message)
		}
		if err := t.flush(); err != nil {
			return err
		}
		return a.showTries(ctx, id)
	})
}

// showTries prints every try of a job's stages, oldest first, when one of them was not the only one
// of its stage or did not succeed: the stages alone show the last try of each.
func (a *app) showTries(ctx context.Context, jobID string) error {
	got, err := client.Value(listAll(ctx, listBelow(a.api.ListJobActionLogs, jobID, nil), 0))
	tries := got.Data
	if err != nil || !slices.ContainsFunc(tries, func(t client.ActionLog) bool { return t.Attempt > 1 || t.Status == client.ActionLogStatusFailed }) {
		return err
	}
	slices.Reverse(tries)
	if _, err := fmt.Fprintln(a.Out, "\ntries:"); err != nil {
		return err
	}
	t := a.table("SINCE", "STAGE", "TRY", "OUTCOME", "TOOK", "FAILURE", "MESSAGE")
	for _, i := range tries {
		t.row(a.when(i.StartedAt), i.Stage, i.Attempt, i.Status, tryTook(i), orDash(i.FailureClass), i.ErrorMessage)
	}
	return t.flush()
}

// jobProgress says how far the job is. A job that is parked has lost nothing, although the API
// gives 0 for it; the work of one that is cleaned up or cancelled is undone.
func jobProgress(j client.Job) string {
	switch {
	case j.ReachedPercent <= j.ProgressPercent:
		return fmt.Sprintf("%d%%", j.ProgressPercent)
	case lifecycle.JobStatus(j.Status).Parked() && j.FailureClass != string(lifecycle.FailCompensation):
		return fmt.Sprintf("stands at %d%%", j.ReachedPercent)
	}
	return fmt.Sprintf("%d%%; it had reached %d%% before its work was undone", j.ProgressPercent, j.ReachedPercent)
}

func (a *app) jobFields(j client.Job) error {
	var observed, eta string
	if j.Observed != nil {
		observed = fmt.Sprintf("MAAS %s, power %s, agent %s", orDash(j.Observed.Maas), orDash(j.Observed.Power), orDash(j.Observed.Agent))
		if since := a.when(j.Observed.At); since != "" {
			observed += ", first seen so " + since
		}
	}
	switch {
	case j.Eta == nil:
	case j.Eta.Overdue:
		eta = "overdue: " + j.Eta.Reason
	case j.Eta.P90Seconds == 0:
		eta = "unknown: " + j.Eta.Reason
	default:
		eta = fmt.Sprintf("%s, in nine of ten cases %s (from %d past jobs)", seconds(j.Eta.P50Seconds), seconds(j.Eta.P90Seconds), j.Eta.Samples)
	}
	failure := j.FailureClass
	if j.FailedStage != "" {
		failure += " in " + j.FailedStage
	}
	return a.fields("job", j.ID, "kind", jobWhat(j), "node", strings.TrimSpace(j.Hostname+" "+j.NodeID), "batch", j.BatchID, "status", j.Status, "stage", j.Stage,
		"progress", jobProgress(j), "to the end", eta, "stage ends by", a.when(j.StageDeadline),
		"observed", observed, "failure", failure, "message", j.Message, "recommended", j.RecommendedAction, "next", j.NextStep, "runbook", j.Runbook,
		"allowed now", strings.Join(j.AllowedActions, ", "), "by", j.CreatedBy, "accepted", a.when(j.CreatedAt), "started", a.when(j.StartedAt),
		"finished", a.when(j.FinishedAt), "temporal", j.TemporalWorkflowID)
}

func (a *app) jobAction(name string, action lifecycle.Action) *cobra.Command {
	var reason, resolution string
	var risk bool
	var w watchFlags
	cmd := &cobra.Command{Use: name + " JOB", Short: action.Doc(), Args: cobra.ExactArgs(1)}
	if string(action) != name { // as API, Temporal and refusals call it
		cmd.Aliases = []string{string(action)}
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	if action == lifecycle.ActionAdopt {
		cmd.Flags().BoolVar(&risk, "accept-risk", false, "accept what automation may not; needs --reason")
		cmd.Flags().StringVar(&resolution, "resolution", "", "of a payment: what becomes of the money, credit, suspense or write_off; needs --reason")
	}
	w.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.jobOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.ActOnJob(cmd.Context(), id, string(action), client.ActionRequest{Reason: &reason, AcceptRisk: &risk, Resolution: optional[client.ActionRequestResolution](resolution)})
		if err != nil {
			return err
		}
		if w.on {
			return a.watchJob(cmd.Context(), id, w)
		}
		return show(a, r, func(got client.ActionAnswer) error {
			at := got.Status
			if got.Stage != "" && !lifecycle.Job.Terminal(lifecycle.JobStatus(got.Status)) {
				at += " at " + got.Stage
			}
			_, err := fmt.Fprintf(a.Out, "%s; %s is %s\n", accepted(lifecycle.Effect(got.Effect)), oneLine(id), oneLine(at))
			return err
		})
	})
	return cmd
}

// accepted says in words what an action has begun: it is accepted, and done only when the job says
// so.
func accepted(e lifecycle.Effect) string {
	what := map[lifecycle.Effect]string{
		lifecycle.EffectRetryStage: "retry requested: the failed stage runs again",
		lifecycle.EffectContinue:   "resume requested: the job goes on where it stopped",
		lifecycle.EffectFromTop:    "rerun requested: the job runs from the top and skips what is already so",
		lifecycle.EffectRestart:    "clean restart requested: what was done is undone, then the job runs from the top",
		lifecycle.EffectCancel:     "cancel requested: what can be undone is undone, then the job ends",
		lifecycle.EffectAdopt:      "adoption requested: what the outside shows is taken over and the job goes on",
		lifecycle.EffectFreeze:     "stop requested: the job stands still until an operator resumes it",
		lifecycle.EffectNoop:       "nothing to do",
	}[e]
	if what == "" {
		return "accepted: " + string(e)
	}
	return what
}

func percent(n int64) string { return fmt.Sprintf("%d%%", n) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func took(s client.Stage) string {
	if s.StartedAt.IsZero() || s.FinishedAt.IsZero() {
		return ""
	}
	return s.FinishedAt.Sub(s.StartedAt).Round(100 * time.Millisecond).String()
}

func counts(m map[string]int64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}
