package e2e_test

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestTemporalOutage_JobStartsLater accepts an onboarding while Temporal is down: it starts when
// Temporal is back.
func TestTemporalOutage_JobStartsLater(t *testing.T) {
	t.Parallel()
	w := newPrivateWorld(t, stack.Options{
		TemporalOnDisk: true, DatabaseEnv: databaseVar, Configure: func(c *config.Config) { c.Relay.Poll = 100 * time.Millisecond },
	})
	require.NoError(t, w.Temporal.Pause(t.Context()))
	job := w.onboard(t, w.Sims.Fleet.All()[0])
	require.Never(t, func() bool { return w.job(t, job.ID).Status != lifecycle.JobPending }, time.Second, 100*time.Millisecond)
	require.NoError(t, w.Temporal.Resume(t.Context()))
	j := w.ends(t, job.ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
}

// TestPostgresOutage_JobContinues stops the database in the middle of an onboarding for longer than
// a worker's heartbeat may be late.
func TestPostgresOutage_JobContinues(t *testing.T) {
	t.Parallel()
	w := newPrivateWorld(t, stack.Options{})
	job := w.onboard(t, w.Sims.Fleet.All()[0])
	require.Eventually(t, func() bool { return w.job(t, job.ID).StageOrdinal >= 5 }, runenv.Patience(time.Minute), 100*time.Millisecond)
	require.NoError(t, w.Postgres.Pause(t.Context()))
	wait(t, time.Duration(runenv.Scale(t, "SLIPWAY_E2E_OUTAGE_SECONDS", 11, 20))*time.Second)
	require.NoError(t, w.Postgres.Resume(t.Context()))
	j := w.ends(t, job.ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
}

// TestSecrets_NotInHistoryOrLog searches every event of the workflow and all of Slipway's log for
// secrets, and finds the sixteen stages where operators look.
func TestSecrets_NotInHistoryOrLog(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	w := newPrivateWorld(t, stack.Options{Log: log, Namespace: "leaks", DatabaseEnv: databaseVar})
	m := w.Sims.Fleet.All()[0]
	job := w.onboard(t, m)
	secrets := []string{
		w.Sims.APIKey, strings.Split(w.Sims.APIKey, ":")[2], m.Spec().BMCPassword, "PRIVATE KEY",
	}
	j := w.ends(t, job.ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	secrets = append(secrets, userDataToken(t, m))
	raw := w.history(t, j)
	require.NotEmpty(t, raw)
	for _, s := range secrets {
		require.NotEmpty(t, s)
		require.NotContains(t, raw, s, "a secret is in the history")
		require.NotContains(t, log.String(), s, "a secret is in the log")
	}
	require.Contains(t, raw, w.site.Spec.MAASAPIKeyRef, "the history holds references")
	w.searchable(t, j)
	w.stagesVisible(t, j)
	w.listsOnlyJobs(t, "leaks")
}

// listsOnlyJobs checks that the namespace's list shows jobs alone, after the sweeper has made a
// pass.
func (w *world) listsOnlyJobs(t *testing.T, namespace string) {
	t.Helper()
	list := func(c client.Client, namespace, query string) []string {
		res, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: namespace, Query: query})
		require.NoError(t, err)
		types := make([]string, 0, len(res.GetExecutions()))
		for _, e := range res.GetExecutions() {
			types = append(types, e.GetType().GetName())
		}
		return types
	}
	require.Eventually(t, func() bool {
		return len(list(w.App.Maintenance, w.Config.Temporal.PassNamespace(), "WorkflowType = 'Sweep' AND ExecutionStatus = 'Completed'")) > 0
	}, runenv.Patience(time.Minute), 200*time.Millisecond, "the sweeper makes passes in a namespace of its own")
	for _, pass := range []string{contract.SweepPass.Workflow, contract.ReconcilePass.Workflow, contract.BillPass.Workflow} {
		require.NotContains(t, list(w.App.Temporal, namespace, ""), pass)
	}
}

var (
	base64Run  = regexp.MustCompile(`(?:[A-Za-z0-9+/]{76}\n)*[A-Za-z0-9+/]{4,76}={0,2}`)
	tokenShape = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
)

// userDataToken digs the one-time token out of what was installed.
func userDataToken(t *testing.T, m *simhw.Machine) string {
	t.Helper()
	queue := []string{string(m.InstalledOS().UserData)}
	for len(queue) > 0 {
		text := queue[0]
		queue = queue[1:]
		for _, run := range base64Run.FindAllString(text, -1) {
			raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(run, "\n", ""))
			if err != nil || len(raw) < 40 {
				continue
			}
			if got := strings.TrimSpace(string(raw)); tokenShape.MatchString(got) {
				return got
			}
			queue = append(queue, string(raw))
		}
	}
	t.Fatal("no token in the user-data")
	return ""
}

// history is a workflow's whole history as text, decrypted.
func (w *world) history(t *testing.T, j db.Job) string {
	t.Helper()
	var b bytes.Buffer
	it := w.App.Temporal.GetWorkflowHistory(t.Context(), j.WorkflowID, j.RunID, false, 1)
	for it.HasNext() {
		e, err := it.Next()
		require.NoError(t, err)
		require.NoError(t, w.App.Payloads.DecodeHistory(t.Context(), &historypb.History{Events: []*historypb.HistoryEvent{e}}))
		b.WriteString(e.String())
	}
	return b.String()
}

// searchable: operators find jobs by node and by who needs an operator.
func (w *world) searchable(t *testing.T, j db.Job) {
	t.Helper()
	for query, want := range map[string]int{
		"NodeID = '" + *j.NodeID + "'": 1, "NeedsHuman = false AND NodeID = '" + *j.NodeID + "'": 1,
		"NeedsHuman = true AND NodeID = '" + *j.NodeID + "'": 0, "JobStatus = 'completed' AND NodeID = '" + *j.NodeID + "'": 1,
	} {
		require.Eventually(t, func() bool {
			res, err := w.App.Temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "leaks", Query: query})
			return err == nil && len(res.GetExecutions()) == want
		}, runenv.Patience(20*time.Second), 200*time.Millisecond, query)
	}
}

// safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *safeBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }
