package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The variables that name the servers of a whole test run.
const (
	databaseVar = "TEST_DATABASE_URL"
	temporalVar = "SLIPWAY_TEMPORAL_ADDRESS"
)

// sharedParts are what the tests of this program use together: one database with an API and a
// worker, on which each test has a site of its own, and programs.
type sharedParts struct {
	stack struct {
		sync.Mutex
		running *stack.Stack
	}
	crashworker struct {
		sync.Mutex
		path string
	}
	ends struct {
		sync.Mutex
		all []func()
	}
}

var shared sharedParts

// atEnd has f called when all tests have ended, the newest first.
func (s *sharedParts) atEnd(f func()) {
	s.ends.Lock()
	defer s.ends.Unlock()
	s.ends.all = append(s.ends.all, f)
}

var siteNumbers, machines atomic.Int64

// machineNumbers reserves numbers for so many machines and returns the first.
func machineNumbers(count int) int { return int(machines.Add(int64(count))) - count + 1 }

// pxeMachines returns machines of all vendors that boot from the network, with their own numbers.
func pxeMachines(count int) []stack.PXEMachine {
	out := stack.PXEMachines(count)
	first := machineNumbers(count)
	for i := range out {
		out[i].Spec = simhw.GPUServer(simhw.Vendors[i%len(simhw.Vendors)], first+i)
	}
	return out
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(shared.ends.all) {
		end()
	}
	os.Exit(code)
}

// startServers starts the servers that the environment does not name, and names them there for the
// stacks of this program.
var startServers = sync.OnceValue(func() error {
	ctx := context.Background()
	if os.Getenv(databaseVar) == "" {
		database, err := pg.Start(ctx, pg.Options{})
		if err != nil {
			return err
		}
		shared.atEnd(func() { _ = database.Stop() })
		if err := os.Setenv(databaseVar, database.DSN("postgres")); err != nil {
			return err
		}
	}
	if os.Getenv(temporalVar) != "" {
		return nil
	}
	engine, err := temporal.Start(ctx, temporal.Options{})
	if err != nil {
		return err
	}
	shared.atEnd(func() { _ = engine.Stop() })
	return os.Setenv(temporalVar, engine.Address())
})

// stackDefaults fills what the options say of a stack.
func stackDefaults(o stack.Options) stack.Options {
	if !o.TemporalOnDisk {
		o.TemporalEnv = temporalVar
	}
	o.TemporalUI = -1
	o.OfflineAfter = time.Hour // nodes without an agent, and machines that are slow
	return o
}

// sharedStack starts the stack of all tests when the first test needs it.
func sharedStack(t *testing.T) *stack.Stack {
	t.Helper()
	require.NoError(t, startServers())
	shared.stack.Lock()
	defer shared.stack.Unlock()
	if shared.stack.running != nil {
		return shared.stack.running
	}
	stack, err := stack.Start(t.Context(), stackDefaults(stack.Options{
		Speed: 1, DatabaseEnv: databaseVar, TaskQueue: db.NewID("e2e"), Log: &failures, Configure: func(c *config.Config) {
			c.Reconcile.BMCProbes, c.Reconcile.BMCLogins = 0, 0 // tests count logins
			c.Sweep.Every = 2 * time.Second                     // the sweeper is who gives an offline node back to service
			c.Release.RevokeDeadline = runenv.Patience(30 * time.Second)
		},
	}))
	require.NoError(t, err)
	shared.atEnd(stack.Close)
	shared.stack.running = stack
	return stack
}

// abandon ends what the test has left at its site, so that the shared worker has no more to do with
// machines that are gone.
func (w *world) abandon(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), runenv.Patience(time.Minute))
	defer cancel()
	_ = w.App.Reconcile(w.site.ID).Remove(ctx)
	jobs, err := w.App.Store.ListJobs(ctx, db.JobFilter{SiteID: w.site.ID}, "", 500)
	if err != nil {
		t.Logf("jobs of site %s: %v", w.site.Name, err)
	}
	for _, j := range jobs {
		if !lifecycle.Job.Terminal(j.Status) {
			_ = w.App.Temporal.TerminateWorkflow(ctx, j.WorkflowID, "", "the test is over")
		}
	}
}

// rowsVar overrides how many rows of a table, or of a group of it, are played.
const rowsVar = "SLIPWAY_E2E_ROWS"

// note prints a line that is no report. A line by t.Log has the form of a failure, and a test whose
// last report is no missed deadline is not run again.
func note(t *testing.T, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(t.Output(), format+"\n", args...)
	require.NoError(t, err)
}
