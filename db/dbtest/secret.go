package dbtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// SimulatedUse is the use of a secret that may be sent to simulators.
func SimulatedUse(kind spec.SecretKind) spec.SecretUse {
	if kind == spec.SecretBMCLogin || kind == spec.SecretMAASKey {
		return spec.SecretUse{Kind: kind, Networks: []string{"127.0.0.0/8"}}
	}
	return spec.SecretUse{Kind: kind, Installation: true}
}

// StateUse states SimulatedUse for secrets.
func StateUse(t testing.TB, s *db.Store, kind spec.SecretKind, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.SetSecretUse(t.Context(), name, SimulatedUse(kind))
		require.NoError(t, err)
	}
}
