package kube_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/kube"
	kubesim "github.com/slipway-cloud/slipway/sim/kube"
	"github.com/slipway-cloud/slipway/test/runenv"
)

type object = map[string]any

// cluster is one that the suite runs on, with what others than Slipway do there.
type cluster struct {
	providers.Cluster
	// put creates an object with its status, and returns its uid.
	put func(t *testing.T, collection, namespace, name string, o object) string
	// remove deletes an object.
	remove func(t *testing.T, collection, namespace, name string)
	// sign has the cluster sign cluster-info with a token.
	sign func(t *testing.T, tokenID string)
	// renew has a node send another heartbeat.
	renew func(t *testing.T, node string)
}

// conforms runs what Slipway asks of a cluster.
func conforms(t *testing.T, c cluster) {
	t.Run("tokens", func(t *testing.T) { tokensConform(t, c) })
	t.Run("nodes", func(t *testing.T) { nodesConform(t, c) })
	t.Run("heartbeats", func(t *testing.T) { heartbeatsConform(t, c) })
	t.Run("pods", func(t *testing.T) { podsConform(t, c) })
	t.Run("another login", func(t *testing.T) {
		other := c.Cluster
		var config map[string]any
		require.NoError(t, json.Unmarshal([]byte(c.Kubeconfig.Reveal()), &config))
		config["users"].([]any)[0].(map[string]any)["user"].(map[string]any)["token"] = "nobody's" //nolint:forcetypeassert // as it was written
		raw, err := json.Marshal(config)
		require.NoError(t, err)
		other.Kubeconfig = providers.NewSecret(string(raw))
		_, err = kube.Provider{}.Nodes(t.Context(), other)
		require.Equal(t, providers.KindUnauthorized, providers.KindOf(err), "%v", err)
	})
}

func tokensConform(t *testing.T, c cluster) {
	var p kube.Provider
	signed, err := p.IsSigned(t.Context(), c.Cluster, "abcdef")
	require.NoError(t, err)
	require.False(t, signed)
	require.Equal(t, http.StatusUnauthorized, c.statusFor(t, "abcdef.0123456789abcdef"))
	require.NoError(t, p.MintToken(t.Context(), c.Cluster, token("abcdef")))
	c.sign(t, "abcdef")
	require.Eventually(t, func() bool { signed, err := p.IsSigned(t.Context(), c.Cluster, "abcdef"); return err == nil && signed },
		runenv.Patience(10*time.Second), 50*time.Millisecond)
	require.Eventually(t, func() bool { return c.statusFor(t, "abcdef.0123456789abcdef") != http.StatusUnauthorized },
		runenv.Patience(20*time.Second), 100*time.Millisecond, "a machine logs in by the token; that it did not may be kept for a while")
	require.Equal(t, providers.KindStateConflict, providers.KindOf(p.MintToken(t.Context(), c.Cluster, token("abcdef"))))
	for range 2 {
		require.NoError(t, p.RevokeToken(t.Context(), c.Cluster, "abcdef"))
	}
	require.Eventually(t, func() bool { return c.statusFor(t, "abcdef.0123456789abcdef") == http.StatusUnauthorized },
		runenv.Patience(20*time.Second), 100*time.Millisecond, "a token that is deleted is taken for 10 s more")
}

// statusFor returns how the cluster answers somebody who reads the configuration of kubeadm by a
// token.
func (c cluster) statusFor(t *testing.T, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/api/v1/namespaces/kube-system/configmaps/kubeadm-config", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // a server of the test
	res, err := hc.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	return res.StatusCode
}

func nodesConform(t *testing.T, c cluster) {
	var p kube.Provider
	_, err := p.Node(t.Context(), c.Cluster, "m-1")
	require.Equal(t, providers.KindNotFound, providers.KindOf(err), "%v", err)
	uid := c.put(t, "nodes", "", "m-1", object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": "m-1"},
		"spec": object{"unschedulable": true, "taints": []object{{"key": "example.com/kept", "effect": "NoSchedule"}, {"key": "example.com/liked", "effect": "PreferNoSchedule"}}},
		"status": object{
			"nodeInfo": object{
				"systemUUID": "4c4c4544-0042-3510-8054-b7c04f503033", "bootID": "11111111-aaaa", "kubeletVersion": "v1.34.1", "machineID": "", "kernelVersion": "", "osImage": "",
				"containerRuntimeVersion": "", "kubeProxyVersion": "", "operatingSystem": "", "architecture": "",
			},
			"conditions": []object{{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "well", "lastTransitionTime": "2026-01-02T03:04:05Z", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}},
		},
	})
	n, err := p.Node(t.Context(), c.Cluster, "m-1")
	require.NoError(t, err)
	require.Equal(t, []any{"m-1", uid, "4c4c4544-0042-3510-8054-b7c04f503033", "11111111-aaaa", "v1.34.1", true, true, "KubeletReady: well"},
		[]any{n.Name, n.UID, n.SystemUUID, n.BootID, n.KubeletVersion, n.Unschedulable, n.Ready, n.Reason})
	require.True(t, n.ReadySince.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
	require.Contains(t, n.Taints, "example.com/kept")
	require.NotContains(t, n.Taints, "example.com/liked")

	for i := range 600 { // more than a page
		name := fmt.Sprintf("other-%03d", i)
		c.put(t, "nodes", "", name, object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": name}, "spec": object{}})
	}
	all, err := p.Nodes(t.Context(), c.Cluster)
	require.NoError(t, err)
	require.Len(t, all, 601)

	require.Equal(t, providers.KindStateConflict, providers.KindOf(p.DeleteNode(t.Context(), c.Cluster, "m-1", "another")))
	for range 2 {
		require.NoError(t, p.DeleteNode(t.Context(), c.Cluster, "m-1", uid))
	}
	_, err = p.Node(t.Context(), c.Cluster, "m-1")
	require.Equal(t, providers.KindNotFound, providers.KindOf(err))
}

func heartbeatsConform(t *testing.T, c cluster) {
	var p kube.Provider
	_, err := p.Heartbeat(t.Context(), c.Cluster, "other-001")
	require.Equal(t, providers.KindNotFound, providers.KindOf(err), "%v", err)
	c.put(t, "leases", "kube-node-lease", "other-001", object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": "other-001", "namespace": "kube-node-lease"},
		"spec": object{"holderIdentity": "other-001", "leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.000000Z"},
	})
	first, err := p.Heartbeat(t.Context(), c.Cluster, "other-001")
	require.NoError(t, err)
	c.renew(t, "other-001")
	require.Eventually(t, func() bool {
		next, err := p.Heartbeat(t.Context(), c.Cluster, "other-001")
		return err == nil && next != first
	}, runenv.Patience(10*time.Second), 20*time.Millisecond)
}

