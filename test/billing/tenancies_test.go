package billing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	allocationintent "github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// hourly is what a node costs an hour, and so what a claim holds back.
const hourly = 600

// nodesLet is how many nodes a walk has for its tenants.
const nodesLet = 4

// letting is an installation whose nodes are let and taken back by the product's own functions:
// those of the API, of the jobs, of the sweeper and of the pass that enforces balances.
type letting struct {
	t       testing.TB
	store   *db.Store
	owner   *pgx.Conn
	project *projection.Database
	profile db.Profile
	site    db.Site
	rules   []rule
}

// rule is a query of the chaos harness whose rows are wrong.
type rule struct{ name, sql string }

// ruleNames are those that hold between any two turns of a walk.
var ruleNames = []string{
	"one_live_job_a_node", "one_live_job_a_resource", "one_occupant_a_node", "pointer_names_the_occupant", "no_claimable_node_is_dirty",
	"no_time_is_charged_without_access", "no_record_charges_time_without_access", "no_hold_outlives_its_charge", moving, "failed_releases_are_parked",
	"released_access_is_proven", "allocations_and_their_audit_agree", "jobs_and_their_audit_agree", "audited_transitions_join", "audit_sequence_has_no_gap",
	"ended_jobs_have_an_end",
}

// moving says that an allocation is on its way and no job moves it. The sweeper has to know of
// each.
const moving = "moving_allocations_have_a_job"

func newLetting(t testing.TB) *letting {
	t.Helper()
	dsn := dbtest.FreshDatabase(t)
	l := &letting{t: t, store: dbtest.Open(t, dsn), owner: dbtest.Owner(t, dsn)}
	l.project, l.site = projection.NewDatabase(l.store), dbtest.Site(t, l.store)
	l.profile = dbtest.Profile(t, l.store, dbtest.At(l.site.ID))
	text, err := os.ReadFile("../chaos/invariants.sql")
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "-- name: ")[1:] {
		if name, sql, _ := strings.Cut(part, "\n"); slices.Contains(ruleNames, name) {
			l.rules = append(l.rules, rule{name, strings.TrimSuffix(strings.TrimSpace(sql), ";")})
		}
	}
	require.Len(t, l.rules, len(ruleNames))
	return l
}

// TestTenancies_KeepTheirRules runs generated walks of tenants who take and give back nodes while
// their balances rise and fall: requests at once, jobs that succeed, fail, park and are lost,
// sweepers and enforcers side by side, and backends that are killed. After each turn the rules of
// the chaos harness hold; at the end nobody whose balance is used up has a node. I14 to I17 and
// I19.
func TestTenancies_KeepTheirRules(t *testing.T) {
	t.Parallel()
	want := runenv.Scale(t, "SLIPWAY_TENANCY_TURNS", 200, 6_000)
	l, done, seen := newLetting(t), 0, map[string]int{}
	ends := []string{"active", "refused", "released", "released for the balance", "release_failed", "assignment_removed", "failed", "without a job", "killed"}
	// Few turns may miss an end by chance: more are made until each was seen.
	enough := func() bool {
		missing := slices.ContainsFunc(ends, func(end string) bool { return seen[end] == 0 })
		return done >= want && !missing || done >= 10*want
	}
	for !enough() && !t.Failed() {
		rapid.Check(t, func(r *rapid.T) {
			if enough() {
				return
			}
			n, err := l.run(t.Context(), turnPlans.Draw(r, "plan"), seen)
			done += n
			require.NoError(r, err)
		})
	}
	t.Logf("%d turns: %v", done, seen)
	for _, end := range ends {
		require.Positive(t, seen[end], "no walk has led to: %s", end)
	}
}

// tenants is one plan that runs.
type tenants struct {
	*letting
	ctx      context.Context
	sku      string
	accounts []string
	projects []string
	nodes    []string
	ids      []string // allocations, in the order of their requests
	seen     map[string]int
}

func (l *letting) run(ctx context.Context, plan []turn, seen map[string]int) (int, error) {
	w := &tenants{letting: l, ctx: ctx, seen: seen}
	if err := w.begin(); err != nil {
		return 0, err
	}
	for i, s := range plan {
		if err := w.do(s); err != nil {
			return i + 1, fmt.Errorf("turn %d, %s: %w", i, s.Kind, err)
		}
		if err := w.check(false); err != nil {
			return i + 1, fmt.Errorf("after turn %d, %s: %w", i, s.Kind, err)
		}
	}
	if err := w.finish(); err != nil {
		return len(plan), fmt.Errorf("at the end: %w", err)
	}
	return len(plan), nil
}

