package kube_test

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
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/slipway-cloud/slipway/internal/devserver/toolcache"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// realCluster is a real API server with its etcd. There is no controller manager: what its controllers do for
// bootstrap tokens, signing cluster-info and minting the token of a service account, the test does.
type realCluster struct {
	dir, url string
	ca       []byte // PEM
	pin      string
	admin    *http.Client
}

// paths has the path of each kind of object; %s is a namespace.
var paths = map[string]string{ //nolint:gochecknoglobals // constant
	"nodes": "/api/v1/nodes", "pods": "/api/v1/namespaces/NS/pods", "configmaps": "/api/v1/namespaces/NS/configmaps", "secrets": "/api/v1/namespaces/NS/secrets",
	"daemonsets": "/apis/apps/v1/namespaces/NS/daemonsets", "leases": "/apis/coordination.k8s.io/v1/namespaces/NS/leases",
	"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/NS/serviceaccounts", "Secret": "/api/v1/namespaces/NS/secrets",
	"Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings",
	"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}

func pathOf(collection, namespace string) string {
	return strings.Replace(paths[collection], "NS", namespace, 1)
}

// startReal builds both programs, which takes minutes where they are not built yet, and starts them.
func startReal(t *testing.T) *realCluster {
	t.Helper()
	c := &realCluster{dir: t.TempDir()}
	address := freeAddress(t)
	c.url = "https://" + address
	c.writeKeys(t)
	store, peers := freeAddress(t), freeAddress(t)
	c.run(t, "etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", "http://"+store, "--advertise-client-urls", "http://"+store,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers)
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	file := func(name string) string { return filepath.Join(c.dir, name) }
	c.run(t, "kube-apiserver", "--etcd-servers", "http://"+store, "--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--tls-cert-file", file("server.crt"), "--tls-private-key-file", file("server.key"), "--client-ca-file", file("ca.crt"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", file("sa.key"), "--service-account-signing-key-file", file("sa.key"),
		"--authorization-mode", "Node,RBAC", "--enable-bootstrap-token-auth", "--service-cluster-ip-range", "10.96.0.0/24",
		"--disable-admission-plugins", "ServiceAccount", // its tokens come from a controller
		"--endpoint-reconciler-type", "none")
	require.Eventually(t, func() bool {
		code, _ := c.call(t, http.MethodGet, "/readyz", nil)
		return code == http.StatusOK
	}, runenv.Patience(2*time.Minute), 200*time.Millisecond, "the API server does not become ready")
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// run starts a program of tools/kube until the test has ended.
func (c *realCluster) run(t *testing.T, name string, args ...string) {
	t.Helper()
	tool, err := toolcache.Find(name)
	require.NoError(t, err)
	program, err := toolcache.Ensure(t.Context(), tool, os.Stderr)
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	require.NoError(t, err)
	cmd := exec.Command(program, args...) //nolint:forbidigo // the clean-up below ends it
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, text[max(len(text)-4096, 0):])
		}
	})
}

// writeKeys makes a CA, the certificates of the server and of an administrator, and the key of service accounts.
func (c *realCluster) writeKeys(t *testing.T) {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return k
	}
	file := func(name, kind string, der []byte) []byte {
		raw := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), raw, 0o600))
		return raw
	}
	keyFile := func(name string, k *ecdsa.PrivateKey) []byte {
		der, err := x509.MarshalECPrivateKey(k)
		require.NoError(t, err)
		return file(name, "EC PRIVATE KEY", der)
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
	require.NoError(t, err)
	c.ca = file("ca.crt", "CERTIFICATE", der)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	c.pin = "sha256:" + hex.EncodeToString(sum[:])
	issue := func(name string, of *x509.Certificate) tls.Certificate {
		k := key()
		der, err := x509.CreateCertificate(rand.Reader, of, parsed, k.Public(), caKey)
		require.NoError(t, err)
		pair, err := tls.X509KeyPair(file(name+".crt", "CERTIFICATE", der), keyFile(name+".key", k))
		require.NoError(t, err)
		return pair
	}
	issue("server", certificate(2, pkix.Name{CommonName: "kube-apiserver"}))
	admin := issue("admin", certificate(3, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}))
	keyFile("sa.key", key())
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	c.admin = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{admin}}}}
}

// call asks as an administrator.
func (c *realCluster) call(t *testing.T, method, path string, body any) (int, object) {
	t.Helper()
	return c.callAs(t, c.admin, "", method, path, body)
}

func (c *realCluster) callAs(t *testing.T, who *http.Client, token, method, path string, body any) (int, object) {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, c.url+path, bytes.NewReader(raw))
	require.NoError(t, err)
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
	require.NoError(t, err)
	var out object
	_ = json.Unmarshal(text, &out) // readyz is text
	return res.StatusCode, out
}

// must asks as an administrator for what has to be done.
func (c *realCluster) must(t *testing.T, method, path string, body any) object {
	t.Helper()
	code, out := c.call(t, method, path, body)
	require.Less(t, code, http.StatusMultipleChoices, "%s %s: %v", method, path, out["message"])
	require.Positive(t, code)
	return out
}

