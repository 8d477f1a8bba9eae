package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
)

// pxeWorld is a world with an install workflow that puts an agent on nodes, and
// PXE nodes that are assigned it as both: to be installed and to be erased.
type pxeWorld struct {
	*world
	plans    *planEngine
	workflow string
	machines int
}

func newPXEWorld(t *testing.T) *pxeWorld {
	t.Helper()
	w, e := planWorld(t)
	p := &pxeWorld{world: w, plans: e}
	p.workflow = p.agentWorkflow("live")
	return p
}

// agentWorkflow is one whose systems have an agent.
func (w *world) agentWorkflow(name string) string {
	w.t.Helper()
	return w.post("/api/v1/admin/install-workflows", map[string]any{"name": name, "spec": map[string]any{
		"kernel": map[string]any{"url": "http://127.0.0.1:1/vmlinuz"}, "command_line": "ds=nocloud-net;s={{ .SeedURL }}", "user_data": autoinstall,
		"agent": map[string]any{"heartbeat_seconds": 10},
	}}).want(http.StatusCreated).id()
}

func (w *pxeWorld) mac() string {
	w.machines++
	return fmt.Sprintf("52:54:00:00:%02x:%02x", w.machines/256, w.machines%256)
}

// bare is a node in a state, with an install workflow that puts no agent on it.
func (w *pxeWorld) bare(s lifecycle.NodeStatus) (n db.Node, path string) {
	w.t.Helper()
	n = dbtest.PXENode(w.t, w.store, w.mac(), s)
	return n, "/api/v1/nodes/" + n.ID
}

// ready is a node that a job can work on.
func (w *pxeWorld) ready(s lifecycle.NodeStatus) (n db.Node, path string) {
	w.t.Helper()
	n, path = w.bare(s)
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		row, err := tx.AssignEraseWorkflow(w.t.Context(), n.ID, n.Version, w.workflow)
		if err != nil {
			return err
		}
		n, err = tx.AssignInstallWorkflow(w.t.Context(), n.ID, row.Version, w.workflow)
		return err
	}))
	return n, path
}

func (w *pxeWorld) set(path string, body map[string]any, headers ...header) answer {
	w.t.Helper()
	return w.do("POST", path+"/state", body, append([]header{anyVersion}, headers...)...)
}

// jobOf is the job that a node's answer names.
func (w *pxeWorld) jobOf(a answer) (string, contract.DecommissionInput) {
	w.t.Helper()
	var n rest.Node
	a.want(http.StatusOK).into(&n)
	require.NotNil(w.t, n.PXE)
	require.NotEmpty(w.t, n.PXE.JobID, string(a.raw))
	job, err := w.store.Job(w.t.Context(), n.PXE.JobID)
	require.NoError(w.t, err)
	var in contract.DecommissionInput
	require.NoError(w.t, json.Unmarshal(job.Input, &in))
	return job.ID, in
}

