// Package kubeserver runs a real kube-apiserver with its etcd, and where a test wants it the controllers of
// kube-controller-manager that a join needs. They are built the first time, which takes minutes: only
// `make proof AREA=kube` runs its tests.
package kubeserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/slipway-cloud/slipway/assembly/devserver/freeport"
	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Object is one of Kubernetes.
type Object = map[string]any

// Server is a real API server with its etcd. It has controllers after StartControllers; without
// them nothing signs cluster-info or issues certificates.
type Server struct {
	Admin *http.Client

	t        testing.TB
	dir, url string
	ca       []byte // PEM
	pin      string
	login    string // token of Slipway's service account
}

// paths has the path of each kind of object; %s is a namespace.
var paths = map[string]string{ //nolint:gochecknoglobals // constant
	"nodes": "/api/v1/nodes", "pods": "/api/v1/namespaces/NS/pods", "configmaps": "/api/v1/namespaces/NS/configmaps", "secrets": "/api/v1/namespaces/NS/secrets",
	"daemonsets": "/apis/apps/v1/namespaces/NS/daemonsets", "leases": "/apis/coordination.k8s.io/v1/namespaces/NS/leases",
	"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/NS/serviceaccounts", "Secret": "/api/v1/namespaces/NS/secrets",
	"ConfigMap": "/api/v1/namespaces/NS/configmaps",
	"Role":      "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings",
	"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}

// Path is that of a collection, or of a kind of objects, in a namespace.
func Path(collection, namespace string) string {
	return strings.Replace(paths[collection], "NS", namespace, 1)
}

// Start builds both programs, which takes minutes where they are not built yet, and starts them.
func Start(t testing.TB) *Server {
	t.Helper()
	c := &Server{t: t, dir: t.TempDir()}
	const host = "127.0.0.1"
	port := freePort(t)
	c.url = "https://" + net.JoinHostPort(host, port)
	c.writeKeys()
	require.NoError(t, os.WriteFile(c.file("audit.yaml"), []byte(auditPolicy), 0o600))
	store, peers := freeAddress(t), freeAddress(t)
	c.run("etcd", "--data-dir", c.file("etcd"), "--listen-client-urls", "http://"+store, "--advertise-client-urls", "http://"+store,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers)
	c.run("kube-apiserver", "--etcd-servers", "http://"+store, "--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--tls-cert-file", c.file("server.crt"), "--tls-private-key-file", c.file("server.key"), "--client-ca-file", c.file("ca.crt"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.file("sa.key"), "--service-account-signing-key-file", c.file("sa.key"),
		"--authorization-mode", "Node,RBAC", "--audit-policy-file", c.file("audit.yaml"), "--audit-log-path", c.file("audit.log"), "--enable-bootstrap-token-auth", "--service-cluster-ip-range", "10.96.0.0/24",
		"--disable-admission-plugins", "ServiceAccount", // its tokens come from a controller
		"--endpoint-reconciler-type", "none")
	require.Eventually(t, func() bool {
		code, _ := c.Call(http.MethodGet, "/readyz", nil)
		return code == http.StatusOK
	}, runenv.Patience(2*time.Minute), 200*time.Millisecond, "the API server does not become ready")
	return c
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", freePort(t))
}

func freePort(t testing.TB) string {
	t.Helper()
	port, err := freeport.Find(t.Context())
	require.NoError(t, err)
	return strconv.Itoa(port)
}

// file is the path of a file of the server.
func (c *Server) file(name string) string { return filepath.Join(c.dir, name) }

// run starts a program of tools/kube until the test has ended.
func (c *Server) run(name string, args ...string) {
	c.t.Helper()
	tool, err := toolcache.Find(name)
	require.NoError(c.t, err)
	program, err := toolcache.Ensure(c.t.Context(), tool, os.Stderr)
	require.NoError(c.t, err)
	log, err := os.Create(c.file(name + ".log"))
	require.NoError(c.t, err)
	cmd := exec.Command(program, args...) //nolint:forbidigo // the clean-up below ends it
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && c.t.Failed() {
			c.t.Logf("the end of the log of %s:\n%s", name, text[max(len(text)-4096, 0):])
		}
	})
}

