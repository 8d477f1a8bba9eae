package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// classCase is one row on a server of its own.
type classCase struct {
	*world
	t       *recorder
	m       *simhw.Machine
	host    string
	profile db.Profile
	bmcID   string
	job     db.Job
	faults  []int // in the MAAS simulator
}

// classRow is one row of the table: a fault outside Slipway, how the job that meets it parks, and
// how the fault is removed. The recommended action then has to finish the job.
type classRow struct {
	class lifecycle.FailureClass
	stage string // where the job parks
	says  string // regexp of the message
	tune  func(*spec.ProfileSpec)
	// pin is the BMC's approved pin, and login the name of a secret that is not stored, where they
	// are not the usual ones.
	pin, login string
	// vendor makes the server, where not every vendor's BMC reports the fault.
	vendor string
	// fault is in place before the job begins, later while it runs.
	fault func(*classCase)
	later func(*classCase)
	// first is the class in which the job parks before; its recommended action does not help.
	first  lifecycle.FailureClass
	repair func(*classCase)
	ends   lifecycle.JobStatus // completed when empty
	// node is the status in which a completed job leaves the node, active when empty.
	node lifecycle.NodeStatus
}

// patience bounds each wait.
const patience = 2 * time.Minute

// classRowsOfAGroup is how many rows of each group of classes `make test` plays; `make proof` plays
// all of them.
const classRowsOfAGroup = 3

// TestClasses injects each fault into a server of its own, all at once. Each job parks with its
// class, message, next step, recommended action and runbook; the fault is removed, the recommended
// action taken, and the job ends. `make test` plays a sample of the rows of each group.
//
// In `make proof` it runs beside no other test of this package: thirty servers are enough for one
// machine, and some rows are about deadlines.
func TestClasses(t *testing.T) { //nolint:paralleltest // see above
	if !runenv.Proof() {
		t.Parallel()
	}
	var table []classRow
	for _, group := range classGroups() {
		table = append(table, runenv.Sample(t, rowsVar, group.name, group.rows, classRowsOfAGroup)...)
	}
	results := runClassRows(t, table)
	for i, row := range table {
		t.Run(string(row.class), func(t *testing.T) { //nolint:paralleltest // it only reports
			for _, failure := range results[i].failures {
				t.Error(failure)
			}
			note(t, "%s", results[i].took.Round(time.Millisecond))
		})
	}
}

// runClassRows runs the rows on one site, a server each, and returns what each recorded.
func runClassRows(t *testing.T, table []classRow) []*recorder {
	t.Helper()
	var specs []simhw.Spec
	first := machineNumbers(len(table))
	for i, row := range table {
		vendor := row.vendor
		if vendor == "" {
			vendor = simhw.Vendors[i%len(simhw.Vendors)]
		}
		specs = append(specs, simhw.GPUServer(vendor, first+i))
	}
	w := newWorld(t, stack.Options{
		Specs: specs,
		// Slow enough that what others do to a machine meets the job where the row
		// says, on a busy machine too.
		Durations: maassim.Durations{DeployTimeout: 40 * time.Minute, NetBoot: 10 * time.Minute, Commission: 30 * time.Minute, NodeTimeout: 2 * time.Hour},
	})
	// All at once, whatever -parallel says: the faults mostly wait.
	var all sync.WaitGroup
	results := make([]*recorder, len(table))
	for i, row := range table {
		m := w.Sims.Fleet.ByID(specs[i].ID)
		results[i] = &recorder{ctx: t.Context()}
		c := &classCase{world: w, t: results[i], m: m, host: host(m)}
		all.Go(func() {
			began := time.Now()
			defer func() { c.t.took = time.Since(began) }()
			row.run(c)
		})
	}
	all.Wait()
	return results
}

