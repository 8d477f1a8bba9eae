package billing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent"
	allocationintent "github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/billing"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The kinds of turns of a walk of tenants.
const (
	turnRequest   = "request"           // nodes are asked for, at once
	turnLook      = "look"              // requests that wait look for a node
	turnAccess    = "access"            // keys go onto the node
	turnActivate  = "activate"          // a provision completes
	turnGiveUp    = "give up"           // a provision fails
	turnRelease   = "release"           // a tenant gives a node back
	turnRevoke    = "revoke"            // the access is proven to have ended
	turnPark      = "park"              // a release fails
	turnComplete  = "complete"          // a release completes
	turnClean     = "clean"             // nodes that were left dirty are sanitized
	turnRemove    = "remove assignment" // an operator takes the node from a failed release
	turnLoseJob   = "lose job"          // a job ends without moving its allocation on
	turnSweep     = "sweep"             // sweepers, at once
	turnEnforce   = "tick and enforce"  // the pass of each minute, several at once
	turnBalance   = "balance"           // an adjustment brings a balance to an amount
	turnSetGrace  = "grace"             // an account gets another grace
	maxTurnAtOnce = 4
)

// turn is one action of a walk. Of is taken modulo what there is.
type turn struct {
	Kind   string
	Of     int
	AtOnce int
	Wait   bool
	Kill   bool
	Fine   bool // of a provision: nothing is left on the node; of a release: a certificate proves it clean
	Target int64
}

var turnPlans = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) turn {
	return turn{
		Kind: rapid.SampledFrom([]string{
			turnRequest, turnRequest, turnRequest, turnRequest, turnLook, turnAccess, turnAccess, turnActivate, turnActivate, turnActivate, turnGiveUp, turnRelease,
			turnRelease, turnRevoke, turnPark, turnPark, turnComplete, turnComplete, turnClean, turnRemove, turnLoseJob, turnSweep, turnEnforce, turnEnforce, turnBalance,
			turnBalance, turnSetGrace,
		}).Draw(r, "kind"),
		Of:     rapid.IntRange(0, 11).Draw(r, "of"),
		AtOnce: rapid.IntRange(1, maxTurnAtOnce).Draw(r, "at once"),
		Wait:   rapid.Bool().Draw(r, "wait"),
		Kill:   rapid.SampledFrom([]bool{false, false, true}).Draw(r, "kill"),
		Fine:   rapid.Bool().Draw(r, "fine"),
		Target: rapid.SampledFrom([]int64{-1, 0, hourly - 1, hourly, hourly + 1, 2 * hourly, 3 * hourly, 50 * hourly, 50 * hourly}).Draw(r, "target"),
	}
}), 20, 40)

func (w *tenants) do(s turn) error {
	switch s.Kind {
	case turnRequest:
		return w.requests(s)
	case turnSweep:
		return w.sweep(s.AtOnce, s.Kill)
	case turnEnforce:
		return w.tickAndEnforce(s.AtOnce, s.Kill)
	case turnBalance:
		return w.bringTo(w.accounts[s.Of%len(w.accounts)], s.Target)
	case turnSetGrace:
		return w.setGrace(s.Of%len(w.accounts), map[bool]int{true: 3600}[s.Wait])
	case turnClean:
		return w.sanitize()
	}
	return w.act(s)
}

