package lifecycle_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

var update = flag.Bool("update", false, "write the generated pages")

func TestGeneratedPagesAreCurrent(t *testing.T) {
	pages := map[string]string{
		"node-maas.md":       lifecycle.NodeMAAS.Document(),
		"node-pxe.md":        lifecycle.NodePXE.Document(),
		"job.md":             lifecycle.Job.Document(),
		"runner.md":          lifecycle.Runner.Document(),
		"node_task.md":       lifecycle.NodeTask.Document(),
		"bmc_rotation.md":    lifecycle.BMCRotation.Document(),
		"drift_finding.md":   lifecycle.DriftFinding.Document(),
		"project.md":         lifecycle.Project.Document(),
		"invitation.md":      lifecycle.Invitation.Document(),
		"allocation.md":      lifecycle.Allocation.Document(),
		"machine.md":         lifecycle.MachinePhases.Document(),
		"run.md":             lifecycle.Run.Document(),
		"run_step.md":        lifecycle.RunStep.Document(),
		"payment_session.md": lifecycle.Payment.Document(),
		"instance.md":        lifecycle.Instance.Document(),
		"run_campaign.md":    lifecycle.RunCampaign.Document(),
		"actions.md":         lifecycle.DocumentActions(),

		"run_campaign_member.md": lifecycle.CampaignMember.Document(),

		"decommission.md": lifecycle.DocumentDecommission(),
		"drift.md":        lifecycle.DocumentDrift(),
		"node_actions.md": lifecycle.DocumentNodeActions(),
	}
	dir := filepath.Join("..", "docs", "states")
	for name, want := range pages {
		path := filepath.Join(dir, name)
		if *update {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is stale: run make generate", path)
	}
}
