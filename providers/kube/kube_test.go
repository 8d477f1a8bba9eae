package kube_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/kube"
	kubesim "github.com/slipway-cloud/slipway/sim/kube"
)

func newCluster(t *testing.T, o kubesim.Options) (*kubesim.Server, providers.Cluster) {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	if o.Manifest == nil {
		o.Manifest = manifest
	}
	sim, err := kubesim.New(o)
	require.NoError(t, err)
	_, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	return sim, providers.Cluster{
		Ref: "a", URL: sim.URL(), CAPins: []string{sim.CAPin()}, Kubeconfig: providers.NewSecret(sim.Kubeconfig()), Rule: providers.SimulatedAddresses(),
	}
}

func token(id string) providers.BootstrapToken {
	return providers.BootstrapToken{ID: id, Secret: providers.NewSecret("0123456789abcdef"), Expires: time.Now().Add(time.Minute), Description: "test"}
}

// TestToken_IsMintedSignedAndRevoked uses the rights of the shipped manifest.
func TestToken_IsMintedSignedAndRevoked(t *testing.T) {
	t.Parallel()
	sim, c := newCluster(t, kubesim.Options{})
	var p kube.Provider
	signed, err := p.IsSigned(t.Context(), c, "abcdef")
	require.NoError(t, err)
	require.False(t, signed)
	require.NoError(t, p.MintToken(t.Context(), c, token("abcdef")))
	require.Equal(t, []string{"abcdef.0123456789abcdef"}, sim.Minted())
	signed, err = p.IsSigned(t.Context(), c, "abcdef")
	require.NoError(t, err)
	require.True(t, signed)
	require.Equal(t, providers.KindStateConflict, providers.KindOf(p.MintToken(t.Context(), c, token("abcdef"))))
	for range 2 {
		require.NoError(t, p.RevokeToken(t.Context(), c, "abcdef"))
	}
	require.Empty(t, sim.Tokens())
}

// Each right of the manifest is needed: without its rule the call that needs it is forbidden.
func TestManifest_EachRightIsNeeded(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	calls := map[string]func(kube.Provider, providers.Cluster) error{
		"verbs: [create, delete]": func(p kube.Provider, c providers.Cluster) error { return p.MintToken(t.Context(), c, token("abcdef")) },
		"resourceNames: [cluster-info]\n    verbs: [get]": func(p kube.Provider, c providers.Cluster) error {
			_, err := p.IsSigned(t.Context(), c, "abcdef")
			return err
		},
		"resources: [leases]\n    verbs: [get]": func(p kube.Provider, c providers.Cluster) error {
			_, err := p.Heartbeat(t.Context(), c, "m-1")
			return err
		},
		"verbs: [get, list, delete]": func(p kube.Provider, c providers.Cluster) error {
			_, err := p.Nodes(t.Context(), c)
			return err
		},
		"resources: [pods]\n    verbs: [list]": func(p kube.Provider, c providers.Cluster) error {
			_, err := p.BlockingPods(t.Context(), c, "m-1")
			return err
		},
	}
	for rule, call := range calls {
		require.Equal(t, 1, strings.Count(string(manifest), rule), rule)
		_, c := newCluster(t, kubesim.Options{})
		require.NotEqual(t, providers.KindForbidden, providers.KindOf(call(kube.Provider{}, c)), rule)
		_, c = newCluster(t, kubesim.Options{Manifest: []byte(strings.Replace(string(manifest), rule, "verbs: []", 1))})
		require.Equal(t, providers.KindForbidden, providers.KindOf(call(kube.Provider{}, c)), rule)
	}
}

// TestKubeconfig_Refused: what would run a program, read a file, weaken TLS or speak for somebody
// else.
func TestKubeconfig_Refused(t *testing.T) {
	t.Parallel()
	sim, c := newCluster(t, kubesim.Options{})
	for name, change := range map[string]func(cluster, user map[string]any){
		"program": func(_, u map[string]any) {
			u["exec"] = map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"}
		},
		"auth provider": func(_, u map[string]any) {
			u["auth-provider"] = map[string]any{"name": "x", "config": map[string]any{}}
		},
		"token file":    func(_, u map[string]any) { u["tokenFile"] = "/etc/shadow" },
		"key file":      func(_, u map[string]any) { u["client-key"] = "/etc/shadow" },
		"somebody else": func(_, u map[string]any) { u["as"] = "system:admin" },
		"no login":      func(_, u map[string]any) { delete(u, "token") },
		"no TLS":        func(k, _ map[string]any) { k["insecure-skip-tls-verify"] = true },
		"a proxy":       func(k, _ map[string]any) { k["proxy-url"] = "http://127.0.0.1:1" },
		"a CA file":     func(k, _ map[string]any) { k["certificate-authority"] = "/etc/ssl/x" },
		"unknown field": func(k, _ map[string]any) { k["something"] = "x" },
	} {
		var config map[string]any
		require.NoError(t, json.Unmarshal([]byte(sim.Kubeconfig()), &config))
		part := func(list, name string) map[string]any {
			return config[list].([]any)[0].(map[string]any)[name].(map[string]any) //nolint:forcetypeassert // as the simulator writes it
		}
		change(part("clusters", "cluster"), part("users", "user"))
		raw, err := json.Marshal(config)
		require.NoError(t, err)
		bad := c
		bad.Kubeconfig = providers.NewSecret(string(raw))
		_, err = kube.Provider{}.Nodes(t.Context(), bad)
		require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%s: %v", name, err)
	}
	require.Empty(t, sim.Requests(), "nothing was sent")
}