func podsConform(t *testing.T, c cluster) {
	var p kube.Provider
	set := func(name string) string {
		labels := object{"app": name}
		return c.put(t, "daemonsets", "default", name, object{
			"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": object{"name": name, "namespace": "default", "uid": "uid-of-" + name},
			"spec": object{"selector": object{"matchLabels": labels}, "template": object{"metadata": object{"labels": labels}, "spec": object{"containers": []object{{"name": "c", "image": "x"}}}}},
		})
	}
	pod := func(name, node, phase string, meta object) {
		meta["name"], meta["namespace"] = name, "default"
		c.put(t, "pods", "default", name, object{
			"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": object{"phase": phase},
			"spec": object{"nodeName": node, "containers": []object{{"name": "c", "image": "x"}}, "terminationGracePeriodSeconds": 0},
		})
	}
	owned := func(name, uid string) object {
		return object{"ownerReferences": []object{{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid, "controller": true}}}
	}
	pods, err := p.BlockingPods(t.Context(), c.Cluster, "other-002")
	require.NoError(t, err)
	require.Zero(t, pods)
	kept, gone := set("kept"), set("gone")
	pod("works", "other-002", "Running", object{})
	pod("waits", "other-002", "Pending", object{})
	pod("ended", "other-002", "Succeeded", object{})
	pod("failed", "other-002", "Failed", object{})
	pod("elsewhere", "other-003", "Running", object{})
	pod("of-the-kubelet", "other-002", "Running", object{"annotations": object{"kubernetes.io/config.mirror": "x"}})
	pod("of-a-set", "other-002", "Running", owned("kept", kept))
	pod("of-a-set-that-is-gone", "other-002", "Running", owned("gone", gone))
	c.remove(t, "daemonsets", "default", "gone")
	pods, err = p.BlockingPods(t.Context(), c.Cluster, "other-002")
	require.NoError(t, err)
	require.Equal(t, 3, pods, "of-a-set-that-is-gone, waits, works")
}

// TestConformance_Simulator runs the suite on the simulated cluster.
func TestConformance_Simulator(t *testing.T) {
	t.Parallel()
	sim, opened := newCluster(t, kubesim.Options{Heartbeat: 10 * time.Millisecond})
	conforms(t, cluster{
		Cluster: opened,
		put: func(t *testing.T, collection, namespace, name string, o object) string {
			t.Helper()
			raw, err := json.Marshal(o) // the simulator keeps what comes over the wire
			require.NoError(t, err)
			var kept object
			require.NoError(t, json.Unmarshal(raw, &kept))
			sim.Put(collection, namespace, name, kept)
			if collection != "nodes" {
				uid, _ := kept["metadata"].(object)["uid"].(string)
				return uid
			}
			metadata, _ := sim.Node(name)["metadata"].(object)
			uid, _ := metadata["uid"].(string)
			return uid
		},
		remove: func(_ *testing.T, collection, namespace, name string) { sim.Remove(collection, namespace, name) },
		sign:   func(*testing.T, string) {}, // it does by itself
		renew:  func(*testing.T, string) {},
	})
}

// forbidden requires that each call of Slipway is forbidden, or that none is.
func forbidden(t *testing.T, c providers.Cluster, want bool) {
	t.Helper()
	var p kube.Provider
	for name, call := range map[string]func() error{
		"mint":      func() error { return p.MintToken(t.Context(), c, token("rights")) },
		"revoke":    func() error { return p.RevokeToken(t.Context(), c, "rights") },
		"signed":    func() error { _, err := p.IsSigned(t.Context(), c, "rights"); return err },
		"node":      func() error { _, err := p.Node(t.Context(), c, "none"); return err },
		"nodes":     func() error { _, err := p.Nodes(t.Context(), c); return err },
		"delete":    func() error { return p.DeleteNode(t.Context(), c, "none", "x") },
		"heartbeat": func() error { _, err := p.Heartbeat(t.Context(), c, "none"); return err },
		"pods":      func() error { _, err := p.BlockingPods(t.Context(), c, "none"); return err },
	} {
		require.Eventually(t, func() bool { return providers.IsKind(call(), providers.KindForbidden) == want }, // a right counts some time after it was given
			runenv.Patience(20*time.Second), 50*time.Millisecond, name)
	}
	if !want {
		require.NoError(t, p.RevokeToken(t.Context(), c, "rights"))
	}
}
