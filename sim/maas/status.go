package maassim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is MAAS's numeric node status.
type Status int

// The statuses, in MAAS's numbering.
const (
	StatusNew Status = iota
	Commissioning
	FailedCommissioning
	Missing
	Ready
	Reserved
	Deployed
	Retired
	Broken
	Deploying
	Allocated
	FailedDeployment
	Releasing
	FailedReleasing
	DiskErasing
	FailedDiskErasing
	RescueMode
	EnteringRescueMode
	FailedEnteringRescueMode
	ExitingRescueMode
	FailedExitingRescueMode
	Testing
	FailedTesting

	none Status = -1 // before a record exists
)

// statusWords gives label and the lower-case constant that ?status= takes.
var statusWords = [...][2]string{
	{"New", "new"}, {"Commissioning", "commissioning"}, {"Failed commissioning", "failed_commissioning"},
	{"Missing", "missing"}, {"Ready", "ready"}, {"Reserved", "reserved"}, {"Deployed", "deployed"},
	{"Retired", "retired"}, {"Broken", "broken"}, {"Deploying", "deploying"}, {"Allocated", "allocated"},
	{"Failed deployment", "failed_deployment"}, {"Releasing", "releasing"}, {"Releasing failed", "failed_releasing"},
	{"Disk erasing", "disk_erasing"}, {"Failed disk erasing", "failed_disk_erasing"}, {"Rescue mode", "rescue_mode"},
	{"Entering rescue mode", "entering_rescue_mode"}, {"Failed to enter rescue mode", "failed_entering_rescue_mode"},
	{"Exiting rescue mode", "exiting_rescue_mode"}, {"Failed to exit rescue mode", "failed_exiting_rescue_mode"},
	{"Testing", "testing"}, {"Failed testing", "failed_testing"},
}

// String is MAAS's label.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusWords) {
		return "None"
	}
	return statusWords[s][0]
}

// transitions is NODE_TRANSITIONS, the same in MAAS 3.4 to 3.7, index = from.
var transitions = [...][]Status{
	{1, 3, 4, 7, 8, 17, 21},
	{0, 2, 3, 4, 7, 8, 21},
	{1, 3, 7, 8, 17, 21},
	{0, 1, 4, 8, 10, 17, 21},
	{1, 3, 5, 7, 8, 10, 17, 21},
	{3, 4, 7, 8, 10, 12, 14, 17, 21},
	{3, 4, 8, 10, 12, 14, 17, 21},
	{0, 3, 4, 8, 17, 21},
	{1, 4, 6, 12, 14, 17, 21},
	{3, 4, 6, 8, 10, 11, 12, 14},
	{3, 4, 7, 8, 9, 12, 14, 17, 21},
	{3, 4, 8, 10, 12, 14, 17, 21},
	{0, 3, 4, 5, 6, 8, 10, 11, 13, 15},
	{4, 8, 12, 14, 21},
	{4, 8, 12, 14, 15},
	{4, 8, 10, 12, 14, 17, 21},
	{8, 19, 21},
	{4, 6, 8, 16, 18, 19},
	{8, 17, 19, 21},
	{0, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 15, 16, 18, 20, 22},
	{8, 19, 21},
	{0, 1, 3, 4, 5, 6, 7, 8, 10, 11, 13, 15, 18, 20, 22},
	{1, 3, 4, 6, 8, 17, 21},
}

// Allowed reports whether MAAS's table lists the edge; from -1 means no record.
func Allowed(from, to Status) bool {
	if from == none {
		return to == StatusNew || to == Missing || to == Retired
	}
	return from >= 0 && int(from) < len(transitions) && slices.Contains(transitions[from], to)
}

// The two paths that write a status past the table, as in MAAS.
const (
	bypassSetStatus = "_set_status"     // error and abort callbacks of the region
	bypassTemporal  = "set-node-status" // the deploy workflow's late write
)

// Change is one status change with what caused it.
type Change struct {
	SystemID string    `json:"system_id"`
	From     Status    `json:"from"`
	To       Status    `json:"to"`
	Cause    string    `json:"cause"`
	Bypass   string    `json:"bypass,omitempty"` // "", _set_status or set-node-status
	At       time.Time `json:"at"`
}

// setStatus is the one place where a status is written along the table. An edge
// that is not listed is refused as MAAS does it, with 409.
func (s *Server) setStatus(m *machine, to Status, cause string) *reply {
	if m.status == to {
		return nil
	}
	if !Allowed(m.status, to) {
		return text(409, "Invalid transition: %s -> %s.", m.status, to)
	}
	s.writeStatus(m, to, cause, "")
	return nil
}

// forceStatus writes past the table; path names which of MAAS's two bypasses.
func (s *Server) forceStatus(m *machine, to Status, cause, path string) {
	if m.status != to {
		s.writeStatus(m, to, cause, path)
	}
}

func (s *Server) writeStatus(m *machine, to Status, cause, path string) {
	from := m.status
	s.history = append(s.history, Change{SystemID: m.id, From: from, To: to, Cause: cause, Bypass: path, At: s.now()})
	m.status = to
	m.gen++ // timers of the old status are void
	m.stuck = false
	if from != none {
		s.event(m, "Node changed status", debug, fmt.Sprintf("From '%s' to '%s'", from, to))
	}
}

// History lists every status change since the start.
func (s *Server) History() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

func statusByConstant(word string) (Status, bool) {
	for i, w := range statusWords {
		if strings.EqualFold(w[1], word) || strings.EqualFold(w[0], word) {
			return Status(i), true
		}
	}
	return none, false
}

func in(s Status, set ...Status) bool { return slices.Contains(set, s) }
