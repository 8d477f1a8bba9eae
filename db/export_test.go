package db

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
)

// The lists of rights, for the test that compares them with the catalogue.
var (
	TableAccess     = tableAccess
	TableReads      = tableReads
	SequenceAccess  = sequenceAccess
	FunctionCallers = functionCallers
)

// BoundedAcquire is what Open gives its pool, with another limit.
func BoundedAcquire(limit time.Duration) pgx.QueryTracer { return boundedAcquire{limit} }

// StatementsOn runs the operations of one statement on what the test gives.
var StatementsOn = statementsOn

// IsReferrer returns whether the refusal of a delete has words for a table.
func IsReferrer(table string) bool { _, ok := referrers[table]; return ok }

// PrimaryPeriod returns another value after each error that a failover can cause.
func PrimaryPeriod(s *Store) any { return s.primary.current() }

// MigrateWith is Migrate with the migrations of a test, whose statements wait shortly for a lock.
func MigrateWith(ctx context.Context, dsn string, files fs.FS, wait time.Duration, tries int) error {
	return migrate(ctx, dsn, files, lockBounds{wait: wait, pause: wait, tries: tries})
}
