package kubesim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// The groups that calls are allowed by.
const (
	anonymous     = "system:unauthenticated"
	bootstrappers = "system:bootstrappers"
	joiners       = "system:bootstrappers:kubeadm:default-node-token"
	nodesGroup    = "system:nodes"
	clientGroup   = "client" // whose rights the manifest states
)

// identity is who makes a call.
type identity struct {
	name   string
	groups []string
}

func (i identity) in(group string) bool { return slices.Contains(i.groups, group) }

// grant allows a group some calls.
type grant struct {
	group     string
	namespace string // "" is any, and what is in none
	verbs     []string
	apiGroup  string
	resources []string // with their subresource after a slash
	names     []string // none is any
}

// builtIn are the grants of kubeadm's clusters that a join needs.
func builtIn() []grant {
	csr, core := "certificates.k8s.io", ""
	return []grant{
		{anonymous, "kube-public", []string{"get"}, core, []string{"configmaps"}, []string{"cluster-info"}},
		{bootstrappers, "kube-public", []string{"get"}, core, []string{"configmaps"}, []string{"cluster-info"}},
		{joiners, "", []string{"create", "get", "list", "watch"}, csr, []string{"certificatesigningrequests"}, nil},
		{joiners, "", []string{"get"}, core, []string{"nodes"}, nil},
		{joiners, "kube-system", []string{"get"}, core, []string{"configmaps"}, []string{"kubeadm-config", "kubelet-config", "kube-proxy"}},
		{nodesGroup, "", []string{"create", "get", "patch", "update"}, core, []string{"nodes", "nodes/status"}, nil},
		{nodesGroup, "kube-node-lease", []string{"create", "get", "patch", "update"}, "coordination.k8s.io", []string{"leases"}, nil},
	}
}

// readGrants reads the Roles and ClusterRoles of a manifest as grants of the client. A binding
// names them.
func readGrants(manifest []byte) ([]grant, error) {
	out := builtIn()
	bound := map[string]bool{}
	type document struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
		RoleRef  struct{ Kind, Name string } `yaml:"roleRef"`
		Rules    []struct {
			Groups    []string `yaml:"apiGroups"`
			Resources []string
			Names     []string `yaml:"resourceNames"`
			Verbs     []string
		}
	}
	var documents []document
	for d := yaml.NewDecoder(bytes.NewReader(manifest)); ; {
		var doc document
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("manifest of the client: %w", err)
		}
		documents = append(documents, doc)
		if strings.HasSuffix(doc.Kind, "RoleBinding") {
			bound[doc.RoleRef.Kind+"/"+doc.Metadata.Namespace+"/"+doc.RoleRef.Name] = true
		}
	}
	for _, doc := range documents {
		if doc.Kind != "Role" && doc.Kind != "ClusterRole" || !bound[doc.Kind+"/"+doc.Metadata.Namespace+"/"+doc.Metadata.Name] {
			continue
		}
		for _, r := range doc.Rules {
			for _, group := range r.Groups {
				out = append(out, grant{clientGroup, doc.Metadata.Namespace, r.Verbs, group, r.Resources, r.Names})
			}
		}
	}
	return out, nil
}

// identify returns who makes a call, by its certificate or its token.
func (s *Server) identify(r *http.Request) (identity, error) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		return identity{subject.CommonName, append([]string{"system:authenticated"}, subject.Organization...)}, nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return identity{"system:anonymous", []string{anonymous}}, nil
	}
	token, _ := strings.CutPrefix(header, "Bearer ")
	if token == s.token {
		return identity{"system:serviceaccount:slipway-system:slipway", []string{"system:authenticated", clientGroup}}, nil
	}
	if id, groups, ok := s.bootstrapper(token); ok {
		return identity{"system:bootstrap:" + id, groups}, nil
	}
	return identity{}, refuse(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
}

// bootstrapper returns who a bootstrap token speaks for. A token that was accepted lately is
// accepted again, whatever became of it.
func (s *Server) bootstrapper(token string) (id string, groups []string, ok bool) {
	id, secret, _ := strings.Cut(token, ".")
	groups = []string{"system:authenticated", bootstrappers, joiners}
	if taken, cached := s.seen[token]; cached && time.Since(taken) < s.opt.TokenCache {
		return id, groups, true
	}
	data := s.tokenData(id)
	expires, err := time.Parse(time.RFC3339, data["expiration"])
	if data["token-secret"] == "" || data["token-secret"] != secret || err != nil || !time.Now().Before(expires) || data["usage-bootstrap-authentication"] != "true" {
		return "", nil, false
	}
	groups = []string{"system:authenticated", bootstrappers}
	if extra := data["auth-extra-groups"]; extra != "" {
		groups = append(groups, strings.Split(extra, ",")...)
	}
	s.seen[token] = time.Now()
	return id, groups, true
}

// authorise refuses what no grant allows.
func (s *Server) authorise(c *call) error {
	if c.resource == "" {
		return nil
	}
	resource := c.resource
	if c.sub != "" {
		resource += "/" + c.sub
	}
	for _, g := range s.rules {
		if c.who.in(g.group) && (g.namespace == "" || g.namespace == c.namespace) && g.apiGroup == c.group && slices.Contains(g.verbs, c.verb) &&
			slices.Contains(g.resources, resource) && (len(g.names) == 0 || slices.Contains(g.names, c.name)) {
			return nil
		}
	}
	where := "at the cluster scope"
	if c.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", c.namespace)
	}
	return refuse(http.StatusForbidden, "Forbidden", "%s is forbidden: User %q cannot %s resource %q in API group %q %s", resource, c.who.name, c.verb, resource, c.group, where)
}
