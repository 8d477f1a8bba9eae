package cloudsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// volume is a block volume. server is the one that it is attached to.
type volume struct {
	id, name     string
	tags         []string
	size, wanted int64
	grows        *time.Time
	stuck        bool
	status       string // of a fault
	server       string
	created      time.Time
}

type snapshot struct {
	id, name string
	tags     []string
}

func blockRoutes() []route {
	const base = "/block/v1/zones/{zone}"
	return []route{
		{"GET " + base + "/volumes", "list_volumes", (*Server).listVolumes},
		{"GET " + base + "/volumes/{id}", "get_volume", (*Server).getVolume},
		{"PATCH " + base + "/volumes/{id}", "update_volume", (*Server).updateVolume},
		{"DELETE " + base + "/volumes/{id}", "delete_volume", (*Server).deleteVolume},
		{"GET " + base + "/volume-types", "list_volume_types", (*Server).listVolumeTypes},
		{"GET " + base + "/snapshots", "list_snapshots", (*Server).listSnapshots},
		{"DELETE " + base + "/snapshots/{id}", "delete_snapshot", (*Server).deleteSnapshot},
	}
}

// state returns the state of a volume as the block API says it.
func (v *volume) state() string {
	switch {
	case v.status != "":
		return v.status
	case v.grows != nil || v.stuck:
		return "updating"
	case v.server != "":
		return "in_use"
	}
	return "available"
}

func (s *Server) volumeView(v *volume) object {
	references := []object{}
	if v.server != "" {
		references = append(references, object{
			"id": newID(), "product_resource_type": "instance_server", "product_resource_id": v.server, "type": "exclusive", "status": "attached",
		})
	}
	return object{
		"id": v.id, "name": v.name, "type": "sbs_5k", "size": v.size, "project_id": s.opt.ProjectID, "created_at": v.created.UTC().Format(time.RFC3339Nano),
		"updated_at": v.created.UTC().Format(time.RFC3339Nano), "references": references, "parent_snapshot_id": nil, "status": v.state(), "tags": v.tags, "zone": Zone,
		"specs": object{"perf_iops": 5000, "class": "sbs"}, "last_detached_at": nil,
	}
}

func (s *Server) volumeOf(r *request) (*volume, error) {
	i := slices.IndexFunc(s.volumes, func(v *volume) bool { return v.id == r.PathValue("id") })
	if i < 0 {
		return nil, notFound("volume", r.PathValue("id"))
	}
	return s.volumes[i], nil
}

// hasAnyTag is how the block API filters: any of the tags, each a parameter of its own.
func hasAnyTag(tags []string, r *request) bool {
	wanted := r.URL.Query()["tags"]
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(t string) bool { return slices.Contains(tags, t) })
}

func (s *Server) listVolumes(r *request) (answer, error) {
	out := []object{}
	for _, v := range s.volumes {
		if s.ofProject(r, "project_id") && hasAnyTag(v.tags, r) {
			out = append(out, s.volumeView(v))
		}
	}
	return countedPage(r, "volumes", out), nil
}

func (s *Server) getVolume(r *request) (answer, error) {
	v, err := s.volumeOf(r)
	if err != nil {
		return answer{}, err
	}
	return ok(http.StatusOK, s.volumeView(v)), nil
}

func (s *Server) updateVolume(r *request) (answer, error) {
	v, err := s.volumeOf(r)
	if err != nil {
		return answer{}, err
	}
	if name := r.text("name"); name != "" {
		v.name = name
	}
	if r.body["tags"] != nil {
		v.tags = r.texts("tags")
	}
	if r.body["size"] != nil {
		var size int64
		if json.Unmarshal(r.body["size"], &size) != nil || size%1_000_000_000 != 0 || size <= v.size {
			return answer{}, badArgument("size", "must be a whole GB and larger than the volume")
		}
		at := s.clock.Now().Add(4 * time.Second)
		v.wanted, v.grows = size, &at
		if s.takeState(FaultVolumeStuck, r) != nil {
			v.stuck, v.grows = true, nil
		}
		if s.takeState(FaultVolumeError, r) != nil {
			v.status, v.grows = "error", nil
		}
	}
	return ok(http.StatusOK, s.volumeView(v)), nil
}

func (s *Server) deleteVolume(r *request) (answer, error) {
	v, err := s.volumeOf(r)
	if err != nil {
		return answer{}, err
	}
	if v.server != "" {
		return answer{}, inUse("the volume is in use")
	}
	s.volumes = slices.DeleteFunc(s.volumes, func(o *volume) bool { return o == v })
	return ok(http.StatusNoContent, nil), nil
}

// listVolumeTypes has the prices of a GB and hour.
func (s *Server) listVolumeTypes(r *request) (answer, error) {
	money := func(nanos int) object { return object{"currency_code": "EUR", "units": 0, "nanos": nanos} }
	types := []object{}
	for name, nanos := range map[string]int{"sbs_5k": 118_000, "sbs_15k": 177_000} {
		types = append(types, object{"type": name, "pricing": money(nanos), "snapshot_pricing": money(44_000), "specs": object{"perf_iops": 5000, "class": "sbs"}, "zone": Zone, "srn": ""})
	}
	return countedPage(r, "volume_types", types), nil
}

func (s *Server) listSnapshots(r *request) (answer, error) {
	out := []object{}
	for _, v := range s.snapshots {
		if s.ofProject(r, "project_id") && hasAnyTag(v.tags, r) {
			out = append(out, object{"id": v.id, "name": v.name, "tags": v.tags, "project_id": s.opt.ProjectID, "size": 1, "status": "available", "zone": Zone, "class": "sbs"})
		}
	}
	return countedPage(r, "snapshots", out), nil
}

func (s *Server) deleteSnapshot(r *request) (answer, error) {
	before := len(s.snapshots)
	s.snapshots = slices.DeleteFunc(s.snapshots, func(v *snapshot) bool { return v.id == r.PathValue("id") })
	if len(s.snapshots) == before {
		return answer{}, notFound("snapshot", r.PathValue("id"))
	}
	return ok(http.StatusNoContent, nil), nil
}
