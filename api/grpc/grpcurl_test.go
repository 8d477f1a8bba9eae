package grpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// grpcurl is the program and the server that it calls. It has no proto file, and uses the
// reflection of the server.
type grpcurl struct {
	w       *world
	program string
}

// run runs the program with the token of a role. The arguments after the address are the verb and a
// symbol.
func (g grpcurl) run(ctx context.Context, role, request string, args ...string) (out, said string, err error) {
	base, err := url.Parse(g.w.url)
	require.NoError(g.w.t, err)
	all := []string{"-plaintext", "-emit-defaults", "-H", "authorization: Bearer " + g.w.tokens[role]}
	if request != "" {
		all = append(all, "-d", request)
	}
	cmd := exec.CommandContext(ctx, g.program, append(append(all, base.Host), args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func (g grpcurl) mustRun(request string, args ...string) string {
	g.w.t.Helper()
	out, said, err := g.run(g.w.t.Context(), "admin", request, args...)
	require.NoError(g.w.t, err, "%v: %s", args, said)
	return out
}

// specified returns the methods of each service, as the proto files have them.
func specified() map[string][]string {
	out := map[string][]string{}
	for _, file := range []protoreflect.FileDescriptor{
		slipwayv1.File_slipway_v1_machine_proto, slipwayv1.File_slipway_v1_plan_proto, slipwayv1.File_slipway_v1_run_proto,
		slipwayv1.File_slipway_v1_campaign_proto,
	} {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				out[string(s.FullName())] = append(out[string(s.FullName())], string(s.Methods().Get(j).FullName()))
			}
		}
	}
	return out
}

// TestGrpcurl_ListsDescribesAndCalls lists and describes the services with grpcurl, and makes each
// call. grpcurl gets only the address of the server and a token.
func TestGrpcurl_ListsDescribesAndCalls(t *testing.T) {
	runenv.ProofOnly(t, "peers")
	tool, err := toolcache.Find("grpcurl")
	require.NoError(t, err)
	program, err := toolcache.Ensure(t.Context(), tool, os.Stderr)
	require.NoError(t, err)
	w := newWorld(t)
	g := grpcurl{w, program}

	services := strings.Fields(g.mustRun("", "list"))
	methods := specified()
	require.Len(t, methods, 4)
	for service, want := range methods {
		require.Contains(t, services, service)
		listed := strings.Fields(g.mustRun("", "list", service))
		slices.Sort(want)
		slices.Sort(listed)
		require.Equal(t, want, listed)
		text := g.mustRun("", "describe", service)
		for _, m := range want {
			require.Contains(t, text, "rpc "+m[strings.LastIndex(m, ".")+1:]+" (")
		}
	}
	require.Contains(t, g.mustRun("", "describe", "slipway.v1.Run"), "string run_id = 1", "messages too")

	called := g.callEverything()
	for _, all := range methods {
		for _, m := range all {
			require.True(t, called[m], "%s was not called", m)
		}
	}
	_, said, err := g.run(t.Context(), "viewer", `{"machine_id": "m-1", "request_id": "z", "type": "REBOOT"}`, "slipway.v1.RunService/StartRun")
	require.Error(t, err)
	require.Contains(t, said, "PermissionDenied")
	_, said, err = g.run(t.Context(), "nobody", "", "list")
	require.Error(t, err)
	require.Contains(t, strings.ToLower(said), "token", "reflection is for those who are signed in")
}

// reflect opens a stream of reflection with a token.
func (w *world) reflect(token string) *grpcreflect.ClientStream {
	w.t.Helper()
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(two.CloseIdleConnections)
	stream := grpcreflect.NewClient(&http.Client{Transport: two}, w.url, connect.WithGRPC()).NewStream(w.t.Context(),
		grpcreflect.WithRequestHeaders(http.Header{"Authorization": {"Bearer " + token}}))
	w.t.Cleanup(func() { _, _ = stream.Close() })
	return stream
}

// TestReflection_HasThePlacesOfRequests opens streams of reflection until the principal has no
// place. Other principals are served, and the end of a stream makes room.
func TestReflection_HasThePlacesOfRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var open []*grpcreflect.ClientStream
	for range 64 {
		stream := w.reflect(w.tokens["viewer"])
		_, err := stream.ListServices()
		require.NoError(t, err, "stream %d", len(open))
		open = append(open, stream)
	}
	_, err := w.reflect(w.tokens["viewer"]).ListServices()
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
	_, err = w.reflect(w.tokens["operator"]).ListServices()
	require.NoError(t, err)
	_, err = open[0].Close()
	require.NoError(t, err)
	_, err = w.reflect(w.tokens["viewer"]).ListServices()
	require.NoError(t, err)
}

// TestReflection_ListsAndDescribes lists and describes the services by the reflection of a server.
func TestReflection_ListsAndDescribes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stream := w.reflect(w.tokens["viewer"])
	services, err := stream.ListServices()
	require.NoError(t, err)
	methods := specified()
	require.Len(t, methods, 4)
	for service, want := range methods {
		require.Contains(t, services, protoreflect.FullName(service))
		files, err := stream.FileContainingSymbol(protoreflect.FullName(service))
		require.NoError(t, err)
		var described []string
		for _, file := range files {
			for _, one := range file.GetService() {
				if file.GetPackage()+"."+one.GetName() == service {
					for _, m := range one.GetMethod() {
						described = append(described, service+"."+m.GetName())
					}
				}
			}
		}
		require.ElementsMatch(t, want, described)
	}
	_, err = w.reflect("nobody").ListServices()
	require.ErrorContains(t, err, "token", "reflection is for those who are signed in")
}

