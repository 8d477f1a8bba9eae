package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/noop"
	"github.com/slipway-cloud/slipway/test/bench/rig"
)

const (
	jobsARound = 60
	jobsAtOnce = 30
	jobRounds  = 3
)

// BenchmarkOnboarding measures completed onboardings over providers that do
// nothing, from the accepted request to the ended workflow, against workflows
// that run as many activities and nothing else.
func BenchmarkOnboarding(b *testing.B) {
	r := rig.New(b, &noop.Region{})
	first := nodes(b, r, "warm-up", 1)
	require.NoError(b, onboard(b.Context(), r, first[0]))
	load := countOf(b, r, first[0])
	engine := startBare(b, r.Temporal)

	var c contest
	rounds := 0
	c.enter("onboarding", func() float64 {
		rounds++
		list := nodes(b, r, fmt.Sprintf("round-%d", rounds), jobsARound)
		return rate(b, jobsARound, jobsAtOnce, func(ctx context.Context, i int) error { return onboard(ctx, r, list[i]) })
	})
	bareRate := func(l bareLoad) func() float64 {
		return func() float64 {
			return rate(b, jobsARound, jobsAtOnce, func(ctx context.Context, _ int) error { return engine.run(ctx, l) })
		}
	}
	c.enter("bare", bareRate(bareLoad{Remote: load.Remote}))
	c.enter("bare with local", bareRate(load))
	for b.Loop() {
		for range jobRounds {
			c.round()
		}
	}
	ours, bare, local := c.of("onboarding"), c.of("bare"), c.of("bare with local")
	b.ReportMetric(ours, "jobs/s")
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(c.ratio("onboarding", "bare"), "ratio")
	b.ReportMetric(c.ratio("onboarding", "bare with local"), "ratio-with-local")
	measure(b, rowOnboarding, c.ratio("onboarding", "bare"), "%.2f; %.2f to one with the local activities", c.ratio("onboarding", "bare"), c.ratio("onboarding", "bare with local"))
	say("onboarding with no-op providers: %.1f jobs/s; bare workflow of %d activities: %.1f/s; ratio %.2f (aim 0.7)\n"+
		"  the same with %d local activities: %.1f/s; ratio %.2f",
		ours, load.Remote, bare, c.ratio("onboarding", "bare"), load.Local, local, c.ratio("onboarding", "bare with local"))
}

func nodes(b *testing.B, r *rig.Rig, name string, n int) []rig.Node {
	b.Helper()
	out := make([]rig.Node, n)
	for i := range out {
		var err error
		out[i], err = r.AddNode(b.Context(), fmt.Sprintf("%s-%d", name, i), false)
		require.NoError(b, err)
	}
	return out
}

// onboard takes one node from the request to its end.
func onboard(ctx context.Context, r *rig.Rig, n rig.Node) error {
	_, run, err := r.Run(ctx, n)
	if err != nil {
		return err
	}
	var res contract.JobResult
	if err := run.Get(ctx, &res); err != nil {
		return err
	}
	if res.Status != lifecycle.JobCompleted {
		return fmt.Errorf("job of %s ended %s at %s", n.Hostname, res.Status, res.Stage)
	}
	return nil
}

// countOf counts the activities in the history of a node's last job.
func countOf(b *testing.B, r *rig.Rig, n rig.Node) (load bareLoad) {
	b.Helper()
	jobs, err := r.Store.ListJobs(b.Context(), db.JobFilter{NodeID: n.ID}, "", 1)
	require.NoError(b, err)
	require.Len(b, jobs, 1)
	return countIn(b, r, jobs[0].WorkflowID)
}

// countIn counts the activities in the history of a workflow.
func countIn(b *testing.B, r *rig.Rig, workflowID string) (load bareLoad) {
	b.Helper()
	it := r.Temporal.GetWorkflowHistory(b.Context(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		e, err := it.Next()
		require.NoError(b, err)
		switch {
		case e.EventType == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			load.Remote++
		case e.EventType == enumspb.EVENT_TYPE_MARKER_RECORDED && e.GetMarkerRecordedEventAttributes().MarkerName == "LocalActivity":
			load.Local++
		}
	}
	require.Positive(b, load.Remote)
	return load
}

// bareLoad is what a bare workflow runs: remote activities one after the other,
// the local ones spread among them.
type bareLoad struct{ Remote, Local int }

type bareEngine struct {
	client client.Client
	queue  string
}

func startBare(b *testing.B, c client.Client) bareEngine {
	b.Helper()
	e := bareEngine{client: c, queue: "bare-" + db.NewID("q")}
	w := worker.New(c, e.queue, rig.Defaults())
	w.RegisterWorkflow(bareWorkflow)
	w.RegisterActivity(doNothing)
	require.NoError(b, w.Start())
	b.Cleanup(w.Stop)
	return e
}

func (e bareEngine) run(ctx context.Context, l bareLoad) error {
	run, err := e.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: e.queue}, bareWorkflow, l)
	if err != nil {
		return err
	}
	return run.Get(ctx, nil)
}

func bareWorkflow(ctx workflow.Context, l bareLoad) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
	local := 0
	for i := range l.Remote {
		for ; local < l.Local*(i+1)/l.Remote; local++ {
			if err := workflow.ExecuteLocalActivity(ctx, doNothing).Get(ctx, nil); err != nil {
				return err
			}
		}
		if err := workflow.ExecuteActivity(ctx, doNothing).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func doNothing(context.Context) error { return nil }