func TestPXEStatesComeWithTheirJob(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	bmc, _ := w.bmc(&n.ID)
	id, in := w.jobOf(w.set(path, map[string]any{"state": "deprovisioning", "comment": "end of lease", "grace_seconds": 60}))
	require.Equal(t, contract.DecommissionInput{
		Mode: lifecycle.ModeDeprovision, NodeID: n.ID, Hostname: n.Hostname, BMCID: bmc.ID, From: lifecycle.NodeActive, Reason: "end of lease", GraceSeconds: 60,
	}, in)
	require.Equal(t, "deprovisioning", w.pxeNode(n.ID).Status)

	var job rest.Job
	w.do("GET", "/api/v1/admin/jobs/"+id, nil).want(http.StatusOK).into(&job)
	require.Equal(t, []string{"node_operation", "deprovision", n.Hostname, n.ID, ""}, []string{job.Kind, job.Mode, job.Hostname, job.NodeID, job.SiteID})
	info, _ := lifecycle.DecommissionModeOf(lifecycle.ModeDeprovision)
	require.Len(t, job.Stages, len(info.Stages))
	require.Equal(t, lifecycle.StageBootEraser, job.Stages[3].Name)
	var jobs struct{ Data []rest.Job }
	w.do("GET", "/api/v1/admin/jobs?node_id="+n.ID, nil).want(http.StatusOK).into(&jobs)
	require.Len(t, jobs.Data, 1)
	w.do("GET", "/api/v1/admin/jobs?site_id="+w.site.ID, nil).want(http.StatusOK).into(&jobs)
	require.Empty(t, jobs.Data)
	var plan rest.Plan
	w.do("GET", "/api/v1/admin/jobs/"+id+"/plan", nil).want(http.StatusOK).into(&plan)
	require.Equal(t, []string{id, ""}, []string{plan.JobID, plan.SiteID})
	require.Contains(t, string(w.do("GET", path+"/timeline", nil).want(http.StatusOK).raw), id, "the job is in the node's timeline")

	var history struct{ Data []map[string]any }
	w.do("GET", path+"/history", nil).want(http.StatusOK).into(&history)
	first := history.Data[0]
	delete(first, "id")
	delete(first, "created_at")
	require.Contains(t, first["user_id"], "the-admin")
	first["user_id"] = "me"
	raw, err := json.Marshal(first)
	require.NoError(t, err)
	require.JSONEq(t, `{"from_state":"active","to_state":"deprovisioning","triggered_by":"admin","user_id":"me","comment":"end of lease","metadata":{"mode":"deprovision"}}`, string(raw))

	// It was not begun; cancelling it leaves the state, and the list says so.
	swept(t, w.store)
	require.Empty(t, w.attention("?kind=node_stuck").Data)
	w.do("POST", "/api/v1/admin/jobs/"+id+"/actions/cancel", map[string]any{}).want(http.StatusOK)
	require.Equal(t, "deprovisioning", w.pxeNode(n.ID).Status)
	require.Equal(t, []string{"deprovisioning", "retired"}, w.pxeNode(n.ID).PXE.AdminStates)
	stuck := w.attention("?kind=node_stuck").Data
	require.Len(t, stuck, 1)
	require.Contains(t, stuck[0].NextAction, "slipway node deprovision "+n.Hostname)
	require.Equal(t, path, stuck[0].Link)
	next, _ := w.jobOf(w.set(path, map[string]any{"state": "deprovisioning"}))
	require.NotEqual(t, id, next)
	require.Empty(t, w.attention("?kind=node_stuck").Data)
}

// TestPXEStatesByStateAndLiveJob is what happens to each request in each state,
// with and without a job in the way.
func TestPXEStatesByStateAndLiveJob(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	for _, info := range lifecycle.NodePXE.States {
		for want, mode := range map[lifecycle.NodeStatus]lifecycle.DecommissionMode{
			lifecycle.NodeDeprovisioning: lifecycle.ModeDeprovision, lifecycle.NodeMigrating: lifecycle.ModeMigrate,
		} {
			n, path := w.ready(info.State)
			ask := map[string]any{"state": want}
			if info.State != lifecycle.NodeActive && info.State != want {
				p := w.set(path, ask).refused(problem.IllegalTransition)
				require.Contains(t, p.Detail, "it is set on a node that is active or "+string(want), info.State)
				require.Equal(t, lifecycle.NodePXE.ReachableBy(info.State, lifecycle.OwnerAdmin), p.Allowed)
				continue
			}
			id, in := w.jobOf(w.set(path, ask))
			require.Equal(t, []any{mode, info.State}, []any{in.Mode, in.From})
			again, _ := w.jobOf(w.set(path, ask))
			require.Equal(t, id, again, "asked for once more, it is at work")
			other := map[lifecycle.NodeStatus]any{lifecycle.NodeDeprovisioning: lifecycle.NodeMigrating, lifecycle.NodeMigrating: lifecycle.NodeDeprovisioning}[want]
			for _, in := range []map[string]any{{"state": want, "grace_seconds": 5}, {"state": other}, {"state": "retired"}} {
				p := w.set(path, in).refused(problem.LiveJob)
				require.Equal(t, id, p.Existing)
				require.Contains(t, p.Detail, "slipway job cancel "+id)
			}
			ends := "retired"
			if want == lifecycle.NodeMigrating {
				w.set(path, map[string]any{"state": "active"}).refused(problem.LiveJob)
				ends = "active"
			}
			w.set(path, map[string]any{"state": ends, "force": true, "comment": "it burned down"}).want(http.StatusOK)
			require.Equal(t, ends, w.pxeNode(n.ID).Status)
		}
	}
}

