package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// rack is a signed-in user and a BMC of an active node gpu-1.
func rack(t *testing.T) (*world, db.BMC) {
	t.Helper()
	w := signedIn(t)
	node := dbtest.Node(t, w.store, dbtest.Hostname("gpu-1"), dbtest.Active())
	b, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	return w, b
}

func TestRotateABMCByTheNameOfItsNode(t *testing.T) {
	t.Parallel()
	w, b := rack(t)
	require.Contains(t, w.run("", "bmc", "list").exits(cli.ExitOK).out, b.ID)
	require.Contains(t, w.run("", "bmc", "show", "gpu-1").exits(cli.ExitOK).out, b.ID)
	made := w.run("", "bmc", "rotate", "gpu-1", "--reason", "yearly", "-o", "json").exits(cli.ExitOK)
	job := made.id()
	second := w.run("", "bmc", "rotate", b.ID).exits(cli.ExitRefused)
	require.Contains(t, second.err, job)
	listed := w.run("", "bmc", "rotations", "gpu-1").exits(cli.ExitOK).out
	for _, want := range []string{job, "yearly", "in_progress (pending)"} {
		require.Contains(t, listed, want)
	}
	var history struct{ Data []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(w.run("", "bmc", "rotations", "gpu-1", "-o", "json").exits(cli.ExitOK).out), &history))
	require.Len(t, history.Data, 1)
	w.run("", "job", "cancel", job).exits(cli.ExitOK)
	require.Contains(t, w.run("", "bmc", "rotate", "gpu-1", "--watch", "--watch-timeout", "300ms", "--interval", "20ms").exits(cli.ExitError).out, "bmc_rotation gpu-1: pending")
	w.run("", "bmc", "rotate", "nobody").exits(cli.ExitNotFound)
	bare := dbtest.Node(t, w.store, dbtest.Hostname("gpu-2"), dbtest.Active())
	require.Contains(t, w.run("", "bmc", "show", bare.Hostname).exits(cli.ExitNotFound).err, "has no BMC")
}

func TestRejectedLogin_FixedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	w, b := rack(t)
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), b.ID, "the BMC rejected the login"))
	require.Contains(t, w.run("", "bmc", "list").exits(cli.ExitOK).out, "stopped")
	require.Contains(t, w.run("", "bmc", "rotate", "gpu-1").exits(cli.ExitRefused).err, "clear-auth-block")
	w.run(`{"username":"root","password":"right"}`, "secret", "put", "bmc/right", "--kind", "bmc_login", "--network", "10.0.0.0/8,127.0.0.0/8", "--stdin").exits(cli.ExitOK)
	w.run("", "bmc", "set-credential", "gpu-1", "bmc/none").exits(cli.ExitUsage)
	set := w.run("", "bmc", "set-credential", "gpu-1", "bmc/right", "--reason", "changed by hand").exits(cli.ExitOK)
	for _, want := range []string{"bmc/right", "logins stopped", "next"} {
		require.Contains(t, set.out, want)
	}
	require.NotContains(t, w.run("", "bmc", "clear-block", "gpu-1", "--reason", "right now").exits(cli.ExitOK).out, "logins stopped")
	w.run("", "bmc", "rotate", "gpu-1").exits(cli.ExitOK)
	jobs, err := w.store.ListJobs(t.Context(), db.JobFilter{BMCID: b.ID}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, lifecycle.JobPending, jobs[0].Status)
}
