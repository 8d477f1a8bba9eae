package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestTemporalCLI_FinishesEveryJob checks that an operator who has only the Temporal CLI can bring
// a job in each failed state, frozen, terminated or reset, to its end, with each outside effect
// once.
func TestTemporalCLI_FinishesEveryJob(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	bin := temporalCLI(t)
	cases := map[string]func(*testing.T, *cliCase){
		"failed_manual_intervention: update retry_stage":       finishManualByUpdate,
		"failed_retryable: signal restart_clean":               finishRetryableBySignal,
		"failed_manual_intervention: workflow cancel":          finishByCancel,
		"compensation failed: update cancel again":             finishCompensation,
		"frozen: update, then signal resume":                   finishFrozen,
		"terminated: swept, started again, update resume":      finishTerminated,
		"terminated while parked: reset, update retry_stage":   finishTerminatedByReset,
		"running: reset to the first workflow task":            finishReset,
		"refused and malformed updates say what to do instead": finishRefused,
	}
	w := newWorld(t, stack.Options{Count: len(cases), Speed: 200})
	token, err := op.CreateToken(t.Context(), w.App.Store, "temporal-cli", []string{"operator"}, time.Hour)
	require.NoError(t, err)
	machines := w.Sims.Fleet.All()
	i := 0
	for name, run := range cases {
		m := machines[i]
		i++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, &cliCase{world: w, m: m, bin: bin, token: token})
		})
	}
}

// temporalCLI finds the CLI that `make tools` builds, or the system's.
func temporalCLI(t *testing.T) string {
	t.Helper()
	built, err := filepath.Abs(filepath.Join("..", "..", "bin", "temporal"))
	require.NoError(t, err)
	if _, err := os.Stat(built); err == nil {
		return built
	}
	if found, err := exec.LookPath("temporal"); err == nil {
		return found
	}
	if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
		t.Fatal("the Temporal CLI is not built and SLIPWAY_REQUIRE_PEERS=1 wants it: make bin/temporal")
	}
	t.Skip("the Temporal CLI is not built: make bin/temporal")
	return ""
}

// cliCase is one failed job and the operator with the CLI.
type cliCase struct {
	*world
	m     *simhw.Machine
	bin   string
	token string // for the codec server
	job   db.Job
}

const operator = `{"actor": "night", "reason": "tested"}`

// cli runs the Temporal CLI and returns what it prints.
func (r *cliCase) cli(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append(args, "--address", r.Config.Temporal.Address, "--namespace", r.Config.Temporal.Namespace, "--workflow-id", r.job.WorkflowID,
		"--codec-endpoint", r.Config.API.PublicURL+"/codec", "--codec-auth", "Bearer "+r.token)
	out, err := exec.CommandContext(t.Context(), r.bin, args...).CombinedOutput()
	t.Logf("temporal %v\n%s", args[:4], out)
	return string(out), err
}

func (r *cliCase) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.cli(t, args...)
	require.NoError(t, err, out)
	return out
}

func (r *cliCase) update(t *testing.T, a lifecycle.Action) {
	t.Helper()
	r.must(t, "workflow", "update", "execute", "--name", string(a), "--input", operator)
}

func (r *cliCase) signal(t *testing.T, a lifecycle.Action) {
	t.Helper()
	r.must(t, "workflow", "signal", "--name", string(a), "--input", operator)
}

// injectFault adds a fault for the machine and returns how to remove it.
func (r *cliCase) injectFault(t *testing.T, f maassim.Fault) (remove func()) {
	t.Helper()
	f.Machine = r.m.Spec().NICs[0].MAC
	id, err := r.Sims.MAAS.AddFault(f)
	require.NoError(t, err)
	return func() { r.Sims.MAAS.ClearFaults(id) }
}

func (r *cliCase) parks(t *testing.T, status lifecycle.JobStatus, class lifecycle.FailureClass) {
	t.Helper()
	j := r.ends(t, r.job.ID, 3*time.Minute)
	require.Equal(t, status, j.Status, "%s: %s: %s", j.FailedStage, j.FailureClass, j.Message)
	require.Equal(t, class, j.FailureClass, j.Message)
}

// reaches waits for an end that is not a park, which may still be shown for a
// moment after an action.
func (r *cliCase) reaches(t *testing.T, want lifecycle.JobStatus) {
	t.Helper()
	require.Eventually(t, func() bool { return r.now(t).Status == want }, runenv.Patience(3*time.Minute), 200*time.Millisecond)
}

func (r *cliCase) now(t *testing.T) db.Job {
	t.Helper()
	return r.world.job(t, r.job.ID)
}

func (r *cliCase) at(t *testing.T, stage string) {
	t.Helper()
	require.Eventually(t, func() bool { return r.now(t).Stage == stage }, runenv.Patience(2*time.Minute), 50*time.Millisecond)
}

// once: a record, a commissioning and as many deployments as were asked for.
func (r *cliCase) once(t *testing.T, deploys int) {
	t.Helper()
	c := r.Sims.MAAS.Counters().Machines[r.systemID(t, r.m)]
	require.Equal(t, 1, c["creates"], "creates")
	require.Equal(t, 1, c["commissions"], "commissions")
	require.Equal(t, deploys, c["deploys"], "deploys")
}

func forbidden(op string) maassim.Fault { return maassim.Fault{Name: "http_403", Op: op, Count: -1} }

func finishManualByUpdate(t *testing.T, r *cliCase) {
	removeFault := r.injectFault(t, forbidden("deploy"))
	r.job = r.onboard(t, r.m)
	r.parks(t, lifecycle.JobFailedManual, lifecycle.FailMAASRejected)
	removeFault()
	r.update(t, lifecycle.ActionRetryStage)
	r.reaches(t, lifecycle.JobCompleted)
	r.once(t, 1)
}

