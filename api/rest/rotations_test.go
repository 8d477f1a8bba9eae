package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// bmc makes a BMC, of an active node or of none.
func (w *world) bmc(node *string) (db.BMC, string) {
	w.t.Helper()
	b, err := w.store.CreateBMC(w.t.Context(), db.NewBMC{NodeID: node, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(w.t, err)
	return b, "/api/v1/admin/bmcs/" + b.ID
}

func (w *world) park(job string, class lifecycle.FailureClass) {
	w.t.Helper()
	for seq, status := range []lifecycle.JobStatus{lifecycle.JobRunning, lifecycle.Failure(class).ParkStatus()} {
		require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
			p := db.Projection{JobID: job, Seq: int64(seq + 1), RunID: "r", Status: status, Stage: lifecycle.StageApplyToBMC, StageOrdinal: 2, Actor: db.Actor{Owner: lifecycle.OwnerJob}}
			if status.Parked() {
				p.FailureClass, p.Message = class, "the BMC said no"
			}
			_, err := tx.ProjectJob(w.t.Context(), p)
			return err
		}))
	}
}

func (w *world) rotationState(bmcID string) lifecycle.RotationState {
	w.t.Helper()
	b, err := w.store.BMC(w.t.Context(), bmcID)
	require.NoError(w.t, err)
	return b.RotationState
}

func TestARotationIsOneIntent(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	node := dbtest.Node(t, w.store, dbtest.At(w.site.ID), dbtest.Hostname("gpu-1"), dbtest.Active())
	b, base := w.bmc(&node.ID)
	a := w.post(base+"/rotations", map[string]any{"reason": "yearly"}).want(http.StatusAccepted)
	var job jobAnswer
	a.into(&job)
	require.Equal(t, "/api/v1/admin/jobs/"+job.ID, a.header.Get("Location"))
	require.Equal(t, []string{"pending", "gpu-1", node.ID, "bmc_rotation/" + job.ID}, []string{job.Status, job.Hostname, job.NodeID, job.TemporalWorkflowID})
	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, []string{b.ID, w.site.ID}, []string{*row.BMCID, *row.SiteID})
	var in contract.BMCRotationInput
	require.NoError(t, json.Unmarshal(row.Input, &in))
	require.Equal(t, contract.BMCRotationInput{BMCID: b.ID, Hostname: "gpu-1", Reason: "yearly"}, in)
	backlog, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
	require.NoError(t, err)
	require.EqualValues(t, 1, backlog.Open)

	got := w.do("GET", a.header.Get("Location"), nil).want(http.StatusOK)
	got.into(&job)
	require.Contains(t, string(got.raw), `"bmc_id":"`+b.ID)
	require.Len(t, job.Stages, len(lifecycle.BMCRotationStages()))
	for i, s := range job.Stages {
		require.Equal(t, lifecycle.BMCRotationStages()[i], s.Name)
	}
	require.Contains(t, string(w.do("GET", "/api/v1/admin/jobs?kind=bmc_rotation&bmc_id="+b.ID, nil).raw), job.ID)
	w.do("GET", "/api/v1/admin/onboardings/"+job.ID, nil).refused(problem.NotFound)
	require.Contains(t, string(w.do("GET", "/api/v1/nodes/"+node.ID+"/timeline", nil).raw), "yearly")

	// One live job holds the node: no second rotation, whoever asks.
	p := w.post(base+"/rotations", nil).refused(problem.LiveJob)
	require.Equal(t, job.ID, p.Existing)
	require.Contains(t, p.Detail, job.ID)
	w.post("/api/v1/admin/jobs/"+job.ID+"/actions/cancel", nil).want(http.StatusOK)
	w.post(base+"/rotations", nil).want(http.StatusAccepted)
}

func TestARotationWaitsForTheNodesOtherJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	var onboarding jobAnswer
	w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).into(&onboarding)
	b, err := w.store.BMCOfNode(t.Context(), onboarding.NodeID)
	require.NoError(t, err)
	p := w.post("/api/v1/admin/bmcs/"+b.ID+"/rotations", nil).refused(problem.LiveJob)
	require.Equal(t, onboarding.ID, p.Existing)
	require.Contains(t, p.Detail, "onboarding")
	w.post("/api/v1/admin/bmcs/bmc_none/rotations", nil).refused(problem.NotFound)
}

func TestABMCWithoutANodeHasOneRotationAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	_, base := w.bmc(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	ids, refused := map[string]bool{}, 0
	for i := range 6 {
		wg.Go(func() {
			a := w.do("POST", base+"/rotations", map[string]any{}, header{"Idempotency-Key": fmt.Sprintf("k%d", i%3)})
			mu.Lock()
			defer mu.Unlock()
			if a.status == http.StatusConflict {
				refused++
			} else {
				ids[a.want(http.StatusAccepted).id()] = true
			}
		})
	}
	wg.Wait()
	require.Len(t, ids, 1)
	require.GreaterOrEqual(t, refused, 2)
}

func TestNoRotationWhileLoginsAreStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	b, base := w.bmc(nil)
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), b.ID, "the BMC rejected the login"))
	p := w.post(base+"/rotations", nil).refused(problem.Conflict)
	for _, hint := range []string{"the BMC rejected the login", base + "/credential", "clear-auth-block"} {
		require.Contains(t, p.Detail, hint)
	}
	w.post(base+"/actions/clear-auth-block", nil).want(http.StatusOK)
	w.post(base+"/rotations", nil).want(http.StatusAccepted)
}

