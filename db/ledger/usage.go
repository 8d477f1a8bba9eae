package ledgerdb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/ledger/gen"
)

// Usage is one segment of a usage record: what an allocation or an instance costs at one rate. A
// record that has not begun has no StartTime, and a record whose charge has not ended has no
// EndTime.
type Usage = gen.UsageOfRow

// UsagePlace is the last row of the page before; the zero value is the beginning.
type UsagePlace struct {
	RecordID string
	Segment  int
}

// ListUsage lists the usage of a project, newest record first; subjectID, of an allocation or an
// instance, narrows it.
func ListUsage(ctx context.Context, c Conn, projectID, subjectID string, before UsagePlace, limit int) ([]Usage, error) {
	rows, err := queries(c).UsageOf(ctx, gen.UsageOfParams{
		ProjectID: projectID, Subject: subjectID, BeforeRecord: before.RecordID, BeforeSegment: before.Segment, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("usage of project "+projectID, err)
}

// DayUsage is what an allocation or an instance cost on a day (UTC).
type DayUsage = gen.UsageByDayRow

// ListDayUsage lists what the allocations and instances of a project cost on each day, by day, from
// a midnight (UTC) to another one. The days of a segment sum to what it was charged.
func ListDayUsage(ctx context.Context, c Conn, projectID string, since, until time.Time, limit int) ([]DayUsage, error) {
	rows, err := queries(c).UsageByDay(ctx, gen.UsageByDayParams{ProjectID: projectID, Since: since, Until: until, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("usage of project "+projectID, err)
}

// Cost is what an allocation costs an hour, when HasRate, and has cost so far.
type Cost = gen.CostsOfRow

// ListCosts lists what allocations cost, with one query for all of them. An allocation without a
// usage record has no row. It asks about allocations of any project: the caller has found them in
// the project of its request.
func ListCosts(ctx context.Context, c Conn, allocationIDs []string) ([]Cost, error) {
	rows, err := queries(c).CostsOf(ctx, db.EmptyIfNil(allocationIDs))
	return rows, db.MapError("cost of allocations", err)
}

// SetMaxSpend stores what an allocation may cost until it is released; nil is without limit.
func SetMaxSpend(ctx context.Context, tx *db.Tx, projectID, allocationID string, maxMinor *int64) error {
	n, err := queries(tx).SetMaxSpend(ctx, gen.SetMaxSpendParams{MaxSpendMinor: maxMinor, ProjectID: projectID, AllocationID: allocationID})
	return db.CheckRepeatable("usage of allocation "+allocationID, n, err, func() error { return db.NotFound("usage of allocation " + allocationID) })
}

// ListSpentOut lists allocations that cost what they may and are not being released yet.
func ListSpentOut(ctx context.Context, c Conn, limit int) ([]string, error) {
	ids, err := queries(c).SpentOut(ctx, db.PageLimit(limit))
	return ids, db.MapError("list allocations that have reached max_spend", err)
}
