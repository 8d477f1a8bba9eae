package stripesim

import (
	"slices"
	"strings"
	"time"
)

// eventLife is how long an event is kept.
const eventLife = 30 * 24 * time.Hour

// emit makes an event of the object as it is, and delivers it to the endpoints that want its type.
// c is the request that caused it; nil for the payer, the bank or the dashboard.
func (s *Server) emit(kind string, data object, c *call) {
	e := &event{id: s.newID("evt_"), kind: kind, version: APIVersion, created: s.now(), data: data}
	if c != nil {
		e.requestID, e.key = c.id, c.Header.Get("Idempotency-Key")
	}
	if f := s.take(ofEvent, kind, ""); f != nil {
		switch f.Name {
		case FaultEventNotGenerated:
			s.counts.NotGenerated++
			return
		case FaultEventAmount:
			for _, name := range []string{"amount", "amount_total"} {
				if amount, found := data[name].(int64); found {
					data[name] = amount + f.Number("by", 1)
				}
			}
		case FaultEventVersion:
			e.version = "2025-11-17.clover"
			if v := f.Params["version"]; v != "" {
				e.version = v
			}
		}
	}
	s.events = append(s.events, e)
	s.counts.Events[kind]++
	for _, to := range s.endpoints {
		if to.wants(kind) {
			d := &delivery{event: e, to: to}
			e.deliveries = append(e.deliveries, d)
			s.schedule(d)
		}
	}
}

// kept returns the events that are not too old, in the order of creation.
func (s *Server) kept() []*event {
	oldest := s.now().Add(-eventLife)
	from := slices.IndexFunc(s.events, func(e *event) bool { return !e.created.Before(oldest) })
	if from < 0 {
		return nil
	}
	return s.events[from:]
}

// getEvent is GET /v1/events/{id}.
func (s *Server) getEvent(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	found := find(s.kept(), func(e *event) bool { return e.id == c.PathValue("id") })
	if found == nil {
		return nil, missing("event", c.PathValue("id"), "id")
	}
	return s.eventObject(found), nil
}

// listEvents is GET /v1/events.
func (s *Server) listEvents(c *call) (any, *apiError) {
	kind, kinds := c.p.text("type"), c.p.list("types")
	delivered, filtered, e := c.p.boolean("delivery_success")
	if e == nil && kind != "" && len(kinds) > 0 {
		e = invalid("", "type", "You may only specify one of these parameters: type, types.")
	}
	if e == nil && len(kinds) > 20 {
		e = invalid("", "types", "You may only specify up to 20 types.")
	}
	if e != nil {
		return nil, e
	}
	return listPage(c, "/v1/events", "event", s.kept(), listing[*event]{
		id: func(e *event) string { return e.id }, created: func(e *event) time.Time { return e.created }, render: s.eventObject,
		keep: func(e *event) bool {
			return (kind == "" || matchesType(kind, e.kind)) && (len(kinds) == 0 || slices.Contains(kinds, e.kind)) &&
				(!filtered || delivered == e.isDelivered())
		},
	})
}

// matchesType reports whether a type has the name, which may end in a wildcard.
func matchesType(name, kind string) bool {
	prefix, wildcard := strings.CutSuffix(name, "*")
	return name == kind || wildcard && strings.HasPrefix(kind, prefix)
}

// isDelivered reports whether each endpoint has accepted the event.
func (e *event) isDelivered() bool {
	return !slices.ContainsFunc(e.deliveries, func(d *delivery) bool { return !d.done })
}
