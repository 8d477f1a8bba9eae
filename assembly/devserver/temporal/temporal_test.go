package temporal

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/assembly/devserver/freeport"
)

// childVar makes this test binary start a server and then wait to be killed; see
// TestADeadParentLeavesNoServer.
const childVar = "SLIPWAY_TEMPORAL_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		srv, err := Start(context.Background(), Options{})
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		fmt.Println("started", srv.child.cmd.Process.Pid)
		select {}
	}
	os.Exit(m.Run())
}

// startWorkflow puts one in the history; no worker is needed to find it again.
func startWorkflow(t *testing.T, srv *Server, namespace, id string) client.Client {
	t.Helper()
	c, err := srv.Dial(t.Context(), namespace)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: "nobody",
		TypedSearchAttributes: sdk.NewSearchAttributes(
			sdk.NewSearchAttributeKeyKeyword("NodeID").ValueSet("node-1"),
			sdk.NewSearchAttributeKeyBool("NeedsHuman").ValueSet(true)),
	}, "Any")
	require.NoError(t, err)
	return c
}

func requireFound(t *testing.T, c client.Client, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		res, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: `NodeID = "node-1" AND NeedsHuman = true`})
		return err == nil && len(res.GetExecutions()) == 1 && res.GetExecutions()[0].GetExecution().GetWorkflowId() == id
	}, 20*time.Second, 50*time.Millisecond)
}

func TestAServerWithAFileComesBackAfterACrash(t *testing.T) {
	t.Parallel()
	var progress strings.Builder
	srv, err := Start(t.Context(), Options{DB: filepath.Join(t.TempDir(), "deep", "temporal.db"), Progress: &progress})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	require.Contains(t, progress.String(), "Temporal serves on 127.0.0.1:")
	c := startWorkflow(t, srv, Namespace, "kept")
	requireFound(t, c, "kept")

	address := srv.Address()
	require.NoError(t, srv.Pause(t.Context()))
	require.NoError(t, srv.Pause(t.Context()), "pausing twice is no error")
	_, err = srv.Dial(t.Context(), Namespace)
	require.Error(t, err)
	require.NoError(t, srv.Resume(t.Context()))
	require.NoError(t, srv.Resume(t.Context()), "resuming a running server does nothing")
	require.Equal(t, address, srv.Address())
	requireFound(t, c, "kept")
	info, err := c.DescribeWorkflowExecution(t.Context(), "kept", "")
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, info.GetWorkflowExecutionInfo().GetStatus())
}

func TestAServerInMemoryServesTheWebUIAndRefusesToPause(t *testing.T) {
	t.Parallel()
	port, err := freeport.Find(t.Context())
	require.NoError(t, err)
	srv, err := Start(t.Context(), Options{UIPort: port, Namespaces: []string{"one", "two"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	require.ErrorIs(t, srv.Pause(t.Context()), ErrForgets)
	require.Equal(t, fmt.Sprintf("http://127.0.0.1:%d", port), srv.UI())
	for _, path := range []string{"/", "/api/v1/namespaces/two"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.UI()+path, http.NoBody)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, path)
	}
	require.NoError(t, srv.Stop())
	require.NoError(t, srv.Stop(), "stopping twice is no error")
}

func TestAServerNamesTheCloudsThatItLeavesOut(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	c, err := srv.Dial(t.Context(), Namespace)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.WorkflowService().ValidateWorkerDeploymentVersionComputeConfig(t.Context(),
		&workflowservice.ValidateWorkerDeploymentVersionComputeConfigRequest{
			Namespace:         Namespace,
			DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{DeploymentName: "slipwayd", BuildId: "1"},
		})
	require.ErrorContains(t, err, "worker controllers are left out of this development server")
}

func TestAnExternalServerGetsWhatIsMissingAndIsNeverStopped(t *testing.T) {
	own, err := Start(t.Context(), Options{SearchAttributes: map[string]string{"Stage": "Keyword"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, own.Stop()) }()
	const env = "SLIPWAY_TEMPORAL_TEST_ADDRESS"
	t.Setenv(env, own.Address())
	srv, err := Acquire(t.Context(), env, Options{Namespaces: []string{Namespace, "mine"}})
	require.NoError(t, err)
	require.True(t, srv.External())
	requireFound(t, startWorkflow(t, srv, "mine", "w"), "w")
	require.ErrorIs(t, srv.Pause(t.Context()), ErrExternal)
	require.ErrorIs(t, srv.Resume(t.Context()), ErrExternal)
	require.NoError(t, srv.Stop())
	_, err = own.Dial(t.Context(), Namespace)
	require.NoError(t, err)
}

func TestADeadParentLeavesNoServer(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscanf(line, "started %d", &pid)
	require.NoError(t, err, line)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "killed")
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, 20*time.Second, 50*time.Millisecond)
}

func TestAProgramThatFailsIsQuoted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho 'no such luck' >&2\nexit 3\n"), 0o755))
	_, err := Start(t.Context(), Options{Binary: path})
	require.ErrorContains(t, err, "ended while starting")
	require.ErrorContains(t, err, "no such luck")
}

func TestAPortInUseIsSaid(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	port, err := portOf(srv.Address())
	require.NoError(t, err)
	_, err = Start(t.Context(), Options{FrontendPort: port})
	require.ErrorContains(t, err, "address already in use")
}
