package temporalx_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

// knownAttributes is a namespace that refuses attributes that it does not know, as a server does.
type knownAttributes struct {
	client.Client
	known   func(string) bool
	started []client.StartWorkflowOptions
}

type startedRun struct{ client.WorkflowRun }

func (startedRun) GetRunID() string { return "run-1" }

func (n *knownAttributes) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	for key := range o.TypedSearchAttributes.GetUntypedValues() {
		if !n.known(key.GetName()) {
			return nil, serviceerror.NewInvalidArgument("no mapping defined for search attribute " + key.GetName())
		}
	}
	n.started = append(n.started, o)
	return startedRun{}, nil
}

// TestStartJob_NamesHost: a job is found by the name of its node. A namespace that lacks an
// attribute refuses the start.
func TestStartJob_NamesHost(t *testing.T) {
	t.Parallel()
	in := contract.JobInput{JobID: "job_1", Kind: contract.KindOnboarding, NodeID: "node_1", SiteID: "site_1", Hostname: "gpu-7"}
	for name, c := range map[string]struct {
		unknown string
		host    string
		fails   bool
	}{
		"a namespace of Slipway": {host: "gpu-7"}, "without host names": {unknown: contract.SearchHostname, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &knownAttributes{known: func(key string) bool { return key != c.unknown }}
			run, err := temporalx.Jobs{Client: n, TaskQueue: "q"}.StartJob(t.Context(), in, "onboarding of gpu-7 node_1")
			if c.fails {
				require.Error(t, err)
				require.Empty(t, n.started)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "run-1", run)
			require.Len(t, n.started, 1)
			host, _ := n.started[0].TypedSearchAttributes.GetKeyword(contract.HostnameAttribute)
			require.Equal(t, c.host, host)
			require.Equal(t, "onboarding of gpu-7 node_1", n.started[0].StaticSummary)
		})
	}
}
