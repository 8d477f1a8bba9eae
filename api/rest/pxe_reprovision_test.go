package rest_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// agentServer is the agent API beside the API, over the same database.
type agentServer struct {
	t   *testing.T
	ca  *nodeca.CA
	srv *agentapi.Server
}

func (w *world) agentServer() *agentServer {
	w.t.Helper()
	ca, err := nodeca.Create()
	require.NoError(w.t, err)
	d := &agentServer{w.t, ca, agentapi.New(agentapi.Config{Store: agentapi.NewStore(w.store), CA: ca, FlushInterval: 10 * time.Millisecond})}
	require.NoError(w.t, d.srv.Start(w.t.Context()))
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = d.srv.Shutdown(ctx)
	})
	return d
}

// system is an installed system as whoever has copied its disk holds it: a key,
// the enrolment token that it came with, and the certificate that it got.
type system struct {
	agents *agentServer
	key    *ecdsa.PrivateKey
	token  string
	cert   *tls.Certificate
	gen    int64
}

// post asks the agent API, and returns the status and the problem's type.
func (s *system) post(path string, body, into any) (int, string) {
	s.agents.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(s.agents.t, err)
	conf := &tls.Config{RootCAs: s.agents.ca.Pool(), MinVersion: tls.VersionTLS13}
	if s.cert != nil {
		conf.Certificates = []tls.Certificate{*s.cert}
	}
	tr := &http.Transport{TLSClientConfig: conf}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: runenv.Patience(10 * time.Second)}).Post(s.agents.srv.URL()+path, "application/json", bytes.NewReader(raw))
	require.NoError(s.agents.t, err)
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	require.NoError(s.agents.t, err)
	if resp.StatusCode != http.StatusOK {
		var p protocol.Problem
		require.NoError(s.agents.t, json.Unmarshal(out, &p), string(out))
		return resp.StatusCode, p.Type
	}
	require.NoError(s.agents.t, json.Unmarshal(out, into))
	return resp.StatusCode, ""
}

func (s *system) enrol() (int, string) {
	s.agents.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, s.key)
	require.NoError(s.agents.t, err)
	var got protocol.CertificateResponse
	without := *s
	without.cert = nil
	status, typ := without.post(protocol.PathEnroll, protocol.EnrollRequest{Token: s.token, CSRPEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}, &got)
	if status == http.StatusOK {
		block, _ := pem.Decode([]byte(got.CertificatePEM))
		require.NotNil(s.agents.t, block)
		s.gen = got.Generation
		s.cert = &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: s.key}
	}
	return status, typ
}

func (s *system) heartbeat() (int, string) {
	s.agents.t.Helper()
	var out protocol.HeartbeatResponse
	return s.post(protocol.PathHeartbeat, protocol.Heartbeat{SentAt: time.Now(), BootID: "boot-1", AgentVersion: "1", Generation: s.gen}, &out)
}

var enrolmentInScript = regexp.MustCompile(`put token <<'END_OF_FILE'\n([A-Za-z0-9+/=\n]*)\nEND_OF_FILE\n`)

// installsAgent fetches the agent with a boot token, as the installer does.
func (w *world) installsAgent(d *agentServer, boot string) *system {
	w.t.Helper()
	resp, err := http.Get(w.url + "/boot/" + boot + "/install-agent")
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	script, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, resp.StatusCode, string(script))
	found := enrolmentInScript.FindSubmatch(script)
	require.NotNil(w.t, found)
	token, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(found[1]), "\n", ""))
	require.NoError(w.t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	s := &system{agents: d, key: key, token: strings.TrimSpace(string(token))}
	status, typ := s.enrol()
	require.Equal(w.t, http.StatusOK, status, typ)
	return s
}

// A node that is installed again leaves its old system behind: whoever has copied
// that one's key and tokens is not the node any more, also where the new system
// has no agent.
func TestAReprovisionedNodeShutsItsOldSystemOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agents := w.agentServer()
	base, _ := mirror(t)
	with := w.post("/api/v1/admin/install-workflows", map[string]any{"name": "with-agent", "spec": map[string]any{
		"kernel": map[string]any{"url": base + "/vmlinuz"}, "command_line": "ds=nocloud-net;s={{ .SeedURL }}", "user_data": autoinstall,
		"agent": map[string]any{"heartbeat_seconds": 10},
	}}).want(http.StatusCreated).id()
	without := w.installWorkflow("without-agent")
	m := w.machine("52:54:00:00:0a:01")
	_, err := m.Boot(t.Context())
	require.NoError(t, err)
	var list struct{ Data []struct{ ID string } }
	w.do("GET", "/api/v1/nodes?status=discovered", nil).want(http.StatusOK).into(&list)
	id := list.Data[0].ID
	path := "/api/v1/nodes/" + id
	state := func(to string) {
		t.Helper()
		w.do("POST", path+"/state", map[string]any{"state": to}, anyVersion).want(http.StatusOK)
	}
	assign := func(workflow string) {
		t.Helper()
		w.do("PATCH", path, map[string]any{"install_workflow_id": workflow}, anyVersion).want(http.StatusOK)
	}
	say := func(token, status, effect string) {
		t.Helper()
		a, err := m.Report(t.Context(), token, pxesim.Report{InstallationStatus: status})
		require.NoError(t, err)
		require.Equal(t, []any{http.StatusOK, effect}, []any{a.Status, a.Effect})
	}
	boot := func() string {
		t.Helper()
		b, err := m.Boot(t.Context())
		require.NoError(t, err)
		require.Equal(t, pxesim.Installs, b.Kind, b.Script)
		say(b.Token, "started", "starts")
		return b.Token
	}
	served := func(s *system) {
		t.Helper()
		status, typ := s.heartbeat()
		require.Equal(t, http.StatusOK, status, typ)
	}
	refused := func(s *system, want string) {
		t.Helper()
		status, typ := s.heartbeat()
		require.Equal(t, []any{http.StatusForbidden, want}, []any{status, typ})
		status, _ = s.enrol()
		require.NotEqual(t, http.StatusOK, status, "the token that it came with")
	}
	assign(with)
	state("pending")
	first := boot()
	old := w.installsAgent(agents, first)
	say(first, "complete", "finishes")
	state("active")
	served(old)

	assign(without)
	state("reprovision")
	served(old) // it still boots its disk
	state("pending")
	status, _ := old.heartbeat()
	require.Equal(t, http.StatusServiceUnavailable, status)
	a, err := m.Report(t.Context(), first, pxesim.Report{InstallationStatus: "complete"})
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, a.Status, "the token of the round before")
	second := boot()
	refused(old, protocol.ProblemLocked)
	say(second, "complete", "finishes")
	refused(old, protocol.ProblemLocked)
	state("active")
	require.Equal(t, "active", w.pxeNode(id).Status)
	refused(old, protocol.ProblemLocked)
	var attention struct{ Data []struct{ Kind string } }
	w.do("GET", "/api/v1/admin/attention?kind="+db.AttentionAgentLocked, nil).want(http.StatusOK).into(&attention)
	require.Empty(t, attention.Data, "nobody has to look")

	assign(with)
	state("reprovision")
	state("pending")
	third := boot()
	fresh := w.installsAgent(agents, third)
	served(fresh)
	refused(old, protocol.ProblemDenied)
	say(third, "complete", "finishes")
	state("active")
	served(fresh)
}