// callEverything makes each call once and returns their names.
func (g grpcurl) callEverything() map[string]bool {
	w, t := g.w, g.w.t
	called := map[string]bool{}
	call := func(method string, request map[string]any) map[string]any {
		t.Helper()
		raw, err := json.Marshal(request)
		require.NoError(t, err)
		called["slipway.v1."+strings.ReplaceAll(method, "/", ".")] = true
		var out map[string]any
		answer := g.mustRun(string(raw), "slipway.v1."+method)
		require.NoError(t, json.NewDecoder(strings.NewReader(answer)).Decode(&out), answer)
		return out
	}
	type object = map[string]any
	machine := object{"machine_id": "m-1", "labels": object{"env": "prod"}, "spec": object{"provider": "fake"}}
	require.Equal(t, "m-1", call("MachineService/RegisterMachine", object{"machine": machine})["machineId"])
	require.Equal(t, "READY", call("MachineService/GetMachine", object{"machine_id": "m-1"})["status"].(object)["phase"])
	require.Len(t, call("MachineService/ListMachines", object{"filter": "labels.env=prod"})["machines"], 1)
	require.Equal(t, "fake", call("MachineService/UpdateMachine", object{"machine": machine})["spec"].(object)["provider"])
	call("MachineService/SetMachineAccess", object{"machine_id": "m-1", "site_id": dbtest.Site(t, w.store).ID, "ssh_host_key": dbtest.Key})
	require.Equal(t, "MAINTENANCE", call("MachineService/SetMachinePhase", object{"machine_id": "m-1", "phase": "MAINTENANCE", "reason": "a test"})["status"].(object)["phase"])
	call("PlanService/CreatePlan", object{"plan": object{"plan_id": "p-1", "steps": []object{{"name": "hello", "ssh": object{"command": "hostname"}}}}})
	require.Equal(t, "p-1", call("PlanService/GetPlan", object{"plan_id": "p-1"})["planId"])
	require.Len(t, call("PlanService/ListPlans", object{})["plans"], 1+len(lifecycle.RunTypes()))

	first := call("RunService/StartRun", object{"request_id": "a", "machine_id": "m-1", "type": "UPGRADE", "plan_id": "p-1"})["runId"].(string)
	require.Equal(t, "PENDING", call("RunService/GetRun", object{"run_id": first})["phase"])
	require.Len(t, call("RunService/ListRuns", object{"filter": "machine_id=m-1"})["runs"], 1)
	called["slipway.v1.RunService.WatchRuns"] = true
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(5*time.Second))
	defer cancel()
	watched, _, _ := g.run(ctx, "admin", `{"filter": "machine_id=m-1"}`, "slipway.v1.RunService/WatchRuns") // it ends with the time
	require.Contains(t, watched, first)
	w.fail(first)
	second := call("RunService/RetryRun", object{"run_id": first, "request_id": "b", "action": "rerun"})
	require.Equal(t, first, second["retryOf"])
	id := second["runId"].(string)
	require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, machinesdb.LogPlace{RunID: id, Step: "hello", Attempt: 1}, "stdout", 3, []byte("hi\n")))
	require.Equal(t, "CANCELED", call("RunService/CancelRun", object{"run_id": id})["phase"])
	called["slipway.v1.RunService.StreamRunLogs"] = true
	require.Contains(t, g.mustRun(fmt.Sprintf(`{"run_id": %q}`, id), "slipway.v1.RunService/StreamRunLogs"), "aGkK", "bytes in base64")

	asked := object{"request_id": "week-1", "type": "UPGRADE", "plan_id": "p-1", "filter": "labels.env=prod", "validate_only": true}
	require.Empty(t, call("CampaignService/CreateCampaign", asked)["campaignId"])
	asked["validate_only"] = false
	c := object{"campaign_id": call("CampaignService/CreateCampaign", asked)["campaignId"]}
	require.Len(t, call("CampaignService/ListCampaigns", object{})["campaigns"], 1)
	require.Equal(t, "PAUSED", call("CampaignService/PauseCampaign", c)["state"])
	require.Equal(t, "RUNNING", call("CampaignService/ResumeCampaign", c)["state"])
	_, err := w.store.DBTX().Exec(t.Context(), "UPDATE run_campaign_members SET status = 'SKIPPED'")
	require.NoError(t, err)
	require.EqualValues(t, 1, call("CampaignService/RetryCampaign", c)["counts"].(object)["waiting"])
	require.Equal(t, "CANCELED", call("CampaignService/CancelCampaign", c)["state"])
	require.Len(t, call("CampaignService/GetCampaign", c)["members"], 1)
	return called
}

// fail ends a run by a failure of its first step, as its job does.
func (w *world) fail(runID string) {
	w.t.Helper()
	w.project(runID, machinesdb.Step{Status: lifecycle.JobRunning})
	w.project(runID, machinesdb.Step{Status: lifecycle.JobCancelled, Failed: lifecycle.FailCommand, Message: "it failed"})
	run, err := machinesdb.GetRun(w.t.Context(), w.store, runID)
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(w.t.Context(), run.JobID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
}