func finishRetryableBySignal(t *testing.T, r *cliCase) {
	r.injectFault(t, maassim.Fault{Name: "deploy_curtin_fail"})
	r.job = r.onboard(t, r.m)
	r.parks(t, lifecycle.JobFailedRetryable, lifecycle.FailDeploy)
	r.signal(t, lifecycle.ActionRestartClean)
	r.reaches(t, lifecycle.JobCompleted)
}

func finishByCancel(t *testing.T, r *cliCase) {
	r.injectFault(t, forbidden("deploy"))
	r.job = r.onboard(t, r.m)
	r.parks(t, lifecycle.JobFailedManual, lifecycle.FailMAASRejected)
	r.must(t, "workflow", "cancel")
	r.reaches(t, lifecycle.JobCancelled)
	r.closes(t, enums.WORKFLOW_EXECUTION_STATUS_CANCELED)
}

func finishCompensation(t *testing.T, r *cliCase) {
	removeDeployFault := r.injectFault(t, forbidden("deploy"))
	r.job = r.onboard(t, r.m)
	r.parks(t, lifecycle.JobFailedManual, lifecycle.FailMAASRejected)
	removeDeleteFault := r.injectFault(t, forbidden("delete"))
	r.update(t, lifecycle.ActionCancel)
	require.Eventually(t, func() bool { return r.now(t).FailureClass == lifecycle.FailCompensation }, runenv.Patience(2*time.Minute), 100*time.Millisecond)
	require.Equal(t, lifecycle.JobFailedManual, r.now(t).Status)
	removeDeployFault()
	removeDeleteFault()
	r.update(t, lifecycle.ActionCancel)
	r.reaches(t, lifecycle.JobCancelled)
}

func finishFrozen(t *testing.T, r *cliCase) {
	r.job = r.onboard(t, r.m)
	r.at(t, lifecycle.StageWaitReady)
	r.update(t, lifecycle.ActionMarkManual)
	r.parks(t, lifecycle.JobFailedManual, lifecycle.FailFrozen)
	r.signal(t, lifecycle.ActionResume)
	r.reaches(t, lifecycle.JobCompleted)
	r.once(t, 1)
}

func finishTerminated(t *testing.T, r *cliCase) {
	r.job = r.onboard(t, r.m)
	r.at(t, lifecycle.StageWaitReady)
	r.must(t, "workflow", "terminate", "--reason", "tested")
	began := time.Now()
	require.Eventually(t, func() bool { return r.now(t).FailureClass == lifecycle.FailWorkflowLost }, runenv.Patience(time.Minute), 100*time.Millisecond)
	t.Logf("swept %s after the termination", time.Since(began).Round(time.Second))
	require.Equal(t, lifecycle.JobFailedRetryable, r.now(t).Status)
	j := r.now(t)
	in, err := json.Marshal(contract.JobInput{JobID: j.ID, Kind: contract.KindOnboarding, NodeID: *j.NodeID, SiteID: *j.SiteID})
	require.NoError(t, err)
	r.must(t, "workflow", "start", "--type", contract.WorkflowOf(contract.KindOnboarding), "--task-queue", r.Config.Temporal.TaskQueue, "--input", string(in))
	r.update(t, lifecycle.ActionResume)
	r.reaches(t, lifecycle.JobCompleted)
	r.once(t, 1)
}

func finishTerminatedByReset(t *testing.T, r *cliCase) {
	removeFault := r.injectFault(t, forbidden("deploy"))
	r.job = r.onboard(t, r.m)
	r.parks(t, lifecycle.JobFailedManual, lifecycle.FailMAASRejected)
	r.must(t, "workflow", "terminate", "--reason", "tested")
	removeFault()
	r.must(t, "workflow", "reset", "--type", "LastWorkflowTask", "--reason", "terminated by mistake")
	r.update(t, lifecycle.ActionRetryStage)
	r.reaches(t, lifecycle.JobCompleted)
	r.once(t, 1)
}

func finishReset(t *testing.T, r *cliCase) {
	r.job = r.onboard(t, r.m)
	r.at(t, lifecycle.StageWaitReady)
	r.must(t, "workflow", "reset", "--type", "FirstWorkflowTask", "--reason", "tested")
	r.reaches(t, lifecycle.JobCompleted)
	r.once(t, 1)
}

func finishRefused(t *testing.T, r *cliCase) {
	removeFault := r.injectFault(t, forbidden("deploy"))
	r.job = r.onboard(t, r.m)
	r.at(t, lifecycle.StageWaitReady)
	out, err := r.cli(t, "workflow", "update", "execute", "--name", "retry_stage", "--input", operator)
	require.Error(t, err)
	require.Contains(t, out, "it applies only to a job that has failed and waits")
	require.Contains(t, out, "mark_manual_intervention_required", "what is allowed instead")
	out, err = r.cli(t, "workflow", "update", "execute", "--name", "resume", "--input", `{"reason": "no name"}`)
	require.Error(t, err)
	require.Contains(t, out, "actor is missing: pass {", "how the argument must look")
	r.parks(t, lifecycle.JobFailedManual, lifecycle.FailMAASRejected)
	removeFault()
	r.update(t, lifecycle.ActionRerun)
	r.reaches(t, lifecycle.JobCompleted)
	r.once(t, 1)
}

func (r *cliCase) closes(t *testing.T, want enums.WorkflowExecutionStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := r.App.Temporal.DescribeWorkflowExecution(t.Context(), r.job.WorkflowID, "")
		return err == nil && d.GetWorkflowExecutionInfo().GetStatus() == want
	}, runenv.Patience(time.Minute), 200*time.Millisecond)
}
