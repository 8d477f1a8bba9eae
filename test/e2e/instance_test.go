package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/db/dbtest"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

const (
	cloudKey     = "00000000-0000-4000-8000-5ec0e7000001"
	cloudProject = "00000000-0000-4000-8000-000000000002"
	cloudKeyRef  = "cloud/key"
)

// newCloudWorld starts a stack whose instances are made at a simulated account of Scaleway.
func newCloudWorld(t *testing.T, o stack.Options) (*world, *cloudsim.Server) {
	t.Helper()
	sim, err := cloudsim.New(cloudsim.Options{SecretKey: cloudKey, ProjectID: cloudProject, Clock: simhw.NewClock(600)})
	require.NoError(t, err)
	at, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	o.Configure = func(c *config.Config) {
		c.Instance.ScalewayProjectID, c.Instance.ScalewayAccessKey, c.Instance.ScalewayKeyRef = cloudProject, "SCWXXXXXXXXXXXXXXXXX", cloudKeyRef
		c.Instance.ScalewayURL, c.Instance.ScalewayZones, c.Instance.ScalewayImage = at.URL(), cloudsim.Zone, cloudsim.ImageLabel
		c.Instance.Installation, c.Instance.SSHSources, c.Instance.WorkerSources = "e2e", "192.0.2.0/24", "192.0.2.0/24"
	}
	w := newPrivateWorld(t, o)
	_, err = w.App.Store.SetSecretUse(t.Context(), cloudKeyRef, spec.SecretUse{Kind: spec.SecretCloudKey, Networks: []string{"127.0.0.0/8"}})
	require.NoError(t, err)
	_, err = w.App.Secrets.Put(t.Context(), cloudKeyRef, providers.NewSecret(cloudKey))
	require.NoError(t, err)
	return w, sim
}

// lastSeen prints an instance as it is when the text is made.
type lastSeen struct{ *instancedb.Instance }

func (l lastSeen) String() string {
	return fmt.Sprintf("it is %s, %q", l.Status, l.ErrorMessage)
}

// untilInstance waits until an instance is as it should be.
func (w *world) untilInstance(t *testing.T, id, what string, ok func(instancedb.Instance) bool) instancedb.Instance {
	t.Helper()
	var i instancedb.Instance
	require.Eventually(t, func() bool {
		got, err := instancedb.Get(t.Context(), w.App.Store, id)
		i = got
		return err == nil && ok(got)
	}, runenv.Patience(8*time.Minute), 200*time.Millisecond, "%s never %s: %v", id, what, lastSeen{&i})
	return i
}

// TestInstance_WorkerKilled kills the worker after the effect of stages of creations and before
// their answer, has each instance terminated while it boots, and finds one server for each and
// nothing left.
func TestInstance_WorkerKilled(t *testing.T) {
	t.Parallel()
	stages := []string{lifecycle.StageCreateServer} // with more of them one dies in another's order, whose end waits for the lists
	if runenv.Proof() {
		all := lifecycle.InstanceCreateStages()
		stages = all[:slices.Index(all, lifecycle.StageWaitSSH)] // its servers cannot be logged in to
	}
	w, sim := newCloudWorld(t, stack.Options{NoWorker: true, DatabaseEnv: databaseVar})
	api, project, plan := w.as(t, "operator"), dbtest.Project(t, w.App.Store).ID, map[string]string{}
	var made []client.Instance
	for _, stage := range stages {
		i, err := client.Value(api.CreateInstance(t.Context(), client.InstanceRequest{
			ProjectID: project, Name: strings.ReplaceAll(stage, "_", "-"), Provider: "scaleway", Zone: cloudsim.Zone, Type: "L4-1-24G", Model: "acme/small",
		}))
		require.NoError(t, err)
		plan[i.JobID] = stage
		made = append(made, i)
	}
	sup := superviseWorker(t, w, plan)
	for _, i := range made {
		w.untilInstance(t, i.ID, "had its address", func(i instancedb.Instance) bool { return i.IPAddress != "" })
		_, err := os.Stat(filepath.Join(sup.dir, "died-"+i.JobID))
		require.NoError(t, err, "the worker never died in %s", plan[i.JobID])
	}
	require.Equal(t, len(made), sim.Counts().ServersMade, "one server for each instance")
	for _, i := range made {
		_, err := api.TerminateInstance(t.Context(), i.ID, client.TerminateRequest{Reason: "the test has seen it"})
		require.NoError(t, err)
	}
	for _, i := range made {
		w.untilInstance(t, i.ID, "ended", func(i instancedb.Instance) bool { return i.Status == lifecycle.InstanceTerminated })
	}
	left, err := json.Marshal(sim.Billed())
	require.NoError(t, err)
	require.Empty(t, sim.Billed(), "%s", left)
	require.Equal(t, len(made), sim.Counts().ServersMade)
}
