package grpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// closedReader is a gRPC reader with a small window. It opens the window later or never.
type closedReader struct {
	procedure string
	request   proto.Message
	window    uint32        // flow control of the stream
	after     time.Duration // the window opens when nothing has come for so long; 0 is never
}

// ending is how a stream of a closedReader ends: with trailers, or with the code of a reset.
type ending struct {
	status, message, resume string
	reset                   http2.ErrCode
}

// read opens the stream and reads it until it ends.
func (r closedReader) read(ctx context.Context, w *world, token string, opened *atomic.Int64) (end ending, err error) {
	base, err := url.Parse(w.url)
	if err != nil {
		return end, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", base.Host)
	if err != nil {
		return end, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	f, err := r.open(c, base.Host, token)
	for err == nil {
		var frame http2.Frame
		frame, err = f.ReadFrame()
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			_ = c.SetReadDeadline(time.Time{})
			err = errors.Join(f.WriteWindowUpdate(0, 1<<30), f.WriteWindowUpdate(1, 1<<30))
			continue
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			err = f.WritePing(true, frame.Data)
		case *http2.MetaHeadersFrame:
			if frame.StreamEnded() {
				return endingOf(frame.Fields), nil
			}
			opened.Add(1)
			if r.after > 0 {
				_ = c.SetReadDeadline(time.Now().Add(r.after))
			}
		case *http2.RSTStreamFrame:
			return ending{reset: frame.ErrCode}, nil
		}
	}
	return end, err
}

func endingOf(trailers []hpack.HeaderField) (end ending) {
	for _, h := range trailers {
		switch h.Name {
		case "grpc-status":
			end.status = h.Value
		case "grpc-message":
			end.message = h.Value
		case "slipway-resume-after":
			end.resume = h.Value
		}
	}
	return end
}

// open sends the request.
func (r closedReader) open(c net.Conn, host, token string) (*http2.Framer, error) {
	message, err := proto.Marshal(r.request)
	if err != nil {
		return nil, err
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", host}, {":path", r.procedure},
		{"content-type", "application/grpc+proto"}, {"te", "trailers"}, {"authorization", "Bearer " + token},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return nil, err
		}
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(c, http2.ClientPreface)
	return f, errors.Join(err,
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: r.window}),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}),
		f.WriteData(1, true, body))
}

// heap returns how much memory is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestStreamRunLogs_ReadersWithClosedWindows: 200 readers of 50 MB of output stop reading, and half
// of them read nothing at all. They use a bounded amount of memory and lose their streams. When
// they read again, they get a position to resume from. The run continues, and another reader gets
// every byte.
func TestStreamRunLogs_ReadersWithClosedWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("it stores 50 MB")
	}
	const (
		readers, steps, chunks = 200, 7, 114
		size                   = 64 << 10
		perReader              = 512 << 10
	)
	limit := runenv.Patience(8 * time.Second)
	w := newWorld(t, func(c *grpc.Config) { c.WriteLimit = limit })
	w.register("m-1")
	run := w.mustStart("m-1", "a")
	written := 0
	store := func(step string, n int) {
		place := machinesdb.LogPlace{RunID: run.GetRunId(), Step: step, Attempt: 1}
		require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stdout", int64(n+1)*size, bytes.Repeat([]byte{byte(n)}, size)))
		written += size
	}
	for s := range steps {
		for n := range chunks {
			store(fmt.Sprint("step-", s), n)
		}
	}
	require.Greater(t, written, 50_000_000)
	var tokens []string // each reader has few streams
	for i := range readers / 8 {
		token, err := op.CreateToken(t.Context(), w.store, fmt.Sprint("reader-", i), []string{"viewer"}, time.Hour)
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	before := heap()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(2*time.Minute))
	defer cancel()
	var opened, aborted atomic.Int64
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			r := closedReader{
				procedure: slipwayv1connect.RunServiceStreamRunLogsProcedure, request: &slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId()},
				window: uint32(i%2) * 100_000, after: 2 * limit,
			}
			end, err := r.read(ctx, w, tokens[i%len(tokens)], &opened)
			if at, _ := strconv.Atoi(end.resume); err != nil || end.status != "10" || i%2 == 1 && at == 0 {
				t.Errorf("reader %d: %+v, %v", i, end, err)
				return
			}
			aborted.Add(1)
		})
	}
	most := uint64(0)
	require.Eventually(t, func() bool {
		most = max(most, heap())
		return opened.Load() == readers || aborted.Load() > 0
	}, runenv.Patience(time.Minute), 20*time.Millisecond, "all streams are open")
	began := time.Now()
	store("step-0", chunks) // the run is not held up
	took := time.Since(began)
	read := 0
	c := w.as("operator", connect.WithGRPC())
	s, err := c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId()}))
	require.NoError(t, err)
	for read < written && s.Receive() {
		read += len(s.Msg().GetData())
		if read%(64*size) == 0 {
			most = max(most, heap())
		}
	}
	require.Equal(t, written, read, "%v", s.Err())
	require.NoError(t, s.Close())
	grown := int64(max(most, before) - before)
	t.Logf("%d readers that read nothing or little of %d MB: %.1f MiB of heap more at most, a chunk stored in %s beside them", readers, written/1_000_000, float64(grown)/(1<<20), took)
	require.Less(t, grown, int64(readers*perReader), "of the output nothing is queued for a reader")
	wg.Wait()
	require.EqualValues(t, readers, aborted.Load(), "each has lost its stream")
	now, err := c.GetRun(t.Context(), connect.NewRequest(&slipwayv1.GetRunRequest{RunId: run.GetRunId()}))
	require.NoError(t, err)
	require.Equal(t, slipwayv1.Run_PENDING, now.Msg.GetPhase())
}