// A job about something else is in the way of one that owns the state, and of
// nothing else.
func TestPXEStatesBesideAnotherJob(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	_, bmc := w.bmc(&n.ID)
	var job rest.Job
	w.post(bmc+"/rotations", map[string]any{}).want(http.StatusAccepted).into(&job)
	require.Empty(t, job.SiteID, "a PXE node belongs to no site")
	p := w.set(path, map[string]any{"state": "deprovisioning"}).refused(problem.LiveJob)
	require.Equal(t, job.ID, p.Existing)
	require.Contains(t, p.Detail, "bmc_rotation")
	w.set(path, map[string]any{"state": "deprovisioning", "force": true}).refused(problem.LiveJob)
	w.set(path, map[string]any{"state": "reprovision"}).want(http.StatusOK)
}

func TestPXEJobsNeedTheirMeans(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.bare(lifecycle.NodeActive)
	p := w.set(path, map[string]any{"state": "deprovisioning"}).refused(problem.Conflict)
	for _, way := range []string{"slipway node assign-workflow " + n.Hostname + " WORKFLOW --erase", "erase_workflow_id", "device group"} {
		require.Contains(t, p.Detail, way)
	}
	require.Equal(t, "active", w.pxeNode(n.ID).Status)
	var view rest.Node
	patch := func(body map[string]any, headers ...header) answer {
		return w.do("PATCH", path, body, append([]header{anyVersion}, headers...)...)
	}
	patch(map[string]any{"erase_workflow_id": w.workflow}, w.as("operator")).refused(problem.Forbidden)
	patch(map[string]any{"erase_workflow_id": "wf_none"}).refused(problem.Invalid)
	p = patch(map[string]any{"erase_workflow_id": w.installWorkflow("no-agent")}).refused(problem.Invalid)
	require.Contains(t, p.Errors[0].Message, "installs no agent")
	patch(map[string]any{}).refused(problem.Invalid)

	// The device group's counts where the node has none.
	group := "/api/v1/admin/device-groups/lab"
	w.do("PUT", group, map[string]any{"auto_promote": false, "erase_workflow_id": "wf_none"}).refused(problem.Invalid)
	w.do("PUT", group, map[string]any{"auto_promote": false, "erase_workflow_id": w.workflow}).want(http.StatusOK)
	require.Contains(t, string(w.do("GET", "/api/v1/admin/device-groups", nil).want(http.StatusOK).raw), w.workflow)
	w.do("DELETE", "/api/v1/admin/install-workflows/"+w.workflow, nil, anyVersion).refused(problem.Conflict)
	patch(map[string]any{"labels": map[string]any{"device-group": "lab"}}).want(http.StatusOK)
	w.jobOf(w.set(path, map[string]any{"state": "deprovisioning"}))

	_, path = w.bare(lifecycle.NodeActive)
	patch(map[string]any{"erase_workflow_id": w.workflow}).want(http.StatusOK)
	w.do("GET", path, nil).want(http.StatusOK).into(&view)
	require.Equal(t, w.workflow, view.PXE.EraseWorkflowID)
	p = w.set(path, map[string]any{"state": "migrating"}).refused(problem.Conflict)
	require.Contains(t, p.Detail, "installs no agent")
	p = w.set(path, map[string]any{"state": "migrating", "disks": "moved"}).refused(problem.Conflict)
	require.Contains(t, p.Detail, "No agent of node")
	patch(map[string]any{"erase_workflow_id": "", "install_workflow_id": w.workflow}).want(http.StatusOK)
	w.set(path, map[string]any{"state": "migrating", "erase_old": true}).refused(problem.Conflict)
	_, in := w.jobOf(w.set(path, map[string]any{"state": "migrating"}))
	require.Equal(t, []any{db.DisksNew, false}, []any{in.Disks, in.EraseOld})
}

