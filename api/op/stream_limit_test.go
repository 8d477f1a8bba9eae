package op

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
)

// Each reader and each project has its own limit. When a stream ends, another one can be opened.
func TestStreamCounter_BoundsProjects(t *testing.T) {
	t.Parallel()
	c := newStreamCounter()
	var leave []func()
	for i := range maxProjectStreams {
		l, err := c.open(fmt.Sprintf("reader-%d", i), "prj_a")
		require.NoError(t, err)
		leave = append(leave, l)
	}
	_, err := c.open("late", "prj_a")
	require.Equal(t, http.StatusTooManyRequests, problem.From(err).Status)
	other, err := c.open("late", "prj_b")
	require.NoError(t, err)
	operator, err := c.open("operator", "")
	require.NoError(t, err)
	leave[0]()
	again, err := c.open("late", "prj_a")
	require.NoError(t, err)
	for _, l := range append(leave[1:], other, operator, again) {
		l()
	}
	require.Empty(t, c.readers)
	require.Empty(t, c.byProject)
}
