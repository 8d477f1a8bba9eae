package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDatabase_SeveralHosts reads URLs with several hosts, which net/url refuses, and demands a
// server that takes writes.
func TestDatabase_SeveralHosts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct {
		hosts    []string
		problems string
		redacted string
	}{
		"postgres://slipway@db/slipway":                                           {hosts: []string{"db:5432"}},
		"postgres://slipway@db1:5433,db2/slipway?target_session_attrs=read-write": {hosts: []string{"db1:5433", "db2:5432"}},
		"postgres://slipway:pw@db1:1,[::1]:2/slipway?target_session_attrs=primary": {
			hosts:    []string{"db1:1", "[::1]:2"},
			redacted: "postgres://slipway@db1:1,[::1]:2/slipway?target_session_attrs=primary",
		},
		"postgres://slipway@db1,db2/slipway":                                     {hosts: []string{"db1:5432", "db2:5432"}, problems: "add target_session_attrs=read-write"},
		"postgres://slipway@db1/slipway?host=a,b":                                {hosts: []string{"a:5432", "b:5432"}, problems: "add target_session_attrs=read-write"},
		"postgres://slipway@db1,db2/slipway?target_session_attrs=prefer-standby": {hosts: []string{"db1:5432", "db2:5432"}, problems: "needs a server that takes writes"},
		"postgres://slipway@db1/slipway?target_session_attrs=any":                {hosts: []string{"db1:5432"}, problems: "needs a server that takes writes"},
	} {
		v := &validator{}
		v.postgres("database.url", raw)
		if want.problems == "" {
			require.Empty(t, v.problems, raw)
		} else {
			require.Len(t, v.problems, 1, raw)
			require.ErrorContains(t, Invalid(v.problems), want.problems)
		}
		require.Equal(t, want.hosts, Database{URL: raw}.Hosts(), raw)
		if want.redacted != "" {
			require.True(t, hasPassword(raw))
			require.Equal(t, want.redacted, redactURL(raw))
		}
	}
}
