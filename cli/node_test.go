package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Deleted nodes are listed for those who ask for them.
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
			require.Contains(t, out, here.Hostname, c.flags)
		} else {
			require.NotContains(t, out, here.Hostname, c.flags)
		}
		if c.gone {
			require.Contains(t, out, gone.Hostname, c.flags)
		} else {
			require.NotContains(t, out, gone.Hostname, c.flags)
		}
	}
}

// TestNodeTimeline_SaysHowCallsEnded: an outside call has its outcome, how long it took and what it
// noted; a login is no change of state.
func TestNodeTimeline_SaysHowCallsEnded(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	n := dbtest.Node(t, w.store, dbtest.Active(), dbtest.Hostname("gpu-7"))
	for _, e := range []db.Entry{
		{Name: "ConfigureStorage", Actor: db.Actor{Metadata: map[string]any{"outcome": "done", "took_ms": 8531, "note": "boot disk sda"}}},
		{Name: "ApplyRoCE", Actor: db.Actor{Comment: "no assignment", Metadata: map[string]any{"outcome": "configuration_invalid", "took_ms": 27, "note": "hidden"}}},
		{Name: "RunTask", Actor: db.Actor{Metadata: map[string]any{"refused": strings.Repeat("x", 61)}}},
		{Name: "login", To: "accepted", Actor: db.Actor{Metadata: map[string]any{"protocol": "maas"}}},
	} {
		e.ResourceKind, e.ResourceID, e.NodeID, e.Kind, e.Actor.Owner = "node", n.ID, &n.ID, db.EntryCall, lifecycle.OwnerJob
		require.NoError(t, w.store.AppendAudit(t.Context(), e))
	}
	shown := w.run("", "node", "timeline", "gpu-7").exits(0).out
	require.Regexp(t, `ConfigureStorage +- +done, in 8.531s +job +boot disk sda`, shown)
	require.Regexp(t, `ApplyRoCE +- +configuration_invalid, in 27ms +job +no assignment`, shown)
	require.Regexp(t, `login +- +accepted +job`, shown)
	require.Regexp(t, `RunTask +- +see comment +job +refused: x{61}`, shown)
	require.NotContains(t, shown, "hidden")
}

// TestJobShow_Progress: a parked job has lost nothing; one that is undone has.
func TestJobShow_Progress(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	for status, says := range map[lifecycle.JobStatus]string{
		lifecycle.JobRunning: `(?m)^progress +28%$`, lifecycle.JobFailedManual: `(?m)^progress +stands at 28%$`,
		lifecycle.JobCompensating: `(?m)^progress +0%; it had reached 28% before its work was undone$`,
	} {
		j := dbtest.Job(t, w.store)
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ProjectJob(t.Context(), db.Projection{
				JobID: j.ID, Seq: 1, Status: status, ProgressPercent: lifecycle.ShownPercent(status, 28), ReachedPercent: 28,
				FailedStage: lifecycle.StageApplyRoCE, FailureClass: lifecycle.FailConfiguration, Actor: db.Actor{Owner: lifecycle.OwnerJob},
			})
			return err
		}))
		require.Regexp(t, says, w.run("", "job", "show", j.ID).exits(0).out)
	}
}