// begin makes two billing accounts, of which the first has two projects, and free nodes of a SKU of
// their own.
func (w *tenants) begin() error {
	err := w.store.Tx(w.ctx, func(tx *db.Tx) error {
		sku, err := tx.CreateSKU(w.ctx, db.NewID("sku"), spec.SKUSpec{})
		if err != nil {
			return err
		}
		w.sku, w.accounts, w.projects = sku.ID, nil, nil
		_, err = tenancydb.PutOffer(w.ctx, tx, tenancydb.Offer{SKUID: sku.ID, ProfileID: w.profile.ID, Title: "a node", Isolation: "shared_network"})
		if err != nil {
			return err
		}
		for _, projects := range []int{2, 1} {
			a, err := tenancydb.CreateAccount(w.ctx, tx, db.NewID("account"), 10)
			if err != nil {
				return err
			}
			w.accounts = append(w.accounts, a.ID)
			for range projects {
				p, err := tenancydb.CreateProject(w.ctx, tx, a.ID, "project", nil, operator)
				if err != nil {
					return err
				}
				w.projects = append(w.projects, p.ID)
				if err := tenancydb.PutQuota(w.ctx, tx, p.ID, "", 10_000); err != nil {
					return err
				}
				if _, _, err := dbtest.ProjectKey(w.ctx, tx, p.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for range nodesLet {
		w.nodes = append(w.nodes, dbtest.FreeNode(w.t, w.store, dbtest.Of(w.sku), dbtest.At(w.site.ID)).ID)
	}
	for _, a := range w.accounts {
		if err := dbtest.CreditAccount(w.ctx, w.store, a, 3*hourly); err != nil {
			return err
		}
	}
	return dbtest.SetPricesOf(w.ctx, w.owner, w.sku, currency, dbtest.Rate{From: time.Now().Add(-48 * time.Hour), RateMinorPerHour: hourly})
}

// check asks each rule. At the end nothing may wait for the sweeper any more.
func (w *tenants) check(atEnd bool) error {
	waiting, err := allocationdb.ListWithoutJob(w.ctx, w.store, 0, 1000)
	if err != nil {
		return err
	}
	w.seen["without a job"] += len(waiting)
	if atEnd && len(waiting) > 0 {
		return fmt.Errorf("no job moves %v", waiting)
	}
	for _, r := range w.rules {
		wrong, err := rows[struct{ Whose, Text *string }](w.ctx, w.owner, r.sql)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		for _, v := range wrong {
			if r.name == moving && slices.ContainsFunc(waiting, func(id string) bool { return strings.Contains(*v.Text, id) }) {
				continue // I19: the sweeper knows of it
			}
			return fmt.Errorf("%s: %s", r.name, *v.Text)
		}
	}
	return nil
}

// finish uses the balances up, and has jobs, sweeper and enforcer do what is theirs.
func (w *tenants) finish() error {
	for i, a := range w.accounts {
		if err := w.setGrace(i, 0); err != nil {
			return err
		}
		if err := w.bringTo(a, -1); err != nil {
			return err
		}
	}
	if err := w.tickAndEnforce(1, false); err != nil {
		return err
	}
	live, err := w.allocations(lifecycle.AllocationRequested, lifecycle.AllocationProvisioning, lifecycle.AllocationActive)
	if err != nil {
		return err
	}
	for _, a := range live {
		if a.Status != lifecycle.AllocationProvisioning || a.ReleaseRequestedAt == nil {
			return fmt.Errorf("allocation %s is %s, and the balance is used up (I14)", a.ID, a.Status)
		}
	}
	for range 3 { // a provision that stops is followed by a release
		if err := w.sweep(1, false); err != nil {
			return err
		}
		for _, id := range w.ids {
			if err := w.drive(id); err != nil {
				return err
			}
		}
	}
	return errors.Join(w.requireNothingHeld(), w.check(true))
}

// requireNothingHeld: every allocation has ended, with its charge and what it held back, and every
// node is free.
func (w *tenants) requireNothingHeld() error {
	for _, id := range w.ids {
		a, err := allocationdb.Get(w.ctx, w.store, id)
		switch {
		case err != nil:
			return err
		case !lifecycle.Allocation.Terminal(a.Status):
			return fmt.Errorf("allocation %s is %s (I14)", id, a.Status)
		}
		w.seen[string(a.Status)]++
		if a.Outcome == lifecycle.OutcomeAssignmentRemoved {
			w.seen[a.Outcome]++
		}
		if a.ReleaseReason == lifecycle.ReleaseBalanceDepleted {
			w.seen["released for the balance"]++
		}
	}
	for _, a := range w.accounts {
		b, err := ledgerdb.ReadBalance(w.ctx, w.store, a)
		if err != nil || b.HeldMinor != 0 {
			return fmt.Errorf("billing account %s holds %d back: %w", a, b.HeldMinor, err)
		}
	}
	open, err := rows[struct{ ID string }](w.ctx, w.owner,
		"SELECT allocation_id FROM usage_records WHERE billing_account_id = ANY ($1) AND start_time IS NOT NULL AND end_time IS NULL", w.accounts)
	if err != nil || len(open) > 0 {
		return fmt.Errorf("usage of %v has no end (I17): %w", open, err)
	}
	return nil
}

// allocations returns those of the walk that have one of the states, in the order of their
// requests.
func (w *tenants) allocations(in ...lifecycle.AllocationStatus) ([]allocationdb.Allocation, error) {
	var out []allocationdb.Allocation
	for _, id := range w.ids {
		a, err := allocationdb.Get(w.ctx, w.store, id)
		if err != nil {
			return nil, err
		}
		if slices.Contains(in, a.Status) {
			out = append(out, a)
		}
	}
	return out, nil
}

// step writes a step of a job with what it says of its allocation, as its workflow does.
func (w *tenants) step(job db.Job, status lifecycle.JobStatus, m *contract.AllocationMove) error {
	p := contract.Projection{JobID: job.ID, Kind: contract.JobKind(job.Kind), RunID: "run", Seq: job.Seq + 1, Status: status, Stage: "stage", Attempt: 1}
	if job.NodeID != nil {
		p.NodeID = *job.NodeID
	}
	if m != nil {
		p.Moves = []contract.Move{*m.Move(job.ResourceID)}
	}
	if status.Parked() {
		p.Failure = &contract.Failure{Class: lifecycle.FailScrubUnverified, Stage: "stage", Message: "sda"}
	}
	_, err := w.project.ProjectJob(w.ctx, p)
	return err
}

// steps writes the steps of a job of an allocation up to a state, by way of the states before it.
func (w *tenants) steps(job db.Job, to lifecycle.JobStatus, m *contract.AllocationMove) error {
	for _, on := range []lifecycle.JobStatus{lifecycle.JobRunning, lifecycle.JobCompensating} {
		if job.Status == on || on == lifecycle.JobCompensating && to != lifecycle.JobCancelled {
			continue
		}
		var goesOn *contract.AllocationMove
		if job.Status.Parked() {
			goesOn = &contract.AllocationMove{To: lifecycle.AllocationReleasing}
		}
		if err := w.step(job, on, goesOn); err != nil {
			return err
		}
		var err error
		if job, err = w.store.Job(w.ctx, job.ID); err != nil {
			return err
		}
	}
	if to == lifecycle.JobRunning {
		return nil
	}
	return w.step(job, to, m)
}

// drive has the live job of an allocation come to its end.
func (w *tenants) drive(id string) error {
	job, err := w.store.LiveJobOfResource(w.ctx, allocationdb.Resource, id)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	a, err := allocationdb.Get(w.ctx, w.store, id)
	if err != nil {
		return err
	}
	if job.Kind == string(contract.KindAllocationProvision) {
		return w.steps(job, lifecycle.JobCancelled, &contract.AllocationMove{
			To: lifecycle.AllocationFailed, Clean: a.AccessGivenAt == nil, FailureClass: lifecycle.FailNodeTask, FailureStage: "stage",
		})
	}
	return w.completeRelease(job, a, true)
}

// completeRelease has a release end. Without a certificate its node is to be sanitized.
func (w *tenants) completeRelease(job db.Job, a allocationdb.Allocation, certified bool) error {
	if err := w.steps(job, lifecycle.JobRunning, nil); err != nil {
		return err
	}
	job, err := w.store.Job(w.ctx, job.ID)
	if err != nil {
		return err
	}
	if job.NodeID == nil { // another job had it
		taken := false
		if err := w.store.Tx(w.ctx, func(tx *db.Tx) (err error) {
			taken, err = allocationdb.TakeNode(w.ctx, tx, job.ID, *a.NodeID, w.site.ID)
			return err
		}); err != nil || !taken {
			return err
		}
	}
	if a.AccessGivenAt != nil {
		if err := allocationdb.EndAccess(w.ctx, w.store, a.ID, lifecycle.AccessRevoked); err != nil {
			return err
		}
	}
	certificate := ""
	if certified {
		now, err := w.store.Clock(w.ctx)
		if err != nil {
			return err
		}
		certificate = dbtest.Certificate(w.t, w.store, *a.NodeID, "clean", now)
	}
	return w.steps(job, lifecycle.JobCompleted, &contract.AllocationMove{To: lifecycle.AllocationReleased, CertificateID: certificate})
}

// request asks for a node. Right after an accepted request no more is held back than there is
// (I15).
func (w *tenants) request(ctx context.Context, project string, wait int, killed bool) error {
	return w.store.Tx(ctx, func(tx *db.Tx) error {
		_, err := allocationintent.Create(ctx, tx, allocationintent.Request{
			ProjectID: project, SKUID: w.sku, Actor: db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}, WaitSeconds: wait,
			Policy: allocationintent.Policy{MaxLaunches: 1_000_000, LaunchWindow: time.Minute, MaxReleasing: 1_000_000, MaxUnpaid: 1_000_000},
		})
		if err != nil {
			return err
		}
		p, err := tenancydb.ReadProject(ctx, tx, project)
		if err != nil {
			return err
		}
		b, err := ledgerdb.ReadBalance(ctx, tx, p.BillingAccountID)
		if err != nil {
			return err
		}
		if b.AvailableMinor() < 0 {
			return fmt.Errorf("%d is available after an accepted request (I15): %w", b.AvailableMinor(), errBroken)
		}
		return killIf(ctx, tx, killed)
	})
}

// errBroken marks what no refusal and no killed backend explains.
var errBroken = errors.New("a rule is broken")
