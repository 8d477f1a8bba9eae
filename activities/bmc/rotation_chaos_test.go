package bmc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	"github.com/slipway-cloud/slipway/providers/secrets"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// lab is one BMC behind trouble, with the worker that rotates its login and an
// undisturbed view of everything.
type lab struct {
	t      *testing.T
	rng    *rand.Rand
	x      *trouble
	sim    *redfishsim.Server
	hw     *simhw.Machine
	truth  *db.Store // undisturbed
	vault  *secrets.Secrets
	acts   *bmcact.Activities
	flaky  *flakySecrets
	bmcID  string
	jobs   int
	job    string
	known  map[string]bool   // every password there was
	byRef  map[string]string // password by versioned reference
	counts labCounts
}

type labCounts struct {
	Rotated, Undone, Failed, Cut, Lost, Waits, Others int
}

// flakySecrets fails now and then.
type flakySecrets struct {
	providers.Secrets
	mu   sync.Mutex
	fail int // fail the n-th call from now; 0 is never
}

func (f *flakySecrets) trip() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail > 0 {
		if f.fail--; f.fail == 0 {
			return &providers.Error{Kind: providers.KindUnavailable, Op: "secrets.test", Message: "the secret store did not answer"}
		}
	}
	return nil
}

func (f *flakySecrets) Resolve(ctx context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error) {
	if err := f.trip(); err != nil {
		return providers.Secret{}, err
	}
	return f.Secrets.Resolve(ctx, ref, use)
}

// simulatedLogin is the use of the login of a simulated BMC without a node.
func simulatedLogin() providers.Use {
	return providers.Use{Kind: spec.SecretBMCLogin, Address: "https://127.0.0.1"}
}

func (f *flakySecrets) Put(ctx context.Context, name string, v providers.Secret) (providers.SecretRef, error) {
	if err := f.trip(); err != nil {
		return "", err
	}
	ref, err := f.Secrets.Put(ctx, name, v)
	if terr := f.trip(); terr != nil { // stored, and the answer is lost
		return "", terr
	}
	return ref, err
}

func newLab(t *testing.T, vendor string, seed uint64, adjust func(*redfishsim.Personality)) *lab {
	t.Helper()
	l := &lab{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), x: &trouble{}, known: map[string]bool{}, byRef: map[string]string{}, //nolint:gosec // repeatable
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	clock := simhw.NewClock(1)
	l.hw = simhw.NewMachine(ctx, clock, simhw.GPUServer(vendor, 7))
	var err error
	l.sim, err = redfishsim.New(redfishsim.Options{Machine: l.hw, TLS: true, Seed: seed, Adjust: adjust})
	require.NoError(t, err)
	at, stop, err := l.sim.Start(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)

	dsn := dbtest.Database(t)
	l.truth, err = db.Open(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(l.truth.Close)
	through, err := url.Parse(dsn)
	require.NoError(t, err)
	through.Host = l.x.proxy(t, through.Host)
	q := through.Query()
	q.Set("pool_max_conns", "1")
	through.RawQuery = q.Encode()
	worker, err := db.Open(t.Context(), through.String())
	require.NoError(t, err)
	t.Cleanup(worker.Close)

	key := secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}
	l.vault, err = secrets.Open(t.Context(), l.truth, key, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.vault.Close()) })
	disturbed, err := secrets.Open(t.Context(), worker, key, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disturbed.Close()) })

	spec := l.hw.Spec()
	login, err := json.Marshal(map[string]string{"username": spec.BMCUser, "password": spec.BMCPassword})
	require.NoError(t, err)
	dbtest.StateUse(t, l.truth, "bmc_login", "bmc/rack", "bmc/by-hand")
	_, err = l.vault.Put(t.Context(), "bmc/rack", providers.NewSecret(string(login)))
	require.NoError(t, err)
	rec, err := l.truth.CreateBMC(t.Context(), db.NewBMC{
		Address: "https://" + l.x.proxy(t, strings.TrimPrefix(at, "https://")), Protocol: "redfish", CredentialRef: "bmc/rack",
	})
	require.NoError(t, err)
	l.bmcID = rec.ID
	b, err := redfish.Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: rec.Address})
	require.NoError(t, err)
	id, err := b.Probe(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.truth.SetBMCPin(t.Context(), rec.ID, id.PinSHA256))
	l.flaky = &flakySecrets{Secrets: disturbed}
	l.acts = &bmcact.Activities{
		Store: worker, Secrets: l.flaky, Openers: map[string]providers.BMCOpener{"redfish": redfish.Opener{}},
		Settle: time.Nanosecond, NoteFor: time.Nanosecond, Now: clock.Now,
	}
	l.newJob()
	l.safe(true)
	return l
}

func (l *lab) newJob() {
	l.jobs++
	l.job = fmt.Sprintf("job_%d", l.jobs)
}

func (l *lab) in(stage string) bmcact.RotateIn {
	return bmcact.RotateIn{JobRef: contract.JobRef{JobID: l.job, Stage: stage}, BMCID: l.bmcID}
}

