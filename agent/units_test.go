package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestReport_Units: a unit that is not installed is absent, and one whose state cannot be read is
// unknown; systemctl fails for each that is not active.
func TestReport_Units(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"etc/systemd/system/gpud.service":                        "",
		"lib/systemd/system/nvidia-fabricmanager.service":        "",
		"usr/lib/systemd/system/nvidia-persistenced.service":     "",
		"usr/lib/systemd/system/not-of-interest.service":         "",
		"usr/lib/systemd/system/nvidia-dcgm.service.d/a.conf":    "",
		"etc/systemd/system/multi-user.target.wants/nvidia.conf": "",
	})
	dir := tools(t, "exit 1\n")
	script := "#!/bin/sh\n[ \"$1\" = is-active ] || exit 9\ncase $2 in gpud.service) echo active;; nvidia-fabricmanager.service) echo failed; exit 3;; *) echo Failed to connect to bus; exit 1;; esac\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o755))
	require.Equal(t, []spec.UnitReport{
		{Name: "gpud.service", State: "active"}, {Name: "nvidia-dcgm.service", State: "absent"},
		{Name: "nvidia-persistenced.service", State: "unknown"}, {Name: "nvidia-fabricmanager.service", State: "failed"},
	}, agent.Report(t.Context(), config(root, dir)).Units)
}
