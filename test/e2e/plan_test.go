package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// planner is a stack with one machine for each situation, at rest.
type planner struct {
	*world
	token string
	api   *client.Client
	// machines by what is the matter with them
	fresh, enlisted, foreign, ready, twofold, diskless *simhw.Machine
	parked                                             db.Job
	pickyProfile                                       db.Profile
	away                                               db.Site
	awayProfile                                        db.Profile
}

// TestOnboardingPlan_ChangesNothing plans every situation and checks that the plans change nothing
// in MAAS, at BMCs and in the database; then a job does what its plan said.
func TestOnboardingPlan_ChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlanner(t)
	before := p.traces(t)
	t.Run("situations", func(t *testing.T) {
		for name, check := range map[string]func(*testing.T, *planner){
			"new machine": planFresh, "enlisted": planEnlisted, "deployed by somebody else": planForeign,
			"disk rule mismatch": planPicky, "conflicting candidates": planTwofold, "parked half-way": planParked,
			"region away": planAway, "refused": planRefused,
		} {
			t.Run(name, func(t *testing.T) { check(t, p) })
		}
	})
	require.Equal(t, before, p.traces(t), "a plan left a trace")
	t.Run("with a login", func(t *testing.T) { planWithLogin(t, p) })
	t.Run("kept", func(t *testing.T) { planKept(t, p) })
}

func newPlanner(t *testing.T) *planner {
	t.Helper()
	w := newPrivateWorld(t, stack.Options{Count: 6, DatabaseEnv: databaseVar})
	m := w.Sims.Fleet.All()
	p := &planner{world: w, fresh: m[0], enlisted: m[1], foreign: m[2], ready: m[3], twofold: m[4], diskless: m[5]}
	var err error
	p.token, err = op.CreateToken(t.Context(), w.App.Store, "planner", []string{"operator"}, time.Hour)
	require.NoError(t, err)
	p.api = w.client(t, p.token)
	_, err = w.Sims.MAAS.AddFault(maassim.Fault{Name: "no_boss_disk", Machine: p.diskless.Spec().NICs[0].MAC})
	require.NoError(t, err)
	p.parked = w.onboard(t, p.diskless)
	require.NoError(t, w.Sims.MAAS.External("enlist", p.enlisted.Spec().ID))
	_, err = w.Sims.MAAS.AddFault(maassim.Fault{Name: "auto_link_duplicate", Machine: p.ready.Spec().NICs[0].MAC})
	require.NoError(t, err)
	p.commissioned(t, p.ready)
	p.commissioned(t, p.foreign)
	require.NoError(t, w.Sims.MAAS.External("deploy", host(p.foreign)))
	require.NoError(t, w.Sims.MAAS.External("enlist", p.twofold.Spec().ID))
	_, err = p.region(t).CreateMachine(t.Context(), providers.MAASCreate{
		Hostname: host(p.twofold), Architecture: "amd64/generic", MACs: []string{"52:54:ff:ff:0f:01"},
		PowerType: "redfish", PowerAddress: "127.0.0.9", PowerUser: "u", PowerPassword: providers.NewSecret("power-login-p"),
	})
	require.True(t, err == nil || providers.IsKind(err, providers.KindUncertain), "%v", err) // MAAS keeps the record, though nobody reaches that BMC
	picky := w.ProfileSpec()
	picky.BootDisk.ModelContains = "NOSUCH"
	p.pickyProfile, err = w.App.Store.CreateProfile(t.Context(), w.site.ID, "picky", picky)
	require.NoError(t, err)
	site := w.SiteSpec()
	site.MAASURL = "http://127.0.0.1:9/MAAS"
	p.away, err = w.App.Store.CreateSite(t.Context(), "away", site)
	require.NoError(t, err)
	p.awayProfile, err = w.App.Store.CreateProfile(t.Context(), p.away.ID, "standard", w.ProfileSpec())
	require.NoError(t, err)
	w.scheduleReconcile(t, p.site, p.away)
	p.parked = w.ends(t, p.parked.ID, time.Minute)
	require.Equal(t, lifecycle.FailBootDiskNotFound, p.parked.FailureClass, p.parked.Message)
	p.settles(t)
	return p
}

