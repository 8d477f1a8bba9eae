package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

const (
	runClients    = 8
	runReads      = 400
	runStarts     = 80
	runRounds     = 5
	watchers      = 1000
	watchersEach  = 20 // streams of one token
	watchedEvents = 20
	readers       = 200
)

// runsRig is the API of runs, and a bare connect handler that makes the same statements.
type runsRig struct {
	b      *testing.B
	store  *db.Store
	url    string
	tokens []string
	bare   slipwayv1connect.RunServiceClient
	made   atomic.Int64 // machines
}

func offersAll(string) []runplan.Capability { return runplan.Capabilities() }

func newRunsRig(b *testing.B) *runsRig {
	b.Helper()
	r := &runsRig{b: b, store: dbtest.Open(b, dbtest.FreshDatabase(b))}
	api, err := op.New(op.Config{Store: r.store, PrincipalRate: 1e6, AddressRate: 1e6})
	require.NoError(b, err)
	grpc.Register(api, grpc.Config{Offers: offersAll})
	require.NoError(b, api.Close())
	r.url = r.serve(api.Handler())
	for i := range watchers / watchersEach {
		token, err := op.CreateToken(b.Context(), r.store, fmt.Sprint("bench-", i), []string{"operator"}, time.Hour)
		require.NoError(b, err)
		r.tokens = append(r.tokens, token)
	}
	mux := http.NewServeMux()
	mux.Handle(slipwayv1connect.NewRunServiceHandler(bareRuns{store: r.store}))
	r.bare = slipwayv1connect.NewRunServiceClient(httpClient(b, ""), r.serve(mux), connect.WithGRPC())
	return r
}

func (r *runsRig) serve(h http.Handler) string {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	r.b.Cleanup(srv.Close)
	return srv.URL
}

// withToken adds a token to every request.
type withToken struct {
	*http.Transport
	token string
}

// RoundTrip implements http.RoundTripper.
func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.Transport.RoundTrip(r)
}

func httpClient(b *testing.B, token string) *http.Client {
	b.Helper()
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	b.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: withToken{t, token}}
}

func (r *runsRig) client(token int) slipwayv1connect.RunServiceClient {
	return slipwayv1connect.NewRunServiceClient(httpClient(r.b, r.tokens[token]), r.url, connect.WithGRPC())
}

// machines registers so many machines and returns their ids.
func (r *runsRig) machines(n int) (ids []string) {
	require.NoError(r.b, r.store.Tx(r.b.Context(), func(tx *db.Tx) error {
		for range n {
			id := fmt.Sprint("m-", r.made.Add(1))
			if _, err := machines.Register(r.b.Context(), tx, machines.Registration{ID: id, Spec: spec.MachineSpec{Provider: "fake"}}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "bench"}); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	}))
	return ids
}

func startOf(machine string) *connect.Request[slipwayv1.StartRunRequest] {
	return connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "a", MachineId: machine, Type: "REBOOT"})
}

// bareRuns makes the statements of the API, and nothing else: no sign-in, role, rate or audit of
// the caller.
type bareRuns struct {
	slipwayv1connect.UnimplementedRunServiceHandler
	store *db.Store
}

// GetRun implements slipwayv1connect.RunServiceHandler.
func (s bareRuns) GetRun(ctx context.Context, r *connect.Request[slipwayv1.GetRunRequest]) (*connect.Response[slipwayv1.Run], error) {
	run, err := machinesdb.GetRun(ctx, s.store, r.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(bareRun(run)), nil
}

// StartRun implements slipwayv1connect.RunServiceHandler.
func (s bareRuns) StartRun(ctx context.Context, r *connect.Request[slipwayv1.StartRunRequest]) (*connect.Response[slipwayv1.Run], error) {
	var run machinesdb.Run
	err := s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: r.Msg.GetRequestId(), MachineID: r.Msg.GetMachineId(), Type: lifecycle.RunType(r.Msg.GetType()), Offers: offersAll,
		}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "bench"})
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(bareRun(run)), nil
}

func bareRun(run machinesdb.Run) *slipwayv1.Run {
	out := &slipwayv1.Run{
		RunId: run.ID, MachineId: run.MachineID, RequestId: run.RequestID, Type: string(run.Type), PlanId: run.PlanID,
		Phase: slipwayv1.Run_Phase(slipwayv1.Run_Phase_value[string(run.Status)]), CurrentStep: run.CurrentStep, CreatedAt: timestamppb.New(run.CreatedAt),
	}
	for _, s := range run.Steps {
		out.Steps = append(out.Steps, &slipwayv1.StepStatus{Name: s.Name, State: slipwayv1.StepStatus_WAITING})
	}
	return out
}