// claim makes a node that a tenant has, and returns what the stages about its settings are asked
// with.
func (l *lab) claim() bmcact.SettingsIn {
	l.t.Helper()
	node := dbtest.Node(l.t, l.truth)
	tenant := dbtest.Occupy(l.t, l.truth, node.ID)
	return bmcact.SettingsIn{
		AllocationRef: contract.AllocationRef{JobRef: contract.JobRef{JobID: "job_settings", NodeID: node.ID}, AllocationID: tenant.ID}, BMCID: l.bmcID,
	}
}

func (l *lab) record() db.BMC {
	l.t.Helper()
	rec, err := l.truth.BMC(l.t.Context(), l.bmcID)
	require.NoError(l.t, err)
	return rec
}

// password is what a reference holds; fresh asks the store again instead of
// remembering, since a version never changes but can be deleted.
func (l *lab) password(ref string, fresh bool) string {
	l.t.Helper()
	if p, ok := l.byRef[ref]; ok && !fresh {
		return p
	}
	login, err := providers.ResolveLogin(l.t.Context(), l.vault, providers.SecretRef(ref), simulatedLogin())
	require.NoError(l.t, err, "the secret of %s is lost", ref)
	p := login.Password.Reveal()
	l.byRef[ref], l.known[p] = p, true
	return p
}

// safe is what must hold at every moment.
func (l *lab) safe(fresh bool) {
	l.t.Helper()
	rec := l.record()
	slots := []string{l.password(rec.CredentialRef, fresh)}
	if rec.CandidateRef != "" {
		slots = append(slots, l.password(rec.CandidateRef, fresh))
	}
	require.Contains(l.t, slots, l.hw.Spec().BMCPassword, "job %s: the BMC takes neither slot (state %s)", l.job, rec.RotationState)
	require.Nil(l.t, rec.AuthBlockedAt, "job %s: %s", l.job, rec.AuthBlockedReason)
	require.Zero(l.t, l.sim.Counters().Lockouts, "job %s", l.job)
}

// disturb decides what goes wrong in the next run of a step.
func (l *lab) disturb() {
	switch n := l.rng.IntN(100); {
	case n < 40:
		l.x.arm(l.rng, 40)
	case n < 48:
		l.flaky.mu.Lock()
		l.flaky.fail = 1 + l.rng.IntN(4)
		l.flaky.mu.Unlock()
	case n < 60:
		faults := []redfishsim.FaultName{
			redfishsim.FaultLostAnswer, redfishsim.FaultUnavailable, redfishsim.FaultBMCReset, redfishsim.FaultWeakETag,
			redfishsim.FaultPasswordRefused, redfishsim.FaultPasswordIgnored, redfishsim.FaultSessionsFull, redfishsim.FaultEcho,
		}
		f := redfishsim.Fault{Name: faults[l.rng.IntN(len(faults))], Count: 1}
		if f.Name == redfishsim.FaultLostAnswer && l.rng.IntN(2) == 0 {
			f.Path, f.Method = "/Sessions", "POST" // the answer to a login is lost
		}
		if f.Name == redfishsim.FaultEcho {
			f.Method = "PATCH"
		}
		require.NoError(l.t, l.sim.AddFault(f))
	}
}

// once runs a step once, as a process that may die in it.
func (l *lab) once(step rotateStep, name string) error {
	l.t.Helper()
	l.disturb()
	f, err := step(l.t.Context(), l.in(name))
	if l.x.restart() {
		l.counts.Cut++
	}
	l.sim.ClearFaults()
	l.flaky.mu.Lock()
	l.flaky.fail = 0
	l.flaky.mu.Unlock()
	l.safe(name == "commit" || name == "undo")
	said, merr := json.Marshal(f)
	require.NoError(l.t, merr)
	l.clean(string(said))
	if err != nil {
		l.counts.Failed++
		l.clean(err.Error())
		l.passTime(err)
	}
	return err
}

type rotateStep func(context.Context, bmcact.RotateIn) (contract.RotationFacts, error)

// clean: no password in what is said.
func (l *lab) clean(s string) {
	l.t.Helper()
	for p := range l.known {
		if strings.Contains(s, p) {
			require.NotContains(l.t, s, p)
		}
	}
}

// passTime lets the BMC come back and, where the step says that it must wait,
// its lockout window pass.
func (l *lab) passTime(err error) {
	d := time.Minute
	if strings.Contains(err.Error(), "is allowed after") {
		l.counts.Waits++
		d = time.Hour + time.Minute
	}
	l.hw.Clock().Step(d)
}

// repeat runs a step until it succeeds, as a stage's retries do. lost ends it
// early: the job was ended by hand and another one takes over.
func (l *lab) repeat(step rotateStep, name string) (lost bool) {
	l.t.Helper()
	var err error
	for range 60 {
		if err = l.once(step, name); err == nil {
			return false
		}
		var app *temporal.ApplicationError
		if require.ErrorAs(l.t, err, &app); app.Type() == string(lifecycle.FailStateDisagreement) {
			require.Fail(l.t, err.Error())
		}
		if name != "undo" && l.rng.IntN(25) == 0 {
			l.counts.Lost++
			return true
		}
		if l.rng.IntN(8) == 0 {
			l.other()
		}
	}
	require.NoError(l.t, err, "step %s does not end", name)
	return false
}