// recorder records what a row reports to its test from a goroutine of its own.
type recorder struct {
	ctx      context.Context //nolint:containedctx // it stands for a testing.T
	failures []string
	took     time.Duration
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Helper()                  {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) FailNow() { runtime.Goexit() }

func (row classRow) run(c *classCase) {
	c.prepare(row)
	if row.fault != nil {
		row.fault(c)
	}
	c.accept(row)
	if row.later != nil {
		row.later(c)
	}
	if row.first != "" {
		c.parks(row.first)
		c.takeRecommendedAction()
	}
	j := c.parks(row.class)
	require.Equal(c.t, row.stage, j.FailedStage)
	require.Regexp(c.t, regexp.MustCompile(row.says), j.Message)
	parked := lifecycle.NodeEnrolling // whatever the job waits for
	if lifecycle.Failure(row.class).NodeUnsafe {
		parked = lifecycle.NodeQuarantined
	}
	if j.Kind == string(contract.KindOnboarding) || parked == lifecycle.NodeQuarantined {
		node, err := c.App.Store.Node(c.t.Context(), *j.NodeID)
		require.NoError(c.t, err)
		require.Equal(c.t, parked, node.Status)
	}
	c.clearFaults()
	if row.repair != nil {
		row.repair(c)
	}
	c.takeRecommendedAction()
	c.waitEnd(row.ends, row.node)
}

// parks waits until the job stands and compares it with what lifecycle says of
// the class.
func (c *classCase) parks(class lifecycle.FailureClass) db.Job {
	c.t.Helper()
	info := lifecycle.Failure(class)
	j := c.waitParked()
	require.Equal(c.t, class, j.FailureClass, missed(j)+"%s at %s: %s", j.Status, j.FailedStage, j.Message)
	require.Equal(c.t, info.ParkStatus(), j.Status)
	require.Equal(c.t, info.Recommended, j.RecommendedAction)
	require.Equal(c.t, info.Next, j.NextStep)
	require.FileExists(c.t, filepath.Join("..", "..", info.Runbook()))
	c.job = j
	return j
}

// missed returns the mark of a missed deadline for a job whose stage did not end in time, so that
// its row is played again alone.
func missed(j db.Job) string {
	if slices.Contains(deadlineClasses, j.FailureClass) {
		return runenv.Deadline
	}
	return ""
}

// deadlineClasses are the classes of stages that did not end in time.
var deadlineClasses = []lifecycle.FailureClass{lifecycle.FailStageDeadline, lifecycle.FailDeployTimeout, lifecycle.FailAgentNotEnrolled}

// waitParked waits until the job is parked or has ended.
func (c *classCase) waitParked() db.Job {
	c.t.Helper()
	var j db.Job
	c.eventually("the job is parked or has ended", func() bool {
		got, stands := c.stands()
		j = got
		return stands
	})
	return j
}

// stands reads the job, and reports whether it is parked or has ended.
func (c *classCase) stands() (db.Job, bool) {
	j, err := c.App.Store.Job(c.t.Context(), c.job.ID)
	return j, err == nil && (j.Status.Parked() || lifecycle.Job.Terminal(j.Status))
}

// takeRecommendedAction takes the action that the job itself recommends, as a Temporal
// Update, and waits until the job has moved.
func (c *classCase) takeRecommendedAction() {
	c.t.Helper()
	c.act(c.job.RecommendedAction)
	c.eventually(string(c.job.RecommendedAction)+" moves the job", func() bool {
		j, err := c.App.Store.Job(c.t.Context(), c.job.ID)
		return err == nil && j.Seq > c.job.Seq && (!j.Status.Parked() || j.FailureClass != c.job.FailureClass)
	})
}

func (c *classCase) act(a lifecycle.Action) {
	c.t.Helper()
	j, err := c.App.Store.Job(c.t.Context(), c.job.ID)
	require.NoError(c.t, err)
	ctx, cancel := context.WithTimeout(c.t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	h, err := c.App.Temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: j.WorkflowID, UpdateName: string(a), WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{contract.ActionRequest{
			Actor: "test", Reason: "the fault is removed", IdempotencyKey: fmt.Sprintf("%s/%d/%s", j.ID, j.Seq, a), // asked again by a client whose answer was lost
		}},
	})
	require.NoError(c.t, err, a)
	var res contract.ActionResult
	require.NoError(c.t, h.Get(ctx, &res), a)
}

