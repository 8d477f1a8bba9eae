package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

type attentionPage struct {
	Data       []rest.Attention
	NextCursor string `json:"next_cursor"`
}

func (w *world) attention(query string) attentionPage {
	w.t.Helper()
	var got attentionPage
	w.do("GET", "/api/v1/admin/attention"+query, nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).want(http.StatusOK).into(&got)
	return got
}

// swept: the sweeper has just looked.
func swept(t *testing.T, s *db.Store) {
	t.Helper()
	require.NoError(t, s.FinishSweep(t.Context(), ""))
}

func TestAttentionSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store = store })
	for role := range w.tokens {
		token, err := op.CreateToken(t.Context(), store, "on-"+role, []string{role}, time.Hour)
		require.NoError(t, err)
		w.tokens[role] = token
	}
	swept(t, store)
	require.Empty(t, w.attention("").Data)

	parked := dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobFailedManual))
	_, _, err := store.SeeFinding(t.Context(), db.Finding{Kind: db.FindingGone, Subject: parked.ID, JobID: &parked.ID, Message: "terminated"})
	require.NoError(t, err)
	silent := dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobRunning))
	_, _, err = store.SeeFinding(t.Context(), db.Finding{Kind: db.FindingSilent, Subject: silent.ID, JobID: &silent.ID, Message: "its workflow task failed 5 times"})
	require.NoError(t, err)
	waits := dbtest.Job(t, store)
	_, _, err = store.SeeFinding(t.Context(), db.Finding{Kind: db.FindingOrphan, Subject: "onboarding/job_x", Message: "no job for it"})
	require.NoError(t, err)
	node := dbtest.Node(t, store, dbtest.Status(lifecycle.NodeQuarantined))
	between := dbtest.Node(t, store, dbtest.Status(lifecycle.NodeEnrolling))
	locked := dbtest.Node(t, store, dbtest.Active())
	bmc, err := store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	require.NoError(t, store.BlockBMCLogin(t.Context(), bmc.ID, "the BMC answered 401"))
	require.NoError(t, store.SetBMCPinPending(t.Context(), bmc.ID, "abcd"))
	unknown := uncertainTask(t, store, dsn)
	absent, _ := lifecycle.DriftDetectorOf(lifecycle.DriftMachineAbsent)
	_, err = driftdb.ObserveFindings(t.Context(), store, locked.SiteID, []driftdb.Observation{{Detector: absent, Subject: locked.ID, NodeID: locked.ID, Message: "MAAS has no such machine"}})
	require.NoError(t, err)
	dbtest.PXENode(t, store, "52:54:01:00:00:01", lifecycle.NodeInstallFailed)
	moves := dbtest.Job(t, store, dbtest.On(dbtest.PXENode(t, store, "52:54:01:00:00:03", lifecycle.NodeMigrating).ID), dbtest.JobStatus(lifecycle.JobRunning))
	quiet := dbtest.PXENode(t, store, "52:54:01:00:00:02", lifecycle.NodeActive)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		for i := range 900 {
			if _, _, err := tx.Discover(t.Context(), db.Discovery{MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", i/256, i%256)}); err != nil {
				return err
			}
		}
		return nil
	}))
	dbtest.Node(t, store, dbtest.Active())
	alter(t, dsn, "UPDATE nodes SET tenant_left_at = now() WHERE id = '"+locked.ID+"'")
	alter(t, dsn, "UPDATE outbox SET created_at = now() - interval '2 minutes', last_error = 'no answer' WHERE job_id = '"+waits.ID+"'",
		"UPDATE outbox SET done_at = now() WHERE kind = 'start_workflow' AND job_id <> '"+waits.ID+"'",
		"UPDATE outbox SET done_at = now() WHERE kind = 'event'",
		"INSERT INTO outbox (kind, type, created_at) VALUES ('event', 'node.active', now() - interval '2 minutes')",
		"UPDATE nodes SET state_changed_at = now() - interval '11 minutes' WHERE id = '"+between.ID+"'",
		"UPDATE sites SET created_at = now() - interval '1 hour' WHERE id = '"+between.SiteID+"'",
		"INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
			"VALUES ('"+locked.ID+"', 1, '1', sha256('k'), 'PEM', now(), now())",
		"INSERT INTO agent_identities (node_id, generation, locked_at, locked_reason, adopted_at) VALUES ('"+locked.ID+"', 1, now(), 'a certificate of the past', now())",
		"INSERT INTO agent_refusals (node_id, kind, detail, address) VALUES ('"+locked.ID+"', 'former_enrolment', 'an old one was shown', '192.0.2.1')",
		"INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
			"VALUES ('"+quiet.ID+"', 1, '2', sha256('l'), 'PEM', now(), now() + interval '1 hour')",
		"INSERT INTO agent_identities (node_id, generation) VALUES ('"+quiet.ID+"', 1)",
		"INSERT INTO heartbeats (node_id, boot_id, agent_version, generation, received_at) VALUES ('"+quiet.ID+"', 'b', '1', 1, now() - interval '1 hour')",
		"UPDATE jobs SET stage = 'replace_hardware' WHERE id = '"+moves.ID+"'",
		"UPDATE sweep_passes SET finished_at = now() - interval '2 minutes'",
		"UPDATE billing_control SET clock_disagrees_since = now(), clock_disagrees = 'a day apart', enforcement_stopped_at = now(), enforcement_stopped = '9 of 9', "+
			"ticked_at = now() - interval '11 minutes'",
		"INSERT INTO prices (id, sku_id, currency, rate_minor_per_hour, valid, set_by) VALUES ('prc_x', '"+dbtest.SKU(t, store).ID+"', 'USD', 1, tstzrange(now(), NULL), 'x')",
		"INSERT INTO billing_accounts (id, name) VALUES ('acc_x', 'x')",
		"INSERT INTO audit_breaks (resource_kind, resource_id, broken_seq) VALUES ('ledger', 'acc_x/prepaid/000000000000000', 7)",
		"UPDATE audit_checks SET begun_at = now() - interval '2 days', finished_at = NULL",
		"INSERT INTO restores DEFAULT VALUES",
		"UPDATE account_balances SET set_aside_at = now(), set_aside_reason = 'out of range' WHERE billing_account_id = 'acc_x'",
		"SET session_replication_role = replica",
		"INSERT INTO payment_sessions (id, billing_account_id, project_id, requested_by, idempotency_key, request_hash, status, requested_amount_minor, currency, live, "+
			"success_url, cancel_url, expires_at, created_at, completed_at, stripe_checkout_session_id, failure_code, failure_message) VALUES "+
			"('pay_x', 'acc_x', 'prj_x', 'x', '1', '', 'failed_reconcile', 500, 'USD', false, '', '', now(), now(), now(), 'cs_x', 'payment_mismatch', '5.00 and 6.00'), "+
			"('pay_y', 'acc_x', 'prj_x', 'x', '2', '', 'initiated', 500, 'USD', false, '', '', now(), now() - interval '2 hours', NULL, NULL, '', '')",
		"INSERT INTO payment_disputes (id, session_id, billing_account_id, source, amount_minor, currency, state) VALUES ('du_x', 'pay_x', 'acc_x', 'prepaid', 500, 'USD', 'open')",
		"INSERT INTO payment_differences (kind, subject, message) VALUES ('session', 'cs_y', 'no session has it')",
		"INSERT INTO instances (id, project_id, name, provider, zone, type, image, model, status, job_id, created_by, error_code, failed_at) "+
			"VALUES ('inst_x', 'prj_x', 'x', 'mock', 'mock-1', 'MOCK-GPU', '', 'm', 'failed', 'job_x', 'x', 'CANCELLED', now() - interval '4 days')",
		"INSERT INTO instance_orphans (provider, zone, kind, resource_id) VALUES ('mock', 'mock-1', 'volume', 'vol-1')",
		"INSERT INTO instance_looks (provider, zone, problem, problem_since) VALUES ('mock', 'mock-1', 'it does not answer', now())",
		"INSERT INTO run_campaigns (id, request_id, display_name, type, plan_id, filter, selection_hash, max_parallel, stop_after, skip_canary, accept_risk, status, message, restore_id, created_by) "+
			"VALUES ('campaign_x', 'x', 'weekly', 'REBOOT', 'p', 'phase=READY', '', 1, 1, false, false, 'STOPPED', '1 run failed', 0, 'x')",
		"INSERT INTO machines (id, status, spec) VALUES ('m-failed', 'MAINTENANCE', '{}'), ('m-cancelled', 'MAINTENANCE', '{}'), ('m-ready', 'READY', '{}')",
		"INSERT INTO runs (id, machine_id, request_id, type, plan_id, steps, status, job_id, failure_class, message, current_step, created_by, finished_at) VALUES "+
			"('run_1', 'm-failed', '1', 'UPGRADE', 'p', '[]', 'FAILED', 'job_r1', 'command_failed', 'step work failed: exit 1', 'work', 'x', now()), "+
			"('run_2', 'm-ready', '1', 'UPGRADE', 'p', '[]', 'FAILED', 'job_r2', 'command_failed', 'exit 1', 'work', 'x', now()), "+
			"('run_3', 'm-cancelled', '1', 'UPGRADE', 'p', '[]', 'CANCELED', 'job_r3', '', '', 'work', 'x', now())",
		"SET session_replication_role = origin")

	dbtest.Occupy(t, store, dbtest.Node(t, store, dbtest.Active()).ID)
	alter(t, dsn, "SET ROLE slipway_app", "UPDATE allocation_keys SET withdrawn_at = now() - interval '2 minutes'", "RESET ROLE")
	byKind := map[string]rest.Attention{}
	for _, a := range w.attention("").Data {
		byKind[a.Kind] = a
		require.NotEmpty(t, a.Message, a.Kind)
		require.NotEmpty(t, a.NextAction, a.Kind)
		require.True(t, strings.HasSuffix(a.NextAction, "."), "a sentence: %s", a.NextAction)
		require.NotNil(t, a.AllowedActions)
		page, anchor, _ := strings.Cut(a.Runbook, "#")
		text := string(w.do("GET", page, nil, header{"Authorization": ""}).want(http.StatusOK).raw)
		require.True(t, strings.Contains(text, `id="`+anchor), "%s leads to %s", a.Kind, a.Runbook)
		require.Equal(t, time.UTC, a.Since.Location())
		if a.Kind != db.AttentionOrphanWorkflow && a.Kind != db.AttentionSweeper {
			w.do("GET", a.Link, nil).want(http.StatusOK)
		}
	}
	for _, kind := range db.AttentionKinds() {
		require.Contains(t, byKind, kind, "the enum of the API is the list of the database")
		require.Len(t, w.attention("?kind="+kind).Data, 1)
	}
	require.Len(t, byKind, len(db.AttentionKinds()))
	require.Equal(t, "the ledger of billing account acc_x, account prepaid, is missing entry 7 or it was changed", byKind[db.AttentionAuditBroken].Message)

	p := byKind[db.AttentionParkedJob]
	require.Equal(t, parked.ID, p.JobID)
	require.True(t, p.WorkflowLost)
	require.Contains(t, p.AllowedActions, string(lifecycle.ActionResume))
	require.Equal(t, "/api/v1/admin/jobs/"+parked.ID, p.Link)
	require.Contains(t, byKind[db.AttentionJobStuck].Message, "failed 5 times")
	require.Contains(t, byKind[db.AttentionStartNotSent].Message, "no answer")
	require.Contains(t, byKind[db.AttentionEventNotSent].Message, "1 event is not relayed")
	require.Equal(t, []string{"clear-auth-block"}, byKind[db.AttentionBMCLoginBlocked].AllowedActions)
	require.Contains(t, byKind[db.AttentionBMCLoginBlocked].Message, "401")
	require.Contains(t, byKind[db.AttentionBMCPinPending].Message, "abcd")
	require.Equal(t, node.Hostname, byKind[db.AttentionNodeQuarantined].Hostname)
	require.Equal(t, "/api/v1/tasks/"+unknown.ID, byKind[db.AttentionTaskUncertain].Link)
	require.Contains(t, byKind[db.AttentionTaskUncertain].Message, "gpu.scrub")
	require.Equal(t, []string{"requeue"}, byKind[db.AttentionTaskUncertain].AllowedActions)
	require.InDelta(t, 120, byKind[db.AttentionSweeper].AgeSeconds, 30)
	require.NotContains(t, byKind[db.AttentionSweeper].Message, "Temporal does not answer")

	require.Equal(t, "machine m-failed is in MAINTENANCE: run run_1 (UPGRADE) failed: step work failed: exit 1", byKind[db.AttentionRunFailed].Message)
	require.Equal(t, []string{"work", "command_failed"}, []string{byKind[db.AttentionRunFailed].Stage, byKind[db.AttentionRunFailed].FailureClass})

	w.engine.breaks(serviceerror.NewUnavailable("down"))
	require.Contains(t, w.attention("?kind=sweeper").Data[0].Message, "Temporal does not answer")
	require.Len(t, w.attention("?site_id="+node.SiteID).Data, 3, "the node and its BMC, twice")
}

