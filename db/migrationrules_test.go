package db_test

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// baseline is the number of the last migration of the baseline, which no build was before.
const baseline = 23

// breaking are the statements after which the build before would fail: while a new version is
// rolled out, both work with the new schema.
var breaking = map[string]*regexp.Regexp{
	"removes what the build before may use": regexp.MustCompile(`(?i)\bdrop\s+(table|column|view|function|sequence|type)\b`),
	"renames what the build before uses":    regexp.MustCompile(`(?i)\brename\b`),
	"changes the type of a column":          regexp.MustCompile(`(?i)\balter\s+(column\s+)?\w+\s+(set\s+data\s+)?type\b`),
	"refuses rows of the build before":      regexp.MustCompile(`(?i)\bset\s+not\s+null\b`),
	"adds a column that the build before leaves empty, without a default": regexp.MustCompile(
		`(?i)\badd\s+(column\s+)?\w+\s+[^,;]*\bnot\s+null\b(?:[^,;]*)`),
}

var (
	sqlComment = regexp.MustCompile(`--[^\n]*`)
	hasDefault = regexp.MustCompile(`(?i)\b(default|generated)\b`)
	// unread is how a migration says that the build before reads no more what it removes.
	unread = regexp.MustCompile(`(?m)^-- unread since: \S+`)
)

// breaks returns why the build before would not work with the schema after a migration.
func breaks(sql string) (why []string) {
	if unread.MatchString(sql) {
		return nil
	}
	up, _, _ := strings.Cut(sql, "-- +goose Down")
	up = sqlComment.ReplaceAllString(up, "")
	for reason, pattern := range breaking {
		for _, found := range pattern.FindAllString(up, -1) {
			if !strings.Contains(reason, "default") || !hasDefault.MatchString(found) {
				why = append(why, fmt.Sprintf("%s: %s", reason, strings.Join(strings.Fields(found), " ")))
			}
		}
	}
	return why
}

func TestMigrations_TheBuildBeforeWorks(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(db.Schema(), "migrations/*.sql")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), baseline)
	for _, name := range files {
		var number int
		_, err := fmt.Sscanf(path.Base(name), "%05d_", &number)
		require.NoError(t, err, name)
		if number <= baseline {
			continue
		}
		sql, err := fs.ReadFile(db.Schema(), name)
		require.NoError(t, err)
		require.Empty(t, breaks(string(sql)), "%s: docs/develop/development.md says how a schema changes; "+
			"name the version since which nothing reads it, as in \"-- unread since: 0.3.0\"", name)
	}
}

func TestBreaks_FindsEachKind(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]int{
		"ALTER TABLE nodes ADD COLUMN rack text;":                                     0,
		"ALTER TABLE nodes ADD COLUMN rack text NOT NULL DEFAULT '', ADD x int;":      0,
		"CREATE TABLE a (b text NOT NULL); CREATE INDEX c ON a (b);":                  0,
		"-- drop table nodes\nSELECT 1;":                                              0,
		"SELECT 1;\n-- +goose Down\nDROP TABLE a;":                                    0,
		"-- unread since: 0.2.0\nALTER TABLE nodes DROP COLUMN rack;":                 0,
		"ALTER TABLE nodes DROP COLUMN rack;":                                         1,
		"DROP VIEW attention;":                                                        1,
		"ALTER TABLE nodes RENAME rack TO place;":                                     1,
		"ALTER TABLE nodes ALTER COLUMN rack TYPE integer USING 1;":                   1,
		"ALTER TABLE nodes ALTER rack SET NOT NULL;":                                  1,
		"ALTER TABLE nodes ADD COLUMN rack text NOT NULL CHECK (rack <> ''), ADD y x": 1,
	} {
		require.Len(t, breaks(sql), want, sql)
	}
}