func host(m *simhw.Machine) string { return "gpu-" + m.Spec().ID }

func (p *planner) region(t *testing.T) providers.MAAS {
	t.Helper()
	c, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: p.Sims.URL, APIKey: providers.NewSecret(p.Sims.APIKey)})
	require.NoError(t, err)
	return c
}

// commissioned makes somebody else take a machine to Ready.
func (p *planner) commissioned(t *testing.T, m *simhw.Machine) {
	t.Helper()
	s := m.Spec()
	c := p.region(t)
	got, err := c.CreateMachine(t.Context(), providers.MAASCreate{
		Hostname: host(m), Architecture: "amd64/generic", MACs: []string{s.NICs[0].MAC}, PowerType: "redfish",
		PowerAddress: s.BMCAddress, PowerUser: s.BMCUser, PowerPassword: providers.NewSecret(s.BMCPassword),
	})
	require.NoError(t, err)
	if got.Status == providers.MAASNew {
		_, err = c.Commission(t.Context(), got.SystemID, providers.MAASCommission{})
		require.NoError(t, err)
	}
	p.becomes(t, m, providers.MAASReady)
}

func (p *planner) becomes(t *testing.T, m *simhw.Machine, want providers.MAASStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		v, ok := p.Sims.MAAS.Machine(host(m))
		return ok && int(v.Status) == int(want)
	}, runenv.Patience(time.Minute), 100*time.Millisecond, "%s becomes %s", host(m), want)
}

// settles waits until nothing moves by itself any more.
func (p *planner) settles(t *testing.T) {
	t.Helper()
	p.becomes(t, p.foreign, providers.MAASDeployed)
	// Each site is compared once when it is new; the next time is a day away.
	require.Eventually(t, func() bool {
		passes, err := driftdb.ListPasses(t.Context(), p.App.Store, "", 10)
		return err == nil && len(passes) == 2 && passes[0].TriedAt != nil && passes[1].TriedAt != nil
	}, runenv.Patience(3*time.Minute), 200*time.Millisecond)
	last := p.traces(t)
	require.Eventually(t, func() bool {
		now := p.traces(t)
		same := maps.Equal(last, now)
		last = now
		return same
	}, runenv.Patience(time.Minute), 2*time.Second)
}

// traces are what a change would leave behind: effects in the region, requests
// that change, logins and changes at BMCs, and every row of the database but
// tokens, which note their last use, and what the sweeper writes by itself.
func (p *planner) traces(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	c := p.Sims.MAAS.Counters()
	out["region"] = fmt.Sprint(c.Total, c.Machines)
	for op, n := range c.Requests {
		if !slices.Contains(harmless(), op) {
			out["request "+op] = fmt.Sprint(n)
		}
	}
	for id, b := range p.Sims.BMCs {
		n := b.Counters()
		out["bmc "+id] = fmt.Sprint(n.Logins, n.BasicLogins, n.FailedLogins, n.Patches, n.PowerCycles, n.BMCResets, n.Resets)
	}
	maps.Copy(out, p.rows(t))
	return out
}

// harmless are the requests that a plan may send; a question for the power or a
// machine's token is none of them.
func harmless() []string {
	return []string{
		"version", "whoami", "sshkeys", "get_config", "boot_resources", "list", "all_power_parameters", "read", "blockdevices",
		"interfaces", "subnets", "events", "results", "result",
	}
}

