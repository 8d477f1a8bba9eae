package hardwaredb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/hardware/gen"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

// MaxNewEntries bounds the entries that one reading of a BMC's logs adds.
const MaxNewEntries = 1000

// maxOfSeverity bounds the entries of one severity that are kept of a BMC. The oldest of the same
// severity give way, so that a flood of one hides none of another.
const maxOfSeverity = 1500

// LogEntry is an entry as it is kept. At is by the BMC's clock where that can be right.
type LogEntry = gen.BMCLogEntry

// LogRead is how the last reading of a BMC's logs went.
type LogRead struct {
	ReadAt  time.Time
	Partial []string
	// Dropped is how many entries have given way to newer ones since ever.
	Dropped int64
}

// Known tells which entries of a BMC's logs need not be read again.
type Known struct {
	ids, digests map[string]bool
	floors       map[string]time.Time
}

// Has returns whether an entry is kept, or has given way to newer ones. Of an entry with Service and ID
// alone it returns whether one with that id is kept.
func (k Known) Has(e hardware.LogEntry) bool {
	e = e.Bounded()
	if e.Message == "" && e.MessageID == "" && e.Created.IsZero() {
		return k.ids[e.Service+"\x00"+e.ID]
	}
	floor, full := k.floors[e.Severity]
	return k.digests[e.Digest()] || full && !e.Created.IsZero() && !e.Created.After(floor)
}

// KnownEntries reads what is kept of a BMC's logs.
func KnownEntries(ctx context.Context, c db.Conn, bmcID string) (Known, error) {
	out := Known{ids: map[string]bool{}, digests: map[string]bool{}, floors: map[string]time.Time{}}
	rows, err := queries(c).KnownLogEntries(ctx, bmcID)
	if err != nil {
		return out, db.MapError("log of BMC "+bmcID, err)
	}
	for _, r := range rows {
		out.ids[r.Service+"\x00"+r.EntryID], out.digests[r.Digest] = true, true
	}
	read, err := queries(c).LogRead(ctx, bmcID)
	if err = db.MapError("log of BMC "+bmcID, err); errors.Is(err, db.ErrNotFound) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(read.Floors, &out.floors)
	}
	return out, err
}

// severities are those of entries, the worst first.
func severities() []string { return []string{"Critical", "Warning", "Unknown", "OK"} }

// RecordLogs keeps the entries of a BMC's logs that were read at a time, the worst first where there are
// more than one reading may add; the next one brings the rest. Nothing that is kept goes because the BMC
// does not list it any more. Repeatable. It returns how many are new.
func RecordLogs(ctx context.Context, s *db.Store, bmcID string, entries []hardware.LogEntry, partial []string, at time.Time) (int64, error) {
	fresh := make([]hardware.LogEntry, 0, len(entries))
	for _, e := range entries {
		fresh = append(fresh, e.Bounded())
	}
	slices.SortStableFunc(fresh, func(a, b hardware.LogEntry) int {
		if d := slices.Index(severities(), a.Severity) - slices.Index(severities(), b.Severity); d != 0 {
			return d
		}
		return a.Created.Compare(b.Created)
	})
	if left := len(fresh) - MaxNewEntries; left > 0 {
		partial = append(slices.Clip(partial), fmt.Sprintf("%d new entries wait for the next reading", left))
		fresh = fresh[:MaxNewEntries]
	}
	var added int64
	err := s.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if added, err = addEntries(ctx, tx, bmcID, fresh, at); err != nil {
			return err
		}
		floors, dropped := map[string]time.Time{}, int64(0)
		for _, severity := range severities() {
			gone, err := queries(tx).DropLogEntries(ctx, gen.DropLogEntriesParams{BMCID: bmcID, Severity: severity, Keep: maxOfSeverity})
			if err != nil {
				return db.MapError("log of BMC "+bmcID, err)
			}
			if gone.Dropped > 0 {
				floors[severity], dropped = gone.Floor, dropped+gone.Dropped
			}
		}
		doc, err := json.Marshal(floors)
		if err != nil {
			return err
		}
		err = queries(tx).PutLogRead(ctx, gen.PutLogReadParams{BMCID: bmcID, ReadAt: at, Partial: clipped(partial), Dropped: dropped, Floors: doc})
		return db.MapError("log of BMC "+bmcID, err)
	})
	return added, err
}

func addEntries(ctx context.Context, tx *db.Tx, bmcID string, fresh []hardware.LogEntry, at time.Time) (int64, error) {
	type row struct {
		Service   string    `json:"service"`
		ID        string    `json:"id"`
		Digest    string    `json:"digest"`
		Severity  string    `json:"severity"`
		MessageID string    `json:"message_id"`
		Message   string    `json:"message"`
		At        time.Time `json:"at"`
	}
	rows := make([]row, 0, len(fresh))
	for _, e := range fresh {
		rows = append(rows, row{e.Service, e.ID, e.Digest(), e.Severity, e.MessageID, e.Message, e.At(at)})
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return 0, fmt.Errorf("log of BMC %s: %w", bmcID, err)
	}
	n, err := queries(tx).AddLogEntries(ctx, gen.AddLogEntriesParams{BMCID: bmcID, Entries: db.CleanJSON(doc)})
	return n, db.MapError("log of BMC "+bmcID, err)
}

// LogFilter is which entries are listed; zero fields do not restrict.
type LogFilter struct {
	Since, Until *time.Time
	Severity     string
}

// ListLogEntries lists entries of a BMC in the order in which they were copied, from the one after.
func ListLogEntries(ctx context.Context, c db.Conn, bmcID string, f LogFilter, after int64, limit int) ([]LogEntry, error) {
	rows, err := queries(c).ListLogEntries(ctx, gen.ListLogEntriesParams{
		BMCID: bmcID, After: after, Since: f.Since, Until: f.Until, Severity: f.Severity, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("log of BMC "+bmcID, err)
}

// LogReadOf reads how the last reading of a BMC's logs went; zero before the first.
func LogReadOf(ctx context.Context, c db.Conn, bmcID string) (LogRead, error) {
	row, err := queries(c).LogRead(ctx, bmcID)
	if err = db.MapError("log of BMC "+bmcID, err); errors.Is(err, db.ErrNotFound) {
		return LogRead{}, nil
	}
	return LogRead{ReadAt: row.ReadAt, Partial: row.Partial, Dropped: row.Dropped}, err
}

// PruneLogEntries deletes some entries that were copied before a time, and returns how many.
func PruneLogEntries(ctx context.Context, c db.Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneLogEntries(ctx, gen.PruneLogEntriesParams{Before: before, MaxRows: db.PruneBatch})
	return n, db.MapError("logs of BMCs", err)
}
