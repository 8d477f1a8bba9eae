package chaos_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/chaos"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestRun_DirtyNodeBlamesTheCaseThatLeftIt plays the sequence in which a case once found the data
// of an earlier case's tenant on a free node. The first case leaves what only root can hide on a
// node that it keeps installed. It gets the finding, with the tenant's name; the last case gets a
// clean node.
func TestRun_DirtyNodeBlamesTheCaseThatLeftIt(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	const dirty, last = "decommission/soft_reset:", "allocation_keys/one_key_ends:prove_keys.ProjectJob=release_asked.before"
	o := chaos.Options{Sets: slices.Concat(onboarding(), chaos.DecommissionJobs(), chaos.AllocationJobs()), AtOnce: 1}
	hideAsRoot(o.Sets, dirty)
	for _, text := range []string{dirty, "onboarding/plain:", last} { // the second one gives the first node time to become active
		c, err := chaos.ParseCase(text, o.Sets)
		require.NoError(t, err)
		o.Cases = append(o.Cases, c)
	}
	report, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Results, len(o.Cases))
	for _, r := range report.Results {
		if r.Case.String() != dirty {
			require.Empty(t, r.Findings, r.Blame())
			continue
		}
		require.Equal(t, lifecycle.JobCompleted, r.End, r.Blame())
		require.Len(t, r.Findings, 1, r.Blame())
		require.Equal(t, chaos.Invariant, r.Findings[0].Verdict)
		require.Contains(t, r.Findings[0].Text, "free_nodes_are_clean")
		require.Contains(t, r.Findings[0].Text, "/usr/sbin/sshd (of somebody with root)")
	}
}

// hideAsRoot lets somebody hide a program on the node of a case after its tenant has come.
func hideAsRoot(sets []*chaos.ScenarioSet, text string) {
	for _, p := range sets {
		for i := range p.Paths {
			path := &p.Paths[i]
			prepare := path.Prepare
			path.Prepare = func(ctx context.Context, target *chaos.Target) error {
				if prepare != nil {
					if err := prepare(ctx, target); err != nil {
						return err
					}
				}
				if target.Case.String() != text {
					return nil
				}
				n := target.Stack.Sims.Nodes[target.Machine.Spec().ID]
				n.SetTenant("somebody with root")
				return n.Plant("sshd")
			}
		}
	}
}