func TestAnotherLoginIsSetByVersionAndTriedByNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	b, base := w.bmc(nil)
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": "bmc/b", "value": `{"username":"root","password":"fresh"}`, "use": bmcUse}).want(http.StatusOK)
	body := map[string]any{"credential_ref": "bmc/b", "reason": "changed by hand"}
	w.do("PUT", base+"/credential", body).refused(problem.VersionMissing)
	w.do("PUT", base+"/credential", body, header{"If-Match": `"9"`}).refused(problem.Stale)
	for _, wrong := range []string{"bmc/none", "Not A Ref", ""} {
		p := w.do("PUT", base+"/credential", map[string]any{"credential_ref": wrong}, header{"If-Match": "*"}).refused(problem.Invalid)
		require.Equal(t, "body.credential_ref", p.Errors[0].Location)
	}
	job := w.post(base+"/rotations", nil).want(http.StatusAccepted).id()
	tag := w.do("GET", base, nil).header.Get("ETag")
	require.Equal(t, job, w.do("PUT", base+"/credential", body, header{"If-Match": tag}).refused(problem.LiveJob).Existing)

	w.park(job, lifecycle.FailBMCAuthRejected)
	_, err := w.store.BeginBMCRotation(t.Context(), b.ID, job)
	require.NoError(t, err)
	require.NoError(t, w.store.SetBMCCandidate(t.Context(), b.ID, "bmc/new@1", ""))
	for _, move := range []lifecycle.Transition[lifecycle.RotationState]{lifecycle.RotationSend, lifecycle.RotationAccept} {
		require.NoError(t, w.store.MoveBMCRotation(t.Context(), b.ID, "bmc/new@1", w.rotationState(b.ID), move))
	}
	require.Equal(t, job, w.do("PUT", base+"/credential", body, header{"If-Match": "*"}).refused(problem.Conflict).Existing)
	require.NoError(t, w.store.MoveBMCRotation(t.Context(), b.ID, "bmc/new@1", lifecycle.RotationApplied, lifecycle.RotationRefuse))
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), b.ID, "rejected"))
	var got struct {
		CredentialRef string `json:"credential_ref"`
		BlockedAt     string `json:"auth_blocked_at"`
		NextStep      string `json:"next_step"`
	}
	a := w.do("PUT", base+"/credential", body, header{"If-Match": "*"}).want(http.StatusOK)
	a.into(&got)
	require.Equal(t, "bmc/b", got.CredentialRef)
	require.NotEmpty(t, got.BlockedAt, "it clears nothing")
	require.Contains(t, got.NextStep, "clear-auth-block")
	require.Contains(t, got.NextStep, job)
	require.Equal(t, a.header.Get("ETag"), w.do("GET", base, nil).header.Get("ETag"))
	rows, err := w.store.ResourceTimeline(t.Context(), "bmc", b.ID, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "set_credential", rows[0].Name)
	require.Contains(t, string(rows[0].Metadata), `"old_credential_ref": "bmc/a"`)
}

func TestHistoryOfRotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	_, base := w.bmc(nil)
	var jobs []string
	_, bmcID, _ := strings.Cut(base, "/bmcs/")
	for i := range 3 {
		job := w.post(base+"/rotations", map[string]any{"reason": fmt.Sprint("number ", i)}).want(http.StatusAccepted).id()
		jobs = append(jobs, job)
		if i > 0 { // the first one ended before it began
			_, err := w.store.BeginBMCRotation(t.Context(), bmcID, job)
			require.NoError(t, err)
			require.NoError(t, w.store.SetBMCCandidate(t.Context(), bmcID, "bmc/new@1", ""))
		}
		if i == 1 {
			require.NoError(t, w.store.DropBMCRotation(t.Context(), bmcID, "bmc/new@1", "taken back"))
		}
		if i < 2 {
			w.post("/api/v1/admin/jobs/"+job+"/actions/cancel", nil).want(http.StatusOK)
		} else {
			w.park(job, lifecycle.FailBMCUnreachable)
		}
	}
	var page struct {
		Data       []map[string]any
		NextCursor string `json:"next_cursor"`
	}
	w.do("GET", base+"/rotations?limit=2", nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 2)
	require.Equal(t, jobs[2], page.Data[0]["job_id"])
	require.Equal(t, "needs_human", page.Data[0]["outcome"])
	require.Equal(t, "bmc_unreachable", page.Data[0]["failure_class"])
	require.Equal(t, "number 2", page.Data[0]["reason"])
	require.Equal(t, []any{"bmc/a", "bmc/new@1"}, []any{page.Data[0]["old_credential_ref"], page.Data[0]["new_credential_ref"]})
	require.Equal(t, []any{"undone", "taken back", "cancelled"}, []any{page.Data[1]["outcome"], page.Data[1]["message"], page.Data[1]["status"]})
	require.NotEmpty(t, page.Data[1]["finished_at"])
	cursor := page.NextCursor
	page.NextCursor, page.Data = "", nil
	w.do("GET", base+"/rotations?limit=2&cursor="+cursor, nil).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 1)
	require.Equal(t, []any{jobs[0], "cancelled"}, []any{page.Data[0]["job_id"], page.Data[0]["outcome"]})
	require.NotContains(t, page.Data[0], "new_credential_ref")
	require.Empty(t, page.NextCursor)
	w.do("GET", "/api/v1/admin/bmcs/bmc_none/rotations", nil).refused(problem.NotFound)
}
