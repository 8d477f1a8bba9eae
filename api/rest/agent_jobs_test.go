package rest_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const hostKey = "ssh-ed25519 AAAA"

// sshWorld is an API with a site that Slipway logs in to.
func sshWorld(t *testing.T) (*world, string) {
	t.Helper()
	w, dsn := openWorld(t)
	alter(t, dsn, `UPDATE sites SET spec = spec || '{"ssh_key_ref": "ssh/key"}'`)
	return w, dsn
}

// served is a node in a state, with an agent that sends heartbeats and a pinned host key.
func (w *world) served(s lifecycle.NodeStatus, key string) db.Node {
	w.t.Helper()
	n := w.nodeIn(s)
	enrolled(w.t, w.store, n.ID)
	reports(w.t, w.store, n.ID, 0, 1)
	require.NoError(w.t, w.store.SetNodeHostKey(w.t.Context(), n.ID, key))
	require.NoError(w.t, w.store.SetNodeAddresses(w.t.Context(), n.ID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: []string{"127.0.0.1"}, SSH: "127.0.0.1:22"}))
	return n
}

func (w *world) reissue(node string, headers ...header) answer {
	w.t.Helper()
	return w.post("/api/v1/nodes/"+node+"/actions/reissue-agent", map[string]any{"reason": "restored"}, headers...)
}

