package nodeca_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/nodeca"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return k
}

func request(t *testing.T, key crypto.Signer, name string) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"admin"}}, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func parse(t *testing.T, p []byte) *x509.Certificate {
	t.Helper()
	b, _ := pem.Decode(p)
	require.NotNil(t, b)
	c, err := x509.ParseCertificate(b.Bytes)
	require.NoError(t, err)
	return c
}

func TestNodeCertificateNamesOnlyWhatTheCallerSays(t *testing.T) {
	t.Parallel()
	ca, err := nodeca.Create()
	require.NoError(t, err)
	key := newKey(t)
	pub, err := nodeca.ParseRequest(request(t, key, "admin"))
	require.NoError(t, err)
	got, err := ca.IssueNode(pub, nodeca.Identity{NodeID: "node_0199", Generation: 7, Enrolment: 3})
	require.NoError(t, err)

	cert := parse(t, got.PEM)
	id, err := nodeca.IdentityOf(cert)
	require.NoError(t, err)
	require.Equal(t, nodeca.Identity{NodeID: "node_0199", Generation: 7, Enrolment: 3}, id)
	require.Equal(t, "spiffe://slipway/node/node_0199", cert.URIs[0].String())
	require.Empty(t, cert.DNSNames, "what the request asks for is dropped")
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage)
	require.False(t, cert.IsCA)
	require.WithinDuration(t, time.Now().Add(7*24*time.Hour), cert.NotAfter, time.Minute)
	require.Equal(t, cert.SerialNumber.Text(16), got.Serial)
	spki, err := nodeca.SPKI(key.Public())
	require.NoError(t, err)
	require.Equal(t, spki, got.SPKI)

	_, err = cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	_, err = cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	require.Error(t, err, "a node must not be able to pose as the server")
	other, err := nodeca.Create()
	require.NoError(t, err)
	_, err = cert.Verify(x509.VerifyOptions{Roots: other.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	require.Error(t, err)
}

func TestServerCertificateIsNoNode(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, err := nodeca.Create(nodeca.WithClock(func() time.Time { return now }))
	require.NoError(t, err)
	get := ca.ServerCertificates([]string{"127.0.0.1", "agents.example"})
	first, err := get(nil)
	require.NoError(t, err)
	require.NoError(t, first.Leaf.VerifyHostname("127.0.0.1"))
	require.NoError(t, first.Leaf.VerifyHostname("agents.example"))
	_, err = nodeca.IdentityOf(first.Leaf)
	require.Error(t, err)
	_, err = first.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.Error(t, err)

	now = now.Add(nodeca.ServerLife/3*2 - time.Hour)
	again, err := get(nil)
	require.NoError(t, err)
	require.Same(t, first, again)
	now = now.Add(2 * time.Hour)
	fresh, err := get(nil)
	require.NoError(t, err)
	require.NotEqual(t, first.Leaf.SerialNumber, fresh.Leaf.SerialNumber)

	_, err = ca.IssueServer(nil)
	require.Error(t, err)
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	broken := request(t, newKey(t), "x")
	b, _ := pem.Decode(broken)
	b.Bytes[len(b.Bytes)-1] ^= 1
	for name, in := range map[string][]byte{
		"empty": nil, "not pem": []byte("hello"), "rsa": request(t, rsaKey, "x"), "p384": request(t, p384, "x"),
		"signature": pem.EncodeToMemory(b), "other pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Bytes}),
	} {
		_, err := nodeca.ParseRequest(in)
		require.Error(t, err, name)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	_, err = nodeca.ParseRequest(request(t, ed, "x"))
	require.NoError(t, err)

	ca, err := nodeca.Create()
	require.NoError(t, err)
	for _, id := range []nodeca.Identity{{"", 1, 0}, {"a/b", 1, 0}, {"../x", 1, 0}, {"a?b", 1, 0}, {"a b", 1, 0}, {"ok", 0, 0}, {"ok", 1, -1}} {
		_, err := ca.IssueNode(newKey(t).Public(), id)
		require.Error(t, err, id)
	}
	_, err = ca.IssueNode(rsaKey.Public(), nodeca.Identity{NodeID: "ok", Generation: 1})
	require.Error(t, err)
}

func TestDirectoryIsCreatedOnceByManyAtATime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ca")
	var wg sync.WaitGroup
	certs := make([]string, 8)
	for i := range certs {
		wg.Go(func() {
			ca, err := nodeca.Open(dir)
			if err == nil {
				certs[i] = string(ca.CertPEM())
			}
		})
	}
	wg.Wait()
	for _, c := range certs {
		require.NotEmpty(t, c)
		require.Equal(t, certs[0], c)
	}
	path := filepath.Join(dir, nodeca.FileName)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = nodeca.Open(dir)
	require.ErrorContains(t, err, "chmod 600")
}

func TestFromPEMChecksThatKeyAndCertificateBelongTogether(t *testing.T) {
	t.Parallel()
	a, err := nodeca.Create()
	require.NoError(t, err)
	b, err := nodeca.Create()
	require.NoError(t, err)
	same, err := nodeca.FromPEM(a.CertPEM(), a.KeyPEM())
	require.NoError(t, err)
	require.Equal(t, a.CertPEM(), same.CertPEM())
	_, err = nodeca.FromPEM(a.CertPEM(), b.KeyPEM())
	require.Error(t, err)
	_, err = nodeca.FromPEM(a.KeyPEM(), a.CertPEM())
	require.Error(t, err)
	_, err = nodeca.FromPEM(nil, nil)
	require.Error(t, err)

	node, err := a.IssueNode(newKey(t).Public(), nodeca.Identity{NodeID: "n", Generation: 1})
	require.NoError(t, err)
	_, err = nodeca.FromPEM(node.PEM, a.KeyPEM())
	require.Error(t, err, "a node's certificate is no CA")
}

func TestVerifyNode(t *testing.T) {
	t.Parallel()
	ca, err := nodeca.Create(nodeca.WithNodeLife(time.Hour))
	require.NoError(t, err)
	other, err := nodeca.Create()
	require.NoError(t, err)
	id := nodeca.Identity{NodeID: "n", Generation: 1, Enrolment: 1}
	own, err := ca.IssueNode(newKey(t).Public(), id)
	require.NoError(t, err)
	foreign, err := other.IssueNode(newKey(t).Public(), id)
	require.NoError(t, err)
	server, err := ca.IssueServer([]string{"x"})
	require.NoError(t, err)
	const year = 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		cert  *x509.Certificate
		after time.Duration
		ok    bool
	}{
		"valid": {parse(t, own.PEM), 0, true}, "expired": {parse(t, own.PEM), year, true}, "not valid yet": {parse(t, own.PEM), -time.Hour, false},
		"CA expired": {parse(t, own.PEM), 11 * year, false}, "another CA's": {parse(t, foreign.PEM), 0, false}, "a server's": {server.Leaf, 0, false},
		"another CA's, expired": {parse(t, foreign.PEM), year, false}, "a server's, expired": {server.Leaf, year, false},
	} {
		err := ca.VerifyNode(c.cert, time.Now().Add(c.after))
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
	}
}
