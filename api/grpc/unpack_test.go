package grpc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only CreatePlan accepts a large message. Calls without a token accept only very small ones.
func TestMessages_HaveTheBoundsOfTheirCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		call          string
		most, allowed int
	}{
		{"/grpc.health.v1.Health/Check", 4 << 10, http.StatusOK},
		{"/slipway.v1.MachineService/ListMachines", 256 << 10, http.StatusOK},
		{"/slipway.v1.PlanService/ListPlans", 256 << 10, http.StatusOK},
		{"/slipway.v1.PlanService/CreatePlan", 4 << 20, http.StatusBadRequest},
	} {
		for size, want := range map[int]int{c.most: c.allowed, c.most + 1: http.StatusTooManyRequests} {
			status, body := w.post(c.call, "{"+strings.Repeat(" ", size-2)+"}", w.tokens["admin"])
			require.Equal(t, want, status, "%s of %d bytes: %s", c.call, size, body)
		}
	}
}
