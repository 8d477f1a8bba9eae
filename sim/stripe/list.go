package stripesim

import (
	"slices"
	"time"
)

// listing says how a kind of object is listed.
type listing[T any] struct {
	id      func(T) string
	created func(T) time.Time
	render  func(T) object
	keep    func(T) bool
}

// listPage renders one page of a list, newest first, of items that are in the order of creation.
func listPage[T any](c *call, url, kind string, items []T, l listing[T]) (any, *apiError) {
	limit, found, e := c.p.integer("limit")
	if e == nil && found && (limit < 1 || limit > 100) {
		e = invalid("parameter_invalid_integer", "limit", "This value must be between 1 and 100.")
	}
	if e != nil {
		return nil, e
	}
	if !found {
		limit = 10
	}
	in, e := readRange(c.p)
	after, before := c.p.text("starting_after"), c.p.text("ending_before")
	if e == nil {
		e = c.p.unknown()
	}
	if e == nil && after != "" && before != "" {
		e = invalid("", "", "You may only specify one of these parameters: ending_before, starting_after.")
	}
	if e != nil {
		return nil, e
	}
	newest := slices.Clone(items)
	slices.Reverse(newest)
	from, to := 0, len(newest)
	for param, cursor := range map[string]string{"starting_after": after, "ending_before": before} {
		if cursor == "" {
			continue
		}
		at := slices.IndexFunc(newest, func(item T) bool { return l.id(item) == cursor })
		if at < 0 {
			return nil, invalid("resource_missing", param, "No such %s: '%s'", kind, cursor)
		}
		if param == "starting_after" {
			from = at + 1
		} else {
			to = at
		}
	}
	kept := slices.DeleteFunc(newest[from:to], func(item T) bool { return !l.keep(item) || !in.has(l.created(item)) })
	more := len(kept) > int(limit)
	switch {
	case more && before != "":
		kept = kept[len(kept)-int(limit):] // those next to the cursor
	case more:
		kept = kept[:limit]
	}
	data := make([]any, 0, len(kept))
	for _, item := range kept {
		data = append(data, l.render(item))
	}
	return object{"object": "list", "url": url, "has_more": more, "data": data}, nil
}

// timeRange is the parameter created: whole seconds, as Stripe compares them.
type timeRange struct {
	least, most int64
}

func (r timeRange) has(t time.Time) bool { return t.Unix() >= r.least && t.Unix() <= r.most }

func readRange(p params) (timeRange, *apiError) {
	r := timeRange{least: -1 << 62, most: 1 << 62}
	for name, apply := range map[string]func(int64){
		"created":      func(n int64) { r.least, r.most = max(r.least, n), min(r.most, n) },
		"created[gte]": func(n int64) { r.least = max(r.least, n) },
		"created[gt]":  func(n int64) { r.least = max(r.least, n+1) },
		"created[lte]": func(n int64) { r.most = min(r.most, n) },
		"created[lt]":  func(n int64) { r.most = min(r.most, n-1) },
	} {
		n, found, e := p.integer(name)
		if e != nil {
			return r, e
		}
		if found {
			apply(n)
		}
	}
	return r, nil
}
