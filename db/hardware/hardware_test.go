package hardwaredb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func newBMC(t *testing.T, s *db.Store) (node db.Node, bmcID string) {
	t.Helper()
	node = dbtest.Node(t, s)
	rec, err := s.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "https://127.0.0.9", Protocol: "redfish", CredentialRef: "x"})
	require.NoError(t, err)
	return node, rec.ID
}

// TestRecordSurvey_OfABMCThatLies: the row stays within its bounds, the critical part is kept, and
// a reading that comes late changes nothing.
func TestRecordSurvey_OfABMCThatLies(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	_, id := newBMC(t, s)
	reading := hardwaredb.Reading{BMCID: id, At: noon, Health: "Critical", Whole: hardware.Kinds()}
	reading.Probes = append(reading.Probes, hardware.PartHealth{Target: "the GPU", Category: hardware.CategoryGPU, Health: "Critical"})
	for i := range 10_000 {
		reading.Probes = append(reading.Probes, hardware.PartHealth{Target: fmt.Sprint(i) + strings.Repeat("\"", 5000), Category: hardware.CategoryDevice, Health: "OK"})
		long := strings.Repeat("\"\\\x00", 4000) // twice as long in a document
		reading.Parts = append(reading.Parts, hardware.Part{
			Kind: hardware.Drive, URI: fmt.Sprint(i), Serial: fmt.Sprint(i), Name: long, Manufacturer: long, Model: long, PartNumber: long, Firmware: long, Slot: long, MAC: long,
		})
		reading.Partial = append(reading.Partial, "\x00"+strings.Repeat("y", 10_000))
	}
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), s, reading))
	got, err := hardwaredb.SurveyOf(t.Context(), s, id)
	require.NoError(t, err)
	require.Len(t, got.Probes, 512)
	require.Equal(t, "the GPU", got.Probes[0].Target)
	require.Equal(t, 10_001-512, got.LeftOut)
	require.Len(t, got.Inventory.Parts, hardware.MaxParts)
	require.LessOrEqual(t, len(got.Partial), 64)

	late := hardwaredb.Reading{BMCID: id, At: noon.Add(-time.Hour), Health: "OK"}
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), s, late))
	again, err := hardwaredb.SurveyOf(t.Context(), s, id)
	require.NoError(t, err)
	require.Equal(t, "Critical", again.Health)
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), s, hardwaredb.Reading{BMCID: "bmc_gone", At: noon, Health: "OK"}), "its BMC is gone")
}

// TestRecordLogs: repeating adds nothing, an id that comes again does, and entries are found by
// time and severity.
func TestRecordLogs(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	_, id := newBMC(t, s)
	entry := func(n int, text, severity string) hardware.LogEntry {
		return hardware.LogEntry{Service: "/sel", ID: fmt.Sprint(n), Severity: severity, Message: text, Created: noon.Add(time.Duration(n) * time.Minute)}
	}
	some := []hardware.LogEntry{entry(1, "one", "OK"), entry(2, "two", "Critical")}
	n, err := hardwaredb.RecordLogs(t.Context(), s, hardwaredb.LogReading{BMCID: id, At: noon, Entries: some, Partial: []string{"/x: unreadable"}})
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	n, err = hardwaredb.RecordLogs(t.Context(), s, hardwaredb.LogReading{BMCID: id, At: noon, Entries: some})
	require.NoError(t, err)
	require.Zero(t, n)
	known, err := hardwaredb.KnownEntries(t.Context(), s, id)
	require.NoError(t, err)
	require.True(t, known.Has(some[0]))
	require.True(t, known.Has(hardware.LogEntry{Service: "/sel", ID: "2"}), "before it is read")
	again := entry(1, "another with its id", "Warning")
	require.False(t, known.Has(again))
	_, err = hardwaredb.RecordLogs(t.Context(), s, hardwaredb.LogReading{BMCID: id, At: noon, Entries: []hardware.LogEntry{again}})
	require.NoError(t, err)
	list := func(f hardwaredb.LogFilter) (out []string) {
		t.Helper()
		rows, err := hardwaredb.ListLogEntries(t.Context(), s, id, f, 0, 100)
		require.NoError(t, err)
		for _, r := range rows {
			out = append(out, r.Message)
		}
		return out
	}
	require.Equal(t, []string{"two", "one", "another with its id"}, list(hardwaredb.LogFilter{}), "as they were copied, the worst of a reading first")
	require.Equal(t, []string{"two"}, list(hardwaredb.LogFilter{Severity: "Critical"}))
	at := noon.Add(2 * time.Minute)
	require.Equal(t, []string{"two"}, list(hardwaredb.LogFilter{Since: &at}))
	require.Equal(t, []string{"one", "another with its id"}, list(hardwaredb.LogFilter{Until: &at}))
	gone, err := hardwaredb.PruneLogEntries(t.Context(), s, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 3, gone)
}

