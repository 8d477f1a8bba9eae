package scrub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/agent/task"
	"github.com/slipway-cloud/slipway/internal/agent/wire"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestATaskErasesWhatItsFenceAllows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nops:x:1000:1000::/home/ops:/bin/sh\n")
	reg := Handlers(b.host, []string{"ops"})
	require.Len(t, reg, 2)
	steps := []string{StepUsers, StepDisks}
	req := task.Request{Task: wire.Task{}, Args: &lifecycle.ScrubArgs{RunID: "job_1", Steps: steps, ProtectSerials: []string{"S1"}}}
	req.Task.BootID = "boot-0"
	res := reg[lifecycle.TaskKindScrub].Run(t.Context(), req, task.NewRecorder(nil, nil, nil))
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code, "a task for another boot")
	require.Contains(t, b.image("nvme0n1"), "tenant's data")

	req.Task.BootID = "boot-1"
	again, ok := reg[lifecycle.TaskKindScrub].(task.Resumer)
	require.True(t, ok)
	req.Resumed, req.Rebooted = true, true
	require.Equal(t, task.CodeUncertain, again.Resume(t.Context(), req, task.NewRecorder(nil, nil, nil)).Code)
	req.Rebooted, req.Expired = false, true
	require.Equal(t, task.CodeUncertain, again.Resume(t.Context(), req, task.NewRecorder(nil, nil, nil)).Code)
	require.Contains(t, b.image("nvme0n1"), "tenant's data")
	req.Expired = false
	recorder := task.NewRecorder(nil, nil, nil)
	res = again.Resume(t.Context(), req, recorder)
	require.True(t, res.OK, res.Message)
	require.Equal(t, res.Steps, recorder.Steps())
	require.NotContains(t, b.image("nvme0n1"), "tenant's data")

	req.Args = &lifecycle.ValidateArgs{RunID: "job_1"}
	res = reg[lifecycle.TaskKindValidate].Run(t.Context(), req, task.NewRecorder(nil, nil, nil))
	require.True(t, stepOf(res, StepUsers).OK)
	require.False(t, stepOf(res, StepDiskBlank).OK, "the protected disk is not blank")
	require.False(t, stepOf(res, StepHardware).OK, "nothing to look with is unknown")
	for _, h := range reg {
		require.Equal(t, task.CodeArguments, h.Run(t.Context(), task.Request{Args: &lifecycle.DrainArgs{}}, task.NewRecorder(nil, nil, nil)).Code)
	}
}
