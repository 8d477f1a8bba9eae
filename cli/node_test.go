package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// What is gone is listed for those who ask for it.
func TestDeletedNodesAreNotInTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	gone := dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeDeleted))
	here := dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeRetired))
	list := func(flags ...string) string {
		return w.run("", append([]string{"node", "list"}, flags...)...).exits(cli.ExitOK).out
	}
	for _, c := range []struct {
		flags      []string
		here, gone bool
	}{
		{nil, true, false}, {[]string{"-o", "json"}, true, false}, {[]string{"-q", "host-"}, true, false}, {[]string{"--all"}, true, true},
		{[]string{"--status", "deleted"}, false, true}, {[]string{"--status", "retired", "--all"}, true, false},
	} {
		out := list(c.flags...)
		if c.here {
			require.Contains(t, out, here.ID, c.flags)
		} else {
			require.NotContains(t, out, here.ID, c.flags)
		}
		if c.gone {
			require.Contains(t, out, gone.ID, c.flags)
		} else {
			require.NotContains(t, out, gone.ID, c.flags)
		}
	}
}
