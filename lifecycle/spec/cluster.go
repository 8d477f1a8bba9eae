package spec

import (
	"net/url"
	"regexp"
	"strings"
)

// ClusterSpec is what administrators state about a Kubernetes cluster that machines join.
type ClusterSpec struct {
	APIURL string `json:"api_url" required:"true" maxLength:"255" doc:"Of the API server as machines reach it: https://host:port, without a path"`
	// CAPins are pins of public keys, as kubeadm takes them. One of them must be that of a CA of
	// the cluster.
	CAPins            []string `json:"ca_pins" required:"true" minItems:"1" maxItems:"8" itemMaxLength:"71" doc:"sha256: and 64 hex digits, as kubeadm prints them; several while a CA is replaced"`
	KubeconfigRef     string   `json:"kubeconfig_ref" required:"true" maxLength:"220" doc:"The secret of kind kubeconfig that Slipway uses"`
	KubernetesVersion string   `json:"kubernetes_version" required:"true" maxLength:"32" doc:"Of kubeadm and kubelet on the machines, such as v1.34.1"`
}

var (
	caPin          = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	kubernetes     = regexp.MustCompile(`^v1\.[0-9]{1,3}\.[0-9]{1,3}$`)
	kubernetesNode = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

const (
	maxCAPins   = 8
	maxNodeName = 63 // of a label that has the name
)

// Validate returns an *InvalidError that names every wrong field.
func (s ClusterSpec) Validate() error {
	var p problems
	if _, ok := s.Endpoint(); !ok {
		p.add("api_url", "must be https://host:port without a login, a path or anything else")
	}
	if len(s.CAPins) == 0 || len(s.CAPins) > maxCAPins {
		p.add("ca_pins", "must be 1 to %d pins: without one the cluster would be trusted for its name alone", maxCAPins)
	}
	for _, pin := range s.CAPins {
		if !caPin.MatchString(pin) {
			p.add("ca_pins", "must be sha256: and 64 lower-case hex digits, as kubeadm token create --print-join-command prints them")
			break
		}
	}
	if !ValidRef(s.KubeconfigRef) {
		p.add("kubeconfig_ref", "is not a reference to a secret")
	}
	if !kubernetes.MatchString(s.KubernetesVersion) {
		p.add("kubernetes_version", "must be a release such as v1.34.1")
	}
	return p.err()
}

// Endpoint returns host:port of the API server. It returns false when the URL is not one of an API
// server.
func (s ClusterSpec) Endpoint() (string, bool) {
	u, err := url.Parse(s.APIURL)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Port() == "" || !validEndpoint(u.Host, true) || s.APIURL != "https://"+u.Host {
		return "", false
	}
	return u.Host, true
}

// NodeName returns the name that a machine has as a node of a cluster. It returns false for an id
// of which no such name can be made.
func NodeName(machineID string) (string, bool) {
	name := strings.ReplaceAll(strings.ToLower(machineID), "_", "-")
	return name, len(name) <= maxNodeName && kubernetesNode.MatchString(name)
}