func TestPXEStateRequestsThatAreWrong(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	_, path := w.ready(lifecycle.NodeActive)
	for field, body := range map[string]map[string]any{
		"body.disks":                     {"state": "deprovisioning", "disks": "new"},
		"body.erase_old":                 {"state": "migrating", "disks": "moved", "erase_old": true},
		"body.hardware":                  {"state": "retired", "hardware": map[string]any{"mac_addresses": []string{"52:54:00:00:0f:01"}}},
		"body.grace_seconds":             {"state": "retired", "grace_seconds": 1},
		"body.hardware.mac_addresses[0]": {"state": "migrating", "hardware": map[string]any{"mac_addresses": []string{"ff:ff:ff:ff:ff:ff"}}},
		"body.hardware.bmc.credential_ref": {"state": "migrating", "hardware": map[string]any{
			"mac_addresses": []string{"52:54:00:00:0f:01"}, "bmc": map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/none"}}},
	} {
		p := w.set(path, body).refused(problem.Invalid)
		require.Len(t, p.Errors, 1, field)
		require.Equal(t, field, p.Errors[0].Location)
	}
	w.set(path, map[string]any{"state": "migrating", "disks": "old"}).refused(problem.Invalid)
	for _, state := range []string{"deprovisioning", "migrating"} {
		for _, role := range []string{"viewer", "operator"} {
			w.set(path, map[string]any{"state": state}, w.as(role)).refused(problem.Forbidden)
		}
		w.do("POST", path+"/state", map[string]any{"state": state}).refused(problem.VersionMissing)
		w.do("POST", path+"/state", map[string]any{"state": state}, header{"If-Match": `"1"`}).refused(problem.Stale)
	}
	jobs, err := w.store.ListJobs(t.Context(), db.JobFilter{}, "", 10)
	require.NoError(t, err)
	require.Empty(t, jobs)
}

func TestPXEHardwareIsPlannedForAMigration(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	taken, _ := w.ready(lifecycle.NodeActive)
	maas := w.nodeIn(lifecycle.NodeActive)
	const ofMAAS = "52:54:00:00:0f:0b"
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.SetNodeMachine(t.Context(), maas.ID, db.NodeMachine{MACs: []string{ofMAAS}})
	}))
	const fresh, second = "52:54:00:00:0f:09", "52:54:00:00:0f:0a"
	hardware := func(macs ...string) map[string]any {
		return map[string]any{"mac_addresses": macs, "serial_number": "NEW-1", "bmc": map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a"}}
	}
	put := func(body map[string]any, headers ...header) answer {
		return w.do("PUT", path+"/hardware", body, append([]header{anyVersion}, headers...)...)
	}
	require.Contains(t, put(hardware(fresh)).refused(problem.Conflict).Detail, "slipway node migrate "+n.Hostname)
	w.do("PUT", "/api/v1/nodes/"+maas.ID+"/hardware", hardware(fresh), anyVersion).refused(problem.Conflict)
	// A request whose hardware is another's starts nothing.
	w.set(path, map[string]any{"state": "migrating", "hardware": hardware(taken.MACs[0])}).refused(problem.Conflict)
	require.Equal(t, "active", w.pxeNode(n.ID).Status)

	id, _ := w.jobOf(w.set(path, map[string]any{"state": "migrating", "hardware": hardware(second)}))
	p := put(hardware(taken.MACs[0])).refused(problem.Conflict)
	require.Equal(t, taken.ID, p.Existing)
	require.Equal(t, maas.ID, put(hardware(ofMAAS)).refused(problem.Conflict).Existing)
	put(hardware(fresh, "5254.0000.0f09")).refused(problem.Invalid)
	put(hardware(fresh), header{"If-Match": `"1"`}).refused(problem.Stale)
	put(hardware(fresh), header{"If-Match": ""}).refused(problem.VersionMissing)
	put(hardware(fresh), w.as("operator")).refused(problem.Forbidden)

	// The new hardware booted before anybody said whose it is: it stays so until the job takes it.
	early, err := w.machine(fresh).Report(t.Context(), "", pxesim.Report{})
	require.NoError(t, err)
	var got rest.Node
	put(hardware("52-54-00-00-0F-09", second)).want(http.StatusOK).into(&got)
	require.Equal(t, n.MACs, got.MACs, "planned is not replaced")
	h := got.PXE.PlannedHardware
	require.Equal(t, []any{[]string{fresh, second}, "NEW-1", "new", "redfish", "10.0.0.9", "bmc/a"}, []any{h.MACAddresses, h.SerialNumber, h.Disks, h.BMC.Protocol, h.BMC.Address, h.BMC.CredentialRef})
	require.Equal(t, "discovered", w.pxeNode(early.NodeID).Status)

	var applied db.PlannedHardware
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		applied, err = tx.ApplyHardware(t.Context(), n.ID, id, db.Actor{Owner: lifecycle.OwnerDecommission})
		return err
	}))
	require.Equal(t, []string{fresh, second}, applied.MACs)
	require.Equal(t, id, put(hardware(fresh)).refused(problem.Conflict).Existing, "it stands on it already")
	w.do("GET", "/api/v1/nodes/"+early.NodeID, nil).refused(problem.NotFound)
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Equal(t, []any{[]string{fresh, second}, "NEW-1", id}, []any{got.MACs, got.Serial, got.PXE.PlannedHardware.ReplacedBy})
	require.NotEmpty(t, got.BMCID)
	old, err := w.machine(n.MACs[0]).Report(t.Context(), "", pxesim.Report{})
	require.NoError(t, err)
	require.Equal(t, "discovered", old.State, "the old hardware is a machine like any other")

	// A live netboot shows in the view.
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ArmNetboot(t.Context(), n.ID, "install", w.workflow, id)
		return err
	}))
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Equal(t, &rest.Netboot{Purpose: "install", WorkflowID: w.workflow, JobID: id}, got.PXE.Netboot)
}

