package machines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// A cluster that is not there and one of another project are refused in the same words.
func TestStartRun_NeedsTheClusterOfItsProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	project := dbtest.Project(t, w.store).ID
	s := spec.ClusterSpec{APIURL: "https://10.0.0.1:6443"}
	_, err := clusterdb.Create(t.Context(), w.store, "own", "", s)
	require.NoError(t, err)
	_, err = clusterdb.Create(t.Context(), w.store, "theirs", project, s)
	require.NoError(t, err)
	details := map[string]string{}
	for _, ref := range []string{"own", "theirs", "none"} {
		_, err := w.register(machines.Registration{ID: "m-" + ref, Spec: spec.MachineSpec{Provider: "any", TargetClusterRef: ref}})
		require.NoError(t, err)
		err = w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := machines.StartRun(t.Context(), tx, machines.Start{
				RequestID: "r", MachineID: "m-" + ref, Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
			}, admin)
			return err
		})
		if ref == "own" {
			require.NoError(t, err)
			continue
		}
		var refusal *intent.Refusal
		require.ErrorAs(t, err, &refusal, ref)
		details[ref] = refusal.Detail
	}
	require.Equal(t, len(details["theirs"])-len("theirs"), len(details["none"])-len("none"))
}