// waitEnd waits for the job's end. The agent ends with it: thirty of them are
// many for one machine.
func (c *classCase) waitEnd(want lifecycle.JobStatus, becomes lifecycle.NodeStatus) {
	c.t.Helper()
	if becomes == "" {
		becomes = lifecycle.NodeActive
	}
	if want == "" {
		want = lifecycle.JobCompleted
	}
	j := c.waitParked()
	require.Equal(c.t, want, j.Status, missed(j)+"after %s: %s at %s: %s", c.job.RecommendedAction, j.FailureClass, j.FailedStage, j.Message)
	_, err := c.App.Secrets.Resolve(c.t.Context(), providers.SecretRef(cloudinit.MachineTokenName(*j.NodeID)), providers.OwnUse())
	require.True(c.t, providers.IsKind(err, providers.KindNotFound), "the machine's MAAS token is still stored: %v", err)
	if want == lifecycle.JobCompleted {
		c.eventually("the node is "+string(becomes), func() bool { // by a heartbeat, after some jobs
			node, err := c.App.Store.Node(c.t.Context(), *j.NodeID)
			return err == nil && node.Status == becomes
		})
	}
	require.NoError(c.t, c.Sims.Nodes[c.m.Spec().ID].SetFaults(simnode.Faults{AgentDown: true}))
}

// prepare makes the row's own profile.
func (c *classCase) prepare(row classRow) {
	c.t.Helper()
	spec := c.ProfileSpec()
	if row.tune != nil {
		row.tune(&spec)
	}
	var err error
	c.profile, err = c.App.Store.CreateProfile(c.t.Context(), c.site.ID, c.host, spec)
	require.NoError(c.t, err)
}

// accept accepts the onboarding as the API does, in one transaction.
func (c *classCase) accept(row classRow) {
	c.t.Helper()
	login := row.login
	if login == "" {
		login = stack.BMCSecret(c.m.Spec().ID)
	} else {
		login += "-" + c.host
	}
	ctx := c.t.Context()
	request := c.request(c.m, c.host)
	request.SiteID, request.Site = c.site.ID, c.site
	request.ProfileID, request.Profile = c.profile.ID, c.profile
	request.SKUID = c.sku.ID
	request.BMC.CredentialRef = login
	require.NoError(c.t, c.App.Store.Tx(ctx, func(tx *db.Tx) error {
		job, node, err := onboarding.Accept(ctx, tx, request, admin)
		if err != nil {
			return err
		}
		bmc, err := tx.BMCOfNode(ctx, node.ID)
		c.job, c.bmcID = job, bmc.ID
		if err != nil || row.pin == "" {
			return err
		}
		return tx.SetBMCPin(ctx, bmc.ID, row.pin)
	}))
}

// TestEveryClassHasARow checks that each class has a fault that leads to it, or says which job
// raises it.
func TestEveryClassHasARow(t *testing.T) {
	t.Parallel()
	seen := map[lifecycle.FailureClass]int{}
	for _, row := range classRows() {
		require.NotEmpty(t, row.stage, row.class)
		require.NotEmpty(t, row.says, row.class)
		seen[row.class]++
	}
	for _, elsewhere := range []map[lifecycle.FailureClass]string{classesRaisedElsewhere(), classesWithoutProducer()} {
		for class, where := range elsewhere {
			require.NotEmpty(t, where, class)
			seen[class]++
		}
	}
	for _, f := range lifecycle.Failures() {
		require.Equal(t, 1, seen[f.Class], "class %s needs one row: in classRows(), classesRaisedElsewhere() or classesWithoutProducer()", f.Class)
		_, err := os.Stat(filepath.Join("..", "..", f.Runbook()))
		require.NoError(t, err)
	}
	require.Len(t, lifecycle.Failures(), len(seen), fmt.Sprint(seen))
}
