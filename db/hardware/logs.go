package hardwaredb

import (
	"context"
	"encoding/hex"
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
	gone         map[[goneSize]byte]bool
	// Cursors is where each log is read on, by its service.
	Cursors map[string]string
}

// goneSize is how much of the digest of an entry is kept that gave way, and maxGone how many of
// these: more than one reading brings. Time tells nothing, since the clock of a BMC may be years
// off and jump.
const (
	goneSize = 8
	maxGone  = 8192
)

// shortDigest returns what is kept of the digest of an entry that gave way.
func shortDigest(digest string) (out [goneSize]byte) {
	raw, _ := hex.DecodeString(digest)
	copy(out[:], raw)
	return out
}

// Has returns whether an entry is kept, or has given way to newer ones. Of an entry with Service
// and ID alone it returns whether one with that id is kept.
func (k Known) Has(e hardware.LogEntry) bool {
	e = e.Bounded()
	if e.Message == "" && e.MessageID == "" && e.Created.IsZero() {
		return k.ids[e.Service+"\x00"+e.ID]
	}
	digest := e.Digest()
	return k.digests[digest] || k.gone[shortDigest(digest)]
}

// KnownEntries reads what is kept of a BMC's logs.
func KnownEntries(ctx context.Context, c db.Conn, bmcID string) (Known, error) {
	out := Known{ids: map[string]bool{}, digests: map[string]bool{}, gone: map[[goneSize]byte]bool{}}
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
		err = json.Unmarshal(read.Cursors, &out.Cursors)
	}
	for at := 0; at+goneSize <= len(read.Gone); at += goneSize {
		out.gone[[goneSize]byte(read.Gone[at:])] = true
	}
	return out, err
}

// severities are those of entries, the worst first.
func severities() []string { return []string{"Critical", "Warning", "Unknown", "OK"} }

// LogReading is what was read of a BMC's logs. Cursors is where each log is read on, by its
// service.
type LogReading struct {
	BMCID   string
	At      time.Time
	Entries []hardware.LogEntry
	Partial []string
	Cursors map[string]string
}

// RecordLogs keeps the entries of a reading, the worst first where there are more than one may add;
// the next one brings the rest, from where this one began. Nothing that is kept goes because the
// BMC does not list it any more. Repeatable. It returns how many are new.
func RecordLogs(ctx context.Context, s *db.Store, r LogReading) (int64, error) {
	fresh := make([]hardware.LogEntry, 0, len(r.Entries))
	for _, e := range r.Entries {
		fresh = append(fresh, e.Bounded())
	}
	slices.SortStableFunc(fresh, func(a, b hardware.LogEntry) int {
		if d := slices.Index(severities(), a.Severity) - slices.Index(severities(), b.Severity); d != 0 {
			return d
		}
		return a.Created.Compare(b.Created) // some BMCs list the newest first
	})
	if left := len(fresh) - MaxNewEntries; left > 0 {
		r.Partial = append(slices.Clip(r.Partial), fmt.Sprintf("%d new entries wait for the next reading", left))
		fresh, r.Cursors = fresh[:MaxNewEntries], nil
	}
	cursors, err := json.Marshal(boundedCursors(r.Cursors))
	if err != nil {
		return 0, err
	}
	var added int64
	err = s.Tx(ctx, func(tx *db.Tx) error {
		gone, err := queries(tx).LockLogRead(ctx, r.BMCID)
		if err = db.MapError("log of BMC "+r.BMCID, err); err != nil && !errors.Is(err, db.ErrNotFound) {
			return err
		}
		if added, err = addEntries(ctx, tx, r.BMCID, fresh, r.At); err != nil {
			return err
		}
		dropped := 0
		for _, severity := range severities() {
			digests, err := queries(tx).DropLogEntries(ctx, gen.DropLogEntriesParams{BMCID: r.BMCID, Severity: severity, Keep: maxOfSeverity})
			if err != nil {
				return db.MapError("log of BMC "+r.BMCID, err)
			}
			dropped += len(digests)
			for _, digest := range digests {
				short := shortDigest(digest)
				gone = append(gone, short[:]...)
			}
		}
		err = queries(tx).PutLogRead(ctx, gen.PutLogReadParams{
			BMCID: r.BMCID, ReadAt: r.At, Partial: clipped(r.Partial), Dropped: int64(dropped), Gone: db.EmptyIfNil(gone[max(0, len(gone)-maxGone*goneSize):]), Cursors: cursors,
		})
		return db.MapError("log of BMC "+r.BMCID, err)
	})
	return added, err
}

// maxCursors and maxCursor bound what is kept of where logs are read on.
const (
	maxCursors = 8
	maxCursor  = 200
)

func boundedCursors(in map[string]string) map[string]string {
	out := map[string]string{}
	for service, cursor := range in {
		if len(out) < maxCursors && len(service) <= maxCursor && len(cursor) <= maxCursor {
			out[service] = cursor
		}
	}
	return out
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
