package grpc_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// world is the API on a database of its own. Jobs are moved by the test.
type world struct {
	t      *testing.T
	store  *db.Store
	url    string
	tokens map[string]string // by role
}

// fakeOffers is what the simulated provider can.
func fakeOffers(provider string) []runplan.Capability {
	if provider != "fake" {
		return nil
	}
	return []runplan.Capability{runplan.CapInspect, runplan.CapPowerControl, runplan.CapNetboot, runplan.CapRemoteExec}
}

func newWorld(t *testing.T, tune ...func(*grpc.Config)) *world {
	t.Helper()
	return newWorldWith(t, time.Second, tune...)
}

// newWorldWith returns a world that asks after recheck whether the reader of a stream still may.
func newWorldWith(t *testing.T, recheck time.Duration, tune ...func(*grpc.Config)) *world {
	t.Helper()
	return newWorldServing(t, dbtest.Store(t), nil, recheck, tune...)
}

// newWorldServing returns a world whose API has a store of its own, nil for the store of the test.
func newWorldServing(t *testing.T, store, served *db.Store, recheck time.Duration, tune ...func(*grpc.Config)) *world {
	t.Helper()
	w := &world{t: t, store: store, tokens: map[string]string{}}
	api, err := op.New(op.Config{Store: cmp.Or(served, store), StreamRecheck: recheck, PrincipalRate: 100_000})
	require.NoError(t, err)
	cfg := grpc.Config{Offers: fakeOffers, AskJob: w.cancelUnstarted}
	for _, f := range tune {
		f(&cfg)
	}
	grpc.Register(api, cfg)
	require.NoError(t, api.Close())
	srv := httptest.NewUnstartedServer(api.Handler())
	srv.Config.Protocols = protocols()
	srv.Start()
	t.Cleanup(srv.Close)
	w.url = srv.URL
	for _, role := range []string{"viewer", "operator", "admin"} {
		w.tokens[role], err = op.CreateToken(t.Context(), w.store, "the-"+role, []string{role}, time.Hour)
		require.NoError(t, err)
	}
	return w
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// cancelUnstarted ends a job that no workflow has taken up, as the REST API does.
func (w *world) cancelUnstarted(ctx context.Context, jobID string, _ lifecycle.Action, reason string) error {
	by := op.ActorOf(ctx)
	by.Comment = reason
	return w.store.Tx(ctx, func(tx *db.Tx) error {
		job, err := tx.TransitionJob(ctx, jobID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		if err != nil {
			return err
		}
		return machines.EndUnstarted(ctx, tx, job, by)
	})
}

// project brings a run up to a status of its job, as its workflow does.
func (w *world) project(runID string, s machinesdb.Step) {
	w.t.Helper()
	s.Actor = db.Actor{Owner: lifecycle.OwnerJob}
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		run, err := machinesdb.GetRun(w.t.Context(), tx, runID)
		if err != nil {
			return err
		}
		m, run, err := machinesdb.LockForJob(w.t.Context(), tx, run.JobID)
		if err != nil {
			return err
		}
		return machinesdb.Project(w.t.Context(), tx, m, run, s)
	}))
	w.relay()
}

// relay gives the events that were written their cursors.
func (w *world) relay() {
	w.t.Helper()
	_, err := w.store.RelayEvents(w.t.Context(), 1000)
	require.NoError(w.t, err)
}

// caller is a client of the services.
type caller struct {
	slipwayv1connect.MachineServiceClient
	slipwayv1connect.PlanServiceClient
	slipwayv1connect.RunServiceClient
	slipwayv1connect.CampaignServiceClient
}

// as returns a client with the token of a role. The options choose the protocol.
func (w *world) as(role string, options ...connect.ClientOption) caller {
	return w.with(w.tokens[role], "", options...)
}

// streamWindow is the HTTP/2 window of a client for one stream. The server blocks on a client that
// does not read after so many bytes.
const streamWindow = 256 << 10

// with returns a client with a token that acts in a project.
func (w *world) with(token, project string, options ...connect.ClientOption) caller {
	b := bearer{token: token, project: project, one: &http.Transport{}, two: &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow}}}
	b.two.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(b.one.CloseIdleConnections)
	w.t.Cleanup(b.two.CloseIdleConnections)
	client := &http.Client{Transport: b}
	return caller{
		slipwayv1connect.NewMachineServiceClient(client, w.url, options...), slipwayv1connect.NewPlanServiceClient(client, w.url, options...),
		slipwayv1connect.NewRunServiceClient(client, w.url, options...), slipwayv1connect.NewCampaignServiceClient(client, w.url, options...),
	}
}

// bearer adds a token to every request. Requests of gRPC go over HTTP/2.
type bearer struct {
	token, project string
	one, two       *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	if b.project != "" {
		r.Header.Set("Slipway-Project", b.project)
	}
	if kind := r.Header.Get("Content-Type"); kind == "application/grpc+proto" || kind == "application/grpc" {
		return b.two.RoundTrip(r)
	}
	return b.one.RoundTrip(r)
}

// register registers a machine of the simulated provider.
func (w *world) register(id string) *slipwayv1.Machine {
	w.t.Helper()
	out, err := w.as("operator").RegisterMachine(w.t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{
		Machine: &slipwayv1.Machine{MachineId: id, Labels: map[string]string{"env": "prod"}, Spec: &slipwayv1.MachineSpec{Provider: "fake"}},
	}))
	require.NoError(w.t, err)
	return out.Msg
}

// start starts a reboot.
func (w *world) start(machine, request string) (*slipwayv1.Run, error) {
	out, err := w.as("operator").StartRun(w.t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: request, MachineId: machine, Type: "REBOOT"}))
	if err != nil {
		return nil, err
	}
	return out.Msg, nil
}

func (w *world) mustStart(machine, request string) *slipwayv1.Run {
	w.t.Helper()
	run, err := w.start(machine, request)
	require.NoError(w.t, err)
	return run
}

// projectToken returns a token of a member of a project.
func (w *world) projectToken(project string) string {
	w.t.Helper()
	text, err := op.NewToken(op.ProjectTokenPrefix)
	require.NoError(w.t, err)
	var member tenancydb.Member
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) (err error) {
		member, err = tenancydb.AddMember(w.t.Context(), tx, project, tenancydb.NewMember{Subject: "oidc:ada", Name: "Ada", Role: lifecycle.RoleProjectMember})
		return err
	}))
	require.NoError(w.t, w.store.ForProject(w.t.Context(), project, func(tx *db.ProjectTx) error {
		_, err := tenancydb.AddToken(w.t.Context(), tx, member.ID, "ci", op.TokenHash(text), lifecycle.RoleProjectMember, time.Now().Add(time.Hour))
		return err
	}))
	return text
}
