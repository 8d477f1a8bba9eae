package kubeserver

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// auditPolicy logs the secrets that are made, so that a test knows each bootstrap token that there
// was.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["secrets"]}]}, {"level": "None"}]}`

// bootstrap is what kubeadm init makes for machines that join.
//
//go:embed bootstrap.yaml
var bootstrap string

// URL is the server's.
func (c *Server) URL() string { return c.url }

// CAPin is the pin of the CA, as kubeadm takes it.
func (c *Server) CAPin() string { return c.pin }

// MakeAccount makes Slipway's service account, without rights, and a token of it.
func (c *Server) MakeAccount(manifest string) (login string) {
	c.t.Helper()
	c.Apply(manifest, isAccount)
	made := c.Must(http.MethodPost, "/api/v1/namespaces/slipway-system/serviceaccounts/slipway/token", Object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": Object{}})
	status, _ := made["status"].(Object)
	c.login, _ = status["token"].(string)
	require.NotEmpty(c.t, c.login)
	require.Eventually(c.t, func() bool {
		code, _ := c.Call(http.MethodGet, "/api/v1/namespaces/kube-public", nil)
		return code == http.StatusOK
	}, runenv.Patience(30*time.Second), 100*time.Millisecond, "the API server makes the namespaces of the system")
	return c.login
}

// GiveRights gives the account the rights of a manifest.
func (c *Server) GiveRights(manifest string) {
	c.t.Helper()
	c.Apply(manifest, func(kind string) bool { return !isAccount(kind) })
}

func isAccount(kind string) bool { return kind == "Namespace" || kind == "ServiceAccount" }

// Kubeconfig is that of Slipway's service account.
func (c *Server) Kubeconfig() string { return c.config(Object{"token": c.login}) }

func (c *Server) config(user Object) string {
	raw, err := json.Marshal(Object{
		"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": []Object{{"name": "a", "context": Object{"cluster": "a", "user": "a"}}},
		"clusters": []Object{{"name": "a", "cluster": Object{"server": c.url, "certificate-authority-data": c.ca}}},
		"users":    []Object{{"name": "a", "user": user}},
	})
	require.NoError(c.t, err)
	return string(raw)
}

// StartControllers makes what kubeadm init makes, and starts the controllers that sign
// cluster-info, issue certificates to kubelets and open nodes that are ready for pods.
func (c *Server) StartControllers() {
	c.t.Helper()
	c.Apply(bootstrap, func(string) bool { return true })
	c.Must(http.MethodPost, Path("configmaps", "kube-public"), Object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": Object{"name": "cluster-info"}, "data": Object{"kubeconfig": c.config(Object{})},
	})
	admin := c.config(Object{"client-certificate": c.file("admin.crt"), "client-key": c.file("admin.key")})
	require.NoError(c.t, os.WriteFile(c.file("admin.conf"), []byte(admin), 0o600))
	c.run("kube-controller-manager", "--kubeconfig", c.file("admin.conf"), "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", freePort(c.t),
		"--cluster-signing-cert-file", c.file("ca.crt"), "--cluster-signing-key-file", c.file("ca.key"),
		"--controllers", "bootstrap-signer-controller,certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,node-lifecycle-controller")
}

// Node returns a node, nil where there is none.
func (c *Server) Node(name string) map[string]any {
	code, node := c.Call(http.MethodGet, Path("nodes", "")+"/"+name, nil)
	if code != http.StatusOK {
		return nil
	}
	return node
}

// Renew sends the heartbeat of a node, as its kubelet does.
func (c *Server) Renew(name, at string) (code int) {
	code, _ = c.Call(http.MethodPatch, Path("leases", "kube-node-lease")+"/"+name, Object{"spec": Object{"renewTime": at}})
	return code
}

const tokenType = "bootstrap.kubernetes.io/token"

// Tokens lists the ids of the bootstrap tokens that are there.
func (c *Server) Tokens() []string {
	c.t.Helper()
	list := c.Must(http.MethodGet, Path("secrets", "kube-system")+"?fieldSelector=type%3D"+tokenType, nil)
	items, _ := list["items"].([]any)
	ids := []string{}
	for _, item := range items {
		metadata, _ := item.(Object)["metadata"].(Object)
		name, _ := metadata["name"].(string)
		ids = append(ids, strings.TrimPrefix(name, "bootstrap-token-"))
	}
	return ids
}

// Minted lists the bootstrap tokens that were ever made.
func (c *Server) Minted() []string {
	c.t.Helper()
	raw, err := os.ReadFile(c.file("audit.log"))
	require.NoError(c.t, err)
	tokens := []string{}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var e struct {
			RequestObject struct {
				Type       string            `json:"type"`
				StringData map[string]string `json:"stringData"`
				Data       map[string][]byte `json:"data"`
			} `json:"requestObject"`
			ResponseStatus struct{ Code int } `json:"responseStatus"`
		}
		require.NoError(c.t, json.Unmarshal(lines.Bytes(), &e))
		o := e.RequestObject
		if o.Type != tokenType || e.ResponseStatus.Code != http.StatusCreated {
			continue
		}
		field := func(name string) string { return o.StringData[name] + string(o.Data[name]) }
		tokens = append(tokens, field("token-id")+"."+field("token-secret"))
	}
	return tokens
}