// requests asks for nodes at once, from all projects. A killed one is rolled back, or its answer is
// lost.
func (w *tenants) requests(s turn) error {
	var mu sync.Mutex
	err := w.atOnce(s.AtOnce, s.Kill, func(ctx context.Context, i int) error {
		err := w.request(ctx, w.projects[(s.Of+i)%len(w.projects)], map[bool]int{true: 3600}[s.Wait], s.Kill && i == 0)
		if intent.AsRefusal(err) != nil {
			mu.Lock()
			w.seen["refused"]++
			mu.Unlock()
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	// The database says which there are: the answer of one that was committed may be lost.
	found, err := rows[struct{ ID string }](w.ctx, w.owner, "SELECT id FROM allocations WHERE project_id = ANY ($1) ORDER BY requested_at, id", w.projects)
	for _, a := range found {
		if !slices.Contains(w.ids, a.ID) {
			w.ids = append(w.ids, a.ID)
		}
	}
	return err
}

// may names the states in which an allocation may take a turn.
var may = map[string][]lifecycle.AllocationStatus{
	turnLook:     {lifecycle.AllocationRequested},
	turnAccess:   {lifecycle.AllocationProvisioning},
	turnActivate: {lifecycle.AllocationProvisioning},
	turnGiveUp:   {lifecycle.AllocationProvisioning, lifecycle.AllocationRequested},
	turnRelease: {
		lifecycle.AllocationRequested, lifecycle.AllocationProvisioning, lifecycle.AllocationActive, lifecycle.AllocationReleasing, lifecycle.AllocationReleased,
		lifecycle.AllocationReleaseFailed,
	},
	turnRevoke:   {lifecycle.AllocationReleasing},
	turnPark:     {lifecycle.AllocationReleasing},
	turnComplete: {lifecycle.AllocationReleasing, lifecycle.AllocationReleaseFailed},
	turnRemove:   {lifecycle.AllocationReleasing, lifecycle.AllocationReleaseFailed},
	turnLoseJob:  {lifecycle.AllocationRequested, lifecycle.AllocationProvisioning, lifecycle.AllocationReleasing},
}

// act has one allocation that may take the turn take it.
func (w *tenants) act(s turn) error {
	all, err := w.allocations(may[s.Kind]...)
	if err != nil || len(all) == 0 {
		return err
	}
	a := all[s.Of%len(all)]
	job, err := w.store.LiveJobOfResource(w.ctx, allocationdb.Resource, a.ID)
	hasJob := err == nil
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return err
	}
	switch s.Kind {
	case turnRelease:
		return w.tx(func(tx *db.Tx) error {
			_, err := allocationintent.Release(w.ctx, tx, a.ID, "done", db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"})
			return err
		})
	case turnRemove:
		return w.remove(a, job, hasJob)
	}
	if !hasJob { // it is the sweeper's turn
		return nil
	}
	return w.actOfJob(s, a, job)
}

// actOfJob does what the job of an allocation does.
func (w *tenants) actOfJob(s turn, a allocationdb.Allocation, job db.Job) error {
	isRelease := job.Kind == string(contract.KindAllocationRelease)
	switch s.Kind {
	case turnLook:
		return w.tx(func(tx *db.Tx) error {
			_, _, err := allocationdb.Claim(w.ctx, tx, a.ID, db.Actor{Owner: lifecycle.OwnerJob})
			return err
		})
	case turnAccess:
		return allocationdb.GiveAccess(w.ctx, w.store, a.ID)
	case turnActivate:
		if a.AccessGivenAt == nil { // the keys go in before it
			if err := allocationdb.GiveAccess(w.ctx, w.store, a.ID); err != nil {
				return err
			}
		}
		w.seen["active"]++
		return w.steps(job, lifecycle.JobCompleted, &contract.AllocationMove{
			To: lifecycle.AllocationActive, Connection: &contract.AllocationConnection{Host: "127.0.0.1", Port: 22, User: "t"}, Image: &contract.AllocationImage{ID: "i", Name: "i"},
		})
	case turnGiveUp:
		return w.steps(job, lifecycle.JobCancelled, &contract.AllocationMove{
			To: lifecycle.AllocationFailed, Clean: s.Fine, FailureClass: lifecycle.FailNodeTask, FailureStage: "stage",
		})
	case turnRevoke:
		if a.AccessGivenAt == nil {
			return nil
		}
		return allocationdb.EndAccess(w.ctx, w.store, a.ID, map[bool]string{true: lifecycle.AccessRevoked, false: lifecycle.AccessUnconfirmed}[s.Fine])
	case turnPark:
		if !isRelease {
			return nil
		}
		w.seen["release_failed"]++
		return w.steps(job, lifecycle.JobFailedManual, &contract.AllocationMove{To: lifecycle.AllocationReleaseFailed})
	case turnComplete:
		if !isRelease {
			return nil
		}
		return w.completeRelease(job, a, s.Fine)
	case turnLoseJob:
		return w.tx(func(tx *db.Tx) error {
			for _, t := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobCompensate, lifecycle.JobCancel} {
				if _, err := tx.TransitionJob(w.ctx, job.ID, t, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return nil
}

// remove takes the node from an allocation, as an operator may who has read it off. Its job is
// cancelled.
func (w *tenants) remove(a allocationdb.Allocation, job db.Job, hasJob bool) error {
	err := w.tx(func(tx *db.Tx) error {
		_, err := allocationintent.RemoveAssignment(w.ctx, tx, a.ID, "the node burned", a.Version, allocationintent.PowerProof{BMC: "off", MAAS: "off"}, operator)
		return err
	})
	if err != nil || !hasJob {
		return err
	}
	w.nodes = append(w.nodes, dbtest.FreeNode(w.t, w.store, dbtest.Of(w.sku), dbtest.At(w.site.ID)).ID) // the other one is quarantined
	return w.steps(job, lifecycle.JobCancelled, nil)
}

// sanitize proves the nodes clean that nobody occupies.
func (w *tenants) sanitize() error {
	for _, id := range w.nodes {
		n, err := w.store.Node(w.ctx, id)
		if err != nil {
			return err
		}
		if n.AllocationID != nil || n.TenantLeftAt == nil {
			continue
		}
		now, err := w.store.Clock(w.ctx)
		if err != nil {
			return err
		}
		dbtest.Certificate(w.t, w.store, id, "clean", now)
		if err := w.tx(func(tx *db.Tx) error { return tx.MarkSanitized(w.ctx, id, now) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *tenants) sweep(atOnce int, kill bool) error {
	return w.atOnce(atOnce, kill, func(ctx context.Context, i int) error {
		ids, err := allocationdb.ListWithoutJob(ctx, w.store, 0, 50)
		for _, id := range ids {
			err = errors.Join(err, w.store.Tx(ctx, func(tx *db.Tx) error {
				if _, err := allocationintent.Continue(ctx, tx, id); err != nil {
					return err
				}
				return killIf(ctx, tx, kill && i == 0)
			}))
		}
		return err
	})
}

// tickAndEnforce is the pass of each minute, as several control planes would make it at once.
func (w *tenants) tickAndEnforce(atOnce int, kill bool) error {
	err := w.atOnce(atOnce, kill, func(ctx context.Context, _ int) error {
		report, err := ledgerdb.Tick(ctx, w.store, ledgerdb.TickInput{})
		if err == nil && report.EnforcementStopped != "" {
			err = w.store.Tx(ctx, func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(ctx, tx, operator) })
			if errors.Is(err, db.ErrStale) {
				err = nil
			}
		}
		if err == nil {
			_, err = billing.Enforce(ctx, w.store, "example.com")
		}
		return err
	})
	if err != nil || kill {
		return err
	}
	return w.requireEnforced()
}

func (w *tenants) bringTo(account string, target int64) error {
	b, err := ledgerdb.ReadBalance(w.ctx, w.store, account)
	if err != nil || b.BalanceMinor == target {
		return err
	}
	return dbtest.CreditAccount(w.ctx, w.store, account, target-b.BalanceMinor)
}

func (w *tenants) setGrace(account, seconds int) error {
	b, err := ledgerdb.ReadBalance(w.ctx, w.store, w.accounts[account])
	if err != nil {
		return err
	}
	return w.tx(func(tx *db.Tx) error {
		return ledgerdb.SetThresholds(w.ctx, tx, w.accounts[account], b.Version, ledgerdb.Thresholds{GraceSeconds: seconds})
	})
}

func (w *tenants) tx(do func(*db.Tx) error) error { return w.store.Tx(w.ctx, do) }

// killIf kills the backend of a transaction before its commit.
func killIf(ctx context.Context, tx *db.Tx, kill bool) error {
	if !kill {
		return nil
	}
	_, err := tx.DBTX().Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
	return errors.Join(errKilled, err)
}

var errKilled = errors.New("the backend was killed")

// killSQL kills one of the backends that work at this moment.
const killSQL = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'slipway' AND state <> 'idle' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`

// atOnce runs what several processes do at once; kill ends some of their backends. Then every error
// but a broken rule may come.
func (w *tenants) atOnce(n int, kill bool, do func(context.Context, int) error) error {
	var wg sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		wg.Go(func() { failed[i] = do(w.ctx, i) })
	}
	if kill {
		w.seen["killed"]++
		if _, err := w.owner.Exec(w.ctx, killSQL); err != nil {
			return err
		}
	}
	wg.Wait()
	err := errors.Join(failed...)
	if !kill || errors.Is(err, errBroken) {
		return err
	}
	for range maxTurnAtOnce { // connections of the pool may have died without its knowledge
		wg.Go(func() {
			for range 2 {
				_, _ = w.store.DBTX().Exec(w.ctx, "SELECT pg_sleep(0.002)")
			}
		})
	}
	wg.Wait()
	return nil
}

const unenforcedSQL = `SELECT l.id || ' is ' || l.status FROM account_balances a
JOIN projects p ON p.billing_account_id = a.billing_account_id JOIN allocations l ON l.project_id = p.id
WHERE a.billing_account_id = ANY ($1) AND a.state = 'depleted' AND a.depletions > 0 AND a.grace_seconds = 0
    AND (l.status IN ('requested', 'active') OR l.status = 'provisioning' AND l.release_requested_at IS NULL)`

// requireEnforced: after a pass, whoever has used his balance up is left nothing, however often it
// was used up before (I13).
func (w *tenants) requireEnforced() error {
	left, err := rows[struct{ Text string }](w.ctx, w.owner, unenforcedSQL, w.accounts)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the balance is used up and the pass was made: %v (I13)", left)
	}
	return err
}
