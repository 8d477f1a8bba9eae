package stage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// exampleState is what the job knows. It is stored with every projection, so it is plain data.
type exampleState struct {
	Hostname string `json:"hostname"`
	Address  string `json:"address,omitempty"`
}

// exampleActivities do the outside work. Each reads before it changes anything.
type exampleActivities struct{ broken bool }

func (a *exampleActivities) ReserveAddress(_ context.Context, hostname string) (string, error) {
	fmt.Println("reserve an address for", hostname)
	return "10.0.0.7", nil
}

func (a *exampleActivities) WriteRecord(_ context.Context, address string) (string, error) {
	if a.broken {
		return "", stagetest.FailureSaying(lifecycle.FailStateDisagreement, "the record is locked")
	}
	fmt.Println("write the record of", address)
	return address, nil
}

// exampleJob is a kind of job: its state, its stages in order, and what each does outside.
func exampleJob() stage.Job[exampleState] {
	var acts *exampleActivities // names the activities; the worker has the value
	return stage.Job[exampleState]{
		Kind: contract.KindOnboarding,
		Init: func(s *exampleState, request []byte) error { return json.Unmarshal(request, s) },
		Stages: []stage.Stage[exampleState]{
			{
				Name: "reserve_address", Weight: 1, Deadline: time.Minute,
				Skip: func(s *exampleState) string {
					if s.Address != "" {
						return "the request names an address"
					}
					return ""
				},
				Run: func(ctx workflow.Context, s *exampleState) (err error) {
					s.Address, err = stage.Do(ctx, stage.KindLocalWork, "reserve an address", acts.ReserveAddress, s.Hostname)
					return err
				},
			},
			{
				Name: "write_record", Weight: 1, Deadline: time.Minute,
				Run: func(ctx workflow.Context, s *exampleState) error {
					_, err := stage.Do(ctx, stage.KindLocalWork, "write the record", acts.WriteRecord, s.Address)
					return err
				},
			},
		},
	}
}

// A kind of job is a value; Run is its whole workflow. The second stage fails with a class that no
// retry helps with, so the job parks until an operator sends an action.
func ExampleRun() {
	store, outside := &stagetest.Store{}, &exampleActivities{broken: true}
	store.Update(func(job *contract.Snapshot) {
		job.Status, job.Input = lifecycle.JobPending, json.RawMessage(`{"hostname":"gpu-1"}`)
	})
	store.OnProject = func(p contract.Projection) {
		if p.Failure != nil {
			fmt.Println(p.Status, "at", p.Stage+":", p.Failure.Message)
		}
	}
	run := func(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
		return stage.Run(ctx, exampleJob(), in)
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivity(&projection.Activities{Store: store, PublicURL: "https://slipway.example"})
	env.RegisterActivity(outside)
	env.RegisterWorkflow(run)
	env.RegisterDelayedCallback(func() { // a day later
		outside.broken = false
		env.UpdateWorkflow(string(lifecycle.ActionRetryStage), "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { fmt.Println("refused:", err) }, OnComplete: func(any, error) {},
		}, contract.ActionRequest{Actor: "anna", Reason: "the record is unlocked"})
	}, 24*time.Hour)
	env.ExecuteWorkflow(run, contract.JobInput{JobID: "job_1", Kind: contract.KindOnboarding, NodeID: "node_1", SiteID: "site_1"})
	fmt.Println(env.GetWorkflowError(), store.Last().Status)
	// Output:
	// reserve an address for gpu-1
	// failed_manual_intervention at write_record: the record is locked
	// write the record of 10.0.0.7
	// <nil> completed
}