// other is another job that wants in meanwhile.
func (l *lab) other() {
	l.t.Helper()
	if l.record().LoginBy != "" {
		return // it would wait for its turn until the dead one's has run out
	}
	l.counts.Others++
	_, err := l.acts.ResolvePowerCredentials(l.t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_other"}, BMCID: l.bmcID})
	if err != nil {
		var app *temporal.ApplicationError
		require.ErrorAs(l.t, err, &app)
		require.NotEqual(l.t, string(lifecycle.FailBMCAuthRejected), app.Type(), err.Error())
		require.NotEqual(l.t, string(lifecycle.FailBMCLocked), app.Type(), err.Error())
		l.passTime(err)
	}
	l.safe(false)
}

// rotate is one rotation: the steps in order, or taken back in the middle.
func (l *lab) rotate() {
	l.t.Helper()
	l.newJob()
	cancelAt := -1
	if l.rng.IntN(6) == 0 {
		cancelAt = l.rng.IntN(4)
	}
	steps := []struct {
		name string
		run  rotateStep
	}{
		{"prepare", l.acts.PrepareRotation}, {"apply", l.acts.ApplyRotation}, {"verify", l.acts.VerifyRotation}, {"commit", l.acts.CommitRotation},
	}
	before := l.hw.Spec().BMCPassword
	for i := 0; i < len(steps); i++ {
		if i == cancelAt {
			if l.rng.IntN(2) == 0 {
				_ = l.once(steps[i].run, steps[i].name) // cancelled while it ran
			}
			l.repeat(l.acts.UndoRotation, "undo")
			break
		}
		if l.repeat(steps[i].run, steps[i].name) {
			l.newJob()
			i = -1
			cancelAt = -1
		}
	}
	rec := l.record()
	require.Empty(l.t, rec.CandidateRef)
	require.Equal(l.t, l.hw.Spec().BMCPassword, l.password(rec.CredentialRef, true), "after the end the BMC takes the stored login")
	if l.hw.Spec().BMCPassword == before {
		l.counts.Undone++
	} else {
		l.counts.Rotated++
	}
	if rec.PreviousRef != "" {
		l.password(rec.PreviousRef, true) // one generation is kept
	}
}

// TestRotation_RandomCrashes makes 60 rotations, and 1,000 in `make proof
// AREA=rotation`.
func TestRotation_RandomCrashes(t *testing.T) {
	t.Parallel()
	seed := runenv.Seed(t)
	total := runenv.Scale(t, "SLIPWAY_ROTATIONS", 60, 1000)
	four := func(p *redfishsim.Personality) { p.LockoutThreshold, p.LockoutDuration = 4, 10*time.Minute }
	makes := []struct {
		vendor string
		adjust func(*redfishsim.Personality)
	}{{"Dell", nil}, {"Supermicro", nil}, {"HPE", nil}, {"Lenovo", nil}, {"NVIDIA", nil}, {"Supermicro", four}}
	for i, m := range makes {
		n := total / len(makes)
		if i < total%len(makes) {
			n++
		}
		t.Run(fmt.Sprintf("%s %d", m.vendor, i), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, m.vendor, seed+uint64(i), m.adjust) //nolint:gosec // an index
			for l.counts.Rotated < n {                         // those that were cancelled come on top
				require.Less(t, l.counts.Undone, n)
				l.rotate()
			}
			c := l.sim.Counters()
			require.Zero(t, c.Lockouts)
			l.nothingSaid()
			t.Logf("seed %d, %s, locks after %d: %d rotations, %d more taken back, %d tries failed, %d crashes, %d jobs lost, %d waits, %d other jobs; "+
				"BMC: %d password changes, %d wrong logins, %d lockouts; 0 lost secrets",
				seed+uint64(i), m.vendor, l.sim.Personality().LockoutThreshold, l.counts.Rotated, l.counts.Undone, l.counts.Failed, l.counts.Cut, //nolint:gosec // an index
				l.counts.Lost, l.counts.Waits, l.counts.Others, c.PasswordChanges, c.FailedLogins, c.Lockouts)
		})
	}
}

// nothingSaid looks for passwords in the rows, and for secrets that nobody names.
func (l *lab) nothingSaid() {
	l.t.Helper()
	rec, err := json.Marshal(l.record())
	require.NoError(l.t, err)
	l.clean(string(rec))
	rows, err := l.truth.ListBMCRotations(l.t.Context(), l.bmcID, "", 1000)
	require.NoError(l.t, err)
	kept := 0
	for _, r := range rows {
		require.NotNil(l.t, r.FinishedAt)
		b, err := json.Marshal(r)
		require.NoError(l.t, err)
		l.clean(string(b))
		if r.PurgedAt == nil && r.ToRef != "" {
			kept++
		}
	}
	require.LessOrEqual(l.t, kept, 20, "old secrets are deleted")
}
