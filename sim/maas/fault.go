package maassim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// Phases of a fault on a mutating call.
const (
	Before = simcontrol.Before // the effect does not happen
	After  = simcontrol.After  // the effect stays; the answer is lost, cut or an error
)

// Fault is one line of a fault script.
type Fault struct {
	ID      int    `json:"id"`                // given by AddFault
	Name    string `json:"name"`              // one of FaultNames
	Machine string `json:"machine,omitempty"` // system_id, hostname or MAC; empty = any
	// Op is the API operation ("deploy", "link_subnet", "read"; ops are listed
	// in /_sim/counters as requests) or, for what others do to a machine, a
	// stage: stage:commissioning, stage:testing, stage:installing,
	// stage:first_boot, stage:releasing, stage:erasing. Empty takes the fault's
	// own default.
	Op string `json:"op,omitempty"`
	// Count is how often it is applied; 0 means once, negative means always.
	Count int `json:"count,omitempty"`
	// Phase is before_commit or after_commit; empty takes the fault's natural
	// one: after_commit for BMC, lost-answer and IP faults, else before_commit.
	Phase string `json:"phase,omitempty"`
	// Params refine a fault: variant, value, delay (wall, e.g. "50ms"), after
	// (number of hardware syncs before they stop).
	Params  map[string]string `json:"params,omitempty"`
	Applied int               `json:"applied"` // how often it was applied so far
}

// kindOfFault names where a fault is applied.
type kindOfFault int

const (
	onAnswer   kindOfFault = iota // replaces the answer of a call
	onMutation                    // the same, of mutating calls when no op is named
	onOp                          // the same, of the ops listed when no op is named
	byOthers                      // an act of someone else around a call or at a stage
	inside                        // asked for inside the machine's own flow
)

type faultSpec struct {
	kind   kindOfFault
	phase  string
	ops    []string
	detail string
}

// specOf describes every fault by name.
func specOf(name string) (faultSpec, bool) {
	f, ok := faultTable()[name]
	return f, ok
}

func faultTable() map[string]faultSpec {
	powered := []string{"create", "commission", "deploy", "release", "power_on", "power_off", "query_power_state"}
	return map[string]faultSpec{
		"deploy_curtin_fail":           {kind: inside, detail: "the installer fails: 11 at once"},
		"deploy_datasource_none":       {kind: inside, detail: "first boot finds no datasource: 9 until the timer, then 11"},
		"deployed_but_dead":            {kind: inside, detail: "reaches 6, no agent and no SSH; variant=post_install_error adds the ERROR event"},
		"stuck_deploying":              {kind: inside, detail: "stays in 9 forever; abort works"},
		"stuck_releasing":              {kind: inside, detail: "stays in 12 forever"},
		"stuck_erasing":                {kind: inside, detail: "stays in 14 forever"},
		"release_power_fail":           {kind: inside, detail: "power-off is never confirmed: 13"},
		"commission_fail":              {kind: inside, detail: "commissioning ends in 2"},
		"test_fail":                    {kind: inside, detail: "testing ends in 22"},
		"no_boss_disk":                 {kind: inside, detail: "commissioning does not see any disk whose model holds BOSS"},
		"boss_renamed":                 {kind: inside, detail: "commissioning gives the BOSS disk another id and name; boot_disk null"},
		"boss_reordered":               {kind: inside, detail: "commissioning gives all disks new ids in reverse order; boot_disk null"},
		"boot_nic_no_vlan":             {kind: inside, detail: "commissioning leaves the boot NIC without a VLAN"},
		"auto_link_duplicate":          {kind: inside, detail: "commissioning leaves two AUTO links on the boot NIC"},
		"hw_sync_never":                {kind: inside, detail: "the sync agent is installed but never reports"},
		"hw_sync_stops":                {kind: inside, detail: "the sync agent stops after `after` reports"},
		"hw_sync_disabled_by_userdata": {kind: inside, detail: "as if user-data had overridden vendor-data: no agent"},
		"late_deployed_write":          {kind: inside, detail: "a late DEPLOYED write of the deploy workflow after a release began"},
		"power_state":                  {kind: inside, detail: "MAAS reports power as value=error or unknown"},

		"machine_deleted":        {kind: byOthers, phase: Before, ops: []string{"read"}, detail: "someone deletes the record"},
		"externally_released":    {kind: byOthers, phase: Before, ops: []string{"read"}, detail: "someone releases the machine"},
		"externally_deployed":    {kind: byOthers, phase: Before, ops: []string{"deploy"}, detail: "another user deploys the machine"},
		"locked":                 {kind: byOthers, phase: Before, ops: []string{"deploy"}, detail: "someone locks the machine"},
		"owned_by_other":         {kind: byOthers, phase: Before, ops: []string{"allocate", "deploy"}, detail: "another user allocates the machine"},
		"enlist_race":            {kind: byOthers, phase: Before, ops: []string{"create"}, detail: "the machine enlists itself just before the call"},
		"conflicting_candidates": {kind: byOthers, phase: Before, ops: []string{"list"}, detail: "two records share the machine's MACs; variant=serial: the same serial"},

		"bmc_unreachable":     {kind: onOp, phase: After, ops: powered, detail: "503 without Retry-After; deploy on 3.7: 200, then 11"},
		"bmc_auth":            {kind: onOp, phase: After, ops: powered, detail: "500 with the driver's text; deploy on 3.7: 200, then 11"},
		"query_power_timeout": {kind: onOp, phase: Before, ops: []string{"query_power_state"}, detail: "504; variant=hang waits delay first"},
		"dup_mac_create":      {kind: onOp, phase: Before, ops: []string{"create"}, detail: "400; variant=list or all for the other body shapes"},
		"dup_hostname":        {kind: onOp, phase: Before, ops: []string{"create"}, detail: "400 Node with this Hostname already exists"},
		"ip_exhaustion":       {kind: onOp, phase: After, ops: []string{"deploy", "link_subnet"}, detail: "503; a deploy falls back to 10"},
		"image_missing":       {kind: onOp, phase: Before, ops: []string{"deploy"}, detail: "400, the image is not there"},

		"http_401":          {kind: onAnswer, phase: Before, detail: "401; variant=clock for skew"},
		"http_400_unauth":   {kind: onAnswer, phase: Before, detail: "400 as for a request without credentials"},
		"http_403":          {kind: onAnswer, phase: Before, detail: "403 with an empty body"},
		"409_state":         {kind: onMutation, phase: Before, detail: "409 in plain text, final"},
		"409_serialization": {kind: onMutation, phase: Before, detail: "409 in HTML with Retry-After: 5"},
		"503_retry_after":   {kind: onAnswer, phase: Before, detail: "503 with Retry-After: 10"},
		"504_but_continues": {kind: onMutation, phase: After, detail: "504 of the front proxy while the work goes on"},
		"connection_reset":  {kind: onAnswer, phase: Before, detail: "the connection is cut"},
		"slow_response":     {kind: onAnswer, phase: After, detail: "the right answer after delay"},
		"redirect_301":      {kind: onAnswer, phase: Before, detail: "301 to https"},
		"truncated_json":    {kind: onAnswer, phase: After, detail: "half of the body"},
	}
}

