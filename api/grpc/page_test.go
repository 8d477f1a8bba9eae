package grpc_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// reboot and withToken are the example of docs/machines.md, which TestPage_ExampleRebootsAMachine
// compares with the page.

// reboot restarts a machine and waits for the end of the run. After any error it may be called
// again with the same request. It then waits for the run that exists.
func reboot(ctx context.Context, url, token, machine, request string, out io.Writer) error {
	client := slipwayv1connect.NewRunServiceClient(http.DefaultClient, url)
	run, err := client.StartRun(ctx, withToken(token, &slipwayv1.StartRunRequest{RequestId: request, MachineId: machine, Type: "REBOOT"}))
	if err != nil {
		return err
	}
	logs, err := client.StreamRunLogs(ctx, withToken(token, &slipwayv1.StreamRunLogsRequest{RunId: run.Msg.GetRunId()}))
	if err != nil {
		return err
	}
	for logs.Receive() { // until the run has ended
		if _, err := out.Write(logs.Msg().GetData()); err != nil {
			return err
		}
	}
	if err := logs.Err(); err != nil {
		return err
	}
	ended, err := client.GetRun(ctx, withToken(token, &slipwayv1.GetRunRequest{RunId: run.Msg.GetRunId()}))
	if err != nil {
		return err
	}
	if ended.Msg.GetPhase() != slipwayv1.Run_SUCCEEDED {
		return fmt.Errorf("the run is %s", ended.Msg.GetPhase())
	}
	return nil
}

func withToken[T any](token string, message *T) *connect.Request[T] {
	r := connect.NewRequest(message)
	r.Header().Set("Authorization", "Bearer "+token)
	return r
}

// TestPage_ExampleRebootsAMachine runs the client that the page shows: it prints the output and
// returns with the end of the run, or its failure.
func TestPage_ExampleRebootsAMachine(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/machines.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```go\n")
	example, _, _ = strings.Cut(example, "```")
	source, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, example)
	require.Contains(t, string(source), example, "the page and this file show the same client")

	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	for machine, class := range map[string]lifecycle.FailureClass{"m-good": "", "m-bad": lifecycle.FailPowerNotConfirmed} {
		w.register(machine)
		var out bytes.Buffer
		ended := make(chan error, 1)
		go func() { ended <- reboot(ctx, w.url, w.tokens["operator"], machine, "a", &out) }()
		var run machinesdb.Run
		require.Eventually(t, func() bool {
			run, err = machinesdb.FindRunOfRequest(ctx, w.store, machine, "a")
			return err == nil
		}, runenv.Patience(30*time.Second), 10*time.Millisecond)
		require.NoError(t, machinesdb.AppendLog(ctx, w.store, machinesdb.LogPlace{RunID: run.ID, Step: "reboot", Attempt: 1}, "stdout", 5, []byte("down\n")))
		if class != "" {
			w.fail(run.ID)
			require.ErrorContains(t, <-ended, "FAILED")
		} else {
			w.project(run.ID, machinesdb.Step{Status: lifecycle.JobRunning})
			w.project(run.ID, machinesdb.Step{Status: lifecycle.JobCompleted})
			require.NoError(t, <-ended)
		}
		require.Equal(t, "down\n", out.String())
	}
	require.Error(t, reboot(ctx, w.url, "slp_wrong", "m-good", "a", io.Discard))
}
