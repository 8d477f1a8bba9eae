package agentapi_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/agentapi/agentapitest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// bench is a running agent API over a store in memory, with a clock that the
// test moves.
type bench struct {
	*testing.T
	store *agentapitest.Memory
	ca    *nodeca.CA
	srv   *agentapi.Server
	ahead atomic.Int64 // nanoseconds that the clock is ahead
	aged  atomic.Int64 // nanoseconds that certificates are old when they are issued
}

func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

// ageCertificates makes each certificate old enough for its renewal when it is issued.
func (b *bench) ageCertificates() { b.aged.Store(int64(3 * 24 * time.Hour)) }

func start(t *testing.T, change func(*agentapi.Config)) *bench {
	t.Helper()
	b := &bench{T: t, store: agentapitest.New()}
	var err error
	b.ca, err = nodeca.Create(nodeca.WithClock(func() time.Time { return b.now().Add(-time.Duration(b.aged.Load())) }))
	require.NoError(t, err)
	cfg := agentapi.Config{Store: b.store, CA: b.ca, FlushInterval: 10 * time.Millisecond, Now: b.now}
	if change != nil {
		change(&cfg)
	}
	b.srv = agentapi.New(cfg)
	require.NoError(t, b.srv.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = b.srv.Shutdown(ctx)
	})
	return b
}

func (b *bench) token(node string) string { return b.store.AddToken(node, b.now().Add(time.Hour)) }

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return k
}

func csr(t *testing.T, k *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, k)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// client is one agent: with a certificate, or nil for none.
type client struct {
	b    *bench
	http *http.Client
}

func (b *bench) client(cert *tls.Certificate) *client {
	tc := &tls.Config{RootCAs: b.ca.Pool(), MinVersion: tls.VersionTLS13, Time: b.now}
	if cert != nil {
		tc.Certificates = []tls.Certificate{*cert}
	}
	tr := &http.Transport{TLSClientConfig: tc, ForceAttemptHTTP2: true}
	b.Cleanup(tr.CloseIdleConnections)
	return &client{b, &http.Client{Transport: tr, Timeout: runenv.Patience(10 * time.Second)}}
}

// post sends a body and returns status, headers and the raw answer.
func (c *client) post(path string, body any) (int, http.Header, []byte) {
	c.b.Helper()
	raw, isRaw := body.([]byte)
	if !isRaw {
		var err error
		raw, err = json.Marshal(body)
		require.NoError(c.b, err)
	}
	resp, err := c.http.Post(c.b.srv.URL()+path, "application/json", bytes.NewReader(raw))
	require.NoError(c.b, err)
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	require.NoError(c.b, err)
	return resp.StatusCode, resp.Header, out
}

func (c *client) ok(path string, body, into any) {
	c.b.Helper()
	status, _, raw := c.post(path, body)
	require.Equal(c.b, http.StatusOK, status, string(raw))
	require.NoError(c.b, json.Unmarshal(raw, into))
}

func (c *client) refused(status int, typ, path string, body any) http.Header {
	c.b.Helper()
	got, header, raw := c.post(path, body)
	require.Equal(c.b, status, got, string(raw))
	require.Equal(c.b, "application/problem+json", header.Get("Content-Type"))
	var p protocol.Problem
	require.NoError(c.b, json.Unmarshal(raw, &p))
	require.Equal(c.b, typ, p.Type)
	require.Equal(c.b, status, p.Status)
	require.NotEmpty(c.b, p.Detail)
	return header
}

// agent is an enrolled node.
type agent struct {
	*client
	key  *ecdsa.PrivateKey
	cert protocol.CertificateResponse
}

func (b *bench) with(key *ecdsa.PrivateKey, cert protocol.CertificateResponse) *agent {
	b.Helper()
	blk, _ := pem.Decode([]byte(cert.CertificatePEM))
	require.NotNil(b, blk)
	return &agent{b.client(&tls.Certificate{Certificate: [][]byte{blk.Bytes}, PrivateKey: key}), key, cert}
}

func (b *bench) enrolled(node string) *agent {
	b.Helper()
	key := newKey(b.T)
	var cert protocol.CertificateResponse
	b.client(nil).ok(protocol.PathEnroll, protocol.EnrollRequest{Token: b.token(node), CSRPEM: csr(b.T, key)}, &cert)
	return b.with(key, cert)
}

func (a *agent) heartbeat() protocol.Heartbeat {
	return protocol.Heartbeat{BootID: "boot-1", AgentVersion: "test", Generation: a.cert.Generation, SentAt: a.b.now()}
}