// TestRecordLogs_Flood: a flood of one severity is bounded, hides none of another, and what gave
// way is not copied again.
func TestRecordLogs_Flood(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	_, id := newBMC(t, s)
	var flood []hardware.LogEntry
	for i := range 4000 {
		flood = append(flood, hardware.LogEntry{Service: "/sel", ID: fmt.Sprint(i), Severity: "OK", Message: strings.Repeat("z", 5000), Created: noon.Add(time.Duration(i) * time.Second)})
	}
	flood = append(flood, hardware.LogEntry{Service: "/sel", ID: "bad", Severity: "Critical", Message: "the GPU fell off the bus", Created: noon})
	read := func() (added int64) {
		t.Helper()
		known, err := hardwaredb.KnownEntries(t.Context(), s, id)
		require.NoError(t, err)
		var fresh []hardware.LogEntry
		for _, e := range flood {
			if !known.Has(e) {
				fresh = append(fresh, e)
			}
		}
		added, err = hardwaredb.RecordLogs(t.Context(), s, hardwaredb.LogReading{BMCID: id, At: noon, Entries: fresh})
		require.NoError(t, err)
		return added
	}
	require.EqualValues(t, hardwaredb.MaxNewEntries, read())
	rows, err := hardwaredb.ListLogEntries(t.Context(), s, id, hardwaredb.LogFilter{Severity: "Critical"}, 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1, "the worst come first")
	for range 4 {
		read()
	}
	require.Zero(t, read(), "what gave way to newer entries does not come back")
	var kept int64
	for after := int64(0); ; {
		rows, err := hardwaredb.ListLogEntries(t.Context(), s, id, hardwaredb.LogFilter{}, after, 200)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		kept, after = kept+int64(len(rows)), rows[len(rows)-1].ID
	}
	require.EqualValues(t, 1500+1, kept)
	how, err := hardwaredb.LogReadOf(t.Context(), s, id)
	require.NoError(t, err)
	require.EqualValues(t, 2500, how.Dropped)
}

// TestRecordLogs_ClockJumps: the clock of a BMC that is years off and jumps loses no entry and
// doubles none.
func TestRecordLogs_ClockJumps(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	_, id := newBMC(t, s)
	var listed []hardware.LogEntry
	add := func(n int, at time.Time) {
		for range n {
			listed = append(listed, hardware.LogEntry{Service: "SEL", ID: fmt.Sprint(len(listed)), Severity: "OK", Message: fmt.Sprint("entry ", len(listed)), Created: at})
		}
	}
	read := func() (added int64) {
		t.Helper()
		for more := int64(1); more > 0; added += more {
			known, err := hardwaredb.KnownEntries(t.Context(), s, id)
			require.NoError(t, err)
			fresh := slices.DeleteFunc(slices.Clone(listed), known.Has)
			more, err = hardwaredb.RecordLogs(t.Context(), s, hardwaredb.LogReading{BMCID: id, At: noon, Entries: fresh, Cursors: map[string]string{"SEL": fmt.Sprint(len(listed))}})
			require.NoError(t, err)
		}
		return added
	}
	newest := func() string {
		t.Helper()
		known, err := hardwaredb.KnownEntries(t.Context(), s, id)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"SEL": fmt.Sprint(len(listed))}, known.Cursors)
		var last string
		for after := int64(0); ; {
			rows, err := hardwaredb.ListLogEntries(t.Context(), s, id, hardwaredb.LogFilter{}, after, 1000)
			require.NoError(t, err)
			if len(rows) == 0 {
				return last
			}
			last, after = rows[len(rows)-1].Message, rows[len(rows)-1].ID
		}
	}
	add(1600, noon)
	require.EqualValues(t, 1600, read())
	for _, at := range []time.Time{time.Unix(0, 0), noon.AddDate(-14, 0, 0), noon.AddDate(40, 0, 0), noon, {}} {
		add(3, at)
		require.EqualValues(t, 3, read(), at)
		require.Equal(t, fmt.Sprint("entry ", len(listed)-1), newest(), at)
		require.Zero(t, read(), "nothing comes twice")
	}
}

// TestCopyAgentInventories_SomeAtATime: more nodes than are in memory at once are all copied.
func TestCopyAgentInventories_SomeAtATime(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	for i := range 45 {
		n := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Active())
		_, err := s.DBTX().Exec(t.Context(), `INSERT INTO heartbeats (node_id, boot_id, agent_version, generation, clock_skew_ms, received_at, report, report_boot_id, reported_at)
			VALUES ($1, 'b', 'v', 1, 0, $2, '{"disks": [{"name": "sda", "serial": "S", "bytes": 1}]}', 'b', $2)`, n.ID, noon.Add(time.Duration(i)*time.Second))
		require.NoError(t, err)
	}
	n, err := hardwaredb.CopyAgentInventories(t.Context(), s, site.ID, noon, 41)
	require.NoError(t, err)
	require.Equal(t, 41, n)
	n, err = hardwaredb.CopyAgentInventories(t.Context(), s, site.ID, noon, 41)
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

// TestSerialSource: it is of the serial number that the node has, and of no other.
func TestSerialSource(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	node, _ := newBMC(t, s)
	require.NoError(t, s.SetNodeMachine(t.Context(), node.ID, db.NodeMachine{SystemID: "abc123", Serial: "S1"}))
	require.NoError(t, hardwaredb.RecordSerialSource(t.Context(), s, node.ID, "S1", hardwaredb.SerialOfBMC("chassis BMC_0")))
	got, err := hardwaredb.SerialSource(t.Context(), s, node.ID)
	require.NoError(t, err)
	require.Equal(t, "BMC: chassis BMC_0", got)
	require.NoError(t, s.SetNodeMachine(t.Context(), node.ID, db.NodeMachine{SystemID: "abc123", Serial: "S2"}))
	got, err = hardwaredb.SerialSource(t.Context(), s, node.ID)
	require.NoError(t, err)
	require.Empty(t, got)
}
