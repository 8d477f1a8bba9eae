// Package kubeadmsim stands in for kubeadm and the kubelet on a machine, in tests: its join makes the calls
// that the real ones make to the API server. It runs no pods; the machine is a folder. Its version ends in
// +simulated, so that results made with it say so.
package kubeadmsim

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// The environment of the stand-in.
const (
	// RootEnv is the folder that stands for / of the machine.
	RootEnv = "KUBEADM_SIM_ROOT"
	// VersionEnv is the version; "" is v1.34.1+simulated.
	VersionEnv = "KUBEADM_SIM_VERSION"
	// WaitEnv names a file: a join waits before its request for a certificate until the file is
	// there.
	WaitEnv = "KUBEADM_SIM_WAIT"
)

type object = map[string]any

// Main runs the command line of kubeadm and returns its exit status.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	m := machine{root: os.Getenv(RootEnv), version: os.Getenv(VersionEnv), out: out}
	if m.version == "" {
		m.version = "v1.34.1+simulated"
	}
	var err error
	switch {
	case len(args) > 0 && args[0] == "version":
		fmt.Fprintln(out, m.version)
	case len(args) == 3 && args[0] == "join" && args[1] == "--config":
		err = m.join(ctx, args[2])
	case len(args) == 2 && args[0] == "reset" && args[1] == "-f":
		for _, name := range []string{"kubelet.conf", "bootstrap-kubelet.conf", "pki/ca.crt"} {
			_ = os.Remove(m.path("etc/kubernetes", name))
		}
		fmt.Fprintln(out, "[reset] the machine is clean")
	default:
		err = fmt.Errorf("unknown command %q", args)
	}
	if err != nil {
		fmt.Fprintln(errOut, "error execution phase:", err)
		return 1
	}
	return 0
}

type machine struct {
	root, version string
	out           io.Writer
}

func (m machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.root}, parts...)...)
}

// file is what is read of the join file.
type file struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Discovery  struct {
		BootstrapToken struct {
			Token    string   `yaml:"token"`
			Endpoint string   `yaml:"apiServerEndpoint"`
			Pins     []string `yaml:"caCertHashes"`
		} `yaml:"bootstrapToken"`
	} `yaml:"discovery"`
	Node struct {
		Name string `yaml:"name"`
	} `yaml:"nodeRegistration"`
}

// join does what kubeadm join does, in its order.
func (m machine) join(ctx context.Context, config string) error {
	raw, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var f file
	if err := yaml.Unmarshal(raw, &f); err != nil {
		return err
	}
	for _, name := range []string{"kubelet.conf", "bootstrap-kubelet.conf", "pki/ca.crt"} {
		if _, err := os.Stat(m.path("etc/kubernetes", name)); err == nil {
			return fmt.Errorf("preflight: /etc/kubernetes/%s already exists", name)
		}
	}
	fmt.Fprintln(m.out, "[preflight] all checks passed")
	d := f.Discovery.BootstrapToken
	base, ca, err := discover(ctx, "https://"+d.Endpoint, d.Token, d.Pins)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	api := client{base, d.Token, newHTTP(ca, nil)}
	for _, name := range []string{"kubeadm-config", "kubelet-config", "kube-proxy"} {
		if _, err := api.call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/configmaps/"+name, nil); err != nil {
			return err
		}
	}
	node, err := api.call(ctx, http.MethodGet, "/api/v1/nodes/"+f.Node.Name, nil)
	if err == nil && strings.Contains(fmt.Sprint(node["status"]), "status:True") {
		return fmt.Errorf("a Node with name %q and status \"Ready\" already exists in the cluster", f.Node.Name)
	}
	if err := m.write("etc/kubernetes/bootstrap-kubelet.conf", "token: "+d.Token+"\n"); err != nil {
		return err
	}
	if err := m.write("etc/kubernetes/pki/ca.crt", string(ca)); err != nil {
		return err
	}
	fmt.Fprintln(m.out, "[kubelet-start] waiting for the TLS bootstrap")
	if err := m.bootstrap(ctx, api, ca, f.Node.Name); err != nil {
		return err
	}
	_ = os.Remove(m.path("etc/kubernetes/bootstrap-kubelet.conf"))
	fmt.Fprintln(m.out, "This node has joined the cluster.")
	return nil
}

func (m machine) write(name, text string) error {
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// bootstrap is the kubelet's part: it gets a certificate, makes its Node and sends a heartbeat.
func (m machine) bootstrap(ctx context.Context, api client, ca []byte, name string) error {
	for wait := os.Getenv(WaitEnv); wait != ""; {
		if _, err := os.Stat(wait); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // a program of its own
	}
	if _, err := api.call(ctx, http.MethodGet, "/healthz", nil); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return err
	}
	certificate, err := api.request(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		return err
	}
	if err := m.write("etc/kubernetes/kubelet.conf", "client-certificate: |\n"+string(certificate)); err != nil {
		return err
	}
	return m.register(ctx, client{api.base, "", newHTTP(ca, &pair)}, name)
}

