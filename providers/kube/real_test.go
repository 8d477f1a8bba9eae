package kube_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/kubeserver"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestConformance_RealServer runs the suite on a real API server, with the rights of the shipped
// manifest alone. Without these each call is forbidden, and the admission policy lets bootstrap
// tokens through that expire, and no other secret.
func TestConformance_RealServer(t *testing.T) {
	runenv.ProofOnly(t, "kube")
	t.Parallel()
	c := kubeserver.Start(t)
	raw, err := os.ReadFile("../../deploy/kubernetes/slipway.yaml")
	require.NoError(t, err)
	manifest := string(raw)
	login := c.MakeAccount(manifest)
	c.Put("configmaps", "kube-public", "cluster-info", object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "cluster-info"}, "data": object{"kubeconfig": "x"}})
	opened := providers.Cluster{
		Ref: "a", URL: c.URL(), CAPins: []string{c.CAPin()}, Kubeconfig: providers.NewSecret(c.Kubeconfig()), Rule: providers.SimulatedAddresses(),
	}
	forbidden(t, opened, true)
	c.GiveRights(manifest)
	forbidden(t, opened, false)
	conforms(t, cluster{
		Cluster: opened,
		put: func(t *testing.T, collection, namespace, name string, o object) string {
			t.Helper()
			return c.Put(collection, namespace, name, o)
		},
		remove: func(t *testing.T, collection, namespace, name string) {
			t.Helper()
			c.Must(http.MethodDelete, kubeserver.Path(collection, namespace)+"/"+name, nil)
		},
		sign: func(t *testing.T, id string) {
			t.Helper()
			c.Must(http.MethodPatch, kubeserver.Path("configmaps", "kube-public")+"/cluster-info", object{"data": object{"jws-kubeconfig-" + id: "header..signature"}})
		},
		renew: func(t *testing.T, node string) {
			t.Helper()
			require.Equal(t, http.StatusOK, c.Renew(node, "2026-01-02T03:04:15.000000Z"))
		},
	})
	t.Run("admission", func(t *testing.T) { admits(t, c, login) })
}

// admits tries as Slipway to make secrets that are none of its tokens.
func admits(t *testing.T, c *kubeserver.Server, login string) {
	t.Helper()
	nobody := c.Admin.Transport.(*http.Transport).Clone() //nolint:forcetypeassert // as it was made
	nobody.TLSClientConfig.Certificates = nil
	who := &http.Client{Transport: nobody}
	secret := func(name, kind string, data object) int {
		code, _ := c.CallAs(who, login, http.MethodPost, kubeserver.Path("secrets", "kube-system"), object{
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
		code, _ := c.CallAs(who, login, http.MethodGet, kubeserver.Path("secrets", "kube-system")+path, nil)
		require.Equal(t, http.StatusForbidden, code, "it reads and lists no secret")
	}
}