func TestReissueAgent_IsOneJob(t *testing.T) {
	t.Parallel()
	w, _ := sshWorld(t)
	for _, s := range []lifecycle.NodeStatus{lifecycle.NodeActive, lifecycle.NodeOffline, lifecycle.NodeQuarantined, lifecycle.NodeRetired} {
		n := w.served(s, hostKey)
		w.post("/api/v1/nodes/"+n.ID+"/actions/reissue-agent", map[string]any{"reason": "  "}).refused(problem.Invalid)
		w.reissue(n.ID, header{"Authorization": "Bearer " + w.tokens["operator"]}).refused(problem.Forbidden)
		var job jobAnswer
		w.reissue(n.ID).want(http.StatusAccepted).into(&job)
		row, err := w.store.Job(t.Context(), job.ID)
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"hostname": %q, "reason": "restored"}`, n.Hostname), string(row.Input))
		w.do("GET", "/api/v1/admin/jobs/"+job.ID, nil).want(http.StatusOK).into(&job)
		require.Len(t, job.Stages, len(lifecycle.AgentReissueStages()))
		require.Equal(t, job.ID, w.reissue(n.ID).refused(problem.LiveJob).Existing, "a second one while the first is open")
		require.Contains(t, string(w.do("GET", "/api/v1/nodes/"+n.ID+"/timeline", nil).raw), "restored")
		require.Equal(t, s, w.node(n.ID).Status, "the node's state does not change")
	}
}

func TestReissueAgent_NamesTheOtherWay(t *testing.T) {
	t.Parallel()
	w, _ := sshWorld(t)
	unpinned := w.served(lifecycle.NodeActive, "")
	for node, want := range map[string]string{
		unpinned.ID: "no SSH host key is pinned for it; an administrator can put a bootstrap bundle on it by hand: slipway node bootstrap --reissue " + unpinned.Hostname,
		dbtest.PXENode(t, w.store, "02:00:00:00:00:01", lifecycle.NodeActive).ID: "boots from the network and Slipway has no SSH login to it",
		w.nodeIn(lifecycle.NodeEnrolling).ID:                                     "is for a node that is",
		w.nodeIn(lifecycle.NodeDeleted).ID:                                       "is for a node that is",
	} {
		a := w.reissue(node)
		require.Equal(t, http.StatusConflict, a.status, string(a.raw))
		var p problem.Problem
		a.into(&p)
		require.Contains(t, p.Detail, want)
	}
	// The way that the refusal names is one that the API accepts.
	w.post("/api/v1/admin/nodes/"+unpinned.ID+"/bootstrap", nil, header{"Authorization": "Bearer " + w.tokens["operator"]}).refused(problem.Forbidden)
	var b rest.Bundle
	w.post("/api/v1/admin/nodes/"+unpinned.ID+"/bootstrap", nil).want(http.StatusCreated).into(&b)
	require.NotEmpty(t, b.Token)
	require.Empty(t, b.JobID)
	p := w.post("/api/v1/admin/nodes/"+w.served(lifecycle.NodeActive, hostKey).ID+"/bootstrap", nil).refused(problem.Conflict)
	require.Contains(t, p.Detail, "slipway node reissue-agent")
}

func TestReissueAgents_OfASite(t *testing.T) {
	t.Parallel()
	w, dsn := sshWorld(t)
	ask := func(body map[string]any) answer {
		body["site_id"], body["reason"] = w.site.ID, "the database was restored"
		return w.post("/api/v1/admin/agent-reissues", body)
	}
	healthy, locked, ended, silent, held := w.served(lifecycle.NodeActive, hostKey), w.served(lifecycle.NodeActive, hostKey), w.served(lifecycle.NodeOffline, hostKey),
		w.served(lifecycle.NodeOffline, hostKey), w.served(lifecycle.NodeActive, hostKey)
	require.Contains(t, ask(map[string]any{}).refused(problem.Conflict).Detail, "ask for all")
	for _, n := range []db.Node{locked, held} {
		require.NoError(t, w.store.LockAgentIdentity(t.Context(), n.ID, "a copy was seen"))
	}
	alter(t, dsn, "UPDATE agent_certificates SET not_before = now() - interval '2 days', not_after = now() - interval '1 day' WHERE node_id = '"+ended.ID+"'",
		"UPDATE heartbeats SET received_at = now() - interval '1 hour' WHERE node_id = '"+silent.ID+"'")
	job := dbtest.Job(t, w.store, dbtest.On(held.ID), dbtest.Kind("decommission"))
	var b rest.Batch
	ask(map[string]any{"max_parallel": 2}).want(http.StatusAccepted).into(&b)
	require.Equal(t, 2, b.MaxParallel)
	got := map[string]string{}
	for _, i := range b.Items {
		got[i.Hostname] = i.Status
	}
	require.Equal(t, map[string]string{locked.Hostname: "pending", ended.Hostname: "pending", silent.Hostname: "pending", held.Hostname: "rejected"}, got)
	require.Contains(t, b.Items[3].Error, job.ID, "those that a job holds come last")
	ask(map[string]any{"all": true}).want(http.StatusAccepted).into(&b)
	require.Len(t, b.Items, 5)
	require.Equal(t, []string{healthy.Hostname, "pending"}, []string{b.Items[0].Hostname, b.Items[0].Status})
	ask(map[string]any{"max_parallel": 101}).refused(problem.Invalid)
}

func TestReactivate_RefusesAnEndedIdentity(t *testing.T) {
	t.Parallel()
	w, dsn := sshWorld(t)
	n := w.served(lifecycle.NodeRetired, hostKey)
	alter(t, dsn, "UPDATE agent_certificates SET not_before = now() - interval '100 days', not_after = now() - interval '95 days'")
	p := w.ask(n.ID, lifecycle.NodeActionReactivate).refused(problem.ActionRefused)
	require.Contains(t, p.Detail, " ago: slipway node reissue-agent "+n.Hostname)
	alter(t, dsn, "UPDATE agent_certificates SET not_after = now() - interval '5 days'")
	w.ask(n.ID, lifecycle.NodeActionReactivate).want(http.StatusOK)
}

// release is a signed release of a version.
func release(t *testing.T, key ed25519.PrivateKey, version string) map[string]any {
	t.Helper()
	manifest, err := json.Marshal(spec.AgentManifest{Version: version, SHA256: strings.Repeat("a", 64), Size: 1, OS: "linux", Arch: "amd64"})
	require.NoError(t, err)
	return map[string]any{
		"manifest": manifest, "signature": ed25519.Sign(key, append([]byte(spec.AgentManifestContext), manifest...)), "binary_url": "https://files.example/agent",
	}
}

func TestAgentRelease_DoesNotChange(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	const path = "/api/v1/admin/agent-releases/v1.2.3"
	with := func(field string, value any) map[string]any {
		r := release(t, key, "v1.2.3")
		r[field] = value
		return r
	}
	for name, bad := range map[string]map[string]any{
		"another version": release(t, key, "v1.2.4"), "no version": release(t, key, "newest"), "a short signature": with("signature", []byte("x")),
		"a login": with("binary_url", "https://u:p@files.example/agent"), "a file": with("binary_url", "file:///etc/shadow"),
		"a metadata service": with("binary_url", "http://169.254.169.254/x"), "no manifest": with("manifest", []byte("{")),
	} {
		require.Equal(t, http.StatusUnprocessableEntity, w.do("PUT", path, bad).status, name)
	}
	for range 2 {
		w.do("PUT", path, release(t, key, "v1.2.3")).want(http.StatusOK)
	}
	require.Contains(t, w.do("PUT", path, with("binary_url", "https://elsewhere.example/agent")).refused(problem.Conflict).Detail, "sign a new version")
	require.Contains(t, string(w.do("GET", "/api/v1/admin/agent-releases", nil).want(http.StatusOK).raw), "v1.2.3")
}

func TestUpdateAgent(t *testing.T) {
	t.Parallel()
	w, dsn := sshWorld(t)
	public, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	_, foreign, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	n := w.served(lifecycle.NodeActive, hostKey)
	path := "/api/v1/nodes/" + n.ID + "/actions/update-agent"
	ask := func(version string) answer {
		return w.post(path, map[string]any{"version": version, "reason": "a fix"})
	}
	require.Contains(t, ask("v1.2.3").refused(problem.Invalid).Errors[0].Message, "slipway agent-release add")
	for version, by := range map[string]ed25519.PrivateKey{"v1.2.3": key, "v6.6.6": foreign} {
		w.do("PUT", "/api/v1/admin/agent-releases/"+version, release(t, by, version)).want(http.StatusOK)
	}
	require.Contains(t, ask("v1.2.3").refused(problem.Conflict).Detail, "agent_update_key")
	alter(t, dsn, fmt.Sprintf(`UPDATE profiles SET spec = spec || '{"agent_update_key": %q}'`, base64.StdEncoding.EncodeToString(public)))
	require.Contains(t, ask("v6.6.6").refused(problem.Conflict).Detail, "not signed with the update key")
	alter(t, dsn, "UPDATE heartbeats SET received_at = now() - interval '1 hour'")
	require.Contains(t, ask("v1.2.3").refused(problem.Conflict).Detail, "is silent")
	alter(t, dsn, "UPDATE heartbeats SET received_at = now(), agent_version = 'v1.2.3'")
	require.Contains(t, ask("v1.2.3").refused(problem.Conflict).Detail, "is v1.2.3 already")
	alter(t, dsn, "UPDATE heartbeats SET agent_version = 'v1.0.0'")
	require.NoError(t, w.store.LockAgentIdentity(t.Context(), n.ID, "a copy was seen"))
	require.Contains(t, ask("v1.2.3").refused(problem.Conflict).Detail, "slipway node reissue-agent "+n.Hostname)
	alter(t, dsn, "UPDATE agent_identities SET locked_at = NULL, locked_reason = ''")
	w.post(path, map[string]any{"version": "v1.2.3", "reason": "a fix"}, header{"Authorization": "Bearer " + w.tokens["operator"]}).refused(problem.Forbidden)
	var job jobAnswer
	ask("v1.2.3").want(http.StatusAccepted).into(&job)
	w.do("GET", "/api/v1/admin/jobs/"+job.ID, nil).want(http.StatusOK).into(&job)
	require.Len(t, job.Stages, len(lifecycle.AgentUpdateStages()))
	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	var in contract.AgentUpdateInput
	require.NoError(t, json.Unmarshal(row.Input, &in))
	require.NoError(t, spec.VerifyAgentManifest(public, in.Manifest, in.Signature), "the bytes that were signed reach the job")
}

// TestNode_AddressesHaveTheirSource: whoever reads a node sees where its addresses come from, and
// since when.
func TestNode_AddressesHaveTheirSource(t *testing.T) {
	t.Parallel()
	w, _ := sshWorld(t)
	var got rest.Node
	w.do("GET", "/api/v1/nodes/"+w.served(lifecycle.NodeActive, hostKey).ID, nil).want(http.StatusOK).into(&got)
	require.Equal(t, []string{"127.0.0.1"}, got.IPAddresses)
	require.Equal(t, lifecycle.AddressesOfMAAS, got.IPAddressesSource)
	require.WithinDuration(t, time.Now(), *got.IPAddressesAt, time.Minute)
}
