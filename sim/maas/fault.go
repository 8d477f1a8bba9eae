package maassim

import (
	"fmt"
	"slices"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// Phases of a fault on a mutating call.
const (
	Before = simcontrol.Before
	After  = simcontrol.After
)

// Fault is one line of a fault script. Op is an API operation ("deploy", "link_subnet", "read"; ops
// are listed in /_sim/counters as requests) or, for what others do to a machine, a stage:
// stage:commissioning, stage:testing, stage:installing, stage:first_boot, stage:releasing,
// stage:erasing. The phase of BMC, lost-answer and IP faults is after_commit, that of the others
// before_commit. Params are variant, value, delay (wall, e.g. "50ms"), after (number of hardware
// syncs before they stop).
type Fault = simcontrol.Fault

// The kinds of faults name where a fault is applied.
const (
	onAnswer   = iota // replaces the answer of a call
	onMutation        // the same, of mutating calls when no op is named
	onOp              // the same, of the ops listed when no op is named
	byOthers          // an act of someone else around a call or at a stage
	inside            // asked for inside the machine's own flow
)

func faultTable() map[string]simcontrol.FaultSpec {
	powered := []string{"create", "commission", "deploy", "release", "power_on", "power_off", "query_power_state"}
	return map[string]simcontrol.FaultSpec{
		"deploy_curtin_fail":           {Kind: inside, Detail: "the installer fails: 11 at once"},
		"deploy_datasource_none":       {Kind: inside, Detail: "first boot finds no datasource: 9 until the timer, then 11"},
		"deployed_but_dead":            {Kind: inside, Detail: "reaches 6, no agent and no SSH; variant=post_install_error adds the ERROR event"},
		"stuck_deploying":              {Kind: inside, Detail: "stays in 9 forever; abort works"},
		"stuck_releasing":              {Kind: inside, Detail: "stays in 12 forever"},
		"stuck_erasing":                {Kind: inside, Detail: "stays in 14 forever"},
		"release_power_fail":           {Kind: inside, Detail: "power-off is never confirmed: 13"},
		"commission_fail":              {Kind: inside, Detail: "commissioning ends in 2"},
		"test_fail":                    {Kind: inside, Detail: "testing ends in 22"},
		"no_boss_disk":                 {Kind: inside, Detail: "commissioning does not see any disk whose model holds BOSS"},
		"boss_renamed":                 {Kind: inside, Detail: "commissioning gives the BOSS disk another id and name; boot_disk null"},
		"boss_reordered":               {Kind: inside, Detail: "commissioning gives all disks new ids in reverse order; boot_disk null"},
		"boot_nic_no_vlan":             {Kind: inside, Detail: "commissioning leaves the boot NIC without a VLAN"},
		"auto_link_duplicate":          {Kind: inside, Detail: "commissioning leaves two AUTO links on the boot NIC"},
		"hw_sync_never":                {Kind: inside, Detail: "the sync agent is installed but never reports"},
		"hw_sync_stops":                {Kind: inside, Detail: "the sync agent stops after `after` reports"},
		"hw_sync_disabled_by_userdata": {Kind: inside, Detail: "as if user-data had overridden vendor-data: no agent"},
		"late_deployed_write":          {Kind: inside, Detail: "a late DEPLOYED write of the deploy workflow after a release began"},
		"power_state":                  {Kind: inside, Detail: "MAAS reports power as value=error or unknown"},

		"machine_deleted":        {Kind: byOthers, Phase: Before, Ops: []string{"read"}, Detail: "someone deletes the record"},
		"externally_released":    {Kind: byOthers, Phase: Before, Ops: []string{"read"}, Detail: "someone releases the machine"},
		"externally_deployed":    {Kind: byOthers, Phase: Before, Ops: []string{"deploy"}, Detail: "another user deploys the machine"},
		"locked":                 {Kind: byOthers, Phase: Before, Ops: []string{"deploy"}, Detail: "someone locks the machine"},
		"owned_by_other":         {Kind: byOthers, Phase: Before, Ops: []string{"allocate", "deploy"}, Detail: "another user allocates the machine"},
		"enlist_race":            {Kind: byOthers, Phase: Before, Ops: []string{"create"}, Detail: "the machine enlists itself just before the call"},
		"conflicting_candidates": {Kind: byOthers, Phase: Before, Ops: []string{"list"}, Detail: "two records share the machine's MACs; variant=serial: the same serial"},

		"bmc_unreachable":     {Kind: onOp, Phase: After, Ops: powered, Detail: "503 without Retry-After; deploy on 3.7: 200, then 11"},
		"bmc_auth":            {Kind: onOp, Phase: After, Ops: powered, Detail: "500 with the driver's text; deploy on 3.7: 200, then 11"},
		"query_power_timeout": {Kind: onOp, Phase: Before, Ops: []string{"query_power_state"}, Detail: "504; variant=hang waits delay first"},
		"dup_mac_create":      {Kind: onOp, Phase: Before, Ops: []string{"create"}, Detail: "400; variant=list or all for the other body shapes"},
		"dup_hostname":        {Kind: onOp, Phase: Before, Ops: []string{"create"}, Detail: "400 Node with this Hostname already exists"},
		"ip_exhaustion":       {Kind: onOp, Phase: After, Ops: []string{"deploy", "link_subnet"}, Detail: "503; a deploy falls back to 10"},
		"image_missing":       {Kind: onOp, Phase: Before, Ops: []string{"deploy"}, Detail: "400, the image is not there"},

		"http_401":          {Kind: onAnswer, Phase: Before, Detail: "401; variant=clock for skew"},
		"http_400_unauth":   {Kind: onAnswer, Phase: Before, Detail: "400 as for a request without credentials"},
		"http_403":          {Kind: onAnswer, Phase: Before, Detail: "403 with an empty body"},
		"409_state":         {Kind: onMutation, Phase: Before, Detail: "409 in plain text, final"},
		"409_serialization": {Kind: onMutation, Phase: Before, Detail: "409 in HTML with Retry-After: 5"},
		"503_retry_after":   {Kind: onAnswer, Phase: Before, Detail: "503 with Retry-After: 10"},
		"504_but_continues": {Kind: onMutation, Phase: After, Detail: "504 of the front proxy while the work goes on"},
		"connection_reset":  {Kind: onAnswer, Phase: Before, Detail: "the connection is cut"},
		"slow_response":     {Kind: onAnswer, Phase: After, Detail: "the right answer after delay"},
		"redirect_301":      {Kind: onAnswer, Phase: Before, Detail: "301 to https"},
		"truncated_json":    {Kind: onAnswer, Phase: After, Detail: "half of the body"},
	}
}

func checkFaultParam(_, name, value string) error {
	if _, err := time.ParseDuration(value); name == "delay" && value != "" && err != nil {
		return fmt.Errorf("delay %q is no duration: %w", value, err)
	}
	return nil
}

// ClearFaults removes one line, or all when id is 0.
func (s *Server) ClearFaults(id int) {
	s.Script.ClearFaults(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = false
}

// appliesTo returns whether f is for op on a machine that hit accepts.
func appliesTo(f *Fault, spec simcontrol.FaultSpec, op string, mutating bool, hit func(string) bool) bool {
	if f.Machine != "" && !hit(f.Machine) {
		return false
	}
	if f.Op != "" {
		return f.Op == op
	}
	switch spec.Kind {
	case onMutation:
		return mutating
	case onOp, byOthers:
		return slices.Contains(spec.Ops, op)
	default:
		return true
	}
}

func due(m *machine, name, op string) func(*Fault, simcontrol.FaultSpec) bool {
	return func(f *Fault, spec simcontrol.FaultSpec) bool {
		return f.Name == name && appliesTo(f, spec, op, true, m.matches)
	}
}

// take consumes the first due line of this name inside the flow of m.
func (s *Server) take(m *machine, name, op string) *Fault { return s.Take(due(m, name, op)) }

func (s *Server) peek(m *machine, name, op string) *Fault { return s.Peek(due(m, name, op)) }

// takeAnswer consumes the first line that replaces the answer of this call.
// BMC and IP faults after the commit are applied inside the flow instead.
func (s *Server) takeAnswer(c *call) *Fault {
	return s.Take(func(f *Fault, spec simcontrol.FaultSpec) bool {
		return spec.Kind <= onOp && appliesTo(f, spec, c.op.name, c.op.mutating, c.named) && (f.Phase != After || !appliesInFlow(f.Name, c.op.name))
	})
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
	s.Each(func(f *Fault, spec simcontrol.FaultSpec) bool {
		return spec.Kind == byOthers && f.Phase == phase && appliesTo(f, spec, op, true, hit) && s.act(t, f, subject(), selectors)
	})
}

// stage runs what others do when a machine reaches a stage; it reports whether
// the record is still there.
func (s *Server) stage(t *tx, m *machine, name string) bool {
	gen := m.gen
	s.others(t, "stage:"+name, Before, m.matches, func() *machine { return m }, nil)
	return s.machineByID(m.id) == m && m.gen == gen
}
