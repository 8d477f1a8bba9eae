package maassim

import "maps"

// The names of counted effects. A refused request has no effect and counts only as a refusal.
const (
	countCreate     = "creates"
	countDuplicate  = "duplicates_refused"
	countEnlist     = "enlistments"
	countCommission = "commissions"
	countAllocate   = "allocations"
	countDeploy     = "deploys"
	countRelease    = "releases"
	countAbort      = "aborts"
	countDelete     = "deletes"
	countLink       = "links"
	countUnlink     = "unlinks"
	countBootDisk   = "boot_disks"
	countLayout     = "layouts"
	countAnnotate   = "annotations"
	countPowerOn    = "power_ons"
	countPowerOff   = "power_offs"
	countPowerQuery = "power_queries"
	countPowerSet   = "power_settings"
)

// Counters are the external effects since the start, by name (creates,
// duplicates_refused, enlistments, commissions, allocations, deploys,
// releases, aborts, deletes, links, unlinks, boot_disks, layouts, annotations,
// power_ons, power_offs, power_queries, power_settings), in total and by
// system_id. Requests counts API calls by operation, whatever their outcome.
type Counters struct {
	Total    map[string]int            `json:"total"`
	Machines map[string]map[string]int `json:"machines"`
	Requests map[string]int            `json:"requests"`
}

type counts struct {
	total    map[string]int
	machines map[string]map[string]int
	requests map[string]int
}

func newCounts() counts {
	return counts{total: map[string]int{}, machines: map[string]map[string]int{}, requests: map[string]int{}}
}

func (s *Server) count(m *machine, what string) {
	s.counts.total[what]++
	if m == nil {
		return
	}
	if s.counts.machines[m.id] == nil {
		s.counts.machines[m.id] = map[string]int{}
	}
	s.counts.machines[m.id][what]++
}

// Counters returns a copy; machines that were deleted stay counted.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Counters{Total: maps.Clone(s.counts.total), Requests: maps.Clone(s.counts.requests), Machines: map[string]map[string]int{}}
	for id, c := range s.counts.machines {
		out.Machines[id] = maps.Clone(c)
	}
	return out
}
