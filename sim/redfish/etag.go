package redfishsim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
)

// etag is a hash of the resource's content, so that it changes whenever the
// content does: power state included, which is what surprises clients.
func (s *Server) etag(c *call, o obj) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(o) // maps are written in key order
	tag := fmt.Sprintf("\"%016x\"", h.Sum64())
	if s.p.WeakETag || s.armed(FaultWeakETag, c) {
		return "W/" + tag
	}
	return tag
}

// precondition checks If-Match: 428 when it is needed and missing, 412 when it
// does not match.
func (s *Server) precondition(c *call, n *node, needed bool) *reply {
	want := c.r.Header.Get("If-Match")
	if want == "" {
		if !needed {
			return nil
		}
		rep := s.fail(http.StatusPreconditionRequired, "PreconditionRequired", "An If-Match header with the resource's ETag is required.")
		return &rep
	}
	refused := s.fail(http.StatusPreconditionFailed, "PreconditionFailed", "The ETag supplied did not match the current ETag.")
	if strings.HasPrefix(want, "W/") && s.take(FaultWeakETag, c) != nil {
		return &refused
	}
	if s.p.AnyTagOnly && want != "*" {
		return &refused
	}
	if want == "*" || n.get == nil {
		return nil
	}
	have := strings.TrimPrefix(s.etag(c, n.get()), "W/")
	for tag := range strings.SplitSeq(want, ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == have {
			return nil
		}
	}
	return &refused
}
