package kubesim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// requestsForCertificates serves the requests of kubelets.
func (s *Server) requestsForCertificates(c *call) (int, any, error) {
	switch {
	case c.verb == "create":
		spec, _ := c.body["spec"].(object)
		raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(spec["request"]))
		if err != nil {
			return 0, nil, refuse(http.StatusUnprocessableEntity, "Invalid", "spec.request: Invalid value")
		}
		csr, err := parseRequest(raw)
		switch {
		case err != nil:
			return 0, nil, refuse(http.StatusUnprocessableEntity, "Invalid", "spec.request: %s", err.Error())
		case spec["signerName"] != "kubernetes.io/kube-apiserver-client-kubelet":
			return 0, nil, notSimulated(c)
		case !strings.HasPrefix(csr.Subject.CommonName, "system:node:") || !slices.Equal(csr.Subject.Organization, []string{nodesGroup}):
			return 0, nil, refuse(http.StatusForbidden, "Forbidden", "the subject is not that of a kubelet")
		}
		spec["username"], spec["groups"] = c.who.name, c.who.groups
		k, err := s.create(c)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusCreated, k.obj, nil
	case c.verb == "get" && c.sub == "":
		return s.get(c)
	case c.verb == "list":
		return s.list(c, "CertificateSigningRequestList", selector(c))
	}
	return 0, nil, notSimulated(c)
}

// selector returns whether an object matches the field selector metadata.name of a call.
func selector(c *call) func(object) bool {
	name, has := strings.CutPrefix(c.URL.Query().Get("fieldSelector"), "metadata.name=")
	return func(o object) bool {
		meta, _ := o["metadata"].(object)
		return !has || meta["name"] == name
	}
}

// control does what the controllers of a cluster do: it approves and signs the requests of
// kubelets.
func (s *Server) control() {
	for place, k := range s.objects["certificatesigningrequests"] {
		_, name, _ := strings.Cut(place, "/")
		if k.obj["status"] != nil || s.On(FaultCSRPending) != nil {
			continue
		}
		condition, certificate := "Approved", ""
		spec, _ := k.obj["spec"].(object)
		if s.On(FaultCSRDenied) != nil {
			condition = "Denied"
		} else if raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(spec["request"])); err == nil {
			if signed, err := s.pki.signRequest(raw); err == nil {
				certificate = base64.StdEncoding.EncodeToString(signed)
			}
		}
		status := object{"conditions": []object{{"type": condition, "status": "True", "reason": "AutoApproved", "lastUpdateTime": stamp(time.Now())}}}
		if certificate != "" {
			status["certificate"] = certificate
		}
		k.obj["status"] = status
		s.put("certificatesigningrequests", "", name, k.obj)
	}
}

const (
	watchPause = 20 * time.Millisecond
	watchLimit = 5 * time.Minute
)

// watch sends the objects of a collection as they change, until the client goes or the time is
// over.
func (s *Server) watch(w http.ResponseWriter, c *call) {
	flusher, ok := w.(http.Flusher)
	if !ok || c.resource != "certificatesigningrequests" {
		s.answer(w, c, 0, nil, notSimulated(c))
		return
	}
	from := 0
	_, _ = fmt.Sscan(c.URL.Query().Get("resourceVersion"), &from) // none is from the beginning
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flusher.Flush()
	matches, until := selector(c), time.Now().Add(watchLimit)
	known := map[string]bool{}
	for time.Now().Before(until) {
		var events []object
		s.mu.Lock()
		s.control()
		last := from
		for place, k := range s.objects[c.resource] {
			if k.rev <= from || !matches(k.obj) {
				continue
			}
			kind := "ADDED"
			if known[place] || from > 0 {
				kind = "MODIFIED"
			}
			known[place], last = true, max(last, k.rev)
			events = append(events, object{"type": kind, "object": k.obj})
		}
		from = last
		var lines []byte
		for _, e := range events {
			line, _ := json.Marshal(e) // plain values
			lines = append(append(lines, line...), '\n')
		}
		s.mu.Unlock()
		if _, err := w.Write(lines); err != nil {
			return
		}
		flusher.Flush()
		select {
		case <-c.Context().Done():
			return
		case <-time.After(watchPause):
		}
	}
}
