package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// codeFolders hold the functions and views of the schema, in the order in which they are applied.
// Each file can be applied again. functions/ names no table in a signature, so that functions can
// be created before the tables whose checks, triggers and policies call them. Files apply in the
// order of their names.
var codeFolders = []string{"functions", "views"}

// createFunctions creates the functions in a database that has no tables yet. It returns what it
// was doing when it failed.
func createFunctions(ctx context.Context, conn *sql.DB, p *goose.Provider) (doing string, err error) {
	version, err := p.GetDBVersion(ctx)
	if err != nil {
		return "read the version of the schema", err
	}
	if version > 0 {
		return "", nil
	}
	return applyCode(ctx, conn, codeFolders[:1], func(tx *sql.Tx) (bool, error) {
		_, err := tx.ExecContext(ctx, "SET LOCAL check_function_bodies = off")
		return true, err
	})
}

// replaceCode applies functions and views again when they differ from those that were applied last.
// The comment of the goose table has the version and the hash of those. Code of a later version
// stays: a process of an earlier build that starts meanwhile does not take it back.
func replaceCode(ctx context.Context, conn *sql.DB, p *goose.Provider) (doing string, err error) {
	mine := int64(0)
	for _, s := range p.ListSources() {
		mine = max(mine, s.Version)
	}
	sum, err := codeSum()
	if err != nil {
		return "read the functions and views", err
	}
	comment := fmt.Sprintf("functions and views of version %d, %s", mine, sum)
	return applyCode(ctx, conn, codeFolders, func(tx *sql.Tx) (bool, error) {
		var applied sql.NullString
		if err := tx.QueryRowContext(ctx, "SELECT obj_description('goose_db_version'::regclass, 'pg_class')").Scan(&applied); err != nil {
			return false, err
		}
		var theirs int64
		if _, err := fmt.Sscanf(applied.String, "functions and views of version %d,", &theirs); err == nil && theirs > mine || applied.String == comment {
			return false, nil
		}
		_, err := tx.ExecContext(ctx, "COMMENT ON TABLE goose_db_version IS '"+comment+"'")
		return true, err
	})
}

// codeSum identifies the functions and views of this build.
func codeSum() (string, error) {
	sum := sha256.New()
	err := eachCodeFile(codeFolders, func(name, text string) error {
		_, err := fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}

// eachCodeFile calls do with each file of folders, in the order in which they are applied.
func eachCodeFile(folders []string, do func(name, text string) error) error {
	for _, folder := range folders {
		names, err := fs.Glob(schema, folder+"/*.sql")
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := schema.ReadFile(name)
			if err != nil {
				return err
			}
			if err := do(name, string(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyCode applies the files of folders in one transaction, where begin returns true. It returns
// the file that failed. Only one process at a time decides and applies, so that begin sees what the
// one before has applied.
func applyCode(ctx context.Context, conn *sql.DB, folders []string, begin func(*sql.Tx) (bool, error)) (doing string, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return "begin to apply functions and views", err
	}
	defer func() {
		if rollbackErr := tx.Rollback(); !errors.Is(rollbackErr, sql.ErrTxDone) {
			err = errors.Join(err, rollbackErr)
		}
	}()
	doing = "wait for another process that applies functions and views"
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('slipway:schema', 0))"); err != nil {
		return doing, err
	}
	doing = "read which functions and views were applied last"
	if due, err := begin(tx); err != nil || !due {
		return doing, err
	}
	if err := eachCodeFile(folders, func(name, text string) error {
		doing = "apply " + name
		_, err := tx.ExecContext(ctx, text)
		return err
	}); err != nil {
		return doing, err
	}
	return "commit functions and views", tx.Commit()
}
