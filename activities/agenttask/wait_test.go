package agenttask_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/acttest"
)

func TestWaitForTasks_DoesNotWaitForErasures(t *testing.T) {
	t.Parallel()
	w := acttest.New(t)
	acts := &agenttask.Activities{Store: w.Store}
	w.Register(acts)
	w.Enrol(1)
	w.Heartbeat("boot-1", 1, 0, nil)
	in := agenttask.WaitForTasksIn{JobRef: w.Ref, Until: time.Now().Add(50 * time.Millisecond), Poll: spec.Duration(10 * time.Millisecond)}
	require.True(t, acttest.Must(w, acts.WaitForTasks, in).Done)
	w.Enqueue(lifecycle.TaskKindScrub, "scrub", spec.ScrubArgs{RunID: "r"})
	f := acttest.Must(w, acts.WaitForTasks, in)
	require.False(t, f.Done)
	require.Contains(t, f.Note, "queued")
	require.True(t, acttest.Must(w, acts.CheckNothingErased, w.Ref).Done)
	w.Claim("boot-1")
	require.True(t, acttest.Must(w, acts.WaitForTasks, in).Done, "an erasure that was begun may take half a day")
	require.Contains(t, acttest.Must(w, acts.CheckNothingErased, w.Ref).Note, "begun on the node")
}
