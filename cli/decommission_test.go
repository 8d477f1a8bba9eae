package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
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
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// leaver stands in for the workers that plan decommissions.
type leaver struct {
	disks string // what they see
	asked int
	// flips: what they see changes after each look.
	flips bool
}

func (l *leaver) ExecuteWorkflow(_ context.Context, _ client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	in, ok := args[0].(contract.DecommissionPlanInput)
	if !ok {
		return nil, errors.New("no plan input")
	}
	l.asked++
	if l.flips {
		l.disks += "I"
	}
	return leaverRun{in: in, disks: l.disks}, nil
}

func (*leaver) DescribeTaskQueue(context.Context, string, enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{}, nil
}

type leaverRun struct {
	client.WorkflowRun
	in    contract.DecommissionPlanInput
	disks string
}

func (r leaverRun) Get(_ context.Context, into any) error {
	steps := []string{"erase disks " + r.disks}
	if r.in.Hardware != nil {
		steps = append(steps, "put the node on "+strings.Join(r.in.Hardware.MACs, ", "))
	}
	raw, err := json.Marshal(contract.Plan{
		Kind: r.in.Job.Kind, Subject: contract.PlanSubject{JobID: r.in.Job.JobID, NodeID: r.in.Job.NodeID}, ObservedAt: time.Now(),
		Rows: []contract.PlanRow{{Ordinal: 1, Stage: lifecycle.StageScrubGPU, Planned: contract.PlannedRun, Steps: steps}},
	}.Concluded())
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// leaverWorld is a server with nodes that can be taken out of service.
func leaverWorld(t *testing.T) (*world, *leaver) {
	t.Helper()
	w, l := newWorld(t), &leaver{disks: "I"}
	s, err := httpapi.New(httpapi.Config{API: op.Config{Store: w.store}, REST: rest.Config{Temporal: w, Secrets: w.sealed, Plans: l}})
	require.NoError(t, err)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = srv.URL, w.token("admin")
	return w, l
}

func status(t *testing.T, w *world, id string) lifecycle.NodeStatus {
	t.Helper()
	n, err := w.store.Node(t.Context(), id)
	require.NoError(t, err)
	return n.Status
}

func TestADecommissionIsShownAskedForAndStarted(t *testing.T) {
	t.Parallel()
	w, l := leaverWorld(t)
	n := dbtest.Node(t, w.store, dbtest.Active())
	cmd := func(in string, more ...string) said {
		return w.run(in, append([]string{"node", "decommission", n.Hostname, "--mode", "soft_reset"}, more...)...)
	}
	require.Contains(t, cmd("", "--plan").exits(0).out, "erase disks I")
	none := cmd("").exits(cli.ExitUsage)
	require.Contains(t, none.err, "--yes")
	other := cmd("no\n").exits(cli.ExitRefused)
	require.Contains(t, other.out, "erase disks I", "it was shown first")
	require.Contains(t, other.err, "nothing was done")
	require.Equal(t, lifecycle.NodeActive, status(t, w, n.ID))
	l.flips = true
	require.Contains(t, cmd(n.Hostname+"\n").exits(cli.ExitRefused).err, "scrub_gpu: was run: erase disks II; now run: erase disks III")
	l.flips = false
	asked := l.asked
	out := cmd(n.Hostname+"\n", "--reason", "the tenant left", "--idempotency-key", "k").exits(0).out
	require.Contains(t, out, "soft_reset")
	require.Equal(t, asked+2, l.asked)
	require.Equal(t, lifecycle.NodeDraining, status(t, w, n.ID))
	require.Contains(t, cmd("", "--yes").exits(cli.ExitRefused).err, "holds node")

	list := w.run("", "decommission", "list", "--node", n.Hostname).exits(0)
	require.Contains(t, list.out, "soft_reset")
	id := w.run("", "decommission", "show", n.Hostname, "-o", "json").exits(0).id()
	require.Contains(t, list.out, id)
	require.Contains(t, w.run("", "decommission", "show", id).exits(0).out, "validate_clean_node")
	require.Contains(t, w.run("", "job", "plan", id).exits(0).out, "erase disks")
	require.Contains(t, w.run("", "node", "show", n.Hostname).exits(0).out, "resume")
}

func TestHowADecommissionIsNotAskedFor(t *testing.T) {
	t.Parallel()
	w, l := leaverWorld(t)
	n := dbtest.Node(t, w.store, dbtest.Active())
	for _, args := range [][]string{
		{"node", "decommission", n.Hostname}, {"node", "decommission", n.Hostname, "--mode", "drain"}, {"node", "decommission", "--mode", "soft_reset"},
		{"node", "decommission", n.Hostname, "--mode", "soft_reset", "--plan", "--yes"}, {"node", "decommission", n.Hostname, "--mode", "soft_reset", "-o", "json"},
	} {
		w.run("", args...).exits(cli.ExitUsage)
	}
	require.LessOrEqual(t, l.asked, 1)
	w.run("", "node", "decommission", "gpu-none", "--mode", "soft_reset").exits(cli.ExitNotFound)
	w.run("", "decommission", "show", n.Hostname).exits(cli.ExitNotFound)
	w.env["SLIPWAY_TOKEN"] = w.token("operator")
	w.run("", "node", "decommission", n.Hostname, "--mode", "full_decommission", "--yes").exits(cli.ExitUnauthorised)
	require.Contains(t, w.run("", "node", "decommission", n.Hostname, "--mode", "soft_reset", "--yes", "-o", "json").exits(0).out, `"mode": "soft_reset"`)
}

func TestNodeActions(t *testing.T) {
	t.Parallel()
	w, _ := leaverWorld(t)
	n := dbtest.Node(t, w.store, dbtest.Active())
	do := func(args ...string) said { return w.run("", append([]string{"node"}, args...)...) }
	do("quarantine", n.Hostname).exits(cli.ExitUsage)
	require.Contains(t, do("quarantine", n.Hostname, "--reason", "smells of burning").exits(0).out, "the node is quarantined")
	require.Contains(t, do("quarantine", n.Hostname, "--reason", "still").exits(0).out, "nothing to do")
	require.Contains(t, do("show", n.Hostname).exits(0).out, "unquarantine (needs a healthy agent: ")
	require.Contains(t, do("unquarantine", n.Hostname).exits(cli.ExitRefused).err, "no agent has enrolled")
	require.Contains(t, do("reactivate", n.Hostname).exits(cli.ExitRefused).err, "allowed now: drain, retire, unquarantine")
	started := do("drain", n.Hostname, "--grace", "60", "--reason", "maintenance").exits(0)
	require.Contains(t, started.out, "the node is draining")
	job, err := w.store.LiveJobOfNode(t.Context(), n.ID)
	require.NoError(t, err)
	var in contract.DecommissionInput
	require.NoError(t, json.Unmarshal(job.Input, &in))
	require.Equal(t, contract.DecommissionInput{
		Mode: lifecycle.ModeDrain, NodeID: n.ID, Hostname: n.Hostname, From: lifecycle.NodeQuarantined, Reason: "maintenance", GraceSeconds: 60,
	}, in)
	require.Contains(t, do("resume", n.Hostname).exits(0).out, "nothing to do: job "+job.ID)
	require.Contains(t, w.run("", "job", "list", "--node", n.Hostname).exits(0).out, "node_operation: drain")
	require.Regexp(t, `kind +node_operation: drain\n`, w.run("", "job", "show", job.ID).exits(0).out)
	require.Contains(t, do("retire", n.Hostname).exits(cli.ExitRefused).err, job.ID)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
	require.Contains(t, do("resume", n.Hostname).exits(0).out, "was created for it")
	job, err = w.store.LiveJobOfNode(t.Context(), n.ID)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(job.Input, &in))
	require.Equal(t, lifecycle.NodeQuarantined, in.From, "where a cancel leads back to")
	for _, info := range lifecycle.NodeActions() {
		require.Contains(t, do("--help").exits(0).out, "\n  "+string(info.Action)+" ")
		require.Contains(t, do(string(info.Action), "--help").exits(0).out, "For a node that is "+string(info.From[0]))
	}
	gone := dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeRetired))
	w.env["SLIPWAY_TOKEN"] = w.token("operator")
	do("remove", gone.Hostname).exits(cli.ExitUnauthorised)
	w.env["SLIPWAY_TOKEN"] = w.token("admin")
	// Nobody runs its workflow: an operator cancels it, and watching tells.
	require.Contains(t, do("remove", gone.Hostname).exits(0).out, "the node is removing")
	require.Equal(t, 0, w.run("", "job", "cancel", gone.Hostname).code)
	require.Equal(t, lifecycle.NodeRetired, status(t, w, gone.ID))
}
