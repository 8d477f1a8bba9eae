package secrets

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// TestCopies_OutliveTheDatabase: a copy is sealed, readable by its owner alone, bound to its name,
// and is opened with the key file alone, over another database.
func TestCopies_OutliveTheDatabase(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	s := open(t, &Memory{}, Keeper{KeyFile: key})
	require.NoError(t, s.KeepCopy(t.Context(), "bmc/a", providers.NewSecret("first-pw")))
	require.NoError(t, s.KeepCopy(t.Context(), "bmc/a", providers.NewSecret("second-pw")))
	again := open(t, &Memory{}, Keeper{KeyFile: key})
	got, err := again.ReadCopy(t.Context(), "bmc/a")
	require.NoError(t, err)
	require.Equal(t, "second-pw", got.Reveal())

	file := filepath.Join(key+".copies", "bmc%2Fa")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), "second-pw")
	require.NoError(t, os.WriteFile(filepath.Join(key+".copies", "bmc%2Fb"), text, 0o600))
	_, err = again.ReadCopy(t.Context(), "bmc/b")
	require.True(t, providers.IsKind(err, providers.KindProtocol), "%v", err)
	_, err = again.ReadCopy(t.Context(), "bmc/c")
	require.True(t, providers.IsKind(err, providers.KindNotFound), "%v", err)
	require.Error(t, s.KeepCopy(t.Context(), "../a b", providers.NewSecret("x")))
}
