package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A BMC is one node's, and a node that is retired by hand lets go of its own.
func TestABMCIsOneNodesUntilItRetires(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	other, to := w.ready(lifecycle.NodeActive)
	ask := map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a"}
	written := map[string]any{"address": "https://10.0.0.9:443/", "credential_ref": "bmc/a"}
	var b rest.BMC
	w.do("PUT", path+"/bmc", ask).want(http.StatusOK).into(&b)
	p := w.do("PUT", to+"/bmc", written).refused(problem.Conflict)
	require.Equal(t, n.ID, p.Existing)
	require.Contains(t, p.Detail, n.Hostname)
	_, err := w.store.BMCOfNode(t.Context(), other.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	planned := map[string]any{"state": "migrating", "hardware": map[string]any{"mac_addresses": []string{"52:54:00:00:0f:0c"}, "bmc": written}}
	require.Equal(t, n.ID, w.set(to, planned).refused(problem.Conflict).Existing)
	require.Equal(t, "active", w.pxeNode(other.ID).Status)

	// Two systems of one Redfish service are two machines.
	for _, x := range [][2]string{{path, "Node1"}, {to, "Node2"}} {
		w.do("PUT", x[0]+"/bmc", map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a", "system_id": x[1]}).want(http.StatusOK)
	}
	w.do("PUT", to+"/bmc", map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a", "system_id": "Node1"}).refused(problem.Conflict)

	w.set(path, map[string]any{"state": "retired"}).want(http.StatusOK)
	_, err = w.store.BMCOfNode(t.Context(), n.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	left, err := w.store.BMC(t.Context(), b.ID)
	require.NoError(t, err)
	require.Nil(t, left.NodeID)
	require.Equal(t, "bmc/a", left.CredentialRef, "the record still names the login")
	w.do("PUT", to+"/bmc", map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a", "system_id": "Node1"}).want(http.StatusOK)
	w.set(to, map[string]any{"state": "migrating", "hardware": map[string]any{"mac_addresses": []string{"52:54:00:00:0f:0c"}, "keep_bmc": true}}).want(http.StatusOK)
	w.set(to, map[string]any{"state": "retired", "force": true}).want(http.StatusOK)
	_, err = w.store.BMCOfNode(t.Context(), other.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
}

// Without a BMC of its own, new hardware would be switched by that of the old.
func TestHardwareWithoutABMCIsNotSwitchedByTheOldOne(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	w.do("PUT", path+"/bmc", map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a"}).want(http.StatusOK)
	bare := map[string]any{"mac_addresses": []string{"52:54:00:00:0f:09"}}
	kept := map[string]any{"mac_addresses": []string{"52:54:00:00:0f:09"}, "keep_bmc": true}
	both := map[string]any{"mac_addresses": []string{"52:54:00:00:0f:09"}, "keep_bmc": true, "bmc": map[string]any{"address": "10.0.0.8", "credential_ref": "bmc/a"}}
	put := func(body map[string]any) answer { return w.do("PUT", path+"/hardware", body, anyVersion) }
	p := w.set(path, map[string]any{"state": "migrating", "hardware": bare}).refused(problem.Invalid)
	require.Equal(t, "body.hardware.bmc", p.Errors[0].Location)
	require.Equal(t, "active", w.pxeNode(n.ID).Status, "nothing began")
	w.set(path, map[string]any{"state": "migrating", "hardware": kept}).want(http.StatusOK)
	p = put(bare).refused(problem.Invalid)
	require.Equal(t, "body.bmc", p.Errors[0].Location)
	require.Contains(t, p.Errors[0].Message, "--keep-bmc")
	require.Contains(t, p.Errors[0].Message, "--bmc-address")
	require.Equal(t, "body.keep_bmc", put(both).refused(problem.Invalid).Errors[0].Location)
	put(kept).want(http.StatusOK)
}
