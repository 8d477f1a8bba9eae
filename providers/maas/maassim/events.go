package maassim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// event levels as MAAS numbers them.
const (
	debug   = 10
	info    = 20
	warning = 30
	failure = 40
)

type event struct {
	id             int
	node, hostname string
	kind, text     string
	level          int
	at             time.Time
}

func itoa(n int) string { return strconv.Itoa(n) }

// event appends one node event; ids only rise.
func (s *Server) event(m *machine, kind string, level int, description string) {
	s.events = append(s.events, event{s.nextID("event"), m.id, m.hostname, kind, description, level, s.now()})
	if level == info {
		m.message = kind
		m.action = kind
	}
	m.updated = s.now()
}

func levelName(level int) string {
	return map[int]string{debug: "DEBUG", info: "INFO", warning: "WARNING", failure: "ERROR"}[level]
}

func levelOf(name string) (int, bool) {
	switch strings.ToUpper(name) {
	case "", "INFO":
		return info, true
	case "DEBUG":
		return debug, true
	case "WARNING":
		return warning, true
	case "ERROR", "CRITICAL":
		return failure, true
	}
	return 0, false
}

const maxEvents = 1000

// queryEvents pages newest first: the only list of the API that pages.
func (c *call) queryEvents() *reply {
	level, ok := levelOf(c.form.Get("level"))
	if !ok {
		return field("level", "Unrecognised log level: %s", c.form.Get("level"))
	}
	limit := 100
	if n, set, bad := c.intParam("limit"); bad != nil {
		return bad
	} else if set {
		limit = n
	}
	if limit > maxEvents {
		return field("limit", "Requested number of events %d is greater than limit: %d", limit, maxEvents)
	}
	before, hasBefore, bad := c.intParam("before")
	if bad != nil {
		return bad
	}
	after, hasAfter, bad := c.intParam("after")
	if bad != nil {
		return bad
	}
	out := []map[string]any{}
	for _, e := range slices.Backward(c.s.events) {
		if len(out) == limit {
			break
		}
		if e.level < level || (hasBefore && e.id >= before) || (hasAfter && e.id <= after) || !c.wantsEventOf(e) {
			continue
		}
		out = append(out, map[string]any{
			"username": c.s.opt.User, "node": e.node, "hostname": e.hostname, "id": e.id, "level": levelName(e.level),
			"created": eventStamp(e.at), "type": e.kind, "description": e.text,
		})
	}
	return jsonReply(map[string]any{"count": len(out), "events": out, "next_uri": "", "prev_uri": ""})
}

func (c *call) wantsEventOf(e event) bool {
	if ids := c.form["id"]; len(ids) > 0 && !contains(ids, e.node) {
		return false
	}
	if hosts := c.form["hostname"]; len(hosts) > 0 && !contains(hosts, e.hostname) {
		return false
	}
	if macs := c.form["mac_address"]; len(macs) > 0 {
		m := c.s.machineByID(e.node)
		return m != nil && slices.ContainsFunc(macs, func(mac string) bool { return m.nicByMAC(mac) != nil })
	}
	return true
}
