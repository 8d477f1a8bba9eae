// Package db enforces. It is the only way to the database: migrations, the queries that sqlc
// generates from db/queries, and the operations by resource.
//
// A state changes in one place, the commit point of transition.go. It locks the row, checks the
// transition with package lifecycle, and writes the guarded update, the audit row and the event in
// one statement. Triggers in the schema refuse every other change of a state (db/functions).
//
// Operations of one statement can be called on a Store, where they commit by themselves, and on a
// Tx. Operations of several statements are methods of Tx, so that an intent, its audit row, its
// idempotency record and its outbox row commit together.
//
// Errors are ErrNotFound, ErrStale, ErrInvalid, *ConflictError and
// *lifecycle.IllegalTransitionError, to be matched with errors.Is and errors.As; any other error is
// a problem of the database itself.
//
// # Packages below db
//
// This package is the spine, and the aggregate of nodes, jobs, BMCs and PXE. Another aggregate is a
// package of its own below it, as db/drift and db/evidence are: plain functions over the queries
// that sqlc generates into its own gen folder. The first argument after the context says how a
// function commits: a Conn for one statement, a *Tx for several, a *Store for a transaction of its
// own. Such a package uses the spine for everything that is not its own table:
//
//   - gen.New(conn.DBTX()) runs its queries on the pool or in the transaction;
//   - MapError, CheckUpdate, CheckDelete, CheckRepeatable and CheckGuarded return the errors above;
//   - CommitTransition checks a change of state and returns the columns of its audit row;
//     Actor.Stamp returns those of a row that is created;
//   - AppendAudit, AppendEvent and CreateJob (which also writes the outbox row that starts the
//     workflow) write in the same transaction;
//   - Tx.Lock takes an advisory lock, NewID makes a primary key, PageLimit and PruneBatch bound a
//     statement, and ClipText, CleanJSON and EmptyIfNil make values fit to be stored.
package db
