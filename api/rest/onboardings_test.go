package rest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

type jobAnswer struct {
	ID, Status, Hostname string
	Stage                string
	NodeID               string `json:"node_id"`
	NeedsHuman           bool   `json:"needs_human"`
	Stages               []struct {
		Ordinal int
		Name    string
		State   string
	}
	AllowedActions     []string `json:"allowed_actions"`
	FailureClass       string   `json:"failure_class"`
	FailedStage        string   `json:"failed_stage"`
	NextStep           string   `json:"next_step"`
	RecommendedAction  string   `json:"recommended_action"`
	ReachedPercent     int      `json:"reached_percent"`
	TemporalWorkflowID string   `json:"temporal_workflow_id"`
	ETA                *lifecycle.Estimate
	Observed           map[string]string
}

func TestAnOnboardingIsOneIntentWithAllItNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	a := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted)
	var job jobAnswer
	a.into(&job)
	require.Equal(t, "/api/v1/admin/onboardings/"+job.ID, a.header.Get("Location"))
	require.Equal(t, "pending", job.Status)
	require.Equal(t, "onboarding/"+job.ID, job.TemporalWorkflowID)

	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	var in contract.OnboardingInput
	require.NoError(t, json.Unmarshal(row.Input, &in))
	bmc, err := w.store.BMC(t.Context(), in.BMCID)
	require.NoError(t, err)
	require.Equal(t, contract.OnboardingInput{SiteID: w.site.ID, ProfileID: w.profile.ID, SKUID: w.sku.ID, Hostname: "gpu-1", BMCID: bmc.ID}, in)
	require.Equal(t, []string{"10.0.0.1", "redfish", "bmc/a", job.NodeID}, []string{bmc.Address, bmc.Protocol, bmc.CredentialRef, *bmc.NodeID})
	backlog, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
	require.NoError(t, err)
	require.EqualValues(t, 1, backlog.Open)

	w.do("GET", a.header.Get("Location"), nil).want(http.StatusOK).into(&job)
	require.Len(t, job.Stages, 16)
	for i, s := range job.Stages {
		require.Equal(t, lifecycle.OnboardingStages()[i], s.Name)
		require.Equal(t, i+1, s.Ordinal)
	}
	node := string(w.do("GET", "/api/v1/nodes/"+job.NodeID, nil).want(http.StatusOK).raw)
	require.Contains(t, node, `"status":"bootstrap_issued"`)
	require.Contains(t, node, `"live_job_id":"`+job.ID)
	require.Contains(t, node, `"bmc_id":"`+bmc.ID)
}

func TestASecondLiveJobIsRefusedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	first := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).id()
	p := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).refused(problem.LiveJob)
	require.Equal(t, first, p.Existing)
	require.Contains(t, p.Detail, first)
	p = w.post("/api/v1/admin/nodes", map[string]any{"site_id": w.site.ID, "profile_id": w.profile.ID, "sku_id": w.sku.ID, "hostname": "gpu-1"}).refused(problem.LiveJob)
	require.Equal(t, first, p.Existing)
}

func TestAQuarantinedNodeIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	node := dbtest.Node(t, w.store, dbtest.At(w.site.ID), dbtest.Hostname("gpu-1"), dbtest.Status(lifecycle.NodeQuarantined))
	bmc, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "10.0.0.9", Protocol: "redfish", CredentialRef: "bmc/old", PinSHA256: "ab"})
	require.NoError(t, err)
	_, err = w.store.SetSecretUse(t.Context(), "bmc/a", spec.SecretUse{Kind: spec.SecretBMCLogin, Nodes: []string{node.ID}})
	require.NoError(t, err)
	var job jobAnswer
	w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).into(&job)
	require.Equal(t, node.ID, job.NodeID)
	got, err := w.store.BMCOfNode(t.Context(), node.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.1", "bmc/a", ""}, []string{got.Address, got.CredentialRef, got.PinSHA256}, "at another address the pin does not hold")
	old, err := w.store.BMC(t.Context(), bmc.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.9", "bmc/old", "ab"}, []string{old.Address, old.CredentialRef, old.PinSHA256}, "what is known of the BMC before stays")
}

func TestAParkedJobSaysWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	now := time.Now().UTC()
	info := lifecycle.Failure(lifecycle.FailBootDiskNotFound)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(t.Context(), db.Projection{
			JobID: job.ID, Seq: 1, RunID: "r", Status: lifecycle.JobFailedManual, Stage: lifecycle.StageConfigureStorage, StageOrdinal: 6, Attempt: 1,
			FailureClass: info.Class, FailedStage: lifecycle.StageConfigureStorage, Message: "no BOSS disk", RecommendedAction: info.Recommended,
			NextStep: info.Next, ReachedPercent: 30, Observed: &lifecycle.Observed{MAAS: "Ready", Power: "off", Agent: "none"},
			Stages: []lifecycle.StageRow{{Ordinal: 1, Name: lifecycle.StageLoadSiteConfig, State: "succeeded", Attempts: 1, StartedAt: &now, FinishedAt: &now}},
			Actor:  db.Actor{Owner: lifecycle.OwnerJob},
		})
		return err
	}))
	var got jobAnswer
	w.do("GET", "/api/v1/admin/onboardings/"+job.ID, nil).want(http.StatusOK).into(&got)
	require.True(t, got.NeedsHuman)
	require.Equal(t, "boot_disk_not_found", got.FailureClass)
	require.Equal(t, lifecycle.StageConfigureStorage, got.FailedStage)
	require.Equal(t, lifecycle.StageConfigureStorage, got.Stage)
	require.Equal(t, info.Next, got.NextStep)
	require.Equal(t, string(info.Recommended), got.RecommendedAction)
	require.Equal(t, 30, got.ReachedPercent)
	require.Equal(t, "the job waits for an operator", got.ETA.Reason)
	require.Equal(t, "Ready", got.Observed["maas"])
	require.Contains(t, got.AllowedActions, "adopt_observed_state")

	for query, want := range map[string]int{"needs_human=true": 1, "needs_human=false": 0, "kind=onboarding": 1, "kind=node_operation": 0, "node_id=" + got.NodeID: 1, "status=pending": 0} {
		var page struct{ Data []jobAnswer }
		w.do("GET", "/api/v1/admin/jobs?"+query, nil).want(http.StatusOK).into(&page)
		require.Len(t, page.Data, want, query)
	}
	w.do("GET", "/api/v1/admin/jobs?status=asleep", nil).refused(problem.Invalid)
	p := w.do("GET", "/api/v1/admin/jobs?kind=nope", nil).refused(problem.Invalid)
	require.Equal(t, "query.kind", p.Errors[0].Location)
	require.Contains(t, p.Errors[0].Message, "onboarding, bmc_rotation")
	other := dbtest.Job(t, w.store, dbtest.Kind("other"))
	w.do("GET", "/api/v1/admin/onboardings/"+other.ID, nil).refused(problem.NotFound)
	w.do("GET", "/api/v1/admin/jobs/"+other.ID, nil).want(http.StatusOK)
	w.do("GET", "/api/v1/admin/onboardings/"+got.NodeID, nil).refused(problem.NotFound)
}

func TestNoItemOfABatchBlocksAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	dbtest.Node(t, w.store, dbtest.At(w.site.ID), dbtest.Hostname("taken"), dbtest.Active())
	item := func(host, ref string) map[string]any {
		address := map[string]string{"gpu-1": "10.0.0.3", "gpu-2": "10.0.0.4", "gpu-3": "10.0.0.5", "taken": "10.0.0.6", "a": "10.0.0.7"}[host]
		return map[string]any{"hostname": host, "bmc": map[string]any{"address": address, "credential_ref": ref}}
	}
	a := w.post("/api/v1/admin/onboarding-batches", map[string]any{
		"name": "rack 7", "site_id": w.site.ID, "profile_id": w.profile.ID, "sku_id": w.sku.ID,
		"items": []any{item("gpu-1", "bmc/a"), item("taken", "bmc/a"), item("gpu-2", "nowhere"), item("gpu-1", "bmc/a"), item("gpu-3", "bmc/a")},
	}).want(http.StatusAccepted)
	var batch struct {
		ID          string
		MaxParallel int `json:"max_parallel"`
		Total       int
		Counts      map[string]int
		Items       []struct {
			Status, Error string
			JobID         string `json:"job_id"`
		}
	}
	a.into(&batch)
	require.Equal(t, 5, batch.Total)
	require.Equal(t, 4, batch.MaxParallel)
	require.Equal(t, map[string]int{"pending": 2, "rejected": 3}, batch.Counts)
	require.Contains(t, batch.Items[1].Error, "active")
	require.Contains(t, batch.Items[2].Error, "bmc.credential_ref")
	require.Contains(t, batch.Items[3].Error, batch.Items[0].JobID)
	require.Equal(t, a.raw, w.do("GET", a.header.Get("Location"), nil).want(http.StatusOK).raw)
	require.Contains(t, string(w.do("GET", "/api/v1/admin/onboarding-batches", nil).want(http.StatusOK).raw), batch.ID)
	w.post("/api/v1/admin/onboarding-batches", map[string]any{"site_id": "x", "profile_id": "y", "items": []any{item("a", "b")}}).refused(problem.Invalid)
	w.post("/api/v1/admin/onboarding-batches", map[string]any{"site_id": w.site.ID, "profile_id": w.profile.ID, "items": []any{}}).refused(problem.Invalid)
}

func TestBootstrapByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	var b struct {
		Node        struct{ ID, Status string }
		JobID       string `json:"job_id"`
		Token       string
		AgentConfig string `json:"agent_config"`
		ServerURL   string `json:"server_url"`
		CAPEM       string `json:"ca_pem"`
	}
	spec := w.site.Spec
	spec.SSHUser = "ops"
	w.do("PUT", "/api/v1/admin/maas-sites/"+w.site.ID, map[string]any{"name": w.site.Name, "spec": spec}, header{"If-Match": "*"}).want(http.StatusOK)
	a := w.post("/api/v1/admin/nodes", map[string]any{"site_id": w.site.ID, "profile_id": w.profile.ID, "sku_id": w.sku.ID, "hostname": "hand"}).want(http.StatusCreated)
	a.into(&b)
	require.Equal(t, "bootstrap_issued", b.Node.Status)
	require.Equal(t, "https://agents.example:7443", b.ServerURL)
	require.Equal(t, testCA, b.CAPEM)
	require.Contains(t, b.AgentConfig, "node_id: "+b.Node.ID)
	require.Contains(t, b.AgentConfig, "platform_users:\n    - ops", "the site's login is no tenant")
	require.NotContains(t, b.AgentConfig, b.Token)
	hash := sha(b.Token)
	tok, err := w.store.EnrollmentToken(t.Context(), hash)
	require.NoError(t, err)
	require.Equal(t, b.Node.ID, tok.NodeID)
	require.Equal(t, b.JobID, *tok.JobID)
	job, err := w.store.Job(t.Context(), b.JobID)
	require.NoError(t, err)
	require.Contains(t, string(job.Input), `"manual": true`)

	again := w.post("/api/v1/admin/nodes/"+b.Node.ID+"/bootstrap", nil).want(http.StatusCreated)
	require.NotContains(t, string(again.raw), b.Token)
	tok, err = w.store.EnrollmentToken(t.Context(), hash)
	require.NoError(t, err)
	require.NotNil(t, tok.RevokedAt, "at most one token of a node is good")
	w.post("/api/v1/admin/nodes/node_x/bootstrap", nil).refused(problem.NotFound)
	other := w.post("/api/v1/admin/onboardings", w.onboarding("auto")).want(http.StatusAccepted)
	var o jobAnswer
	other.into(&o)
	w.post("/api/v1/admin/nodes/"+o.NodeID+"/bootstrap", nil).refused(problem.Conflict)
}
