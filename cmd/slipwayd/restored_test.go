package main

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestRestored_ShowsThenEnds runs the command of the restore runbook. It is not parallel: the
// command reads its settings from the environment.
func TestRestored_ShowsThenEnds(t *testing.T) {
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	_, err := op.CreateToken(t.Context(), store, "old", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	t.Setenv("SLIPWAY_DATABASE_URL", dsn)
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"restored"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	live := func() (n int) {
		require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL").Scan(&n))
		return n
	}
	_, err = run("--confirm", "0000000000000000")
	require.ErrorContains(t, err, "stop all processes")
	shown, err := run()
	require.NoError(t, err)
	require.Contains(t, shown, "would end api_token: 1")
	require.Equal(t, 1, live(), "a dry run changes nothing")
	hash := regexp.MustCompile(`--confirm ([0-9a-f]{16})\n`).FindStringSubmatch(shown)
	require.NotNil(t, hash, shown)
	ended, err := run("--confirm", hash[1])
	require.NoError(t, err)
	require.Contains(t, ended, "ended api_token: 1")
	require.Zero(t, live())
	shown, err = run()
	require.NoError(t, err)
	require.Contains(t, shown, "would end api_token: 0")
	require.Contains(t, shown, "new epoch of events", "which a disk that was set back needs, whatever there is to end")
	_, err = run("--confirm", hash[1])
	require.ErrorContains(t, err, "not that of the dry run")
	again := regexp.MustCompile(`--confirm ([0-9a-f]{16})\n`).FindStringSubmatch(shown)
	require.NotNil(t, again, shown)
	var before, after string
	epoch := func(into *string) {
		require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT epoch FROM event_cursor").Scan(into))
	}
	epoch(&before)
	_, err = run("--confirm", again[1])
	require.NoError(t, err)
	epoch(&after)
	require.NotEqual(t, before, after)

	require.Contains(t, shown, "would stop the enforcement of balances")
	require.Contains(t, ended, "slipway billing resume")
	reason := func() (text string) {
		require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT enforcement_stopped FROM billing_control").Scan(&text))
		return text
	}
	require.Empty(t, reason(), "nothing is charged")
	owner := dbtest.Owner(t, dsn)
	for _, statement := range []string{
		"SET session_replication_role = replica",
		"INSERT INTO prices (id, sku_id, currency, rate_minor_per_hour, valid, set_by) VALUES ('prc_1', 'sku_1', 'USD', 1, tstzrange(now(), NULL), 'test')",
	} {
		_, err = owner.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	_, err = run("--confirm", again[1])
	require.NoError(t, err)
	require.Contains(t, reason(), "restored from a backup")
	_, err = owner.Exec(t.Context(), "UPDATE billing_control SET enforcement_stopped = 'twelve accounts at once'")
	require.NoError(t, err)
	_, err = run("--confirm", again[1])
	require.NoError(t, err)
	require.Equal(t, "twelve accounts at once", reason(), "that of an earlier stop stays")
}