// register makes the Node of the machine, or takes the one of its name over, and sends the first
// heartbeat.
func (m machine) register(ctx context.Context, api client, name string) error {
	read := func(path string) string {
		raw, _ := os.ReadFile(m.path(path)) // a machine may lack it
		return strings.TrimSpace(string(raw))
	}
	_, err := api.call(ctx, http.MethodPost, "/api/v1/nodes", object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": name}, "spec": object{}})
	var no *refused
	if err != nil && (!errors.As(err, &no) || no.code != http.StatusConflict) {
		return err
	}
	now := time.Now().UTC()
	_, err = api.call(ctx, http.MethodPatch, "/api/v1/nodes/"+name+"/status", object{"status": object{
		"nodeInfo": object{
			"systemUUID": read("sys/class/dmi/id/product_uuid"), "bootID": read("proc/sys/kernel/random/boot_id"), "kubeletVersion": m.version, "osImage": "simulated",
		},
		"conditions": []object{{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status", "lastTransitionTime": now.Format(time.RFC3339)}},
	}})
	if err != nil {
		return err
	}
	lease := object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": name, "namespace": "kube-node-lease"},
		"spec": object{"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now.Format("2006-01-02T15:04:05.000000Z07:00")},
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	_, err = api.call(ctx, http.MethodPost, leases, lease)
	if errors.As(err, &no) && no.code == http.StatusConflict {
		_, err = api.call(ctx, http.MethodPut, leases+"/"+name, lease)
	}
	return err
}

// discover finds the cluster as kubeadm does: without trust, by the signature of the token, and
// again with the CA that a pin names.
func discover(ctx context.Context, base, token string, pins []string) (url string, ca []byte, err error) {
	id, secret, ok := strings.Cut(token, ".")
	if !ok {
		return "", nil, errors.New("the token is not valid")
	}
	const path = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	first, err := client{base, "", &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}.call(ctx, http.MethodGet, path, nil) //nolint:gosec // the signature is checked
	if err != nil {
		return "", nil, err
	}
	data, _ := first["data"].(object)
	text := fmt.Sprint(data["kubeconfig"])
	if !signed(fmt.Sprint(data["jws-kubeconfig-"+id]), text, secret) {
		return "", nil, errors.New("there is no valid JWS signature for the token")
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				CA     string `yaml:"certificate-authority-data"`
				Server string `yaml:"server"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil || len(config.Clusters) != 1 {
		return "", nil, errors.New("cluster-info is not readable")
	}
	ca, err = base64.StdEncoding.DecodeString(config.Clusters[0].Cluster.CA)
	block, _ := pem.Decode(ca)
	if err != nil || block == nil {
		return "", nil, errors.New("cluster-info has no CA")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	if !slices.Contains(pins, "sha256:"+hex.EncodeToString(sum[:])) {
		return "", nil, errors.New("cluster CA found in cluster-info ConfigMap is invalid: public key is not pinned")
	}
	again, err := client{base, "", newHTTP(ca, nil)}.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", nil, err
	}
	data, _ = again["data"].(object)
	if data["kubeconfig"] != text {
		return "", nil, errors.New("the second answer differs from the first")
	}
	return config.Clusters[0].Cluster.Server, ca, nil
}

// signed reports whether a JWS without its content is one of the content by the secret.
func signed(jws, content, secret string) bool {
	parts := strings.Split(jws, ".")
	if len(parts) != 3 || parts[1] != "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(content))))
	given, err := base64.RawURLEncoding.DecodeString(parts[2])
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}

func newHTTP(ca []byte, pair *tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

// client calls an API server.
type client struct {
	base, token string
	http        *http.Client
}

type refused struct {
	code    int
	message string
}

func (r *refused) Error() string { return r.message }

func (c client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(r)
}

func (c client) call(ctx context.Context, method, path string, body any) (object, error) {
	res, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var out object
	_ = json.Unmarshal(raw, &out) // healthz is text
	if res.StatusCode >= http.StatusBadRequest {
		return out, &refused{res.StatusCode, fmt.Sprintf("%s %s: %v (%d)", method, path, out["message"], res.StatusCode)}
	}
	return out, nil
}

// request asks for a certificate and waits until it is issued.
func (c client) request(ctx context.Context, csr []byte) ([]byte, error) {
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	sum := sha256.Sum256(csr)
	name := "node-csr-" + base64.RawURLEncoding.EncodeToString(sum[:])
	if _, err := c.call(ctx, http.MethodPost, path, object{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": object{"name": name},
		"spec": object{"request": base64.StdEncoding.EncodeToString(csr), "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": []string{"digital signature", "client auth"}},
	}); err != nil {
		return nil, err
	}
	res, err := c.send(ctx, http.MethodGet, path+"?watch=true&fieldSelector=metadata.name="+name, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	for events := json.NewDecoder(res.Body); ; {
		var e struct {
			Object struct {
				Status struct {
					Certificate []byte `json:"certificate"`
					Conditions  []struct {
						Type string `json:"type"`
					} `json:"conditions"`
				} `json:"status"`
			} `json:"object"`
		}
		if err := events.Decode(&e); err != nil {
			return nil, fmt.Errorf("the request for a certificate was not answered: %w", err)
		}
		for _, condition := range e.Object.Status.Conditions {
			if condition.Type == "Denied" {
				return nil, errors.New("the request for a certificate was denied")
			}
		}
		if len(e.Object.Status.Certificate) > 0 {
			return e.Object.Status.Certificate, nil
		}
	}
}
