package projection_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// proofFixture is a parked job, the key of the API, and the projections of the job's workflow.
type proofFixture struct {
	*testing.T
	store *db.Store
	ring  *signing.Ring
	to    *projection.Database
	job   db.Job
	seq   int64
}

func newRing(t *testing.T, store *db.Store) *signing.Ring {
	t.Helper()
	sealed, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sealed.Close()) })
	return &signing.Ring{Store: store, Secrets: sealed}
}

func newProofFixture(t *testing.T, ring *signing.Ring) *proofFixture {
	t.Helper()
	store := ring.Store
	job := dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobFailedRetryable))
	return &proofFixture{T: t, store: store, ring: ring, to: projection.NewDatabase(store), job: job, seq: job.Seq}
}

func (f *proofFixture) signed(e contract.ActionEntry) contract.ActionEntry {
	f.Helper()
	p, err := f.ring.SignAction(f.Context(), f.job.ID, e)
	require.NoError(f, err)
	e.Proof = p
	return e
}

// expiring signs an entry with another end of its time.
func (f *proofFixture) expiring(e contract.ActionEntry, in time.Duration) contract.ActionEntry {
	f.Helper()
	e = f.signed(e)
	e.Proof.ExpiresAt = time.Now().Add(in)
	message, err := e.Proof.Message(f.job.ID, e)
	require.NoError(f, err)
	s, err := f.ring.Sign(f.Context(), signing.Actions, message)
	require.NoError(f, err)
	e.Proof.Signature = s.Bytes
	return e
}

// step projects actions as one step and returns the audit rows that it wrote, newest first.
func (f *proofFixture) step(status lifecycle.JobStatus, by string, actions ...contract.ActionEntry) (contract.ProjectResult, []db.AuditRow) {
	f.Helper()
	before, err := f.store.ResourceTimeline(f.Context(), "job", f.job.ID, 0, 100)
	require.NoError(f, err)
	f.seq++
	p := contract.Projection{JobID: f.job.ID, Kind: contract.KindOnboarding, RunID: "run", Seq: f.seq, Status: status, Actions: actions, By: by}
	res, err := f.to.ProjectJob(f.Context(), p)
	require.NoError(f, err)
	repeated, err := f.to.ProjectJob(f.Context(), p)
	require.NoError(f, err)
	require.True(f, repeated.Applied, "a repeated projection changes nothing and is no error")
	rows, err := f.store.ResourceTimeline(f.Context(), "job", f.job.ID, 0, 100)
	require.NoError(f, err)
	return res, rows[:len(rows)-len(before)]
}

func TestProjectJob_ProvesWhoActed(t *testing.T) {
	t.Parallel()
	ring := newRing(t, dbtest.Store(t))
	ask := contract.ActionEntry{Action: lifecycle.ActionRetryStage, Actor: "token:anna", Reason: "the cable is in", Via: "update", Effect: lifecycle.EffectRetryStage}
	change := func(do func(*contract.ActionEntry)) func(*proofFixture) contract.ActionEntry {
		return func(f *proofFixture) contract.ActionEntry {
			e := f.signed(ask)
			do(&e)
			return e
		}
	}
	for name, c := range map[string]struct {
		entry    func(*proofFixture) contract.ActionEntry
		unproven string
	}{
		"signed":              {func(f *proofFixture) contract.ActionEntry { return f.signed(ask) }, ""},
		"the clock went back": {func(f *proofFixture) contract.ActionEntry { return f.expiring(ask, 1000*time.Hour) }, ""},
		"unsigned":            {func(*proofFixture) contract.ActionEntry { return ask }, "not signed"},
		"another actor":       {change(func(e *contract.ActionEntry) { e.Actor = "token:bert" }), "not the API's"},
		"another reason":      {change(func(e *contract.ActionEntry) { e.Reason = "because" }), "not the API's"},
		"another action":      {change(func(e *contract.ActionEntry) { e.Action = lifecycle.ActionCancel }), "not the API's"},
		"a risk added":        {change(func(e *contract.ActionEntry) { e.AcceptRisk = true }), "not the API's"},
		"a customer instead":  {change(func(e *contract.ActionEntry) { e.Customer = true }), "not the API's"},
		"another nonce":       {change(func(e *contract.ActionEntry) { e.Proof.Nonce = "fresh" }), "not the API's"},
		"a longer time":       {change(func(e *contract.ActionEntry) { e.Proof.ExpiresAt = e.Proof.ExpiresAt.Add(time.Hour) }), "not the API's"},
		"no such key":         {change(func(e *contract.ActionEntry) { e.Proof.KeyID = "key_none" }), "not the API's"},
		"half a signature":    {change(func(e *contract.ActionEntry) { e.Proof.Signature = e.Proof.Signature[:32] }), "not the API's"},
		"for another job": {func(f *proofFixture) contract.ActionEntry {
			return newProofFixture(f.T, f.ring).signed(ask)
		}, "not the API's"},
		"expired": {func(f *proofFixture) contract.ActionEntry { return f.expiring(ask, -time.Second) }, "has expired"},
		"sent twice": {func(f *proofFixture) contract.ActionEntry {
			e := f.signed(ask)
			_, rows := f.step(lifecycle.JobFailedRetryable, "", e)
			require.Equal(f, string(lifecycle.OwnerAdmin), rows[0].Owner)
			e.Seen = true
			return e
		}, "was used before"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newProofFixture(t, ring)
			e := c.entry(f)
			why, err := f.to.VerifyAction(t.Context(), contract.ActionCheck{JobID: f.job.ID, Entry: e})
			require.NoError(t, err)
			require.Contains(t, why, c.unproven)
			require.Equal(t, c.unproven == "", why == "", why)

			res, rows := f.step(lifecycle.JobRunning, e.Actor, e)
			require.Len(t, rows, 2, "the action, and the transition that it caused")
			var meta map[string]any
			require.NoError(t, json.Unmarshal(rows[0].Metadata, &meta))
			if c.unproven == "" {
				require.Equal(t, []string{"admin", "token:anna", "token:anna"}, []string{rows[0].Owner, *rows[0].ActorID, *rows[1].ActorID})
				require.Empty(t, res.Unproven)
				return
			}
			require.Equal(t, []string{"engine", "engine", "engine"}, []string{rows[0].Owner, *rows[0].ActorID, *rows[1].ActorID})
			require.Equal(t, e.Actor, meta["claimed_actor"])
			require.Equal(t, why, meta["unproven"])
			require.NotContains(t, meta, "nonce", "a name that is not proven uses up no nonce")
			require.Equal(t, []int{0}, res.Unproven)
		})
	}
}

