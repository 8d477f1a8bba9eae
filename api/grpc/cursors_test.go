package grpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestWatchRuns_CursorsOfAProject watches as a member while the platform is busy: the cursors say
// nothing of how much it does, and the stream resumes by them.
func TestWatchRuns_CursorsOfAProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other := dbtest.Project(t, w.store), dbtest.Project(t, w.store)
	w.ownMachine("m-1", p.ID)
	w.ownMachine("x-1", other.ID)
	token := w.projectToken(p.ID)
	c := w.with(token, "")
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	run, err := c.StartRun(ctx, connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "a", MachineId: "m-1", Type: "REBOOT"}))
	require.NoError(t, err)
	w.relay()
	stream, err := c.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{}))
	require.NoError(t, err)
	event := func(s *connect.ServerStreamForClient[slipwayv1.RunEvent]) *slipwayv1.RunEvent {
		for s.Receive() {
			if s.Msg().GetSnapshot() != nil && s.Msg().GetCursor() > 0 {
				return s.Msg()
			}
		}
		require.NoError(t, s.Err())
		return nil
	}
	change := func() {
		w.project(run.Msg.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning, Current: "reboot", Stages: []lifecycle.StageRow{{Ordinal: 1, Name: "reboot", State: lifecycle.StageRunning}}})
	}
	change()
	first := event(stream).GetCursor()
	w.register("m-2")
	w.mustStart("m-2", "others")
	change()
	second := event(stream).GetCursor()
	require.NoError(t, stream.Close())
	last, err := w.store.ReadEventCursor(ctx)
	require.NoError(t, err)
	require.Less(t, last.Last, int64(1000))
	for _, cursor := range []int64{first, second} {
		require.Greater(t, cursor, int64(1_000_000), "not the number of the event")
		require.Less(t, cursor, int64(1)<<53, "a number in JSON holds it")
	}
	require.Greater(t, max(first-second, second-first), int64(1_000_000), "nor a distance")

	again, err := w.with(token, "", connect.WithGRPC()).WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{ResumeAfter: first}))
	require.NoError(t, err)
	require.Equal(t, second, event(again).GetCursor(), "after the position, in another encoding too")
	require.NoError(t, again.Close())
	foreign := w.with(w.projectToken(other.ID), "")
	for name, of := range map[string]caller{"of another project": foreign, "of nobody": c} {
		after := first
		if name == "of nobody" {
			after = last.Last
		}
		late, err := of.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{ResumeAfter: after}))
		require.NoError(t, err)
		require.False(t, late.Receive(), name)
		require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(late.Err()), name)
		require.NotContains(t, late.Err().Error(), fmt.Sprint(last.Last), name)
	}
}
