package drift_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/drift"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// TestPass_UnavailableRegionClosesNothing: nor does it make machines absent.
func TestPass_UnavailableRegionClosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.External("lock", w.id))
	w.recordHeartbeat(func(b *db.Heartbeat) { b.ClockSkew = time.Minute })
	w.pass()
	require.ElementsMatch(t, []string{lifecycle.DriftMachineLocked, lifecycle.DriftClockSkew}, w.open())
	require.NoError(t, w.sim.External("unlock", w.id))
	w.recordHeartbeat(func(b *db.Heartbeat) { b.Report.GPUs = nil })
	w.front.goes(true)
	r := w.pass()
	require.Contains(t, r.List.Problem, "503")
	require.ElementsMatch(t, []string{lifecycle.DriftMachineLocked, lifecycle.DriftClockSkew, lifecycle.DriftGPUCount, lifecycle.DriftSiteUnreachable}, w.open(),
		"what agents say is still seen, and nothing closes")
	row, err := driftdb.PassOfSite(t.Context(), w.store, w.site.ID)
	require.NoError(t, err)
	require.Contains(t, row.Problem, "503")
	require.True(t, row.FinishedAt.Before(*row.TriedAt), "it is no whole pass")
	w.front.goes(false)
	w.recordHeartbeat(nil)
	w.pass()
	require.Empty(t, w.open())
}

// TestPass_TruncatedList is no list: what it does not name is not absent.
func TestPass_TruncatedList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.sim.AddFault(maassim.Fault{Name: "truncated_json", Op: "list"})
	require.NoError(t, err)
	r := w.pass()
	require.NotEmpty(t, r.List.Problem)
	require.Equal(t, []string{lifecycle.DriftSiteUnreachable}, w.open())
	w.pass()
	require.Empty(t, w.open())
}

// TestPass_SkipsNodesWithLiveJob: nothing about it opens, closes or moves.
func TestPass_SkipsNodesWithLiveJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.acts.Policy.Share = 1
	require.NoError(t, w.sim.External("lock", w.id))
	w.pass()
	require.Equal(t, []string{lifecycle.DriftMachineLocked}, w.open())
	job := dbtest.Job(t, w.store, dbtest.On(w.node.ID), dbtest.JobStatus(lifecycle.JobFailedManual))
	require.NoError(t, w.sim.External("unlock", w.id))
	w.release()
	for range 3 {
		require.Equal(t, 1, w.pass().Owned)
	}
	require.Equal(t, []string{lifecycle.DriftMachineLocked}, w.open())
	require.Equal(t, lifecycle.NodeActive, w.status())
	w.end(job)
	w.pass()
	require.NotContains(t, w.open(), lifecycle.DriftMachineLocked)
	require.Contains(t, w.open(), lifecycle.DriftExternallyReleased)
}

func (w *world) status() lifecycle.NodeStatus {
	w.t.Helper()
	n, err := w.store.Node(w.t.Context(), w.node.ID)
	require.NoError(w.t, err)
	return n.Status
}

// end ends a job by legal transitions.
func (w *world) end(j db.Job) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		for _, m := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobCompensate, lifecycle.JobCancel} {
			if _, err := tx.TransitionJob(w.t.Context(), j.ID, m, m.Needs, db.Actor{Owner: m.Owners[0], ID: "test"}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestPass_JobChangesAreNoDrift: a boot and a deployment that are new after a job are
// accounted for; those after that are drift again.
func TestPass_JobChangesAreNoDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.On(w.node.ID), dbtest.JobStatus(lifecycle.JobFailedManual))
	w.recordHeartbeatOf(w.node.ID, "boot-2", nil)
	w.call("PUT", "machines/"+w.id+"/", map[string][]string{"hostname": {"happy-dog"}})
	w.end(job)
	w.pass()
	require.Empty(t, w.open())
	w.recordHeartbeatOf(w.node.ID, "boot-3", nil)
	w.pass()
	require.Equal(t, []string{lifecycle.DriftBootUnannounced}, w.open())
}