func TestProjectJob_EndedKeyAndCopiesProveNothing(t *testing.T) {
	t.Parallel()
	f := newProofFixture(t, newRing(t, dbtest.Store(t)))
	ask := contract.ActionEntry{Action: lifecycle.ActionMarkManual, Actor: "token:anna", Reason: "smoke", Via: "signal", Effect: lifecycle.EffectFreeze}
	twice := f.signed(ask)
	res, _ := f.step(lifecycle.JobFailedRetryable, "", twice, twice)
	require.Equal(t, []int{1}, res.Unproven, "two copies in one step")

	old := f.signed(ask)
	_, err := f.ring.Rotate(t.Context(), signing.Actions, 0)
	require.NoError(t, err)
	res, _ = f.step(lifecycle.JobFailedRetryable, "", old, f.signed(ask))
	require.Equal(t, []int{0}, res.Unproven, "the old key ended at once, the new one counts")
}

// TestProjectJob_ActionOfALostTask: a task had stored a proven action, was lost, and stores it
// again among other steps. It is neither forged nor sent twice. Its present effect has one row.
func TestProjectJob_ActionOfALostTask(t *testing.T) {
	t.Parallel()
	ring := newRing(t, dbtest.Store(t))
	for name, c := range map[string]struct {
		change func(*contract.Projection)
		owner  lifecycle.Owner // of the row that is written, "" is none
	}{
		"the same effect": {func(*contract.Projection) {}, ""},
		"another effect":  {func(p *contract.Projection) { p.Actions[0].Effect = lifecycle.EffectRefuse }, lifecycle.OwnerAdmin},
		"a copy":          {func(p *contract.Projection) { p.Actions[0].Seen = true }, lifecycle.OwnerEngine},
		"in another run":  {func(p *contract.Projection) { p.RunID = "run 2" }, lifecycle.OwnerEngine},
	} {
		t.Run(name, func(t *testing.T) {
			f := newProofFixture(t, ring)
			e := f.signed(contract.ActionEntry{Action: lifecycle.ActionRetryStage, Actor: "token:anna", Reason: "the cable is in", Via: "update", Effect: lifecycle.EffectRetryStage})
			f.step(lifecycle.JobFailedRetryable, "token:anna", e)
			before, err := f.store.ResourceTimeline(t.Context(), "job", f.job.ID, 0, 100)
			require.NoError(t, err)
			f.seq++
			p := contract.Projection{
				JobID: f.job.ID, Kind: contract.KindOnboarding, RunID: "run", Seq: f.seq, Status: lifecycle.JobFailedRetryable,
				Actions: []contract.ActionEntry{e}, By: "token:anna",
			}
			c.change(&p)
			res, err := f.to.ProjectJob(t.Context(), p)
			require.NoError(t, err)
			require.True(t, res.Applied)
			rows, err := f.store.ResourceTimeline(t.Context(), "job", f.job.ID, 0, 100)
			require.NoError(t, err)
			if c.owner == "" {
				require.Len(t, rows, len(before))
				require.Empty(t, res.Unproven)
				return
			}
			require.Len(t, rows, len(before)+1)
			require.Equal(t, string(c.owner), rows[0].Owner)
			require.Equal(t, c.owner == lifecycle.OwnerEngine, len(res.Unproven) == 1)
		})
	}
}