// TestStartRun_OneOfTwoRequests repeatedly sends two requests for one machine at the same time. One
// starts its run, and the other is refused with the id of this run.
func TestStartRun_OneOfTwoRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for round := range 20 {
		machine := fmt.Sprint("m-", round)
		w.register(machine)
		var runs [2]*slipwayv1.Run
		var errs [2]error
		var wg sync.WaitGroup
		for i := range runs {
			wg.Go(func() { runs[i], errs[i] = w.start(machine, fmt.Sprint("request-", i)) })
		}
		wg.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		require.NoError(t, errs[won])
		require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(errs[1-won]), "%v", errs[1-won])
		require.Contains(t, errs[1-won].Error(), runs[won].GetRunId())
	}
}

// TestStreams_EndWithTheRole revokes rights while streams are open: a member's role in the project,
// and the token of an operator who reads output.
func TestStreams_EndWithTheRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.projectOfMachine("mine")
	run, err := w.as("operator").StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "a", MachineId: "mine", Type: "REBOOT"}))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	member := w.with(w.projectToken(p), "")
	watched, err := member.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Heartbeats: true}))
	require.NoError(t, err)
	logs, err := member.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.Msg.GetRunId()}))
	require.NoError(t, err)
	operator, err := w.as("operator").StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.Msg.GetRunId()}))
	require.NoError(t, err)
	require.True(t, watched.Receive() && logs.Receive() && operator.Receive(), "all are open")
	_, err = w.store.DBTX().Exec(t.Context(), "UPDATE api_tokens SET revoked_at = now() WHERE name = 'the-operator'")
	require.NoError(t, err)
	require.NoError(t, w.endMembers(p))
	for name, s := range map[string]interface {
		Receive() bool
		Err() error
	}{"the member's watch": watched, "the member's output": logs, "the operator's output": operator} {
		for s.Receive() {
		}
		require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(s.Err()), "%s: %v", name, s.Err())
	}
}

// projectOfMachine returns a project that a new machine of the simulated provider belongs to.
func (w *world) projectOfMachine(id string) string {
	w.t.Helper()
	p := dbtest.Project(w.t, w.store).ID
	_, err := w.as("operator").RegisterMachine(w.t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{
		Machine: &slipwayv1.Machine{MachineId: id, CustomerId: p, Spec: &slipwayv1.MachineSpec{Provider: "fake"}},
	}))
	require.NoError(w.t, err)
	return p
}

// endMembers removes the members of a project.
func (w *world) endMembers(project string) error {
	return w.store.ForProject(w.t.Context(), project, func(tx *db.ProjectTx) error {
		members, err := tenancydb.ListMembers(w.t.Context(), tx, "", 10)
		for _, m := range members {
			err = errors.Join(err, tenancydb.RemoveMember(w.t.Context(), tx, m.ID, m.Version))
		}
		return err
	})
}
