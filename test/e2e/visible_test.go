package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// stagesVisible finds all sixteen stages by name where an operator looks: the
// API's answer, the command line, and Temporal's current details.
func (w *world) stagesVisible(t *testing.T, j db.Job) {
	t.Helper()
	token, err := op.CreateToken(t.Context(), w.App.Store, "e2e", []string{"viewer"}, time.Hour)
	require.NoError(t, err)
	answer, err := w.client(t, token).GetOnboarding(t.Context(), j.ID)
	require.NoError(t, err)
	seen := map[string]string{
		"API":      string(answer.Raw),
		"CLI":      w.cliAnswer(t, token, "job", "show", j.ID),
		"Temporal": w.currentDetails(t, j),
	}
	for where, text := range seen {
		for _, stage := range lifecycle.OnboardingStages() {
			require.Contains(t, text, stage, where)
		}
	}
}

func (w *world) cliAnswer(t *testing.T, token string, args ...string) string {
	t.Helper()
	home := t.TempDir()
	run := func(stdin string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(w.Bin, "slipway"), args...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	run(token+"\n", "login", "--server", w.Config.API.PublicURL, "--token-stdin")
	return run("", args...)
}

// currentDetails asks as the Web UI does.
func (w *world) currentDetails(t *testing.T, j db.Job) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	res, err := w.App.Temporal.QueryWorkflow(ctx, j.WorkflowID, j.RunID, "__temporal_workflow_metadata")
	require.NoError(t, err)
	var meta sdkpb.WorkflowMetadata
	require.NoError(t, res.Get(&meta))
	return meta.GetCurrentDetails()
}
