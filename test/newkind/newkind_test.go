// Package newkind_test adds a kind of job as docs/develop/development.md says: this package, and
// one line of the table of kinds. Runner, projection, sweeper and schema serve it without a change.
package newkind_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/subject"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

const calibration contract.JobKind = "calibration"

func TestMain(m *testing.M) {
	contract.Kinds = append(contract.Kinds, contract.Kind{
		Kind: calibration, Workflow: "Calibration", Stages: []string{"measure", "adjust"}, Subject: contract.SubjectNode,
	})
	os.Exit(m.Run())
}

// state is what the job knows.
type state struct {
	Request struct {
		Sensor string `json:"sensor"`
	} `json:"request"`
	Offset string `json:"offset,omitempty"`
}

// sensors do the outside work of the job.
type sensors struct{ broken bool }

func (s *sensors) Measure(_ context.Context, sensor string) (string, error) {
	return sensor + "+2", nil
}

func (s *sensors) Adjust(_ context.Context, offset string) (string, error) {
	if s.broken {
		return "", stagetest.FailureSaying(lifecycle.FailStateDisagreement, "the sensor is locked")
	}
	return offset, nil
}

func job() stage.Job[state] {
	var acts *sensors
	return stage.Job[state]{
		Kind: calibration,
		Init: func(s *state, input []byte) error { return json.Unmarshal(input, &s.Request) },
		Stages: []stage.Stage[state]{
			{Name: "measure", Weight: 1, Run: func(ctx workflow.Context, s *state) (err error) {
				s.Offset, err = stage.Do(ctx, stage.KindLocalWork, "measure", acts.Measure, s.Request.Sensor)
				return err
			}},
			{Name: "adjust", Weight: 3, Run: func(ctx workflow.Context, s *state) error {
				_, err := stage.Do(ctx, stage.KindLocalWork, "adjust", acts.Adjust, s.Offset)
				return err
			}},
		},
	}
}

func run(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, job(), in)
}

// create writes a job of the kind for a node, as an intent does.
func create(t *testing.T, s *db.Store, nodeID string) (j db.Job) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) (err error) {
		j, err = tx.CreateJob(t.Context(), db.NewJob{
			Kind: string(calibration), NodeID: &nodeID, Input: json.RawMessage(`{"sensor": "inlet"}`), Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "op"},
		})
		return err
	}))
	return j
}

// environment runs workflows of the kind over the database.
func environment(s *db.Store, outside *sensors) *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(run)
	env.RegisterActivity(&projection.Activities{Store: projection.NewDatabase(s), PublicURL: "https://slipway.example"})
	env.RegisterActivity(outside)
	return env
}

func input(j db.Job) contract.JobInput {
	return contract.JobInput{JobID: j.ID, Kind: calibration, NodeID: *j.NodeID}
}

// The job parks where its stage fails, takes an action, and ends; the database shows each step.
func TestKind_ParksTakesAnActionAndEnds(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := create(t, s, dbtest.Node(t, s).ID)
	outside := &sensors{broken: true}
	env := environment(s, outside)
	env.RegisterDelayedCallback(func() {
		parked, err := s.Job(t.Context(), j.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.JobFailedManual, parked.Status)
		require.Equal(t, "adjust", parked.FailedStage)
		outside.broken = false
		env.UpdateWorkflow(string(lifecycle.ActionRetryStage), "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { require.NoError(t, err) }, OnComplete: func(_ any, err error) { require.NoError(t, err) },
		}, contract.ActionRequest{Actor: "op", Reason: "unlocked"})
	}, 24*time.Hour)
	env.ExecuteWorkflow(run, input(j))
	require.NoError(t, env.GetWorkflowError())
	ended, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobCompleted, ended.Status)
	require.Equal(t, 100, ended.ProgressPercent)
}

// nobody is a Temporal in which no workflow is known.
type nobody struct{ sweep.Engine }

func (nobody) OpenWorkflows(context.Context, int) ([]temporalx.Open, bool, error) {
	return nil, true, nil
}

func (nobody) Look(context.Context, string) (temporalx.Execution, error) {
	return temporalx.Execution{}, nil
}

func (nobody) Ending(context.Context, string, string) (string, error) { return "was deleted", nil }

// The sweeper parks a job of the kind whose workflow was lost.
func TestKind_LostWorkflowIsParked(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := create(t, s, dbtest.Node(t, s).ID)
	in := input(j)
	rows, err := s.ClaimOutbox(t.Context(), "relay", 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, s.CompleteOutbox(t.Context(), rows[0].ID), "its workflow was started")
	loaded, err := projection.NewDatabase(s).TakeJob(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobPending, loaded.Status)
	_, err = projection.NewDatabase(s).ProjectJob(t.Context(), contract.Projection{
		JobID: j.ID, Kind: calibration, NodeID: in.NodeID, Seq: 1, Status: lifecycle.JobRunning, Stage: "measure", StageOrdinal: 1,
		Stages: []lifecycle.StageRow{{Ordinal: 1, Name: "measure", State: lifecycle.StageRunning, Attempts: 1}, {Ordinal: 2, Name: "adjust", State: lifecycle.StagePending}},
	})
	require.NoError(t, err)
	acts := &sweep.Activities{Store: s, Engine: nobody{}, Log: slog.New(slog.DiscardHandler), Pace: sweep.Pace{Settle: time.Nanosecond, Quiet: time.Nanosecond, Again: time.Nanosecond}}
	require.Eventually(t, func() bool {
		_, err := acts.SweepJobs(t.Context())
		require.NoError(t, err)
		got, err := s.Job(t.Context(), j.ID)
		require.NoError(t, err)
		return got.Status.Parked()
	}, runenv.Patience(time.Minute), 10*time.Millisecond)
	require.Equal(t, contract.SubjectNode, subject.Of(calibration).Kind)
}
