package runenv_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestPatience_FollowsTheMachine: the larger of the factor of the start and the present one counts,
// and it is read again each time. Within a process no wait gets shorter than one before, and none
// is endless.
func TestPatience_FollowsTheMachine(t *testing.T) {
	pace := filepath.Join(t.TempDir(), "pace")
	for _, step := range []struct {
		start, present string
		want           time.Duration
	}{
		{"", "", time.Second}, {"0.1", "", time.Second}, {"1", "-4", time.Second}, {"1", "NaN", time.Second},
		{"1.5", "", 1500 * time.Millisecond}, {"1.5", "1.20\n", 1500 * time.Millisecond}, {"1.5", "3.00\n", 3 * time.Second},
		{"1.5", "1.00\n", 3 * time.Second}, {"4", "1.00\n", 4 * time.Second}, {"4", "999", 8 * time.Second},
	} {
		t.Setenv(runenv.PatienceVar, step.start)
		t.Setenv(runenv.PaceFileVar, pace)
		if step.present == "" {
			t.Setenv(runenv.PaceFileVar, filepath.Join(t.TempDir(), "none"))
		}
		require.NoError(t, os.WriteFile(pace, []byte(step.present), 0o600))
		require.Equal(t, step.want, runenv.Patience(time.Second), "%+v", step)
	}
}
