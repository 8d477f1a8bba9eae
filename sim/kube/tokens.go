package kubesim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

const tokenPrefix = "bootstrap-token-"

var (
	tokenID     = regexp.MustCompile(`^[a-z0-9]{6}$`)
	tokenSecret = regexp.MustCompile(`^[a-z0-9]{16}$`)
)

// secrets serves the secrets of kube-system.
func (s *Server) secrets(c *call) (int, any, error) {
	switch c.verb {
	case "create":
		data := object{}
		if plain, ok := c.body["stringData"].(object); ok {
			for name, value := range plain {
				data[name] = base64.StdEncoding.EncodeToString([]byte(fmt.Sprint(value)))
			}
			delete(c.body, "stringData")
			c.body["data"] = data
		}
		k, err := s.create(c)
		if err != nil {
			return 0, nil, err
		}
		if id, ok := strings.CutPrefix(c.name, tokenPrefix); ok {
			s.minted = append(s.minted, id+"."+s.tokenData(id)["token-secret"])
		}
		return http.StatusCreated, k.obj, nil
	case "get":
		return s.get(c)
	case "list":
		return s.list(c, "SecretList", func(object) bool { return true })
	case "delete":
		return s.remove(c)
	}
	return 0, nil, notSimulated(c)
}

// tokenData returns the decoded data of a bootstrap token, nothing of one that is not valid.
func (s *Server) tokenData(id string) map[string]string {
	k, ok := s.find("secrets", "kube-system", tokenPrefix+id)
	if !ok || k.obj["type"] != "bootstrap.kubernetes.io/token" {
		return nil
	}
	out := map[string]string{}
	data, _ := k.obj["data"].(object)
	for name, value := range data {
		raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(value))
		if err != nil {
			return nil
		}
		out[name] = string(raw)
	}
	if out["token-id"] != id || !tokenID.MatchString(id) || !tokenSecret.MatchString(out["token-secret"]) {
		return nil
	}
	return out
}

// Tokens lists the ids of the bootstrap tokens that are there.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{}
	for place := range s.objects["secrets"] {
		if id, ok := strings.CutPrefix(place, "kube-system/"+tokenPrefix); ok {
			out = append(out, id)
		}
	}
	return out
}

// Minted lists the values of all bootstrap tokens that were ever made.
func (s *Server) Minted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.minted)
}

// configmaps serves configuration; cluster-info is signed with each token that may sign it.
func (s *Server) configmaps(c *call) (int, any, error) {
	if c.verb != "get" {
		return 0, nil, notSimulated(c)
	}
	if c.namespace != "kube-public" || c.name != "cluster-info" {
		return s.get(c)
	}
	ca := s.pki.caPEM
	if s.On(FaultWrongCA) != nil {
		if s.wrongCA == nil {
			other, err := newPKI()
			if err != nil {
				return 0, nil, refuse(http.StatusInternalServerError, "InternalError", "%s", err.Error())
			}
			s.wrongCA = other.caPEM
		}
		ca = s.wrongCA
	}
	info := fmt.Sprintf("apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: %s\n    server: %s\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n",
		base64.StdEncoding.EncodeToString(ca), s.url)
	data := object{"kubeconfig": info}
	for place := range s.objects["secrets"] {
		id := strings.TrimPrefix(place, "kube-system/"+tokenPrefix)
		token := s.tokenData(id)
		if token["usage-bootstrap-signing"] == "true" && s.On(FaultUnsigned) == nil {
			data["jws-kubeconfig-"+id] = sign(info, id, token["token-secret"])
		}
	}
	return http.StatusOK, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": c.name, "namespace": c.namespace}, "data": data}, nil
}

// sign returns a JWS without its content.
func sign(content, id, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + encode([]byte(content))))
	return header + ".." + encode(mac.Sum(nil))
}
