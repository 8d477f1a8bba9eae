package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
)

// A text that is no address purges nothing, and the answer says so; an address
// is one however it is written.
func TestAPurgeIsOfAnAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	purge := func(source string) answer {
		return w.do("POST", "/api/v1/admin/discovered-nodes/purge", map[string]any{"source": source})
	}
	_, err := w.machine("52:54:00:00:00:01").Report(t.Context(), "", pxesim.Report{})
	require.NoError(t, err)
	for _, wrong := range []string{"nonsense", "127.0.0.1:80", "127.0.0", "10.0.0.0/8"} {
		p := purge(wrong).refused(problem.Invalid)
		require.Equal(t, "body.source", p.Errors[0].Location, wrong)
	}
	require.JSONEq(t, `{"purged":0}`, string(purge("192.0.2.1").want(http.StatusOK).raw))
	require.JSONEq(t, `{"purged":1}`, string(purge("::ffff:127.0.0.1").want(http.StatusOK).raw))
}
