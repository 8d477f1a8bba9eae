// Package kubesim simulates the API server of a Kubernetes cluster, with the controllers that a
// join needs: bootstrap tokens and the signature of cluster-info, approval and signing of
// certificates of kubelets, nodes with their heartbeats, pods and eviction. It speaks HTTPS with a
// CA of its own, refuses by the RBAC rules that it is given (those of deploy/kubernetes among
// them), answers refusals as Status objects, and 501 for what it does not know. It keeps state and
// misbehaves on demand (Fault). It does not evaluate admission policies. It shares no code with the
// clients that it tests.
package kubesim
