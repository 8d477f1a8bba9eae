package redfishsim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// node is one resource: what GET shows and what else it takes. A nil function
// is a method not allowed.
type node struct {
	get   func() obj
	patch func(*call, obj) reply
	post  func(*call) reply
	del   func(*call) reply
	raw   func() []byte // instead of get
	poll  func() reply  // instead of get, for a task monitor
	ctype string
}

// add registers a resource that can only be read.
func add(t map[string]*node, path string, get func() obj) *node {
	n := &node{get: get}
	t[path] = n
	return n
}

// addCollection registers a collection whose members are asked for at each GET.
func addCollection(t map[string]*node, path, kind, name string, ids func() []string) *node {
	return add(t, path, func() obj { return collection(path, kind, name, prefixed(path, ids())...) })
}

func (s *Server) addAction(t map[string]*node, path string, f func(*call) reply) {
	t[path] = &node{post: f}
}

// lookup finds a resource, also those that come and go.
func (s *Server) lookup(path string) *node {
	if n := s.nodes[path]; n != nil {
		return n
	}
	if id, ok := strings.CutPrefix(path, sessionsPath+"/"); ok {
		return s.sessionNode(id)
	}
	if id, ok := strings.CutPrefix(path, accountsPath+"/"); ok {
		if id, ok := strings.CutSuffix(id, "/Actions/ManagerAccount.ChangePassword"); ok && s.p.ChangePassword {
			return s.changePasswordNode(id)
		}
		return s.accountNode(id)
	}
	if n := s.taskNode(path); n != nil {
		return n
	}
	return s.logEntryNode(path)
}

func (s *Server) changePasswordNode(id string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if a.id == id {
			return &node{post: func(c *call) reply { return s.changePassword(c, a) }}
		}
	}
	return nil
}

// resource is the part that all resources have. kind is "Chassis.v1_20_0.Chassis".
func resource(path, kind, id, name string) obj {
	return obj{"@odata.id": path, "@odata.type": "#" + kind, "Id": id, "Name": name}
}

func collection(path, kind, name string, members ...string) obj {
	return obj{
		"@odata.id": path, "@odata.type": "#" + kind + "." + kind, "Name": name,
		"Members": links(members...), "Members@odata.count": len(members),
	}
}

func link(path string) obj { return obj{"@odata.id": path} }

func links(paths ...string) []any {
	out := make([]any, 0, len(paths))
	for _, p := range paths {
		out = append(out, link(p))
	}
	return out
}

func prefixed(base string, ids []string) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, base+"/"+id)
	}
	return out
}

// page applies $skip, $top and $expand to a collection. An option that cannot be parsed is ignored,
// as BMCs do.
func (s *Server) page(c *call, o obj) {
	q := c.r.URL.Query()
	members, _ := o["Members"].([]any)
	skip, err := strconv.Atoi(q.Get("$skip"))
	if err != nil || skip < 0 {
		skip = 0
	}
	skip = min(skip, len(members))
	end := len(members)
	if top, err := strconv.Atoi(q.Get("$top")); err == nil && top >= 0 {
		end = min(skip+top, end)
		if end < len(members) && end > skip {
			o["Members@odata.nextLink"] = c.path + "?$skip=" + itoa(end) + "&$top=" + itoa(top)
		}
	}
	members = members[skip:end]
	if q.Has("$expand") {
		full := make([]any, 0, len(members))
		for _, m := range members {
			path := m.(obj)["@odata.id"].(string)
			if n := s.lookup(path); n != nil && n.get != nil {
				full = append(full, n.get())
			}
		}
		members = full
	}
	o["Members"] = members
}

// slashed copies an answer with every link ending in "/".
func slashed(v any) any {
	switch x := v.(type) {
	case obj:
		out := make(obj, len(x))
		for k, e := range x {
			if p, ok := e.(string); ok && (k == "@odata.id" || k == "target") {
				if strings.HasPrefix(p, "/") && !strings.HasSuffix(p, "/") && !strings.Contains(p, "#") {
					p += "/"
				}
				out[k] = p
				continue
			}
			out[k] = slashed(e)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = slashed(e)
		}
		return out
	}
	return v
}

func itoa(n int) string { return strconv.Itoa(n) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

// sortedIDs puts numbers in number order, then names.
func sortedIDs(ids []string) []string {
	slices.SortFunc(ids, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return ids
}

// status is Status of a part, as SetHealth left it.
func (s *Server) status(path string) obj {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.health[path]
	if h == "" {
		h = "OK"
	}
	return obj{"State": "Enabled", "Health": h, "HealthRollup": h}
}

// SetHealth sets the health of one resource (its path, e.g. a drive or a fan's
// sensor) to OK, Warning or Critical. Nothing rolls up by itself: recorded
// BMCs left the roll-up at OK or out.
func (s *Server) SetHealth(path, health string) error {
	n := s.lookup(strings.TrimSuffix(path, "/"))
	if n == nil || n.get == nil {
		return &pathError{path}
	}
	if _, ok := n.get()["Status"]; !ok {
		return &pathError{path}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health[strings.TrimSuffix(path, "/")] = health
	return nil
}

type pathError struct{ path string }

func (e *pathError) Error() string { return "no resource with a health at " + e.path }
