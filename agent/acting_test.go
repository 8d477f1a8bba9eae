package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a task does on a simulated node is done by recorded tools alone: the
// machine that runs the simulation has a docker and a userdel of its own.
func TestASimulatedNodeActsByRecordedToolsOnly(t *testing.T) {
	t.Parallel()
	recorded, machine := t.TempDir(), t.TempDir()
	for _, p := range []string{filepath.Join(recorded, "docker"), filepath.Join(machine, "userdel")} {
		require.NoError(t, os.WriteFile(p, []byte("#!/bin/sh\n"), 0o755))
	}
	both := recorded + ":" + machine
	simulated := Config{Root: t.TempDir(), ToolsPath: both}.acting()
	require.True(t, simulated.HasTool("docker"))
	require.False(t, simulated.HasTool("userdel"))
	require.True(t, Config{Root: "/", ToolsPath: both}.acting().HasTool("userdel"))
	byDefault := Config{Root: t.TempDir()}.withDefaults().acting()
	require.False(t, byDefault.HasTool("sh"))
	require.False(t, byDefault.HasTool("userdel"))
}
