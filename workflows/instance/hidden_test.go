package instance_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/providers"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// hiddenServer is a provider whose lists show a second server of an instance only at the third
// look.
type hiddenServer struct {
	emptyLists
	looks   int
	stopped []string
}

func (h *hiddenServer) Find(_ context.Context, zone, _ string) ([]providers.CloudServer, error) {
	if h.looks++; h.looks < 3 {
		return nil, nil
	}
	return []providers.CloudServer{{ID: "hidden", Zone: zone}}, nil
}

func (h *hiddenServer) Server(_ context.Context, zone, id string) (providers.CloudServer, error) {
	s := providers.CloudServer{ID: id, Zone: zone, State: providers.CloudRunning}
	if slices.Contains(h.stopped, id) {
		s.State = providers.CloudStopped
	}
	return s, nil
}

func (h *hiddenServer) Stop(_ context.Context, at providers.CloudTarget) error {
	h.stopped = append(h.stopped, at.ServerID)
	return nil
}

// TestStopServer_FindsTheOneThatTheListsHide: an instance for which two servers were ordered may
// have two, although the id of one is known, and both are stopped.
func TestStopServer_FindsTheOneThatTheListsHide(t *testing.T) {
	t.Parallel()
	lists := &hiddenServer{}
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) { lists.Cloud, p.Cloud = p.Cloud, lists })
	_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET server_id = 'known', server_asks = 2, server_asked_at = now() WHERE id = $1", r.row.ID)
	require.NoError(t, err)
	_, err = r.acts.StopServer(t.Context(), contract.JobRef{JobID: r.job.ID, ResourceID: r.row.ID})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"known", "hidden"}, lists.stopped)
}