// BenchmarkRuns measures GetRun and StartRun against a bare connect handler that makes the same
// statements.
func BenchmarkRuns(b *testing.B) {
	r := newRunsRig(b)
	ours := r.client(0)
	first, err := ours.StartRun(b.Context(), startOf(r.machines(1)[0]))
	require.NoError(b, err)
	get := func(c slipwayv1connect.RunServiceClient) func() float64 {
		return func() float64 {
			return rate(b, runReads, runClients, func(ctx context.Context, _ int) error {
				_, err := c.GetRun(ctx, connect.NewRequest(&slipwayv1.GetRunRequest{RunId: first.Msg.GetRunId()}))
				return err
			})
		}
	}
	start := func(c slipwayv1connect.RunServiceClient) func() float64 {
		return func() float64 {
			ids := r.machines(runStarts)
			return rate(b, runStarts, runClients, func(ctx context.Context, i int) error {
				_, err := c.StartRun(ctx, startOf(ids[i]))
				return err
			})
		}
	}
	var c contest
	c.enter("get", get(ours))
	c.enter("bare get", get(r.bare))
	c.enter("start", start(ours))
	c.enter("bare start", start(r.bare))
	for b.Loop() {
		for range runRounds {
			c.round()
		}
	}
	measure(b, rowGetRun, c.ratio("get", "bare get"), "%.2f; %.0f a second", c.ratio("get", "bare get"), c.of("get"))
	measure(b, rowStartRun, c.ratio("start", "bare start"), "%.2f; %.0f a second", c.ratio("start", "bare start"), c.of("start"))
	b.ReportMetric(c.ratio("get", "bare get"), "get/bare")
	b.ReportMetric(c.ratio("start", "bare start"), "start/bare")
}

// inUse is the memory of this process: the heap and the stacks.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// until waits for what the streams of a benchmark do.
func until(b *testing.B, what string, ok func() bool) {
	b.Helper()
	require.Eventually(b, ok, 3*time.Minute, time.Millisecond, what)
}

// watch opens streams of WatchRuns, which count the events of runs that they get, until stop is
// called. after is the cursor that they resume from.
func (r *runsRig) watch(n int, after int64, heard *atomic.Int64) (stop func()) {
	r.b.Helper()
	ctx, cancel := context.WithCancel(r.b.Context())
	var open atomic.Int64
	var streams sync.WaitGroup
	for i := range n {
		c := r.client(i / watchersEach)
		streams.Go(func() {
			s, err := c.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{ResumeAfter: after, Heartbeats: true}))
			if err != nil {
				r.b.Error(err)
				return
			}
			defer func() { _ = s.Close() }()
			for begun := false; s.Receive(); {
				if !begun {
					begun = true
					open.Add(1)
				}
				if s.Msg().GetSnapshot() != nil {
					heard.Add(1)
				}
			}
		})
	}
	until(r.b, "all streams are open", func() bool { return open.Load() == int64(n) })
	return func() {
		cancel()
		streams.Wait()
	}
}

// BenchmarkWatchers opens 1,000 streams of WatchRuns and measures their memory, the client's side
// included, and how long an event takes to reach all of them.
func BenchmarkWatchers(b *testing.B) {
	r := newRunsRig(b)
	ids := r.machines(watchedEvents * 50)
	before := inUse()
	var heard atomic.Int64
	defer r.watch(watchers, 0, &heard)()
	each := float64(inUse()-before) / watchers / 1024
	ours, next := r.client(0), 0
	var took []float64
	for b.Loop() {
		for range watchedEvents {
			_, err := ours.StartRun(b.Context(), startOf(ids[next]))
			require.NoError(b, err)
			next++
			want := heard.Load() + watchers
			began := time.Now()
			_, err = r.store.RelayEvents(b.Context(), 10)
			require.NoError(b, err)
			until(b, "all have the event", func() bool { return heard.Load() >= want })
			took = append(took, float64(time.Since(began).Milliseconds()))
		}
	}
	measure(b, rowWatchers, noRatio, "%.0f KiB each; %.0f ms", each, median(took))
	b.ReportMetric(each, "KiB/watcher")
	b.ReportMetric(median(took), "ms/event")
}

// BenchmarkReaders measures StartRun while 200 readers follow every run, and without them. Events
// are relayed as they come. The rounds take turns, so that a disturbance of the machine falls on
// both.
func BenchmarkReaders(b *testing.B) {
	r := newRunsRig(b)
	ctx, cancel := context.WithCancel(b.Context())
	var relay sync.WaitGroup
	relay.Go(func() {
		_ = r.store.Listen(ctx, db.ChannelOutbox, func() { _, _ = r.store.RelayEvents(ctx, 1000) })
	})
	defer relay.Wait()
	defer cancel()
	ours := r.client(0)
	p50 := func() float64 {
		var took []float64
		for _, id := range r.machines(runStarts) {
			began := time.Now()
			_, err := ours.StartRun(b.Context(), startOf(id))
			require.NoError(b, err)
			took = append(took, float64(time.Since(began).Microseconds())/1000)
		}
		return median(took)
	}
	p50() // warms the pool
	var alone, beside, ratios []float64
	var heard atomic.Int64
	for b.Loop() {
		for range runRounds {
			last, err := r.store.ReadEventCursor(b.Context())
			require.NoError(b, err)
			alone = append(alone, p50())
			stop := r.watch(readers, last.Last, &heard)
			beside = append(beside, p50())
			stop()
			ratios = append(ratios, beside[len(beside)-1]/alone[len(alone)-1])
		}
	}
	require.Positive(b, heard.Load())
	measure(b, rowReaders, 1/median(ratios), "%.2f; %.0f ms to %.0f ms", median(ratios), median(beside), median(alone))
	b.ReportMetric(median(ratios), "beside/alone")
}