// A node is quarantined once, after two passes with the same fault. When an operator lifts the
// quarantine, the same fault does not quarantine the node again.
func TestQuarantine_Automatic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.acts.Policy.Share = 0.05
	seven := func() { w.recordHeartbeat(func(b *db.Heartbeat) { b.Report.GPUs = b.Report.GPUs[:7] }) }
	seven()
	require.Empty(t, w.pass().Quarantine.Nodes)
	require.Equal(t, lifecycle.NodeActive, w.status(), "once seen is not enough")
	require.Equal(t, []string{w.node.ID}, w.pass().Quarantine.Nodes, "of one node at least one may be")
	require.Equal(t, lifecycle.NodeQuarantined, w.status())
	history, _, err := w.store.NodeHistory(t.Context(), w.node.ID, 1, 0)
	require.NoError(t, err)
	require.Equal(t, "reconciler", history[0].Owner)
	require.Equal(t, "system", history[0].TriggeredBy)
	var meta struct{ Finding, Detector string }
	require.NoError(t, json.Unmarshal(history[0].Metadata, &meta))
	require.Equal(t, lifecycle.DriftGPUCount, meta.Detector)
	f := w.finding(lifecycle.DriftGPUCount)
	require.Equal(t, meta.Finding, f.ID)
	require.Equal(t, "reconciler", f.ActedBy)

	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), w.node.ID, lifecycle.NodeUnquarantine, lifecycle.NodeUnquarantine.Needs, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "ada"})
		return err
	}))
	for range 3 {
		require.Empty(t, w.pass().Quarantine.Nodes)
	}
	require.Equal(t, lifecycle.NodeActive, w.status())
	w.recordHeartbeat(nil)
	w.pass()
	require.Empty(t, w.open())
}

// fleetOf makes more nodes of the site whose agents report a missing GPU.
func (w *world) fleetOf(n int, gpus int) []db.Node {
	w.t.Helper()
	var out []db.Node
	for range n {
		node := dbtest.Node(w.t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
		w.recordHeartbeatOf(node.ID, "boot-of-"+node.ID, func(b *db.Heartbeat) { b.Report.GPUs = b.Report.GPUs[:gpus] })
		out = append(out, node)
	}
	return out
}

// Of thirty nodes that fail at once, one in twenty is quarantined within the hour. The others stay
// in service, which requires operator action. TestQuarantine_AgentOfATenant changes the condition
// of the allocation, and the node stays in service.
func TestQuarantine_AgentOfATenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.acts.Policy.Share = 1
	a := dbtest.Occupy(t, w.store, w.node.ID)
	condition := func() lifecycle.AllocationCondition {
		got, err := allocationdb.Get(t.Context(), w.store, a.ID)
		require.NoError(t, err)
		return got.Condition
	}
	w.recordHeartbeat(func(b *db.Heartbeat) { b.Report.GPUs = b.Report.GPUs[:7] })
	w.pass()
	require.Equal(t, lifecycle.ConditionOK, condition(), "once seen is not enough")
	for range 2 {
		require.Empty(t, w.pass().Quarantine.Nodes)
		require.Equal(t, lifecycle.NodeActive, w.status())
		require.Equal(t, lifecycle.ConditionMaintenanceRequired, condition())
	}
	w.recordHeartbeat(nil)
	w.pass()
	require.Equal(t, lifecycle.ConditionOK, condition())
	w.recordHeartbeat(func(b *db.Heartbeat) { b.Report.GPUs = b.Report.GPUs[:7] })
	dbtest.EndTenancy(t, w.store, a.ID)
	w.pass()
	require.Equal(t, []string{w.node.ID}, w.pass().Quarantine.Nodes, "nobody is on it any more")
}

// TestConditions_WithoutQuarantines: they follow the agent's report also where nothing is
// quarantined by itself, and where the region's list is not there.
func TestConditions_WithoutQuarantines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := dbtest.Occupy(t, w.store, w.node.ID)
	condition := func() lifecycle.AllocationCondition {
		got, err := allocationdb.Get(t.Context(), w.store, a.ID)
		require.NoError(t, err)
		return got.Condition
	}
	w.recordHeartbeat(func(b *db.Heartbeat) { b.Report.GPUs = b.Report.GPUs[:7] })
	w.pass()
	w.pass()
	require.Equal(t, lifecycle.ConditionMaintenanceRequired, condition(), "the share is 0")
	_, err := w.store.DBTX().Exec(t.Context(), "UPDATE allocations SET condition = 'ok' WHERE id = $1", a.ID)
	require.NoError(t, err)
	w.acts.Policy.Share = 1
	p := w.last
	p.Listed = false
	_, err = w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, lifecycle.ConditionMaintenanceRequired, condition())
	require.Equal(t, lifecycle.NodeActive, w.status())
}

