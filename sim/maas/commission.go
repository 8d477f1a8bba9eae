package maassim

import (
	"fmt"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// commission starts a run. Wrong state is 400 here, not 409.
func (c *call) commission() *reply {
	m := c.rec
	if !in(m.status, StatusNew, FailedCommissioning, Ready, Broken) {
		return field("__all__", "Commission is not available because of the current state of the node.")
	}
	var flags [4]bool
	for i, name := range []string{"skip_bmc_config", "skip_networking", "skip_storage", "enable_ssh"} {
		v, bad := c.boolParam(name, false)
		if bad != nil {
			return bad
		}
		flags[i] = v
	}
	m.skipBMCConfig, m.skipNetworking, m.skipStorage = flags[0], flags[1], flags[2]
	m.noTesting = c.form.Get("testing_scripts") == "none"
	return c.startCommission(m, m.status)
}

// startCommission answers with status 1. If the BMC then cannot be reached, the status goes back
// and the answer becomes 503 or 500, but everything else stays written.
func (c *call) startCommission(m *machine, from Status) *reply {
	s, op := c.s, c.op.name
	if bad := s.setStatus(m, Commissioning, op); bad != nil {
		return bad
	}
	m.owner, m.errorText = s.opt.User, ""
	s.newScripts(m, typeCommissioning)
	s.event(m, "Commissioning", info, "")
	s.count(m, countCommission)
	out := jsonReply(s.machineJSON(m))
	hw, err := s.bmcOf(m, op)
	if err != nil {
		s.forceStatus(m, from, "power failed: "+err.Error(), bypassSetStatus)
		s.endScripts(m, scriptAborted, "")
		m.owner = ""
		s.event(m, "Failed to power on node", failure, err.Error())
		return powerError(m, err)
	}
	s.heartbeat(m)
	c.bootEnvironment(m, hw)
	return out
}

// endCommissioning handles the report of the last script.
func (s *Server) endCommissioning(t *tx, m *machine, hw *simhw.Machine, boot string) {
	s.heartbeat(m)
	if s.take(m, "commission_fail", "stage:commissioning") != nil {
		s.endScripts(m, scriptFailed, "simulated: 20-maas-03-hwinfo found no hardware inventory\n")
		s.fail(t, m, FailedCommissioning, "Failed commissioning", "Commissioning failed, a commissioning script ended with exit status 1.", "commission")
		return
	}
	s.endScripts(m, scriptPassed, "")
	s.inventory(m, hw)
	if !m.skipBMCConfig {
		s.takeBMC(m, hw)
	}
	m.commissioned = true
	if m.noTesting {
		s.becomeReady(t, m, "commission")
		return
	}
	if bad := s.setStatus(m, Testing, "commissioning passed"); bad != nil {
		return
	}
	s.newScripts(m, typeTesting)
	s.startTesting(t, m, hw, boot)
}

func (s *Server) startTesting(t *tx, m *machine, hw *simhw.Machine, boot string) {
	s.heartbeat(m)
	s.startScripts(m, typeTesting)
	s.event(m, "Testing", info, "")
	if s.stage(t, m, "testing") {
		s.onBoot(m, hw, boot, s.opt.Durations.Test, func(t *tx) { s.endTesting(t, m) })
	}
}

func (s *Server) endTesting(t *tx, m *machine) {
	if s.take(m, "test_fail", "stage:testing") != nil {
		s.endScripts(m, scriptFailed, "simulated: smartctl-validate reports a failing drive\n")
		s.fail(t, m, FailedTesting, "Failed testing", "Testing failed, smartctl-validate ended with exit status 1.", "test")
		return
	}
	s.endScripts(m, scriptPassed, "")
	s.becomeReady(t, m, "test")
}

func (s *Server) becomeReady(t *tx, m *machine, op string) {
	if bad := s.setStatus(m, Ready, op+" ended well"); bad != nil {
		return
	}
	m.owner, m.message = "", ""
	s.event(m, "Ready", info, "")
	t.stopQuietly(m, op)
}

// fail ends a run by a script's failure.
func (s *Server) fail(t *tx, m *machine, to Status, kind, comment, op string) {
	if bad := s.setStatus(m, to, comment); bad != nil {
		return
	}
	m.errorText = comment
	if op == "commission" {
		m.owner = ""
	}
	s.event(m, kind, failure, comment)
	t.stopQuietly(m, op)
}

// inBandUser is the account that MAAS makes on a BMC from the host.
const inBandUser = "maas"

// takeBMC does what bmc-config does without skip_bmc_config=1. MAAS makes an account of its own,
// user maas, and uses it from then on. Other logins stay valid.
func (s *Server) takeBMC(m *machine, hw *simhw.Machine) {
	if m.powerType != "redfish" && m.powerType != "ipmi" {
		return
	}
	m.power["power_user"], m.power["power_pass"] = inBandUser, s.random(znums, 16)
	hw.AddBMCLogin(inBandUser, m.power["power_pass"]) // sends no event
}

// inventory writes the hardware that the commissioning scripts found.
func (s *Server) inventory(m *machine, hw *simhw.Machine) {
	spec := hw.Spec()
	m.hw, m.uuid, m.cpus, m.memoryMiB = hw, spec.UUID, spec.CPUs, spec.MemoryMiB
	if spec.Architecture != "" {
		m.arch = spec.Architecture
	}
	m.info = map[string]string{
		"system_vendor": spec.Vendor, "system_product": spec.Model, "system_serial": spec.Serial, "mainboard_vendor": spec.Vendor,
		"cpu_model": fmt.Sprintf("Simulated CPU, %d threads", spec.CPUs), "chassis_type": "Rack Mount Chassis", "chassis_vendor": spec.Vendor,
	}
	if !m.skipStorage {
		s.inventoryDisks(m, spec)
	}
	if !m.skipNetworking {
		s.inventoryNICs(m, spec)
	}
}

func (c *call) overrideFailedTesting() *reply {
	m := c.rec
	if m.status != FailedTesting {
		return stateConflict("Unable to override node status. Node is not in 'Failed testing' status.")
	}
	to := Ready
	if m.osystem != "" {
		to = Deployed
	}
	if bad := c.s.setStatus(m, to, "override_failed_testing"); bad != nil {
		return bad
	}
	m.errorText = ""
	return jsonReply(c.s.machineJSON(m))
}