// TestCluster_Impostors: a server with another CA, a redirect, an address that the rule forbids.
func TestCluster_Impostors(t *testing.T) {
	t.Parallel()
	sim, c := newCluster(t, kubesim.Options{})
	other, theirs := newCluster(t, kubesim.Options{})
	kindOf := func(c providers.Cluster) providers.Kind {
		_, err := kube.Provider{}.Nodes(t.Context(), c)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "token")
		return providers.KindOf(err)
	}
	moved := c
	moved.URL = other.URL()
	require.Equal(t, providers.KindPinMismatch, kindOf(moved), "the server has another CA")
	pins := c
	pins.CAPins = theirs.CAPins
	require.Equal(t, providers.KindPinMismatch, kindOf(pins), "the kubeconfig has another CA")
	closed := c
	closed.Rule = providers.Cluster{}.Rule
	require.Equal(t, providers.KindInvalid, kindOf(closed), "the rule refuses the address")
	require.Empty(t, sim.Requests())
	require.Empty(t, other.Requests())
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked over plain HTTP") }))
	t.Cleanup(plain.Close)
	moved.URL = "https://" + strings.TrimPrefix(plain.URL, "http://")
	require.Equal(t, providers.KindUnreachable, kindOf(moved))
}

// TestErrors_HaveTheirKinds maps what the API server answers.
func TestErrors_HaveTheirKinds(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]providers.Kind{
		kubesim.FaultInternalError: providers.KindUnavailable, kubesim.FaultUnavailable: providers.KindUnavailable, kubesim.FaultReset: providers.KindUnreachable,
		kubesim.FaultForbidden: providers.KindForbidden, kubesim.FaultUnauthorized: providers.KindUnauthorized,
	} {
		sim, c := newCluster(t, kubesim.Options{})
		_, err := sim.AddFault(kubesim.Fault{Name: fault, Count: -1})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err = kube.Provider{}.Nodes(ctx, c)
		cancel()
		require.Equal(t, want, providers.KindOf(err), "%s: %v", fault, err)
	}
}

// TestDeleteNode_NeedsItsUID deletes a node only while it is the one that was read.
func TestDeleteNode_NeedsItsUID(t *testing.T) {
	t.Parallel()
	sim, c := newCluster(t, kubesim.Options{})
	sim.Put("nodes", "", "m-1", map[string]any{"status": map[string]any{}})
	n, err := kube.Provider{}.Node(t.Context(), c, "m-1")
	require.NoError(t, err)
	require.Equal(t, providers.KindStateConflict, providers.KindOf(kube.Provider{}.DeleteNode(t.Context(), c, "m-1", "another")))
	for range 2 {
		require.NoError(t, kube.Provider{}.DeleteNode(t.Context(), c, "m-1", n.UID))
	}
	require.Nil(t, sim.Node("m-1"))
}

// A list of nodes that has several pages is read to its end.
func TestNodes_Pages(t *testing.T) {
	t.Parallel()
	sim, c := newCluster(t, kubesim.Options{})
	for i := range 1201 {
		sim.Put("nodes", "", "n"+strings.Repeat("x", i/100)+string(rune('a'+i%26))+time.Duration(i).String(), map[string]any{})
	}
	nodes, err := kube.Provider{}.Nodes(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, nodes, 1201)
}

// TestAnswers_WithTooManyElements: an API server that sends more than it is asked for is refused,
// before its answer becomes objects.
func TestAnswers_WithTooManyElements(t *testing.T) {
	t.Parallel()
	var answer string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	c := clusterAt(t, server)
	many := "[" + strings.Repeat("{},", 500_000) + "{}]"
	nodes := func() error { _, err := kube.Provider{}.Nodes(t.Context(), c); return err }
	node := func() error { _, err := kube.Provider{}.Node(t.Context(), c, "m-1"); return err }
	pods := func() error { _, err := kube.Provider{}.BlockingPods(t.Context(), c, "m-1"); return err }
	signed := func() error { _, err := kube.Provider{}.IsSigned(t.Context(), c, "abcdef"); return err }
	for name, tc := range map[string]struct {
		call   func() error
		answer string
	}{
		"nodes":           {nodes, `{"items":` + many + `}`},
		"pods":            {pods, `{"items":` + many + `}`},
		"owners of a pod": {pods, `{"items":[{"metadata":{"ownerReferences":` + many + `}}]}`},
		"conditions":      {node, `{"status":{"conditions":` + many + `}}`},
		"taints":          {node, `{"spec":{"taints":` + many + `}}`},
		"a large object":  {signed, `{"data":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`},
	} {
		answer = tc.answer
		err := tc.call()
		require.Equal(t, providers.KindTooBig, providers.KindOf(err), "%s: %v", name, err)
	}
	answer = `{"metadata":{},"items":null}`
	require.NoError(t, nodes())
	answer = `{"items":[` + strings.Repeat("{},", 499) + `{}]}`
	require.NoError(t, nodes())
}

// clusterAt returns a cluster whose API server is the given one.
func clusterAt(t *testing.T, server *httptest.Server) providers.Cluster {
	t.Helper()
	sim, c := newCluster(t, kubesim.Options{})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	var config map[string]any
	require.NoError(t, json.Unmarshal([]byte(sim.Kubeconfig()), &config))
	cluster := config["clusters"].([]any)[0].(map[string]any)["cluster"].(map[string]any) //nolint:forcetypeassert // as the simulator writes it
	cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(ca)
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	pin := sha256.Sum256(server.Certificate().RawSubjectPublicKeyInfo)
	c.URL, c.Kubeconfig, c.CAPins = server.URL, providers.NewSecret(string(raw)), []string{"sha256:" + hex.EncodeToString(pin[:])}
	return c
}
