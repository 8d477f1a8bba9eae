package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// simulated is the configuration of a made-up node without any recorded tool.
func simulated(t *testing.T) agentconfig.Config {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{"etc/slipway-simulated": "", "proc/sys/kernel/random/boot_id": "boot-1\n", "etc/passwd": "root:x:0:0::/root:/bin/sh\n"} {
		p := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
	}
	return agentconfig.Config{Root: root, ToolsPath: t.TempDir(), Simulated: true, PlatformUsers: []string{"ubuntu"}}
}

func TestEveryKindHasAHandlerHereOrInTheAgent(t *testing.T) {
	t.Parallel()
	reg := moreHandlers(simulated(t), "/var/lib/x")
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindScrub, lifecycle.TaskKindValidate} {
		require.NotNil(t, reg[kind], kind)
	}
	require.Len(t, lifecycle.TaskKinds(), len(reg)+9, "drain, uninstall, update, those of an allocation, of credentials and of the network are the agent's own")
}

func TestAScrubIsFencedToItsBootAndGoesOnInItOnly(t *testing.T) {
	t.Parallel()
	h := moreHandlers(simulated(t), "/var/lib/x")[lifecycle.TaskKindScrub]
	req := task.Request{Task: protocol.Task{ID: "t1", BootID: "boot-0"}, Args: &spec.ScrubArgs{RunID: "r1"}}
	res := h.Run(t.Context(), req, task.NewRecorder(nil, nil, nil))
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code, "the task is for another boot: %s", res.Message)

	req.Task.BootID, req.Resumed = "boot-1", true
	var seen []string
	res = h.(task.Resumer).Resume(t.Context(), req, task.NewRecorder(nil, nil, func(s string) { seen = append(seen, s) }))
	require.False(t, res.OK, "without tools nothing is verified")
	require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
	require.True(t, res.Simulated)
	require.Greater(t, len(seen), 5, "it checked everything again")

	for _, change := range []func(*task.Request){func(r *task.Request) { r.Rebooted = true }, func(r *task.Request) { r.Expired = true }} {
		other := req
		change(&other)
		require.Equal(t, lifecycle.TaskCodeUncertain, h.(task.Resumer).Resume(t.Context(), other, task.NewRecorder(nil, nil, nil)).Code)
	}
}

func TestAValidationEndsWithItsLease(t *testing.T) {
	t.Parallel()
	h := moreHandlers(simulated(t), "/var/lib/x")[lifecycle.TaskKindValidate]
	req := task.Request{Task: protocol.Task{ID: "t1", BootID: "boot-1"}, Args: &spec.ValidateArgs{RunID: "r1"}}
	require.Equal(t, lifecycle.TaskCodeStepFailed, h.Run(t.Context(), req, task.NewRecorder(nil, nil, nil)).Code)
	halt := make(chan struct{})
	rec := task.NewRecorder(nil, halt, func(string) {
		select {
		case <-halt:
		default:
			close(halt)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res := h.Run(ctx, req, rec)
	require.Equal(t, rec.End(task.ErrHalted), res, "what was seen of it does not count")
}

func TestExitCodesAreThoseOfTheUnits(t *testing.T) {
	t.Parallel()
	require.Equal(t, 75, exitCode(errors.Join(task.ErrRestart)))
	require.Equal(t, 77, exitCode(task.ErrUninstalled))
	require.Equal(t, 1, exitCode(errors.New("x")))
}
