package replay_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/onboarding"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

const maxHistory = 64 << 20

func read(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(io.LimitReader(z, maxHistory))
	require.NoError(t, err)
	return parse(t, raw)
}

func parse(t *testing.T, raw []byte) *historypb.History {
	t.Helper()
	h, err := client.HistoryFromJSON(bytes.NewReader(raw), client.HistoryJSONOptions{})
	require.NoError(t, err)
	return h
}

// replay runs today's code over a history; workflows are registered as the
// server registers them.
func replay(h *historypb.History) error {
	r := worker.NewWorkflowReplayer()
	server.RegisterWorkflows(r)
	return r.ReplayWorkflowHistory(nil, h)
}

func recorded(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*", "*.json.gz"))
	require.NoError(t, err)
	return files
}

// TestRunningJobsSurviveThisCode replays what every release has recorded.
func TestRunningJobsSurviveThisCode(t *testing.T) {
	t.Parallel()
	files := recorded(t)
	require.NotEmpty(t, files, "record histories with `make histories`")
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			t.Parallel()
			h := read(t, file)
			require.NoError(t, replay(h), "this change breaks jobs that are running when it is deployed: guard it with a version marker, as docs/develop/development.md says")
			require.NoError(t, noSecrets(t.Context(), h, always()))
		})
	}
}

// TestTheReleaseAtHandIsRecorded holds the stored histories of this release to
// the table: each scenario is there and did as much as is written down.
func TestTheReleaseAtHandIsRecorded(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
		h := read(t, filepath.Join("testdata", contract.WorkflowOf(contract.KindOnboarding), release, s.name+".json.gz"))
		require.Equal(t, expected()[s.name], count(h), s.name)
	}
	files, err := filepath.Glob(filepath.Join("testdata", contract.WorkflowOf(contract.KindOnboarding), release, "*"))
	require.NoError(t, err)
	require.Len(t, files, len(names), "only what the scenarios record")
}

// TestAChangedJobIsNoticed replays the recorded onboarding against jobs that
// differ from it in one thing each.
func TestAChangedJobIsNoticed(t *testing.T) {
	t.Parallel()
	type job = stage.Job[onboarding.State]
	var maas *maasact.Activities
	look := func(ctx workflow.Context, s *onboarding.State) error {
		_, err := stage.Do(ctx, stage.KindMAASCall, "once more", maas.ObserveMachine, maasact.MachineIn{JobRef: s.Job, SystemID: s.Machine.SystemID})
		return err
	}
	at := func(j *job, name string) int {
		return slices.IndexFunc(j.Stages, func(s stage.Stage[onboarding.State]) bool { return s.Name == name })
	}
	for name, change := range map[string]func(*job){
		"one more stage": func(j *job) {
			j.Stages = slices.Insert(j.Stages, 3, stage.Stage[onboarding.State]{Name: "burn_in", Weight: 1, Run: look})
		},
		"one more stage at the end": func(j *job) {
			j.Stages = append(j.Stages, stage.Stage[onboarding.State]{Name: "burn_in", Weight: 1, Run: look})
		},
		"one stage fewer": func(j *job) {
			i := at(j, lifecycle.StageApplyRoCE)
			j.Stages = slices.Delete(j.Stages, i, i+1)
		},
		"two stages exchanged": func(j *job) {
			i := at(j, lifecycle.StageConfigureStorage)
			j.Stages[i], j.Stages[i+1] = j.Stages[i+1], j.Stages[i]
		},
		"another activity within a stage": func(j *job) { j.Stages[at(j, lifecycle.StageCommission)].Run = look },
		"one more activity within a stage": func(j *job) {
			st := &j.Stages[at(j, lifecycle.StageDeploy)]
			run := st.Run
			st.Run = func(ctx workflow.Context, s *onboarding.State) error {
				if err := run(ctx, s); err != nil {
					return err
				}
				return look(ctx, s)
			}
		},
		"a stage skipped": func(j *job) {
			j.Stages[at(j, lifecycle.StageEnsurePXE)].Skip = func(*onboarding.State) string { return "no longer needed" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := read(t, filepath.Join("testdata", contract.WorkflowOf(contract.KindOnboarding), release, "completed.json.gz"))
			replayed := func(change func(*job)) error {
				r := worker.NewWorkflowReplayer()
				r.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
					j := onboarding.Job(in)
					change(&j)
					return stage.Run(ctx, j, in)
				}, workflow.RegisterOptions{Name: contract.WorkflowOf(contract.KindOnboarding)})
				return r.ReplayWorkflowHistory(nil, h)
			}
			require.NoError(t, replayed(func(*job) {}), "a copy that differs in nothing")
			require.ErrorContains(t, replayed(change), "TMPRL1100")
		})
	}
}
