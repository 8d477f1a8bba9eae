package op

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deadlines records the write deadlines of a response.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

// SetWriteDeadline is called by http.ResponseController.
func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// send removes its write deadline. Otherwise HTTP/2 would reset a stream without events at the
// deadline.
func TestStream_IsNotEndedWhileItIsQuiet(t *testing.T) {
	t.Parallel()
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	require.NoError(t, stream{w: d, control: http.NewResponseController(d)}.send(": following\n\n"))
	require.Len(t, d.set, 2)
	require.False(t, d.set[0].IsZero(), "a reader that does not read is given up")
	require.True(t, d.set[1].IsZero())
}

// TestHub_WakesTheReadersOfAPayload: a new connection wakes all readers.
func TestHub_WakesTheReadersOfAPayload(t *testing.T) {
	t.Parallel()
	a, b, all := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	h := &Hub{readers: map[chan struct{}]string{a: "run_a", b: "run_b", all: ""}}
	h.wake("run_a")
	require.Equal(t, []int{1, 0, 1}, []int{len(a), len(b), len(all)})
	h.wake("")
	require.Equal(t, []int{1, 1, 1}, []int{len(a), len(b), len(all)})
}
