// Package db enforces. It is the only way to the database: migrations, the
// queries that sqlc generates from db/queries, and the operations by resource.
//
// A state changes in one place, the commit point of transition.go: the row is
// locked, package lifecycle is asked, and one statement writes the guarded
// update, the audit row and the event. Triggers in the schema refuse whatever
// goes around it (migrations 00004 and 00006).
//
// Operations of one statement can be called on a Store, where they commit by
// themselves, and on a Tx. Operations of several statements are methods of Tx,
// so that an intent, its audit row, its idempotency record and its outbox row
// commit together (02-architecture "How one request flows").
//
// Errors are ErrNotFound, ErrStale, ErrInvalid, *ConflictError and
// *lifecycle.IllegalTransitionError, to be matched with errors.Is and
// errors.As; anything else is the database's own trouble.
package db