// A request that is meant for nodes of MAAS is refused, and the answer names the way that there is.
func TestPXENodesAreNotAskedLikeThoseOfMAAS(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	for _, info := range lifecycle.NodeActions() {
		p := w.post(path+"/actions/"+string(info.Action), map[string]any{"reason": "x"}).refused(problem.ActionRefused)
		require.Contains(t, p.Detail, "slipway node state "+n.Hostname)
		require.Contains(t, p.Allowed, "deprovisioning")
	}
	for _, mode := range []string{"soft_reset", "full_decommission"} {
		for _, to := range []string{decommissions, decommissions + "/plan"} {
			body := map[string]any{"node_id": n.ID, "mode": mode}
			if to == decommissions {
				body["plan_hash"] = "x"
			}
			p := w.post(to, body).refused(problem.ActionRefused)
			require.Contains(t, p.Detail, "deprovisioning erases and retires it")
		}
	}
	gone, path := w.ready(lifecycle.NodeRetired)
	p := w.post(path+"/actions/reactivate", nil).refused(problem.ActionRefused)
	require.Contains(t, p.Detail, "retired for good")
	w.do("PATCH", path, map[string]any{"erase_workflow_id": w.workflow}, anyVersion).refused(problem.IllegalTransition)
	w.do("PATCH", "/api/v1/nodes/"+w.nodeIn(lifecycle.NodeActive).ID, map[string]any{"erase_workflow_id": w.workflow}, anyVersion).refused(problem.Conflict)
	w.set("/api/v1/nodes/"+gone.ID, map[string]any{"state": "deprovisioning"}).refused(problem.IllegalTransition)
}

