package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-cloud/slipway/providers"
)

// The names that Kubernetes gives to what a join is about.
const (
	tokenPrefix  = "bootstrap-token-"
	tokenGroup   = "system:bootstrappers:kubeadm:default-node-token"
	signatureKey = "jws-kubeconfig-"
)

// The paths of the API of Kubernetes.
const (
	corePath    = "/api" + "/v1"
	secretsPath = corePath + "/namespaces/kube-system/secrets"
	infoPath    = corePath + "/namespaces/kube-public/configmaps/cluster-info"
	nodesPath   = corePath + "/nodes"
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"
)

// get reads one object.
func get[T any](ctx context.Context, c *client, op, path string) (T, error) {
	return read[T](ctx, c, op, path, maxObject)
}

// read reads an answer of at most limit bytes.
func read[T any](ctx context.Context, c *client, op, path string, limit int, params ...string) (T, error) {
	var out T
	ctx, cancel := call(ctx)
	defer cancel()
	r := c.rest.Get().MaxRetries(0).AbsPath(path)
	for i := 0; i+1 < len(params); i += 2 {
		if params[i+1] != "" {
			r = r.Param(params[i], params[i+1])
		}
	}
	raw, err := r.Do(ctx).Raw()
	if err != nil {
		return out, c.failed(op, err)
	}
	if len(raw) > limit {
		return out, failure(providers.KindTooBig, op, 0, "the API server sends more than %d bytes", limit)
	}
	switch err := json.Unmarshal(raw, &out); {
	case errors.Is(err, errTooMany):
		return out, failure(providers.KindTooBig, op, 0, "the API server lists %s in one answer", errTooMany)
	case err != nil:
		return out, failure(providers.KindProtocol, op, 0, "the answer of the API server is not readable")
	}
	return out, nil
}

// MintToken implements providers.ClusterJoin.
func (Provider) MintToken(ctx context.Context, c providers.Cluster, t providers.BootstrapToken) error {
	cl, err := open(c, t.Secret, t.Value())
	if err != nil {
		return err
	}
	body, err := json.Marshal(corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: tokenPrefix + t.ID, Namespace: metav1.NamespaceSystem},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": t.ID, "token-secret": t.Secret.Reveal(), "expiration": t.Expires.UTC().Format(time.RFC3339), "description": t.Description,
			"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "auth-extra-groups": tokenGroup,
		},
	})
	if err != nil {
		return failure(providers.KindInvalid, "mint", 0, "the token cannot be written")
	}
	ctx, cancel := call(ctx)
	defer cancel()
	_, err = cl.rest.Post().MaxRetries(0).AbsPath(secretsPath).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	return cl.failed("mint", err)
}

// IsSigned implements providers.ClusterJoin.
func (Provider) IsSigned(ctx context.Context, c providers.Cluster, tokenID string) (bool, error) {
	cl, err := open(c)
	if err != nil {
		return false, err
	}
	info, err := get[corev1.ConfigMap](ctx, cl, "cluster_info", infoPath)
	return info.Data[signatureKey+tokenID] != "", err
}

// RevokeToken implements providers.ClusterJoin.
func (Provider) RevokeToken(ctx context.Context, c providers.Cluster, tokenID string) error {
	cl, err := open(c)
	if err != nil {
		return err
	}
	ctx, cancel := call(ctx)
	defer cancel()
	_, err = cl.rest.Delete().MaxRetries(0).AbsPath(secretsPath, tokenPrefix+tokenID).Do(ctx).Raw()
	return ignoreAbsent(cl.failed("revoke", err))
}

func ignoreAbsent(err error) error {
	if providers.IsKind(err, providers.KindNotFound) {
		return nil
	}
	return err
}

// Node implements providers.ClusterJoin.
func (Provider) Node(ctx context.Context, c providers.Cluster, name string) (providers.ClusterNode, error) {
	cl, err := open(c)
	if err != nil {
		return providers.ClusterNode{}, err
	}
	n, err := get[nodeObject](ctx, cl, "node", nodesPath+"/"+name)
	return viewOf(n), err
}

// Nodes implements providers.ClusterJoin.
func (Provider) Nodes(ctx context.Context, c providers.Cluster) ([]providers.ClusterNode, error) {
	cl, err := open(c)
	if err != nil {
		return nil, err
	}
	var out []providers.ClusterNode
	next := ""
	for range maxPages {
		page, err := read[page[nodeObject]](ctx, cl, "nodes", nodesPath, maxAnswer, "limit", fmt.Sprint(pageSize), "continue", next)
		if err != nil {
			return nil, err
		}
		for _, n := range page.Items {
			out = append(out, viewOf(n))
		}
		if next = page.Metadata.Continue; next == "" {
			return out, nil
		}
	}
	return nil, failure(providers.KindInvalid, "nodes", 0, "the cluster lists more than %d nodes", maxPages*pageSize)
}

