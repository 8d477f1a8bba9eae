package dbtest

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// Logins lists the audited logins of a resource, the oldest first: the actor, the stored login, the
// address, the stage and the outcome.
func Logins(t testing.TB, s *db.Store, kind, id string) [][]string {
	t.Helper()
	rows, err := s.ResourceTimeline(t.Context(), kind, id, 0, 100)
	require.NoError(t, err)
	slices.Reverse(rows)
	var out [][]string
	for _, row := range rows {
		if row.Name != "login" {
			continue
		}
		var meta struct {
			CredentialRef string `json:"credential_ref"`
			Address       string `json:"address"`
			Stage         string `json:"stage"`
		}
		require.NoError(t, json.Unmarshal(row.Metadata, &meta))
		require.NotNil(t, row.ActorID)
		out = append(out, []string{*row.ActorID, meta.CredentialRef, meta.Address, cmp.Or(meta.Stage, "-"), row.ToState})
	}
	return out
}
