package agentapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/agentapi/agentapitest"
	"github.com/slipway-cloud/slipway/internal/bounds"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Every field that an agent may send has bounds.
func TestRequests_HaveBounds(t *testing.T) {
	t.Parallel()
	for _, in := range []reflect.Type{
		reflect.TypeFor[protocol.EnrollRequest](), reflect.TypeFor[protocol.RenewRequest](), reflect.TypeFor[protocol.Heartbeat](),
		reflect.TypeFor[protocol.ClaimRequest](), reflect.TypeFor[protocol.RenewTaskRequest](), reflect.TypeFor[protocol.ResultRequest](),
		reflect.TypeFor[protocol.InstanceEnroll](), reflect.TypeFor[protocol.InstanceHeartbeat](),
	} {
		for _, missing := range bounds.Missing(in) {
			t.Error(missing)
		}
	}
}

// A report of a lying agent is refused where its numbers are out of bounds. Its texts are made
// harmless, since a text alone must not silence a node.
func TestHeartbeat_ReportOutOfBounds(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	a := b.enrolled("n1")
	var hb protocol.HeartbeatResponse
	with := func(h spec.HealthReport) protocol.Heartbeat { in := a.heartbeat(); in.Report = &h; return in }
	negative := int64(-8)
	for _, lie := range []spec.HealthReport{
		{CPUs: -1}, {MemoryMiB: &negative}, {GPUs: []spec.GPUReport{{Processes: -3}}}, {NICs: []spec.NICReport{{MTU: 1 << 40}}},
		{Disks: make([]spec.DiskReport, 5000)},
	} {
		a.refused(400, protocol.ProblemInvalid, protocol.PathHeartbeat, with(lie))
	}
	a.ok(protocol.PathHeartbeat, with(spec.HealthReport{Driver: "550\u202e\x1b[2J\x00", GPUError: strings.Repeat("x", 100_000)}), &hb)
	require.Eventually(t, func() bool {
		stored, _ := b.store.Heartbeat("n1")
		return stored.Report != nil && stored.Report.Health.Driver == "550??[2J?" && len(stored.Report.Health.GPUError) == 2000
	}, runenv.Patience(5*time.Second), 5*time.Millisecond)
}

// A small body whose values take a hundred times its size is refused before it is unpacked.
func TestHeartbeat_ManyEmptyObjects(t *testing.T) {
	t.Parallel()
	a := start(t, nil).enrolled("n1")
	body := map[string]any{"report": map[string]any{"gpus": json.RawMessage("[" + strings.Repeat("{},", 300_000) + "{}]")}}
	_, _, raw := a.post(protocol.PathHeartbeat, body)
	require.Contains(t, string(raw), "more than 32768 values")
	in := a.heartbeat()
	in.Report = &spec.HealthReport{GPUError: strings.Repeat(`,[{"\`, 10_000), Mounts: make([]spec.MountReport, 4096)}
	a.ok(protocol.PathHeartbeat, in, &protocol.HeartbeatResponse{})
	a.refused(http.StatusRequestEntityTooLarge, protocol.ProblemTooLarge, protocol.PathRenew, protocol.RenewRequest{CSRPEM: strings.Repeat("x", 100_000)})
}

// heldStandings answers nothing about nodes until held is closed.
type heldStandings struct {
	*agentapitest.Memory

	held chan struct{}
}

func (h heldStandings) Standings(ctx context.Context, nodes []string) (map[string]agentapi.Standing, error) {
	<-h.held
	return h.Memory.Standings(ctx, nodes)
}

// Whoever has a certificate has few requests served at once, however many he sends.
func TestCertificate_HasFewPlaces(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	b := start(t, nil)
	s := agentapi.New(agentapi.Config{Store: heldStandings{b.store, held}, CA: b.ca})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, protocol.PathHeartbeat, nil)
	shown, _ := pem.Decode([]byte(b.enrolled("n1").cert.CertificatePEM))
	leaf, err := x509.ParseCertificate(shown.Bytes)
	require.NoError(t, err)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	answers := make(chan int, 20)
	var asked sync.WaitGroup
	for range cap(answers) {
		asked.Go(func() {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r.Clone(t.Context()))
			answers <- w.Code
		})
	}
	for range cap(answers) - 8 {
		require.Equal(t, http.StatusTooManyRequests, <-answers)
	}
	close(held)
	asked.Wait()
	for range 8 {
		require.NotEqual(t, http.StatusTooManyRequests, <-answers)
	}
}
