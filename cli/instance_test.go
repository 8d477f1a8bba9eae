package cli_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	instanceintent "github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// simulatedOffers are the provider whose servers exist in memory.
func simulatedOffers() []instanceintent.Offer {
	return []instanceintent.Offer{{Provider: "mock", Zones: []string{"mock-1"}, Image: "simulated"}}
}

// instanceStep does something with an instance, as its job does.
func (w *world) instanceStep(id string, do func(*db.Tx, instancedb.Instance) error) error {
	return w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		i, err := instancedb.Lock(w.t.Context(), tx, id)
		if err != nil {
			return err
		}
		return do(tx, i)
	})
}

func (w *world) moveInstance(id string, m instancedb.Move) error {
	m.Actor = db.Actor{Owner: m.To.Owners[0]}
	return w.instanceStep(id, func(tx *db.Tx, i instancedb.Instance) error {
		_, err := instancedb.MoveTo(w.t.Context(), tx, i, m)
		return err
	})
}

// TestInstances makes an instance of the simulated provider, follows it until it is ready, and ends
// it.
func TestInstances(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	project := dbtest.Project(t, w.store).ID
	require.Contains(t, w.run("", "instance", "types").exits(0).out, "MOCK-GPU")
	create := []string{"instance", "create", project, "chat", "--provider", "mock", "--zone", "mock-1", "--type", "MOCK-GPU", "--model", "acme/small"}
	require.Contains(t, w.run("", append(create, "--zone", "nowhere")...).exits(cli.ExitUsage).err, "zone")
	id := w.run("", append([]string{"-o", "json"}, create...)...).exits(0).id()
	require.NoError(t, w.instanceStep(id, func(tx *db.Tx, i instancedb.Instance) error {
		return instancedb.SetProgress(t.Context(), tx, i, 20, 20, "")
	}))
	list := w.run("", "instance", "list", "--project", project).exits(0).out
	require.Contains(t, list, "20")
	require.Contains(t, list, "provisioning")
	done := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() {
		err := w.moveInstance(id, instancedb.Move{To: lifecycle.InstanceBoot})
		if err == nil {
			err = w.moveInstance(id, instancedb.Move{To: lifecycle.InstanceBecomeReady})
		}
		done <- err
	})
	followed := w.run("", "instance", "show", id, "--watch", "--interval", "20ms").exits(0).out
	require.NoError(t, <-done)
	require.Contains(t, followed, "provisioning 20 %")
	require.Contains(t, followed, "ready 100 %")
	require.Contains(t, w.run("", "instance", "history", id).exits(0).out, "booting")
	w.run("", "instance", "terminate", id).exits(cli.ExitUsage) // without a reason
	require.Contains(t, w.run("", "instance", "terminate", id, "--reason", "not needed").exits(0).out, "draining")
	require.NotContains(t, w.run("", "instance", "orphans").exits(0).out, id)

	failed := w.run("", create...)
	require.Contains(t, failed.exits(cli.ExitRefused).err, "has this name")
	create[3] = "other"
	id = w.run("", append([]string{"-o", "json"}, create...)...).exits(0).id()
	require.NoError(t, w.moveInstance(id, instancedb.Move{To: lifecycle.InstanceBoot}))
	require.NoError(t, w.moveInstance(id, instancedb.Move{
		To: lifecycle.InstanceFailStartup, Code: lifecycle.InstanceStartupTimeout, Message: "vLLM did not come in time", Stage: lifecycle.StageWaitHTTP,
	}))
	said := w.run("", "instance", "show", id, "--watch", "--interval", "20ms").exits(cli.ExitJobFailed).err
	require.Contains(t, said, "STARTUP_TIMEOUT")
	require.Contains(t, said, "slipway instance actions "+id)
	require.Contains(t, w.run("", "instance", "actions", id).exits(0).out, lifecycle.ActInstanceStartupFailed)
}
