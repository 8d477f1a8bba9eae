package maassim

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event levels, as Python's logging numbers them.
const (
	debug   = 10
	info    = 20
	warning = 30
	failure = 40
)

type event struct {
	id        int
	system    string
	hostname  string
	kind      string
	level     int
	text      string
	createdAt time.Time
}

func itoa(n int) string { return strconv.Itoa(n) }

var levelNames = map[int]string{debug: "DEBUG", info: "INFO", warning: "WARNING", failure: "ERROR", 50: "CRITICAL"}

// event appends to the log; what is INFO or above also is the machine's
// status_message.
func (s *Server) event(m *machine, kind string, level int, text string) {
	s.events = append(s.events, event{id: s.nextID("event"), system: m.id, hostname: m.hostname, kind: kind, level: level, text: text, createdAt: s.now()})
	if level >= info {
		m.message = kind
		if text != "" {
			m.message += " - " + text
		}
	} else if kind == "Node installation" {
		m.action = text
	}
}

// queryEvents pages: newest first, at most 1000, before and after an id.
func (c *call) queryEvents() *reply {
	limit, given, bad := c.intParam("limit")
	if bad != nil {
		return bad
	}
	if !given {
		limit = 100
	}
	if limit > 1000 || limit < 1 {
		return text(400, "Requested number of events %d is greater than limit: 1000", limit)
	}
	level := c.form.Get("level")
	if level == "" {
		level = "INFO"
	}
	floor := -1
	for n, name := range levelNames {
		if name == strings.ToUpper(level) {
			floor = n
		}
	}
	if floor < 0 && strings.ToUpper(level) != "AUDIT" {
		return text(400, "Unrecognised log level: %s", level)
	}
	before, hasBefore, bad := c.intParam("before")
	if bad != nil {
		return bad
	}
	after, hasAfter, bad := c.intParam("after")
	if bad != nil {
		return bad
	}
	if hasBefore && hasAfter {
		return text(400, "There is undefined behaviour when both `after` and `before` are specified.")
	}
	var hits []event
	for _, e := range c.s.events {
		if floor >= 0 && e.level >= floor && c.eventFits(e) && (!hasBefore || e.id < before) && (!hasAfter || e.id > after) {
			hits = append(hits, e)
		}
	}
	if hasAfter { // the oldest of the newer ones
		hits = hits[:min(limit, len(hits))]
	} else {
		hits = hits[max(0, len(hits)-limit):]
	}
	slices.Reverse(hits)
	return jsonReply(c.eventPage(hits, limit, before, after, hasBefore, hasAfter))
}

func (c *call) eventFits(e event) bool {
	m := c.s.machineByID(e.system)
	if ids := c.form["id"]; len(ids) > 0 && !slices.Contains(ids, e.system) {
		return false
	}
	if names := c.form["hostname"]; len(names) > 0 && !slices.Contains(names, e.hostname) {
		return false
	}
	if macs := c.form["mac_address"]; len(macs) > 0 && (m == nil || !slices.ContainsFunc(macs, func(s string) bool { return m.nicByMAC(s) != nil })) {
		return false
	}
	if z := c.form.Get("zone"); z != "" && (m == nil || m.zone != z) {
		return false
	}
	owner := c.form.Get("owner")
	return owner == "" || (m != nil && m.owner == owner)
}

func (c *call) eventPage(hits []event, limit, before, after int, hasBefore, hasAfter bool) map[string]any {
	newest, oldest := after, before
	if !hasBefore {
		oldest = after + 1
	}
	if !hasAfter && hasBefore {
		newest = before - 1
	}
	if len(hits) > 0 {
		newest, oldest = hits[0].id, hits[len(hits)-1].id
	}
	out := []any{}
	for _, e := range hits {
		out = append(out, map[string]any{
			"username": "unknown", "node": e.system, "hostname": e.hostname, "id": e.id, "level": levelNames[e.level],
			"created": eventStamp(e.createdAt), "type": e.kind, "description": e.text,
		})
	}
	uri := func(key string, id int) string {
		q := url.Values{}
		for k, v := range c.form {
			if k != "before" && k != "after" {
				q[k] = v
			}
		}
		q.Set("op", "query")
		q.Set("limit", strconv.Itoa(limit))
		q.Set(key, strconv.Itoa(id))
		return fmt.Sprintf("%sevents/?%s", Prefix, q.Encode())
	}
	return map[string]any{"count": len(out), "events": out, "next_uri": uri("after", newest), "prev_uri": uri("before", oldest)}
}
