package chaos

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// keepsAccount reports that a job waits for an operator so that a BMC does not lock
// its account: a worker that died in the midst of a login leaves a try that
// nobody knows the outcome of, and where a BMC locks after three wrong ones or
// fewer, one is all that may stand open. To go on would be the fault.
func keepsAccount(job db.Job) bool {
	return job.Status == lifecycle.JobFailedRetryable && job.FailureClass == lifecycle.FailBMCUnreachable && strings.Contains(job.Message, accountKept)
}

// accountKept is what the message of such a failure says.
const accountKept = "so that the account is not locked"

// mostWaits is how often a job may park so, with neighbours whose faults kill
// its worker too; more often is a fault.
const mostWaits = 3

// waitsOut does what the message of such a job asks of an operator: it lets the BMC's
// window pass and has the stage tried again. It reports that it did; what the job
// comes to then is held against it as in any other case.
func (t *Target) waitsOut(ctx context.Context, job db.Job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !keepsAccount(job) {
		return false
	}
	if t.waited[job.Seq] {
		return true
	}
	if len(t.waited) >= mostWaits || t.passWindow(ctx, job) != nil {
		return false
	}
	if t.retryStage(ctx, job, "the BMC's window has passed", client.WorkflowUpdateStageAccepted) != nil {
		return false
	}
	if t.waited == nil {
		t.waited = map[int64]bool{}
	}
	t.waited[job.Seq] = true
	return true
}

// waits is how often the job was sent on so.
func (t *Target) waits() int { t.mu.Lock(); defer t.mu.Unlock(); return len(t.waited) }

// longestWindow bounds what a simulated BMC says of its window.
const longestWindow = time.Hour

// passWindow waits until the window has ended at the BMC, whose time is the simulated one, and
// moves the last try back by as much in the database, whose time is not.
func (t *Target) passWindow(ctx context.Context, job db.Job) error {
	rec, err := t.Store.BMCOfNode(ctx, *job.NodeID)
	if err != nil {
		return err
	}
	window := 15 * time.Minute // what is assumed of a BMC that does not say
	if rec.LockoutWindowS != nil {
		window = min(time.Duration(*rec.LockoutWindowS)*time.Second, longestWindow)
	}
	pause(ctx, window/speed+time.Second)
	c, err := pgx.Connect(ctx, t.DSN)
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // a connection of the harness
	_, err = c.Exec(ctx, `UPDATE bmcs SET login_try_at = login_try_at - make_interval(secs => $2) WHERE address = $1`, rec.Address, window.Seconds()+1)
	return err
}