// FaultNames lists the faults with a line each.
func FaultNames() map[string]string {
	out := map[string]string{}
	for name, f := range faultTable() {
		out[name] = f.detail
	}
	return out
}

// AddFault adds a line to the fault script and returns its id.
func (s *Server) AddFault(f Fault) (int, error) {
	spec, ok := specOf(f.Name)
	if !ok {
		return 0, fmt.Errorf("fault %q is unknown: see FaultNames", f.Name)
	}
	var err error
	if f.Phase, err = simcontrol.CheckPhase(f.Phase, spec.phase); err != nil {
		return 0, err
	}
	if d := f.Params["delay"]; d != "" {
		if _, err := time.ParseDuration(d); err != nil {
			return 0, fmt.Errorf("delay %q is no duration: %w", d, err)
		}
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.ID, f.Applied = s.nextID("fault"), 0
	s.faults = append(s.faults, &f)
	return f.ID, nil
}

// Faults lists the script, spent lines included.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simcontrol.ValuesOf(s.faults)
}

// ClearFaults removes one line, or all when id is 0.
func (s *Server) ClearFaults(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return id == 0 || f.ID == id })
	s.revoked = false
}

// appliesTo returns whether f is due for op on a machine that hit accepts.
func (f *Fault) appliesTo(op string, mutating bool, hit func(string) bool) bool {
	if f.Count >= 0 && f.Applied >= f.Count {
		return false
	}
	if f.Machine != "" && !hit(f.Machine) {
		return false
	}
	if f.Op != "" {
		return f.Op == op
	}
	spec, _ := specOf(f.Name)
	switch spec.kind {
	case onAnswer:
		return true
	case onMutation:
		return mutating
	case onOp, byOthers:
		return slices.Contains(spec.ops, op)
	default:
		return true
	}
}

// take consumes the first due line of this name inside the flow of m.
func (s *Server) take(m *machine, name, op string) *Fault {
	f := s.peek(m, name, op)
	if f != nil {
		f.Applied++
	}
	return f
}

func (s *Server) peek(m *machine, name, op string) *Fault {
	for _, f := range s.faults {
		if f.Name == name && f.appliesTo(op, true, m.matches) {
			return f
		}
	}
	return nil
}

// takeAnswer consumes the first line that replaces the answer of this call.
// BMC and IP faults after the commit are applied inside the flow instead.
func (s *Server) takeAnswer(c *call) *Fault {
	for _, f := range s.faults {
		spec, _ := specOf(f.Name)
		if spec.kind > onOp || !f.appliesTo(c.op.name, c.op.mutating, c.named) {
			continue
		}
		if f.Phase == After && appliesInFlow(f.Name, c.op.name) {
			continue
		}
		f.Applied++
		return f
	}
	return nil
}

func appliesInFlow(name, op string) bool {
	switch name {
	case "bmc_unreachable", "bmc_auth":
		return true
	case "ip_exhaustion":
		return op == "deploy"
	default:
		return false
	}
}

// others runs what someone else does to a machine around a call or at a stage.
func (s *Server) others(t *tx, op, phase string, hit func(string) bool, subject func() *machine, selectors []string) {
	for _, f := range slices.Clone(s.faults) {
		spec, _ := specOf(f.Name)
		if spec.kind != byOthers || f.Phase != phase || !f.appliesTo(op, true, hit) {
			continue
		}
		if s.act(t, f, subject(), selectors) {
			f.Applied++
		}
	}
}

// stage runs what others do when a machine reaches a stage; it reports whether
// the record is still there.
func (s *Server) stage(t *tx, m *machine, name string) bool {
	gen := m.gen
	s.others(t, "stage:"+name, Before, m.matches, func() *machine { return m }, nil)
	return s.machineByID(m.id) == m && m.gen == gen
}

func (f *Fault) delay(fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(f.Params["delay"]); err == nil {
		return d
	}
	return fallback
}

func (f *Fault) is(variant string) bool { return strings.EqualFold(f.Params["variant"], variant) }
