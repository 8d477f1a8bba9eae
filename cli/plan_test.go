package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// planner stands in for the workers that make plans.
type planner struct{ logins []bool }

func (p *planner) ExecuteWorkflow(_ context.Context, _ client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	in, ok := args[0].(contract.PlanInput)
	if !ok {
		return nil, errors.New("no plan input")
	}
	p.logins = append(p.logins, in.Login)
	return planRun{in: in}, nil
}

func (*planner) DescribeTaskQueue(context.Context, string, enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{}, nil
}

type planRun struct {
	client.WorkflowRun
	in contract.PlanInput
}

func (r planRun) Get(_ context.Context, into any) error {
	raw, err := json.Marshal(contract.Plan{
		Kind: r.in.Kind, Subject: contract.PlanSubject{JobID: r.in.Job.JobID, Hostname: "gpu-1"}, ObservedAt: time.Now(),
		Observed: &lifecycle.Observed{MAAS: "Ready", Power: "off", Agent: "none"},
		Rows: []contract.PlanRow{
			{Ordinal: 1, Stage: lifecycle.StageCommission, Planned: contract.PlannedRun, Steps: []string{"commission gpu-1", "wave a\x1b[2Jhand"}, Observed: "MAAS New"},
			{Ordinal: 2, Stage: lifecycle.StageConfigureStorage, Planned: contract.PlannedFail,
				Failure: contract.NewPlanFailure(contract.Failure{Class: lifecycle.FailBootDiskNotFound, Message: "no disk matches"})},
			{Ordinal: 3, Stage: lifecycle.StageEnsureHWSync, Planned: contract.PlannedFail,
				Failure: contract.NewPlanFailure(contract.Failure{Class: lifecycle.FailSSHSeed, Message: "no login"})},
			{Ordinal: 4, Stage: lifecycle.StageApplyRoCE, Planned: contract.PlannedSkip, Why: "the profile does not enable RoCE"},
		},
	}.Concluded())
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// planning adds a server that makes plans.
func planning(t *testing.T) (*world, *planner) {
	t.Helper()
	w, p := ready(t), &planner{}
	sealed, err := secrets.Open(t.Context(), w.store, secrets.Keeper{URL: "base64key://", KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sealed.Close() })
	s, err := httpapi.New(httpapi.Config{API: op.Config{Store: w.store}, REST: rest.Config{Temporal: w, Secrets: sealed, Plans: p}})
	require.NoError(t, err)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	w.run(w.token("operator")+"\n", "login", "--server", srv.URL, "--token-stdin", "--name", "plans").exits(0)
	return w, p
}

func TestDryRunPrintsThePlan(t *testing.T) {
	t.Parallel()
	w, p := planning(t)
	onboard := []string{"node", "onboard", "--site", "north", "--profile", "standard", "--sku", "h100x8", "--hostname", "gpu-1", "--bmc", "10.0.0.1", "--credential", "bmc/gpu-1"}
	dry := func(more ...string) said { return w.run("", append(append([]string{}, onboard...), more...)...) }
	out := dry("--dry-run").exits(0).out
	for _, text := range []string{
		"this is a dry run", "MAAS Ready, power off", "The job would park at configure_storage: boot_disk_not_found", "commission gpu-1", "now: MAAS New",
		"boot_disk_not_found: no disk matches", "would park as failed_manual_intervention", "would be tried", "skip", "the profile does not enable RoCE",
	} {
		require.Contains(t, out, text)
	}
	require.NotContains(t, out, "\x1b", "what a region wrote does not reach the terminal")
	require.Contains(t, w.run("", "job", "list").exits(0).out, "ID")
	require.NotContains(t, w.run("", "job", "list").exits(0).out, "gpu-1", "nothing was started")
	var plan struct {
		Hash string `json:"plan_hash"`
	}
	require.NoError(t, json.Unmarshal([]byte(dry("--dry-run", "--login", "-o", "json").exits(0).out), &plan))
	require.Len(t, plan.Hash, 64)
	require.Equal(t, []bool{false, true}, p.logins)
	dry("--login").exits(cli.ExitUsage)
	dry("--dry-run", "--watch").exits(cli.ExitUsage)
	w.run("", "node", "onboard", "--file", "x.yaml", "--dry-run").exits(cli.ExitUsage)
}

func TestJobPlan(t *testing.T) {
	t.Parallel()
	w, p := planning(t)
	id := w.run("", "-o", "json", "node", "onboard", "--site", "north", "--profile", "standard", "--sku", "h100x8", "--hostname", "gpu-1",
		"--bmc", "10.0.0.1", "--credential", "bmc/gpu-1").exits(0).id()
	require.Contains(t, w.run("", "job", "plan", id).exits(0).out, id)
	require.Contains(t, w.run("", "job", "plan", "gpu-1", "--login").exits(0).out, id, "by hostname too")
	require.Equal(t, []bool{false, true}, p.logins)
	w.run("", "job", "plan", "job_00000000-0000-7000-8000-000000000000").exits(cli.ExitNotFound)
	w.run("", "job", "plan").exits(cli.ExitUsage)
	w.run("", "--context", "dev", "job", "plan", id).exits(cli.ExitUnreachable)
}
