package decommission_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A task that erases, and a task that proves the erasure, names the machine that it was decided
// for.
func TestErase_OnlyTheRecordedMachine(t *testing.T) {
	t.Parallel()
	for _, mode := range []lifecycle.DecommissionMode{lifecycle.ModeSoftReset, lifecycle.ModeReimage, lifecycle.ModeFull, lifecycle.ModeStorageCleanup, lifecycle.ModeDeprovision} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := setup(t, mode)
			b.site.facts.Serial = "SER-1"
			asked := map[lifecycle.TaskKind][]string{}
			b.Env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
				var in agenttask.RunTaskIn
				var fence struct {
					Serial string `json:"serial"`
				}
				if info.ActivityType.Name != "RunTask" || args.Get(&in) != nil || in.ObserveOnly || json.Unmarshal(in.Args, &fence) != nil {
					return
				}
				asked[in.Kind] = append(asked[in.Kind], fence.Serial)
			})
			require.Equal(t, lifecycle.JobCompleted, b.run())
			for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindScrub, lifecycle.TaskKindValidate} {
				require.NotEmpty(t, asked[kind], kind)
				for _, serial := range asked[kind] {
					require.Equal(t, "SER-1", serial, kind)
				}
			}
		})
	}
}