// writeKeys makes a CA, the certificates of the server and of an administrator, and the key of
// service accounts.
func (c *Server) writeKeys() {
	c.t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(c.t, err)
		return k
	}
	store := func(name, kind string, der []byte) []byte {
		raw := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		require.NoError(c.t, os.WriteFile(c.file(name), raw, 0o600))
		return raw
	}
	keyFile := func(name string, k *ecdsa.PrivateKey) []byte {
		der, err := x509.MarshalECPrivateKey(k)
		require.NoError(c.t, err)
		return store(name, "EC PRIVATE KEY", der)
	}
	now := time.Now()
	certificate := func(serial int64, name pkix.Name) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: name, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
	}
	caKey := key()
	root := certificate(1, pkix.Name{CommonName: "kubernetes"})
	root.IsCA, root.KeyUsage, root.IPAddresses = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, nil
	der, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	require.NoError(c.t, err)
	c.ca = store("ca.crt", "CERTIFICATE", der)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(c.t, err)
	sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	c.pin = "sha256:" + hex.EncodeToString(sum[:])
	issue := func(name string, of *x509.Certificate) tls.Certificate {
		k := key()
		der, err := x509.CreateCertificate(rand.Reader, of, parsed, k.Public(), caKey)
		require.NoError(c.t, err)
		pair, err := tls.X509KeyPair(store(name+".crt", "CERTIFICATE", der), keyFile(name+".key", k))
		require.NoError(c.t, err)
		return pair
	}
	issue("server", certificate(2, pkix.Name{CommonName: "kube-apiserver"}))
	admin := issue("admin", certificate(3, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}))
	keyFile("sa.key", key())
	keyFile("ca.key", caKey)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	c.Admin = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{admin}}}}
}

// Call asks as an administrator.
func (c *Server) Call(method, path string, body any) (int, Object) {
	c.t.Helper()
	return c.CallAs(c.Admin, "", method, path, body)
}

// CallAs asks by a client, with a token or "" for none. It returns the status, 0 for no answer, and
// the body.
func (c *Server) CallAs(who *http.Client, token, method, path string, body any) (int, Object) {
	c.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(c.t, err)
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(raw))
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := who.Do(r)
	if err != nil {
		return 0, nil // it does not listen yet
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	var out Object
	_ = json.Unmarshal(text, &out) // readyz is text
	return res.StatusCode, out
}

// Must sends a request as an administrator. It fails the test unless the request succeeds.
func (c *Server) Must(method, path string, body any) Object {
	c.t.Helper()
	code, out := c.Call(method, path, body)
	require.Less(c.t, code, http.StatusMultipleChoices, "%s %s: %v", method, path, out["message"])
	require.Positive(c.t, code)
	return out
}

// Put creates an object, and gives it its status.
func (c *Server) Put(collection, namespace, name string, o Object) string {
	c.t.Helper()
	metadata, _ := o["metadata"].(Object)
	delete(metadata, "uid")
	made := c.Must(http.MethodPost, Path(collection, namespace), o)
	if status, has := o["status"]; has {
		c.Must(http.MethodPatch, Path(collection, namespace)+"/"+name+"/status", Object{"status": status})
	}
	metadata, _ = made["metadata"].(Object)
	uid, _ := metadata["uid"].(string)
	return uid
}

// Apply creates the objects of a manifest for which keep is true.
func (c *Server) Apply(manifest string, keep func(kind string) bool) {
	c.t.Helper()
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		var o Object
		require.NoError(c.t, yaml.Unmarshal([]byte(text), &o))
		kind, _ := o["kind"].(string)
		metadata, _ := o["metadata"].(Object)
		namespace, _ := metadata["namespace"].(string)
		require.NotEmpty(c.t, paths[kind], kind)
		if keep(kind) {
			c.Must(http.MethodPost, Path(kind, namespace), o)
		}
	}
}
