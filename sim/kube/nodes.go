package kubesim

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"
)

// nodes serves Node objects. A kubelet touches its own alone.
func (s *Server) nodes(c *call) (int, any, error) {
	if c.verb == "create" {
		meta, _ := c.body["metadata"].(object)
		c.name, _ = meta["name"].(string)
	}
	if c.who.in(nodesGroup) && c.who.name != "system:node:"+c.name {
		return 0, nil, refuse(http.StatusForbidden, "Forbidden", "nodes %q is forbidden: node %q is not allowed to modify node %q", c.name, strings.TrimPrefix(c.who.name, "system:node:"), c.name)
	}
	switch c.verb {
	case "create":
		k, err := s.create(c)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusCreated, s.seenAs(k.obj), nil
	case "get":
		k, ok := s.find("nodes", "", c.name)
		if !ok {
			return 0, nil, c.notFound()
		}
		return http.StatusOK, s.seenAs(k.obj), nil
	case "list":
		code, body, err := s.list(c, "NodeList", selector(c))
		if page, ok := body.(object); ok {
			items, _ := page["items"].([]object)
			for i := range items {
				items[i] = s.seenAs(items[i])
			}
		}
		return code, body, err
	case "patch":
		k, ok := s.find("nodes", "", c.name)
		if !ok {
			return 0, nil, c.notFound()
		}
		part := "spec"
		if c.sub == "status" {
			part = "status"
		}
		next := maps.Clone(k.obj)
		next[part] = merge(next[part], c.body[part])
		if part == "spec" {
			next["metadata"] = merge(next["metadata"], c.body["metadata"])
		}
		return http.StatusOK, s.put("nodes", "", c.name, next).obj, nil
	case "delete":
		return s.remove(c)
	}
	return 0, nil, notSimulated(c)
}

// merge applies a merge patch.
func merge(old, patch any) any {
	fields, ok := patch.(object)
	if !ok {
		if patch == nil {
			return old
		}
		return patch
	}
	out := object{}
	if before, ok := old.(object); ok {
		out = maps.Clone(before)
	}
	for name, value := range fields {
		if value == nil {
			delete(out, name)
			continue
		}
		out[name] = merge(out[name], value)
	}
	return out
}

// seenAs returns a node as the cluster shows it now: not Ready while the fault of that name is on.
func (s *Server) seenAs(node object) object {
	f := s.On(FaultNotReady)
	if f == nil {
		return node
	}
	out := maps.Clone(node)
	status, _ := out["status"].(object)
	status = maps.Clone(status)
	if status == nil {
		status = object{}
	}
	status["conditions"] = []object{{
		"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime network not ready: cni plugin not initialized", "lastTransitionTime": stamp(time.Now()),
	}}
	out["status"] = status
	return out
}

// leases serves the heartbeats of nodes. The kubelet that made one renews it, unless the fault
// kubelet_silent is on.
func (s *Server) leases(c *call) (int, any, error) {
	if c.who.in(nodesGroup) && c.verb != "create" && c.who.name != "system:node:"+c.name {
		return 0, nil, refuse(http.StatusForbidden, "Forbidden", "leases %q is forbidden", c.name)
	}
	switch c.verb {
	case "create":
		k, err := s.create(c)
		if err != nil {
			return 0, nil, err
		}
		s.renewed[c.name] = time.Now()
		return http.StatusCreated, k.obj, nil
	case "update":
		if _, ok := s.find("leases", c.namespace, c.name); !ok {
			return 0, nil, c.notFound()
		}
		s.renewed[c.name] = time.Now()
		return http.StatusOK, s.put("leases", c.namespace, c.name, c.body).obj, nil
	case "get":
		k, ok := s.find("leases", c.namespace, c.name)
		if !ok {
			return 0, nil, c.notFound()
		}
		out := maps.Clone(k.obj)
		at := s.renewed[c.name]
		if s.On(FaultSilent) == nil {
			at = at.Add(time.Since(at).Truncate(s.opt.Heartbeat))
		}
		spec, _ := out["spec"].(object)
		spec = maps.Clone(spec)
		spec["renewTime"] = at.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		out["spec"] = spec
		return http.StatusOK, out, nil
	}
	return 0, nil, notSimulated(c)
}

// pods serves the pods of nodes.
func (s *Server) pods(c *call) (int, any, error) {
	switch {
	case c.verb == "list":
		node, has := strings.CutPrefix(c.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		return s.list(c, "PodList", func(o object) bool {
			spec, _ := o["spec"].(object)
			return !has || spec["nodeName"] == node
		})
	case c.verb == "create" && c.sub == "eviction":
		if _, ok := s.find("pods", c.namespace, c.name); !ok {
			return 0, nil, c.notFound()
		}
		if s.On(FaultBudget) != nil {
			return 0, nil, &status{http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", 5}
		}
		_, _, err := s.remove(&call{Request: c.Request, resource: "pods", namespace: c.namespace, name: c.name})
		return http.StatusCreated, object{"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Success", "code": http.StatusCreated}, err
	}
	return 0, nil, notSimulated(c)
}

// Put stores an object without asking anybody, as somebody else does who has the rights. collection
// is such as nodes or pods.
func (s *Server) Put(collection, namespace, name string, o map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(collection, namespace, name, o)
	if collection == "leases" {
		s.renewed[name] = time.Now()
	}
}

// Cordon has no pod come to a node, or ends that.
func (s *Server) Cordon(node string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.find("nodes", "", node)
	if !ok {
		return fmt.Errorf("there is no node %q", node)
	}
	next := maps.Clone(k.obj)
	next["spec"] = merge(next["spec"], object{"unschedulable": on})
	s.put("nodes", "", node, next)
	return nil
}

// Remove deletes an object without asking anybody.
func (s *Server) Remove(collection, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects[collection], namespace+"/"+name)
}

// Node returns a node as it is kept, nil for none.
func (s *Server) Node(name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.find("nodes", "", name); ok {
		return k.obj
	}
	return nil
}
