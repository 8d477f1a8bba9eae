package ipmi_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/ipmi"
	ipmisim "github.com/slipway-cloud/slipway/sim/ipmi"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// selReader reads a log as passes do: what it was told is known, and each reading begins at the
// cursor of the one before.
type selReader struct {
	t       *testing.T
	bmc     *ipmi.BMC
	cursors map[string]string
	known   map[string]bool
	told    []providers.BMCLogEntry
}

// newSELReader also returns the reference, whose log holds ten records.
func newSELReader(t *testing.T) (*selReader, *reference) {
	t.Helper()
	r := newReference(t)
	return &selReader{t: t, bmc: open(t, r.target, fast()), known: map[string]bool{}}, r
}

// read returns what a reading brought that was not known, and what it did not read.
func (s *selReader) read(ctx context.Context) (fresh []providers.BMCLogEntry, partial []string) {
	s.t.Helper()
	logs, err := s.bmc.LogsFrom(ctx, s.cursors, func(e providers.BMCLogEntry) bool { return s.known[e.Digest()] })
	require.NoError(s.t, err)
	for _, e := range logs.Entries {
		require.False(s.t, s.known[e.Digest()], "%+v is told twice", e)
		s.known[e.Digest()] = true
	}
	s.cursors, s.told = logs.Cursors, append(s.told, logs.Entries...)
	return logs.Entries, logs.Partial
}

// readAll reads until nothing is left.
func (s *selReader) readAll() {
	s.t.Helper()
	for range 5 {
		if fresh, partial := s.read(s.t.Context()); len(fresh) == 0 && len(partial) == 0 {
			return
		}
	}
	require.Fail(s.t, "the log does not come to an end")
}

// seconds returns by their times which events were told, in order.
func (s *selReader) seconds() (out []int) {
	for _, e := range s.told {
		out = append(out, int(e.Created.Unix()-firstEvent.Unix()))
	}
	slices.Sort(out)
	return out
}

// firstEvent is the time of event 0; event n is n seconds later.
var firstEvent = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// happen adds the events from to to.
func happen(r *reference, from, to int) {
	for n := from; n <= to; n++ {
		r.bmc.AddEvent(firstEvent.Add(time.Duration(n)*time.Second), 0x08, sensorSupply, 0x01)
	}
}

func oneTo(n int) (out []int) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}

// TestLogsFrom_LosesAndRepeatsNothing: each case changes the log between two readings, or within
// one.
func TestLogsFrom_LosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *reference)
		within int // the change comes before this record of a second reading is read; 0: before that reading
		lost   []int
	}{
		"nothing happened":          {change: func(*reference) {}},
		"entries were added":        {change: func(r *reference) { happen(r, 7, 9) }},
		"the log was cleared":       {change: func(r *reference) { r.bmc.ClearEvents(); happen(r, 7, 9) }},
		"the log is empty":          {change: func(r *reference) { r.bmc.ClearEvents() }},
		"cleared and longer":        {change: func(r *reference) { r.bmc.ClearEvents(); happen(r, 7, 16) }},
		"the oldest gave way":       {change: func(r *reference) { happen(r, 7, 14) }},
		"the cursor gave way":       {change: func(r *reference) { happen(r, 7, 16) }},
		"added while it is read":    {change: func(r *reference) { happen(r, 10, 12) }, within: 8},
		"cleared while it is read":  {change: func(r *reference) { r.bmc.ClearEvents(); happen(r, 10, 18) }, within: 8, lost: []int{8, 9}},
		"wrapped while it is read":  {change: func(r *reference) { happen(r, 10, 19) }, within: 8, lost: []int{8, 9}},
		"emptied while it is read":  {change: func(r *reference) { r.bmc.ClearEvents() }, within: 8, lost: []int{8, 9}},
		"cleared at its last entry": {change: func(r *reference) { r.bmc.ClearEvents(); happen(r, 10, 19) }, within: 9, lost: []int{9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r := newSELReader(t)
			happen(r, 1, 6)
			s.readAll()
			require.Equal(t, oneTo(6), s.seconds())
			if c.within > 0 {
				happen(r, 7, 9)
				var once atomic.Bool
				r.bmc.OnEventRead(func(id uint16) {
					if int(id) == c.within && once.CompareAndSwap(false, true) {
						c.change(r)
					}
				})
			} else {
				c.change(r)
			}
			s.readAll()
			last := slices.Max(append(s.seconds(), 6))
			want := slices.DeleteFunc(oneTo(last), func(n int) bool { return slices.Contains(c.lost, n) })
			require.Equal(t, want, s.seconds(), "only what the BMC itself has lost is missing")
			kept := map[string]bool{}
			for _, e := range s.told {
				kept[e.ID] = true
			}
			for _, id := range r.bmc.Events() {
				require.True(t, kept[strconv.Itoa(int(id))], "record %d that the BMC still has", id)
			}
		})
	}
}

