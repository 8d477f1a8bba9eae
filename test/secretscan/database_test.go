package secretscan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/secretscan"
)

// TestDatabase_EveryKindOfColumn plants the secret in one column after the other, behind the first
// page of rows.
func TestDatabase_EveryKindOfColumn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := dbtest.Owner(t, dbtest.FreshDatabase(t))
	_, err := conn.Exec(ctx, `CREATE SCHEMA other;
		CREATE TABLE other."Kinds" (id int PRIMARY KEY, t text, v varchar(80), j json, b jsonb, a text[], y bytea);
		CREATE TABLE other.keyless (t text);
		INSERT INTO other."Kinds" (id, t) SELECT i, 'nothing' FROM generate_series(1, 450) i`)
	require.NoError(t, err)
	const secret = "correct horse battery staple"
	search := func() *secretscan.Searcher {
		s := secretscan.New([]secretscan.Secret{{Kind: "password", Value: secret}}, nil)
		require.NoError(t, s.Database(ctx, conn))
		return s
	}
	require.Empty(t, search().Findings())
	for column, expression := range map[string]string{
		"t": "%s", "v": "%s", "j": "json_build_object('a', %s)", "b": "jsonb_build_object('a', jsonb_build_array(%s))",
		"a": "ARRAY['x', %s]", "y": "convert_to(%s, 'UTF8')",
	} {
		value := fmt.Sprintf(expression, "'it is "+secret+"'::text")
		_, err := conn.Exec(ctx, fmt.Sprintf(`UPDATE other."Kinds" SET %s = %s WHERE id = 449`, column, value))
		require.NoError(t, err)
		s := search()
		require.Equal(t, []secretscan.Finding{{Place: "table other.Kinds, column " + column + ", row 449", Kind: "password", Form: "plain"}}, s.Findings())
		require.Greater(t, s.Counts.Rows, 450)
		require.Greater(t, s.Counts.Columns, 100, "the product's own tables too")
		_, err = conn.Exec(ctx, fmt.Sprintf(`UPDATE other."Kinds" SET %s = NULL`, column))
		require.NoError(t, err)
	}
	_, err = conn.Exec(ctx, `INSERT INTO other.keyless VALUES ($1)`, strings.Repeat("long ", 1000)+secret)
	require.NoError(t, err)
	found := search().Findings()
	require.Len(t, found, 1)
	require.Equal(t, "table other.keyless, column t, row (0,1)", found[0].Place)
}

func TestDatabase_RowIDIsNoSecret(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := dbtest.Owner(t, dbtest.FreshDatabase(t))
	const secret = "correct horse battery staple"
	_, err := conn.Exec(ctx, `CREATE TABLE named (id text PRIMARY KEY); INSERT INTO named VALUES ('`+secret+`')`)
	require.NoError(t, err)
	s := secretscan.New([]secretscan.Secret{{Kind: "password", Value: secret}}, nil)
	require.NoError(t, s.Database(ctx, conn))
	require.Len(t, s.Findings(), 1)
	require.NotContains(t, s.Findings()[0].String(), secret)
}
