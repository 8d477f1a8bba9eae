package secretscan

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// pageRows is how many rows are read at a time.
const pageRows = 200

const tablesQuery = `
SELECT n.nspname, c.relname,
       array_agg(a.attname::text ORDER BY a.attnum) AS columns,
       array_agg(t.typname::text ORDER BY a.attnum) AS types,
       ARRAY(SELECT k.attname::text FROM pg_index i
             JOIN pg_attribute k ON k.attrelid = c.oid AND k.attnum = ANY (i.indkey)
             WHERE i.indrelid = c.oid AND i.indisprimary) AS key
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
GROUP BY n.nspname, c.relname, c.oid
ORDER BY n.nspname, c.relname`

type table struct {
	Schema, Name        string
	Columns, Types, Key []string
}

// Database searches every column of every table of the database's own schemas, in one snapshot. A
// value that is no text is searched as Postgres writes it, and bytea as its bytes.
func (s *Searcher) Database(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("search the database: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it wrote nothing
	rows, err := tx.Query(ctx, tablesQuery)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	for _, t := range tables {
		if err := s.table(ctx, tx, t); err != nil {
			return fmt.Errorf("search table %s.%s: %w", t.Schema, t.Name, err)
		}
	}
	return nil
}

func (s *Searcher) table(ctx context.Context, tx pgx.Tx, t table) error {
	s.Counts.Columns += len(t.Columns)
	if _, err := tx.Exec(ctx, "DECLARE secretscan NO SCROLL CURSOR FOR "+t.query()); err != nil {
		return err
	}
	for {
		rows, err := tx.Query(ctx, fmt.Sprintf("FETCH %d FROM secretscan", pageRows), pgx.QueryExecModeDescribeExec)
		if err != nil {
			return err
		}
		n := 0
		for ; rows.Next(); n++ {
			s.row(t, rows.RawValues())
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n < pageRows {
			_, err := tx.Exec(ctx, "CLOSE secretscan")
			return err
		}
	}
}

// query selects the row's id, then each column, as text or as bytes.
func (t table) query() string {
	id := []string{"ctid::text"}
	if len(t.Key) > 0 {
		id = nil
		for _, column := range t.Key {
			id = append(id, pgx.Identifier{column}.Sanitize()+"::text")
		}
	}
	selected := []string{"concat_ws(' ', " + strings.Join(id, ", ") + ")"}
	for i, column := range t.Columns {
		name := pgx.Identifier{column}.Sanitize()
		if t.Types[i] != "bytea" {
			name += "::text"
		}
		selected = append(selected, name)
	}
	return "SELECT " + strings.Join(selected, ", ") + " FROM " + pgx.Identifier{t.Schema, t.Name}.Sanitize()
}

func (s *Searcher) row(t table, values [][]byte) {
	s.Counts.Rows++
	id := s.nameOf(string(values[0]))
	for i, column := range t.Columns {
		if len(values[i+1]) > 0 {
			s.Search(fmt.Sprintf("table %s.%s, column %s, row %s", t.Schema, t.Name, column, id), values[i+1])
		}
	}
}
