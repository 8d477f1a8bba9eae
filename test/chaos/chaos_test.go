package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/chaos"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestMain makes this program the worker process of its own runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == chaos.WorkerArgument {
		if err := chaos.RunWorker(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// orphaned is a case on a node whose BMC has an unfinished login of a worker that died: the BMC
// locks its account after three wrong logins, so that the job waits for an operator.
const orphaned = "decommission/storage_cleanup:cleanup_storage.ReadNodeFacts=worker_killed.after"

// TestRun_AllScenarioSets plays a stratum of each scenario set inside this process, where the race
// detector can watch the harness and the product. In `make proof` it plays two of each, and the
// orphaned login with worker processes, which takes half a minute; AREA=race-chaos plays all.
func TestRun_AllScenarioSets(t *testing.T) {
	if testing.Short() {
		t.Skip("these jobs take half a minute")
	}
	said := &progress{}
	o := chaos.Options{Sets: allSets(), Processes: 2, Progress: said, Verbose: true}
	seed := runenv.Seed(t)
	o.Cases = someOfEach(o.Sets, seed, runenv.Scale(t, "SLIPWAY_STRATA", 1, 2))
	if runenv.Proof() {
		addOrphanedLogin(o.Sets)
		c, err := chaos.ParseCase(orphaned, o.Sets)
		require.NoError(t, err)
		o.Cases = append(o.Cases, c)
	}
	t.Logf("seed %d: %v", seed, o.Cases)
	report, err := chaos.Run(t.Context(), o)
	t.Log("\n" + said.text() + report.Table())
	for _, failed := range report.Failed() {
		t.Error(failed.Blame())
	}
	require.NoError(t, err)
	require.Len(t, report.Results, len(o.Cases))
	if !runenv.Proof() {
		return
	}
	i := slices.IndexFunc(report.Results, func(r chaos.Result) bool { return r.Case.String() == orphaned })
	require.Equal(t, 1, report.Results[i].Waits)
	require.Contains(t, report.Table(), "1 cases were parked so that a BMC locks no account")
}

// someOfEach takes up to n stratum cases of each scenario set that kill no worker process, and one
// of booted nodes, which take longest, and of each job of an agent. Which ones follows from the
// seed.
func someOfEach(sets []*chaos.ScenarioSet, seed uint64, n int) []chaos.Case {
	cases := slices.DeleteFunc(chaos.StratumCases(sets, seed), func(c chaos.Case) bool {
		return c.Has(chaos.WorkerKilled, chaos.PostgresKilled)
	})
	var out []chaos.Case
	for _, p := range sets {
		own := slices.DeleteFunc(slices.Clone(cases), func(c chaos.Case) bool { return !p.Plays(c) })
		first, some := int(seed%uint64(len(own))), n //nolint:gosec // a small number
		if p.Name == "booted" || strings.HasPrefix(p.Name, "agent_") {
			some = 1
		}
		for i := range min(some, len(own)) {
			out = append(out, own[(first+i*len(own)/some)%len(own)])
		}
	}
	return out
}

// addOrphanedLogin lets a worker have died during a login to the BMC of the orphaned case.
func addOrphanedLogin(sets []*chaos.ScenarioSet) {
	for _, p := range sets {
		for i := range p.Paths {
			path := &p.Paths[i]
			if path.Name != "storage_cleanup" {
				continue
			}
			prepare := path.Prepare
			path.Prepare = func(ctx context.Context, target *chaos.Target) error {
				if err := prepare(ctx, target); err != nil || target.Case.String() != orphaned {
					return err
				}
				return countOrphanedLogin(ctx, target)
			}
		}
	}
}

// countOrphanedLogin counts a login that was begun and never settled.
func countOrphanedLogin(ctx context.Context, target *chaos.Target) error {
	const dead = "job_of_a_dead_worker"
	three := 3
	rec, err := target.Store.BMCOfNode(ctx, target.NodeID)
	if err != nil {
		return err
	}
	if err := target.Store.SetBMCLockout(ctx, rec.ID, &three, 5*time.Minute); err != nil {
		return err
	}
	if rec, err = target.Store.TakeBMCLogin(ctx, rec.ID, dead, time.Minute); err != nil {
		return err
	}
	now, err := target.Store.Clock(ctx)
	if err != nil {
		return err
	}
	login := db.Entry{ResourceKind: "bmc", ResourceID: rec.ID, Kind: db.EntryCall, Name: "login", Actor: db.Actor{Owner: lifecycle.OwnerJob}}
	if err := target.Store.CountBMCLogin(ctx, rec.ID, dead, now, true, attempts(rec), login); err != nil {
		return err
	}
	return target.Store.ReleaseBMCLogin(ctx, rec.ID, dead)
}

func attempts(rec db.BMC) int { return rec.WrongLogins + rec.OpenLogins }

// progress shows how far a run is as it goes, on the terminal alone, and keeps
// the rest: a failure's log holds what was found and not what it took.
type progress struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*progress)(nil)

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Contains(b, []byte("cases ended")) {
		return os.Stderr.Write(b)
	}
	return p.b.Write(b)
}

func (p *progress) text() string { p.mu.Lock(); defer p.mu.Unlock(); return p.b.String() }
