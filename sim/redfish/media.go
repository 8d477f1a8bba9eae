package redfishsim

import (
	"net/http"
	"strings"
	"time"
)

// mediaState is one virtual media slot.
type mediaState struct {
	image      string
	ejected    bool
	shownUntil time.Time // Inserted reads true until then after an eject
}

func (s *Server) mediaNodes(t map[string]*node) {
	base := s.managerPath() + "/VirtualMedia"
	var ids []string
	for _, slot := range s.p.Media {
		ids = append(ids, slot.ID)
		s.media[slot.ID] = &mediaState{ejected: true}
		path := base + "/" + slot.ID
		n := add(t, path, func() obj { return s.mediaSlot(path, slot) })
		if s.p.MediaByPatch {
			n.patch = func(_ *call, o obj) reply { return s.patchMedia(n, slot, o) }
			continue
		}
		s.addAction(t, path+"/Actions/VirtualMedia.InsertMedia", func(c *call) reply { return s.insertMedia(c, slot) })
		s.addAction(t, path+"/Actions/VirtualMedia.EjectMedia", func(c *call) reply { return s.ejectMedia(c, slot) })
	}
	addCollection(t, base, "VirtualMediaCollection", "Virtual Media", func() []string { return ids })
}

func (s *Server) mediaSlot(path string, slot MediaSlot) obj {
	o := resource(path, "VirtualMedia.v1_4_0.VirtualMedia", slot.ID, "Virtual Media")
	o["MediaTypes"], o["WriteProtected"] = slot.Types, true
	if !s.p.MediaByPatch {
		o["Actions"] = obj{
			"#VirtualMedia.InsertMedia": obj{"target": path + "/Actions/VirtualMedia.InsertMedia"},
			"#VirtualMedia.EjectMedia":  obj{"target": path + "/Actions/VirtualMedia.EjectMedia"},
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.media[slot.ID]
	o["Inserted"], o["ConnectedVia"], o["Image"], o["ImageName"] = false, "NotConnected", nil, nil
	if !m.ejected || s.now().Before(m.shownUntil) {
		o["Inserted"], o["ConnectedVia"], o["Image"] = true, "URI", m.image
		o["ImageName"] = m.image[strings.LastIndexByte(m.image, '/')+1:]
	}
	return o
}

func (s *Server) insertMedia(c *call, slot MediaSlot) reply {
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	image, _ := o["Image"].(string)
	if image == "" {
		return s.fail(http.StatusBadRequest, "ActionParameterMissing", "The action InsertMedia requires the parameter Image.", "InsertMedia", "Image")
	}
	if s.p.MediaStrict {
		for _, k := range []string{"Inserted", "WriteProtected"} {
			if _, has := o[k]; has {
				return s.fail(http.StatusBadRequest, "ActionParameterUnknown", "The parameter "+k+" is not known to the action InsertMedia.", "InsertMedia", k)
			}
		}
	}
	if _, has := o["TransferProtocolType"]; s.p.MediaNeedsProto && !has {
		return s.fail(http.StatusBadRequest, "ActionParameterMissing", "The action InsertMedia requires the parameter TransferProtocolType.", "InsertMedia", "TransferProtocolType")
	}
	s.mu.Lock()
	m := s.media[slot.ID]
	busy := !m.ejected
	if !busy {
		*m = mediaState{image: image}
	}
	s.mu.Unlock()
	if busy {
		return s.fail(http.StatusBadRequest, "ResourceInUse", "Media is already inserted; eject it first.")
	}
	return s.actionDone(c)
}

func (s *Server) ejectMedia(c *call, slot MediaSlot) reply {
	if _, ok := c.object(); !ok && (s.p.EjectNeedsObject || len(c.body) > 0) {
		return s.malformed()
	}
	s.eject(slot)
	return s.actionDone(c)
}

func (s *Server) eject(slot MediaSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.media[slot.ID]; !m.ejected {
		m.ejected, m.shownUntil = true, s.now().Add(s.p.EjectLinger)
	}
}

// patchMedia inserts by Image and ejects by Inserted false or a null Image.
func (s *Server) patchMedia(n *node, slot MediaSlot, o obj) reply {
	for k, v := range o {
		_, isText := v.(string)
		_, isBool := v.(bool)
		if !(k == "Image" && (isText || v == nil)) && !((k == "Inserted" || k == "WriteProtected") && isBool) {
			return s.fail(http.StatusBadRequest, "PropertyUnknown", "The property "+k+" cannot be written or its value is not acceptable.", k)
		}
	}
	image, hasImage := o["Image"]
	if o["Inserted"] == false || hasImage && (image == nil || image == "") {
		s.eject(slot)
		return s.patched(n)
	}
	text, _ := image.(string)
	if text == "" {
		return s.fail(http.StatusBadRequest, "PropertyMissing", "Image is required to insert media.", "Image")
	}
	s.mu.Lock()
	*s.media[slot.ID] = mediaState{image: text}
	s.mu.Unlock()
	return s.patched(n)
}