// alter runs SQL beside the store, as the owner of the database.
func alter(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn := dbtest.Owner(t, dsn)
	for _, s := range statements {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err, s)
	}
}

func TestAttentionIsPagedOldestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	swept(t, w.store)
	var want []string
	for range 5 {
		want = append(want, dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeQuarantined)).ID)
	}
	var got []string
	cursor := ""
	for pages := 0; ; pages++ {
		require.Less(t, pages, 4)
		page := w.attention("?limit=2&cursor=" + url.QueryEscape(cursor))
		for _, a := range page.Data {
			got = append(got, a.NodeID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, want, got)
	w.do("GET", "/api/v1/admin/attention?cursor=bm90IG9uZQ", nil).refused(problem.Invalid)
	w.do("GET", "/api/v1/admin/attention?kind=weather", nil).refused(problem.Invalid)
	w.do("GET", "/api/v1/admin/attention?colour=red", nil).refused(problem.Invalid)
}

// TestAttentionIsExplained: the page that the API names has its section.
func TestAttentionIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "run", "incidents.md"))
	require.NoError(t, err)
	require.True(t, strings.Contains(string(page), "\n## What requires operator action\n"), "docs/run/incidents.md has no section for it")
	for _, kind := range db.AttentionKinds() {
		require.True(t, strings.Contains(string(page), "`"+kind+"`"), "docs/run/incidents.md does not explain %s", kind)
	}
}