// put creates an object, and gives it its status.
func (c *realCluster) put(t *testing.T, collection, namespace, name string, o object) string {
	t.Helper()
	metadata, _ := o["metadata"].(object)
	delete(metadata, "uid")
	made := c.must(t, http.MethodPost, pathOf(collection, namespace), o)
	if status, has := o["status"]; has {
		c.must(t, http.MethodPatch, pathOf(collection, namespace)+"/"+name+"/status", object{"status": status})
	}
	metadata, _ = made["metadata"].(object)
	uid, _ := metadata["uid"].(string)
	return uid
}

// apply creates the objects of a manifest for which keep is true.
func (c *realCluster) apply(t *testing.T, manifest string, keep func(kind string) bool) {
	t.Helper()
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		var o object
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		kind, _ := o["kind"].(string)
		metadata, _ := o["metadata"].(object)
		namespace, _ := metadata["namespace"].(string)
		require.NotEmpty(t, paths[kind], kind)
		if keep(kind) {
			c.must(t, http.MethodPost, pathOf(kind, namespace), o)
		}
	}
}

// TestConformance_RealServer runs the suite on a real API server, with the rights of the shipped manifest alone.
// Without these each call is forbidden, and the admission policy lets bootstrap tokens through that expire, and
// no other secret.
func TestConformance_RealServer(t *testing.T) {
	runenv.ProofOnly(t, "kube")
	t.Parallel()
	c := startReal(t)
	manifest, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	account := func(kind string) bool { return kind == "Namespace" || kind == "ServiceAccount" }
	c.apply(t, string(manifest), account)
	made := c.must(t, http.MethodPost, "/api/v1/namespaces/slipway-system/serviceaccounts/slipway/token", object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{}})
	status, _ := made["status"].(object)
	login, _ := status["token"].(string)
	require.NotEmpty(t, login)
	require.Eventually(t, func() bool {
		code, _ := c.call(t, http.MethodGet, "/api/v1/namespaces/kube-public", nil)
		return code == http.StatusOK
	}, runenv.Patience(30*time.Second), 100*time.Millisecond, "the API server makes the namespaces of the system")
	c.put(t, "configmaps", "kube-public", "cluster-info", object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "cluster-info"}, "data": object{"kubeconfig": "x"}})
	opened := providers.Cluster{
		Ref: "a", URL: c.url, CAPins: []string{c.pin}, Kubeconfig: providers.NewSecret(kubeconfigOf(c.url, c.ca, login)), Rule: providers.SimulatedAddresses(),
	}
	forbidden(t, opened, true)
	c.apply(t, string(manifest), func(kind string) bool { return !account(kind) })
	forbidden(t, opened, false)
	conforms(t, cluster{
		Cluster: opened, put: c.put,
		remove: func(t *testing.T, collection, namespace, name string) {
			t.Helper()
			c.must(t, http.MethodDelete, pathOf(collection, namespace)+"/"+name, nil)
		},
		sign: func(t *testing.T, id string) {
			t.Helper()
			c.must(t, http.MethodPatch, pathOf("configmaps", "kube-public")+"/cluster-info", object{"data": object{"jws-kubeconfig-" + id: "header..signature"}})
		},
		renew: func(t *testing.T, node string) {
			t.Helper()
			c.must(t, http.MethodPatch, pathOf("leases", "kube-node-lease")+"/"+node, object{"spec": object{"renewTime": "2026-01-02T03:04:15.000000Z"}})
		},
	})
	t.Run("admission", func(t *testing.T) { c.admits(t, login) })
}

// admits tries as Slipway to make secrets that are none of its tokens.
func (c *realCluster) admits(t *testing.T, login string) {
	nobody := c.admin.Transport.(*http.Transport).Clone() //nolint:forcetypeassert // as it was made
	nobody.TLSClientConfig.Certificates = nil
	who := &http.Client{Transport: nobody}
	secret := func(name, kind string, data object) int {
		code, _ := c.callAs(t, who, login, http.MethodPost, pathOf("secrets", "kube-system"), object{
			"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name}, "type": kind, "stringData": data,
		})
		return code
	}
	const kind = "bootstrap.kubernetes.io/token"
	whole := func(id string) object {
		return object{"token-id": id, "token-secret": "0123456789abcdef", "expiration": time.Now().Add(time.Minute).UTC().Format(time.RFC3339), "usage-bootstrap-signing": "true"}
	}
	tries := 0
	require.Eventually(t, func() bool {
		tries++
		never := whole("ghijkl")
		delete(never, "expiration")
		return secret(fmt.Sprintf("bootstrap-token-ghijk%d", tries), kind, never) == http.StatusUnprocessableEntity
	}, runenv.Patience(20*time.Second), time.Second, "the policy counts some time after it was made")
	require.Equal(t, http.StatusUnprocessableEntity, secret("bootstrap-token-mnopqr", "Opaque", whole("mnopqr")))
	require.Equal(t, http.StatusUnprocessableEntity, secret("another", kind, whole("another")))
	require.Equal(t, http.StatusCreated, secret("bootstrap-token-stuvwx", kind, whole("stuvwx")))
	for _, path := range []string{"/bootstrap-token-stuvwx", ""} {
		code, _ := c.callAs(t, who, login, http.MethodGet, pathOf("secrets", "kube-system")+path, nil)
		require.Equal(t, http.StatusForbidden, code, "it reads and lists no secret")
	}
}