func TestQuarantine_Breaker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.acts.Policy.Share = 0.1
	w.fleetOf(30, 7)
	w.pass()
	r := w.pass()
	require.Len(t, r.Quarantine.Nodes, 3, "a tenth of 31")
	require.Equal(t, 27, r.Quarantine.Waiting)
	f := w.finding(lifecycle.DriftBreakerOpen)
	require.JSONEq(t, `{"limit": 3, "quarantined": 3, "waiting": 27}`, string(f.Evidence))
	attention, err := w.store.Attention(t.Context(), db.AttentionFilter{SiteID: w.site.ID, Kind: db.AttentionDrift}, db.AttentionPlace{}, 100)
	require.NoError(t, err)
	require.Len(t, attention, 31, "each of them and the breaker")
	require.Empty(t, w.pass().Quarantine.Nodes, "not one more within the hour")
	require.Equal(t, f.ID, w.finding(lifecycle.DriftBreakerOpen).ID)

	_, err = w.act(f.ID, lifecycle.DriftIgnore)
	require.NoError(t, err)
	w.sql("UPDATE drift_findings SET acted_at = acted_at - interval '61 minutes' WHERE acted_by = 'reconciler'")
	require.Len(t, w.pass().Quarantine.Nodes, 2, "a tenth of the 28 that are left")
	w.sql("UPDATE drift_findings SET acted_key = key WHERE detector = $1", lifecycle.DriftGPUCount)
	w.pass()
	require.NotContains(t, w.open(), lifecycle.DriftBreakerOpen)
	done, err := driftdb.FindingByID(t.Context(), w.store, f.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.FindingClosed, done.Finding.Status, "nothing waits any more")
}

// TestPower_BMCDecides: with one login within the budget, and
// none where logins are stopped.
func TestPower_BMCDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.front.says(each(func(m map[string]any) { m["power_state"] = "off" }))
	w.sql("UPDATE heartbeats SET received_at = received_at - interval '5 minutes'")
	r := w.pass()
	require.Equal(t, 1, r.BMCs.Logins)
	require.Zero(t, r.BMCs.Refused)
	require.Empty(t, w.open(), "MAAS is behind: the BMC says that it is on")
	require.Equal(t, 1, w.bmc.Counters().Logins)
	w.acts.Policy.LoginEvery = time.Hour
	require.Zero(t, w.pass().BMCs.Logins, "not again so soon")
	w.acts.Policy.LoginEvery = 0
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), w.rec.ID, "401"))
	require.Zero(t, w.pass().BMCs.Logins, "logins are stopped")
	w.sql("UPDATE drift_bmcs SET power_at = NULL")
	w.pass()
	require.ElementsMatch(t, []string{lifecycle.DriftPoweredOff, lifecycle.DriftBMCLoginBlocked}, w.open(), "nobody contradicts MAAS")
	require.Equal(t, 1, w.bmc.Counters().Logins)
}

// TestHealth_OneLoginWithinTheBudget: the parts of a machine are asked once in a while, with the
// logins that the pass has left, and a BMC that refuses is Unknown.
func TestHealth_OneLoginWithinTheBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.acts.Policy.HealthEvery = time.Hour
	require.NoError(t, w.bmc.SetHealth(unwellPart, "Warning"))
	r := w.pass()
	require.Equal(t, 1, r.BMCs.Healths)
	require.Equal(t, []string{lifecycle.DriftBMCUnhealthy}, w.open())
	f := w.finding(lifecycle.DriftBMCUnhealthy)
	require.Contains(t, f.Message, unwellPart+": Warning")
	require.Zero(t, w.pass().BMCs.Healths, "not again so soon")

	w.sql("UPDATE drift_bmcs SET health_at = health_at - interval '2 hours'")
	w.acts.Policy.Logins = 0
	require.Zero(t, w.pass().BMCs.Healths, "no logins are allowed")
	w.acts.Policy.Logins = 20
	require.NoError(t, w.bmc.AddFault(redfishsim.Fault{Name: redfishsim.FaultAuthReject}))
	r = w.pass()
	require.Equal(t, []int{1, 1}, []int{r.BMCs.Healths, r.BMCs.Refused})
	require.ElementsMatch(t, []string{lifecycle.DriftBMCUnhealthy, lifecycle.DriftBMCLoginBlocked}, w.open(), "what could not be read closes nothing")
	require.Zero(t, w.pass().BMCs.Healths, "logins are stopped")
}

