package dbtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
)

var errChanged = errors.New("the schema has changed")

// schemaSQL returns a text that changes with the schema and with the rows that emptySQL keeps. A
// copy of a database has the ids and the transaction numbers of its template; each change of a
// definition gives its row another one. In pg_class a restarted sequence does so too, so there it
// is the columns that count.
const schemaSQL = `
WITH rows (kind, row) AS (
    SELECT 'class', concat_ws(' ', oid, relname, relnamespace, relkind, relnatts, relchecks, relowner, relrowsecurity, relforcerowsecurity, relacl,
        reloptions) FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't'
    UNION ALL SELECT 'attribute', concat_ws(' ', attrelid, attnum, xmin) FROM pg_attribute WHERE attrelid >= 16384 AND attnum > 0
    UNION ALL SELECT 'default', concat_ws(' ', oid, xmin) FROM pg_attrdef
    UNION ALL SELECT 'constraint', concat_ws(' ', oid, xmin) FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT 'index', concat_ws(' ', indexrelid, xmin) FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT 'function', concat_ws(' ', oid, xmin) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'trigger', concat_ws(' ', oid, xmin) FROM pg_trigger
    UNION ALL SELECT 'rule', concat_ws(' ', oid, xmin) FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT 'enum', concat_ws(' ', oid, xmin) FROM pg_enum
    UNION ALL SELECT 'policy', concat_ws(' ', oid, xmin) FROM pg_policy
    UNION ALL SELECT 'extension', concat_ws(' ', oid, xmin) FROM pg_extension
    UNION ALL SELECT 'schema', concat_ws(' ', oid, xmin) FROM pg_namespace WHERE nspname NOT LIKE 'pg\_temp\_%' AND nspname NOT LIKE 'pg\_toast\_temp\_%'
    UNION ALL SELECT 'setting', setconfig::text FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE datname = current_database()
    UNION ALL SELECT 'edge', concat_ws(' ', ctid, xmin) FROM lifecycle_edges
    UNION ALL SELECT 'version', concat_ws(' ', ctid, xmin) FROM goose_db_version
)
SELECT string_agg(line, ', ' ORDER BY line) FROM (
    SELECT concat_ws(' ', kind, count(*), sum(hashtextextended(row, 0))) AS line FROM rows GROUP BY kind) lines`

// schemaOf returns the text for the connection's database. A table of schemaSQL that is missing is
// a change too.
func schemaOf(ctx context.Context, conn *pgx.Conn) (schema string, err error) {
	err = conn.QueryRow(ctx, schemaSQL, pgx.QueryExecModeSimpleProtocol).Scan(&schema)
	if err != nil && strings.Contains(err.Error(), "42P01") {
		return "", errChanged
	}
	return schema, err
}

// noteSchema keeps the text of a new template as its comment: a connection to a template would stop
// the making of copies.
func noteSchema(ctx context.Context, admin *pgx.Conn, server *pg.Server, name string) error {
	conn, err := pgx.Connect(ctx, server.DSN(name))
	if err != nil {
		return err
	}
	schema, err := schemaOf(ctx, conn)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("read the schema of the template: %w", err)
	}
	_, err = admin.Exec(ctx, "COMMENT ON DATABASE "+quote(name)+" IS '"+strings.ReplaceAll(schema, "'", "''")+"'")
	return err
}

// dropOld drops the templates of other schemas, with their copies, that no process uses.
func dropOld(ctx context.Context, admin *pgx.Conn, current string) error {
	rows, err := admin.Query(ctx, `SELECT datname FROM pg_database
		WHERE starts_with(datname, $1) AND NOT starts_with(datname, $2) AND pg_has_role(datdba, 'USAGE')`, templatePrefix, current)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	const lock, unlock = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
	for _, name := range names {
		template, _, _ := strings.Cut(strings.TrimPrefix(name, templatePrefix), "_")
		used := inUse(templatePrefix + template)
		var free bool
		if err := admin.QueryRow(ctx, lock, used).Scan(&free); err != nil {
			return err
		}
		if !free {
			continue
		}
		_, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
		if _, unlocked := admin.Exec(ctx, unlock, used); err != nil || unlocked != nil {
			return fmt.Errorf("drop database %s, which is no longer used: %w", name, errors.Join(err, unlocked))
		}
	}
	return nil
}
