package maassim

import (
	"maps"
	"regexp"
	"slices"
)

var tagForm = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (s *Server) tagJSON(name string) map[string]any {
	return map[string]any{"name": name, "definition": "", "comment": s.tags[name], "kernel_opts": "", "resource_uri": Prefix + "tags/" + name + "/"}
}

func (c *call) listTags() *reply {
	out := []any{}
	for _, name := range slices.Sorted(maps.Keys(c.s.tags)) {
		out = append(out, c.s.tagJSON(name))
	}
	return jsonReply(out)
}

func (c *call) createTag() *reply {
	name := c.form.Get("name")
	if name == "" {
		return field("name", "This field is required.")
	}
	if !tagForm.MatchString(name) {
		return field("name", "Enter a valid value.")
	}
	if _, taken := c.s.tags[name]; taken {
		return field("name", "Tag with this Name already exists.")
	}
	c.s.tags[name] = c.form.Get("comment")
	return jsonReply(c.s.tagJSON(name))
}

// tag is the one in the address; ok is false when there is none.
func (c *call) tag() (string, bool) {
	_, ok := c.s.tags[c.vars["t"]]
	return c.vars["t"], ok
}

func (c *call) readTag() *reply {
	name, ok := c.tag()
	if !ok {
		return notFound("Tag")
	}
	return jsonReply(c.s.tagJSON(name))
}

func (c *call) tagMachines() *reply {
	name, ok := c.tag()
	if !ok {
		return notFound("Tag")
	}
	out := []any{}
	for _, m := range c.s.machines {
		if slices.Contains(m.tags, name) {
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

// updateTagNodes answers with how many machines changed; unknown ids are left out.
func (c *call) updateTagNodes() *reply {
	name, ok := c.tag()
	if !ok {
		return notFound("Tag")
	}
	added, removed := 0, 0
	for _, id := range c.form["add"] {
		if m := c.s.machineByID(id); m != nil && !slices.Contains(m.tags, name) {
			m.tags = append(m.tags, name)
			added++
		}
	}
	for _, id := range c.form["remove"] {
		if m := c.s.machineByID(id); m != nil && slices.Contains(m.tags, name) {
			m.tags = slices.DeleteFunc(m.tags, func(s string) bool { return s == name })
			removed++
		}
	}
	return jsonReply(map[string]int{"added": added, "removed": removed})
}