// TestLogsFrom_ReadsOn: what was read is not read again.
func TestLogsFrom_ReadsOn(t *testing.T) {
	t.Parallel()
	s, r := newSELReader(t)
	happen(r, 1, 9)
	s.readAll()
	var asked []uint16 // one at a time
	r.bmc.OnEventRead(func(id uint16) { asked = append(asked, id) })
	happen(r, 10, 10)
	s.readAll()
	r.bmc.OnEventRead(nil)
	require.Equal(t, []uint16{9, 10, 10}, asked)
	require.Equal(t, oneTo(10), s.seconds())
}

// TestLogsFrom_OfALogLongerThanAReading: readings that are cut off after some entries come to the
// end.
func TestLogsFrom_OfALogLongerThanAReading(t *testing.T) {
	t.Parallel()
	s, r := newSELReader(t)
	o := fast()
	o.Retries = 1000 // the reading's own time ends it
	s.bmc = open(t, r.target, o)
	happen(r, 1, 10)
	for reading := 1; ; reading++ {
		require.Less(t, reading, 40, "the readings come to no end: %v", s.seconds())
		if reading%3 == 0 { // one that ends before its first entry forgets no cursor
			r.relay.Tamper(func(ipmisim.Direction, []byte) [][]byte { return nil })
		} else {
			r.relay.Tamper(afterLogin(func(d ipmisim.Direction, n int64, p []byte) [][]byte {
				if d == ipmisim.FromBMC && n > 6 {
					return nil
				}
				return [][]byte{p}
			}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(300*time.Millisecond))
		_, partial := s.read(ctx)
		cancel()
		if len(partial) == 0 {
			break
		}
		require.Equal(t, []string{"SEL: unreachable"}, partial)
	}
	require.Equal(t, oneTo(10), s.seconds())
}

// TestLogsFrom_OfARecordThatIsNone: a record that cannot be decoded is told as what it is.
func TestLogsFrom_OfARecordThatIsNone(t *testing.T) {
	t.Parallel()
	s, r := newSELReader(t)
	happen(r, 1, 1)
	r.bmc.AddRawEvent([]byte{0, 0, 0x02, 1, 2, 3, 4})
	happen(r, 3, 3)
	s.readAll()
	require.Len(t, s.told, 3)
	require.Equal(t, providers.BMCLogEntry{Service: "SEL", ID: "2", Severity: "Unknown", Message: "record that cannot be decoded: 02000201020304"}, s.told[1])
}

// TestLogsFrom_OnOpenIPMI reads the log of a BMC that shares nothing with us, which another client
// fills and clears.
func TestLogsFrom_OnOpenIPMI(t *testing.T) {
	t.Parallel()
	sim := newOpenIPMI(t)
	s := &selReader{t: t, bmc: open(t, sim.target, bare()), known: map[string]bool{}}
	add := func(n int) {
		t.Helper()
		record := []byte{0, 0, 0x02, byte(n), 0, 0, 0x60, 0x20, 0, 0x04, 0x08, sensorSupply, 0x6f, 0x01, 0xff, 0xff}
		out, err := ipmitool(t, sim.target, "3", append([]string{"raw", "0x0a", "0x44"}, strings.Fields(emulator(record))...)...)
		require.NoError(t, err, out)
	}
	s.readAll()
	before := len(s.told) // what the BMC itself has written
	for n := range 3 {
		add(n)
	}
	s.readAll()
	require.Len(t, s.told, before+3)
	out, err := ipmitool(t, sim.target, "3", "sel", "clear")
	require.NoError(t, err, out)
	for n := range 5 {
		add(10 + n)
	}
	s.readAll()
	events := 0
	for _, e := range s.told[before:] {
		if e.MessageID == fmt.Sprintf("%02x%02x%02x", 0x08, 0x6f, 0x01) {
			events++
		}
	}
	require.Equal(t, 8, events, "%+v", s.told)
}