func TestAPXENodeHasTheBMCThatAnAdminSays(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": "bmc/b", "value": `{"username":"root","password":"calvin"}`, "use": bmcUse}).want(http.StatusOK)
	put := func(body map[string]any, headers ...header) answer { return w.do("PUT", path+"/bmc", body, headers...) }
	ask := map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a"}
	put(ask, w.as("operator")).refused(problem.Forbidden)
	p := put(map[string]any{"address": "root@10.0.0.9", "credential_ref": "bmc/none"}).refused(problem.Invalid)
	require.Equal(t, []string{"body.address", "body.credential_ref"}, []string{p.Errors[0].Location, p.Errors[1].Location})
	var b, again rest.BMC
	put(ask).want(http.StatusOK).into(&b)
	require.Equal(t, []string{n.ID, "redfish", "10.0.0.9", "bmc/a"}, []string{b.NodeID, b.Protocol, b.Address, b.CredentialRef})
	put(ask).want(http.StatusOK).into(&again)
	require.Equal(t, b, again, "the same once more changes nothing")
	require.NoError(t, w.store.SetBMCPin(t.Context(), b.ID, "abcd"))
	put(map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/b"}).want(http.StatusOK).into(&again)
	require.Equal(t, []string{b.ID, "bmc/b", "abcd"}, []string{again.ID, again.CredentialRef, again.PinSHA256})
	pin := strings.Repeat("ab", 32)
	put(map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/b", "pin_sha256": pin}).want(http.StatusOK).into(&again)
	require.Equal(t, pin, again.PinSHA256)
	put(map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/b", "pin_sha256": pin, "protocol": "ipmi"}).refused(problem.Invalid)
	again = rest.BMC{}
	put(map[string]any{"address": "10.0.0.10", "credential_ref": "bmc/b", "protocol": "ipmi", "ipmi_cipher_suite": 3}).want(http.StatusOK).into(&again)
	require.Equal(t, []any{"10.0.0.10", "ipmi", 3, ""}, []any{again.Address, again.Protocol, again.IPMICipherSuite, again.PinSHA256})
	require.NotEqual(t, b.ID, again.ID, "another address is another BMC")
	left, err := w.store.BMC(t.Context(), b.ID)
	require.NoError(t, err)
	require.Nil(t, left.NodeID)
	require.Equal(t, []string{"10.0.0.9", "bmc/b", pin}, []string{left.Address, left.CredentialRef, left.PinSHA256}, "as it was, with its login")
	w.post("/api/v1/admin/bmcs/"+again.ID+"/rotations", map[string]any{}).want(http.StatusAccepted)
	put(ask).refused(problem.LiveJob)
	w.do("PUT", "/api/v1/nodes/"+w.nodeIn(lifecycle.NodeActive).ID+"/bmc", ask).refused(problem.Conflict)
	gone, _ := w.bare(lifecycle.NodeRetired)
	w.do("PUT", "/api/v1/nodes/"+gone.ID+"/bmc", ask).refused(problem.IllegalTransition)
}

// A plan of a job that is not started refuses what the start would refuse.
func TestPXEJobsArePlannedBeforehand(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	ask := func(body map[string]any) answer {
		body["node_id"] = n.ID
		return w.do("POST", decommissions+"/plan", body, w.as("operator"))
	}
	var p rest.Plan
	ask(map[string]any{"mode": "migrate", "erase_old": true, "grace_seconds": 7}).want(http.StatusOK).into(&p)
	require.Equal(t, []string{n.ID, "", ""}, []string{p.NodeID, p.JobID, p.SiteID})
	asked := w.plans.nodes[0]
	require.Equal(t, contract.KindNodeOperation, asked.Job.Kind)
	require.Equal(t, &contract.DecommissionInput{
		Mode: lifecycle.ModeMigrate, NodeID: n.ID, Hostname: n.Hostname, From: lifecycle.NodeActive, Disks: db.DisksNew, EraseOld: true, GraceSeconds: 7,
	}, asked.Request)
	ask(map[string]any{"mode": "deprovision"}).want(http.StatusOK)
	ask(map[string]any{"mode": "deprovision", "disks": "new", "erase_old": true}).refused(problem.Invalid)
	ask(map[string]any{"mode": "migrate", "disks": "moved", "erase_old": true}).refused(problem.Invalid)
	ask(map[string]any{"mode": "migrate", "disks": "moved"}).refused(problem.Conflict)
	ask(map[string]any{"mode": "drain"}).refused(problem.ActionRefused)
	require.Equal(t, "active", w.pxeNode(n.ID).Status)
	w.set(path, map[string]any{"state": "retired"}).want(http.StatusOK)
	ask(map[string]any{"mode": "deprovision"}).refused(problem.ActionRefused)
	n = w.nodeIn(lifecycle.NodeActive)
	require.Contains(t, ask(map[string]any{"mode": "deprovision"}).refused(problem.ActionRefused).Detail, "slipway node decommission")
}

// The workflows that docs/pxe.md shows can be saved as they stand, but for their
// sums, and the eraser is one.
func TestThePXEPagesWorkflowsCanBeSaved(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	page, err := os.ReadFile("../../docs/pxe.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, shown, 2)
	for i, block := range shown {
		var spec map[string]any
		text := regexp.MustCompile(`[0-9a-f]{4}\.\.\.`).ReplaceAllString(block[1], strings.Repeat("0f", 32))
		require.NoError(t, yaml.Unmarshal([]byte(text), &spec))
		id := w.post("/api/v1/admin/install-workflows", map[string]any{"name": fmt.Sprintf("shown-%d", i), "spec": spec}).want(http.StatusCreated).id()
		n, path := w.bare(lifecycle.NodeActive)
		w.do("PATCH", path, map[string]any{"erase_workflow_id": id}, anyVersion).want(http.StatusOK)
		_, in := w.jobOf(w.set(path, map[string]any{"state": "deprovisioning"}))
		require.Equal(t, n.ID, in.NodeID)
	}
}