// clip keeps the beginning of a text of the cluster, in memory of its own: a page of a list is let
// go with everything else that stood in it.
func clip(text string) string { return strings.Clone(text[:min(len(text), maxText)]) }

// viewOf returns what is read of a Node object.
func viewOf(n nodeObject) providers.ClusterNode {
	info := n.Status.NodeInfo
	out := providers.ClusterNode{
		Name: clip(n.Metadata.Name), UID: clip(n.Metadata.UID), SystemUUID: clip(info.SystemUUID), BootID: clip(info.BootID), KubeletVersion: clip(info.KubeletVersion),
		Unschedulable: n.Spec.Unschedulable, CreatedAt: n.Metadata.CreationTimestamp.Time, Reason: "it has reported no status",
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			out.Ready, out.ReadySince = condition.Status == corev1.ConditionTrue, condition.LastTransitionTime.Time
			out.Reason = clip(condition.Reason) + ": " + clip(condition.Message)
		}
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && len(out.Taints) < maxTaints {
			out.Taints = append(out.Taints, clip(taint.Key))
		}
	}
	return out
}

// DeleteNode implements providers.ClusterJoin.
func (Provider) DeleteNode(ctx context.Context, c providers.Cluster, name, uid string) error {
	cl, err := open(c)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": uid}})
	if err != nil {
		return failure(providers.KindInvalid, "delete_node", 0, "the order cannot be written")
	}
	ctx, cancel := call(ctx)
	defer cancel()
	_, err = cl.rest.Delete().MaxRetries(0).AbsPath(nodesPath, name).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	return ignoreAbsent(cl.failed("delete_node", err))
}

// Heartbeat implements providers.ClusterJoin. The node's clock is in it: it is compared with itself
// alone.
func (Provider) Heartbeat(ctx context.Context, c providers.Cluster, node string) (string, error) {
	cl, err := open(c)
	if err != nil {
		return "", err
	}
	lease, err := get[leaseObject](ctx, cl, "heartbeat", leasesPath+node)
	if err != nil {
		return "", err
	}
	if lease.Spec.RenewTime == nil {
		return "", failure(providers.KindNotFound, "heartbeat", 0, "the node has sent no heartbeat yet")
	}
	return lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano), nil
}

// BlockingPods implements providers.ClusterJoin. A pod blocks unless it has ended, is one of the
// kubelet's own, or belongs to a DaemonSet that exists.
func (Provider) BlockingPods(ctx context.Context, c providers.Cluster, node string) (int, error) {
	cl, err := open(c)
	if err != nil {
		return 0, err
	}
	sets := map[string]bool{}
	count := 0
	next := ""
	for range maxPages {
		page, err := read[page[podObject]](ctx, cl, "pods", corePath+"/pods", maxAnswer, "fieldSelector", "spec.nodeName="+node, "limit", fmt.Sprint(pageSize), "continue", next)
		if err != nil {
			return 0, err
		}
		for _, pod := range page.Items {
			blocks, err := cl.blocks(ctx, pod, node, sets)
			if err != nil {
				return 0, err
			}
			if blocks {
				count++
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return count, nil
		}
	}
	return 0, failure(providers.KindInvalid, "pods", 0, "the cluster lists more than %d pods of a node", maxPages*pageSize)
}

// blocks reports whether a pod has to leave its node. sets has the DaemonSets that were asked for.
func (c *client) blocks(ctx context.Context, pod podObject, node string, sets map[string]bool) (bool, error) {
	if pod.Spec.NodeName != node || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false, nil
	}
	if pod.Metadata.Annotations.Mirror != nil {
		return false, nil
	}
	owners := pod.Metadata.OwnerReferences
	i := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	if i < 0 || owners[i].Kind != "DaemonSet" {
		return true, nil
	}
	owner := owners[i]
	if len(pod.Metadata.Namespace) > maxText || len(owner.Name) > maxText {
		return false, failure(providers.KindProtocol, "pods", 0, "the API server names a DaemonSet by more than %d bytes", maxText)
	}
	path := "/apis/apps/v1/namespaces/" + pod.Metadata.Namespace + "/daemonsets/" + owner.Name
	exists, asked := sets[path]
	if !asked {
		set, err := get[object](ctx, c, "daemonset", path)
		if ignoreAbsent(err) != nil {
			return false, err
		}
		exists = err == nil && set.Metadata.UID == string(owner.UID)
		sets[path] = exists
	}
	return !exists, nil
}