// TestHealth_HasAShareOfItsOwn: machines of unknown power take no login of it.
func TestHealth_HasAShareOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.front.says(each(func(m map[string]any) { m["power_state"] = "off" }))
	w.sql("UPDATE heartbeats SET received_at = received_at - interval '5 minutes'")
	w.acts.Policy.Logins, w.acts.Policy.HealthEvery = 1, time.Hour
	r := w.pass()
	require.Equal(t, []int{1, 1}, []int{r.BMCs.Logins, r.BMCs.Healths}, "one for power and one for the parts")
}

// TestHealth_AnotherProblemIsNoticed: a part that fails beside one that an operator ignores is
// another finding, and one that stays is not.
func TestHealth_AnotherProblemIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.acts.Policy.HealthEvery = time.Nanosecond
	require.NoError(t, w.bmc.SetHealth(unwellPart, "Warning"))
	w.pass()
	f := w.finding(lifecycle.DriftBMCUnhealthy)
	_, err := w.act(f.ID, lifecycle.DriftIgnore)
	require.NoError(t, err)
	w.pass()
	require.Empty(t, w.open(), "it is ignored")
	require.NoError(t, w.bmc.SetHealth(oneGPU, "Warning"))
	w.pass()
	require.Equal(t, []string{lifecycle.DriftBMCUnhealthy}, w.open(), "another part of the same severity")
}

// TestPass_FewRequests: two requests of the region and one for the addresses of
// BMCs, and of a BMC the service root alone, without a login.
func TestPass_FewRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, asked := w.bmc.Counters(), w.front.requests()
	r := w.pass()
	after := w.bmc.Counters()
	require.Equal(t, drift.BMCReport{Probes: 1, Answered: 1}, r.BMCs)
	require.LessOrEqual(t, after.Requests-before.Requests, 2)
	require.Zero(t, after.Logins+after.BasicLogins+after.FailedLogins)
	total := 0
	for what, n := range w.front.requests() {
		total += n - asked[what]
	}
	require.Equal(t, 3, total)
	require.Equal(t, 3, r.List.Requests)
	w.acts.Policy.ProbeEvery = time.Hour
	require.Zero(t, w.pass().BMCs.Probes, "not again so soon")
}

// TestPass_OvertakenChangesNothing.
func TestPass_OvertakenChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.last
	require.NoError(t, w.sim.External("lock", w.id))
	w.pass()
	old.Listed = true
	_, err := w.acts.ComparePage(t.Context(), drift.PageIn{Pass: old})
	require.ErrorContains(t, err, "overtaken")
	_, err = w.acts.QuarantineDrifted(t.Context(), old)
	require.ErrorContains(t, err, "overtaken")
	_, err = w.acts.ListMachines(t.Context(), old)
	require.ErrorContains(t, err, "overtaken")
}

// TestPass_EndsWithItsSite.
func TestPass_EndsWithItsSite(t *testing.T) {
	t.Parallel()
	var ended []string
	acts := &drift.Activities{Store: dbtest.Store(t), Unschedule: func(_ context.Context, site string) error {
		ended = append(ended, site)
		return nil
	}}
	p, err := acts.BeginPass(t.Context(), drift.BeginIn{SiteID: "site_gone"})
	require.NoError(t, err)
	require.True(t, p.Gone)
	require.Equal(t, []string{"site_gone"}, ended)
}

// TestFindings_HoldNoSecret: nothing of a login or key stands in what is stored.
func TestFindings_HoldNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql("UPDATE bmcs SET address = 'https://127.0.0.77' WHERE id = $1", w.rec.ID)
	require.NoError(t, w.sim.External("lock", w.id))
	w.pass()
	text := ""
	for _, f := range w.findings("") {
		text += fmt.Sprintf("%+v %s", f, f.Evidence)
	}
	row, err := driftdb.PassOfSite(t.Context(), w.store, w.site.ID)
	require.NoError(t, err)
	text += string(row.Report)
	for _, secret := range []string{apiKey, "drift-test-key", w.hw.Spec().BMCPassword} {
		require.NotContains(t, text, secret)
	}
}
