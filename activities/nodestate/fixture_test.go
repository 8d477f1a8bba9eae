package nodestate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/acttest"
)

// nodeFixture is a node with a job, and the activities.
type nodeFixture struct {
	*acttest.Fixture
	acts *nodestate.Activities
}

func newNodeFixture(t *testing.T) *nodeFixture {
	t.Helper()
	w := &nodeFixture{Fixture: acttest.New(t)}
	w.acts = &nodestate.Activities{Store: w.Store, Secrets: w.Secrets}
	w.Register(w.acts)
	return w
}

func (w *nodeFixture) putLogin(name string) {
	w.Helper()
	_, err := w.Secrets.Put(w.Context(), name, providers.NewSecret(`{"username": "a", "password": "b"}`))
	require.NoError(w, err)
}

func (w *nodeFixture) isStored(name string) bool {
	w.Helper()
	_, _, _, found, err := w.Store.SecretVersion(w.Context(), name, 0)
	require.NoError(w, err)
	return found
}