// rows fingerprints every table. Only the audited logins to the region, which every plan makes, are
// left out.
func (p *planner) rows(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	conn, err := pgx.Connect(ctx, p.Postgres.DSN(p.Database))
	require.NoError(t, err)
	defer conn.Close(ctx) //nolint:errcheck // read only
	names, err := conn.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('api_tokens', 'agent_listeners', 'billing_control', 'audit_checks', 'instance_looks') AND tablename NOT LIKE 'sweep%'`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	out := map[string]string{}
	for _, table := range tables {
		var sum string
		q := `SELECT count(*) || ' ' || coalesce(md5(string_agg(r::text, '|' ORDER BY r::text)), '') FROM ` + pgx.Identifier{table}.Sanitize() + ` AS r`
		switch {
		case table == "audit_heads":
			q += ` WHERE resource_kind <> 'site'`
		case strings.HasPrefix(table, "audit_log"):
			q += ` WHERE NOT (resource_kind = 'site' AND kind = 'call' AND name = 'login')`
		}
		require.NoError(t, conn.QueryRow(ctx, q).Scan(&sum))
		out["table "+table] = sum
	}
	return out
}

func (p *planner) request(m *simhw.Machine) client.OnboardingRequest {
	return client.OnboardingRequest{
		SiteID: p.site.ID, ProfileID: p.profile.ID, SkuID: p.sku.ID, Hostname: host(m),
		Bmc: client.BMCRequest{Address: m.Spec().BMCAddress, CredentialRef: stack.BMCSecret(m.Spec().ID)},
	}
}

// planned is a plan with its rows by stage.
type planned struct {
	rest.Plan
	t *testing.T
}

func (p *planner) dry(t *testing.T, body client.OnboardingRequest, login bool) planned {
	t.Helper()
	for ends := time.Now().Add(runenv.Patience(time.Minute)); ; {
		a, err := p.api.PlanNewOnboarding(t.Context(), &client.PlanNewOnboardingParams{Login: &login}, body)
		busy := !login && (isBusy(client.StatusOf(err)) || err == nil && ranOutOfTime(a.Raw)) // each plan with a login logs in
		if !busy || time.Now().After(ends) {
			return readPlan(t)(a, err)
		}
	}
}

func (p *planner) planOf(t *testing.T, jobID string) planned {
	t.Helper()
	return readPlan(t)(askAgain(func() (client.Answer[client.Plan], error) { return p.api.PlanOnboarding(t.Context(), jobID, nil) }))
}

// ranOutOfTime reports whether a plan has a row that asks to plan again, since no time was left to
// look.
func ranOutOfTime(raw []byte) bool {
	return bytes.Contains(raw, []byte("there was no time left to look"))
}

// readPlan returns a function that checks what every plan must have.
func readPlan(t *testing.T) func(client.Answer[client.Plan], error) planned {
	t.Helper()
	return func(a client.Answer[client.Plan], err error) planned {
		t.Helper()
		require.False(t, isBusy(client.StatusOf(err)), runenv.Deadline+"%v", err)
		require.NoError(t, err)
		return checkedPlan(t, a.Raw)
	}
}

func checkedPlan(t *testing.T, raw []byte) planned {
	t.Helper()
	require.False(t, ranOutOfTime(raw), runenv.Deadline+"a plan had no time left to look: %s", raw)
	out := planned{decoded[rest.Plan](t, raw), t}
	require.Len(t, out.Rows, len(lifecycle.OnboardingStages()))
	for i, r := range out.Rows {
		require.Equal(t, lifecycle.OnboardingStages()[i], r.Stage)
		require.Equal(t, i+1, r.Ordinal)
	}
	require.Len(t, out.PlanHash, 64)
	require.NotEmpty(t, out.Summary)
	return out
}

func (p planned) row(stage string) contract.PlanRow {
	p.t.Helper()
	for _, r := range p.Rows {
		if r.Stage == stage {
			return r
		}
	}
	p.t.Fatalf("no row %s", stage)
	return contract.PlanRow{}
}

// is checks what a stage would do, and that its row says the texts.
func (p planned) is(stage string, want contract.PlannedAction, texts ...string) planned {
	p.t.Helper()
	r := p.row(stage)
	require.Equal(p.t, want, r.Planned, "%s: %+v", stage, r)
	said := strings.Join(append(r.Steps, r.Observed, r.Why), "; ")
	if r.Failure != nil {
		said += "; " + r.Failure.Message
	}
	for _, text := range texts {
		require.Contains(p.t, said, text, stage)
	}
	return p
}

func (p planned) parks(stage string, class lifecycle.FailureClass) planned {
	p.t.Helper()
	p.is(stage, contract.PlannedFail)
	f := p.row(stage).Failure
	require.NotNil(p.t, f)
	require.Equal(p.t, class, f.Class, f.Message)
	require.Equal(p.t, lifecycle.Failure(class).ParkStatus(), f.ParksAs)
	require.NotEmpty(p.t, f.Next)
	require.Contains(p.t, p.Summary, string(class))
	require.True(p.t, p.NeedsHuman)
	return p
}
