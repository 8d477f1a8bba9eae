package instance_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	"github.com/slipway-cloud/slipway/workflows/instance"
)

// readCloud reads something of the simulated provider.
func (r *simRig) readCloud(path string, into any) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.url+path, http.NoBody)
	require.NoError(r, err)
	req.Header.Set("X-Auth-Token", simKey)
	res, err := http.DefaultClient.Do(req)
	require.NoError(r, err)
	defer func() { require.NoError(r, res.Body.Close()) }()
	require.Equal(r, http.StatusOK, res.StatusCode, path)
	require.NoError(r, json.NewDecoder(res.Body).Decode(into))
}

// TestInstance_NumbersThatWereAskedFor: the size of the root volume, the ports that are open, and
// how long a server may take to accept a login.
func TestInstance_NumbersThatWereAskedFor(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	var volumes struct {
		Volumes []struct {
			Size int64 `json:"size"`
		} `json:"volumes"`
	}
	r.readCloud("/block/v1/zones/"+cloudsim.Zone+"/volumes?project_id="+simProject, &volumes)
	require.Len(t, volumes.Volumes, 1)
	require.EqualValues(t, 200_000_000_000, volumes.Volumes[0].Size)

	groups := "/instance/v1/zones/" + cloudsim.Zone + "/security_groups"
	var found struct {
		Groups []struct {
			ID string `json:"id"`
		} `json:"security_groups"`
	}
	r.readCloud(groups+"?project="+simProject, &found)
	require.Len(t, found.Groups, 1)
	var rules struct {
		Rules []struct {
			Action string `json:"action"`
			Port   int    `json:"dest_port_from"`
		} `json:"rules"`
	}
	r.readCloud(groups+"/"+found.Groups[0].ID+"/rules", &rules)
	var open []int
	for _, rule := range rules.Rules {
		if rule.Action == "accept" {
			open = append(open, rule.Port)
		}
	}
	slices.Sort(open)
	require.Equal(t, []int{22, 8000, 8080}, open)
	require.Equal(t, "22", r.worker.sshPort(t))
	require.Equal(t, 3*time.Minute, instance.SSHLimit)
}

// TestInstance_ProviderThatIsDown: a provider that answers nothing for all tries ends the creation,
// with the code and the message, which outlive the instance.
func TestInstance_ProviderThatIsDown(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	r.fault(cloudsim.Fault{Name: cloudsim.FaultUnavailable, Op: "create_group", Count: -1})
	i := r.run(r.job)
	require.Equal(t, []any{lifecycle.InstanceProvisioningFailed, "CLOUD_UNAVAILABLE"}, []any{i.Status, i.ErrorCode})
	require.NotEmpty(t, i.ErrorMessage)
	require.NotNil(t, i.FailedAt)
	require.Empty(t, r.sim.Billed())
	ended := r.terminate()
	require.NotNil(t, ended.Job)
	i = r.run(*ended.Job)
	require.Equal(t, lifecycle.InstanceTerminated, i.Status)
	require.Equal(t, "CLOUD_UNAVAILABLE", i.ErrorCode, "why it failed outlives its end")
	require.NotEmpty(t, i.ErrorMessage)
}

// TestHealth_FailureIsShown: a ready instance whose check fails has a code and an event, and loses
// the code when a check succeeds.
func TestHealth_FailureIsShown(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	events := func() (n int) {
		_, err := r.store.RelayEvents(t.Context(), 1000)
		require.NoError(t, err)
		require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM events WHERE resource_id = $1 AND type = 'instance.progress'", r.row.ID).Scan(&n))
		return n
	}
	before := events()
	at := time.Now()
	check := func(after time.Duration) instancedb.Instance {
		_, _ = r.acts.CheckInstances(t.Context(), instanceact.PassIn{At: at.Add(after)}) // its error is that of the worker
		return r.read()
	}
	require.Empty(t, check(time.Minute).ErrorCode)
	r.worker.setReach(&providers.Error{Kind: providers.KindUnreachable, Op: "ssh.dial", Message: "no answer"})
	r.worker.setSilent(true)
	i := check(2 * time.Minute)
	require.Equal(t, []any{lifecycle.InstanceReady, lifecycle.InstanceHealthFailed}, []any{i.Status, i.ErrorCode})
	require.NotEmpty(t, i.ErrorMessage)
	require.Equal(t, before+1, events())
	check(3 * time.Minute)
	require.Equal(t, before+1, events(), "a change is an event, and not each check")
	r.worker.setReach(nil)
	r.worker.setSilent(false)
	require.Empty(t, check(4*time.Minute).ErrorCode)
	require.Equal(t, before+2, events())
}
