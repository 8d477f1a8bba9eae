package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The mark of a drain goes when the node is back in service, and not before.
func TestTheMarkOfADrainEndsWithIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := newFakeTasks(t, s)
	n := s.node("n1").taskWait()
	marker := func() string { return n.file("var/lib/slipway-agent/drained.json") }
	n.run()
	d.put("n1", "t1", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	d.becomes("t1", lifecycle.TaskSucceeded)
	for _, status := range []lifecycle.NodeStatus{lifecycle.NodeDraining, lifecycle.NodeRetired, lifecycle.NodeOffline} {
		s.store.SetStatus("n1", status)
		before := s.lastHeartbeatAt("n1")
		require.Eventually(t, func() bool { return s.lastHeartbeatAt("n1").After(before.Add(100 * time.Millisecond)) }, runenv.Patience(10*time.Second), 5*time.Millisecond)
		require.Contains(t, marker(), "t1", status)
	}
	s.store.SetStatus("n1", lifecycle.NodeActive)
	require.Eventually(t, func() bool { return marker() == "" }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	s.store.SetStatus("n1", lifecycle.NodeDraining)
	d.put("n1", "t2", lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	d.becomes("t2", lifecycle.TaskSucceeded)
	require.Contains(t, marker(), "t2", "another drain writes the marker again")
}

// lastHeartbeatAt returns the time of the node's last heartbeat.
func (s *server) lastHeartbeatAt(node string) time.Time {
	b, _ := s.store.Heartbeat(node)
	return b.At
}
