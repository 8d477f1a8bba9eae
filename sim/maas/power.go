package maassim

import (
	"cmp"
	"errors"
	"net/url"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

const (
	byMAAS      = "maas" // who moves power, in simhw's events
	bmcRefused  = "Redfish request failed with response status code: HTTPStatus.UNAUTHORIZED."
	noAddresses = "No more IPs available in subnet."
)

// bmcUnreachable is PowerProblem: 503 without Retry-After.
func bmcUnreachable(m *machine) *reply {
	return text(503, "No rack controllers can access the BMC of node %s", idOf(m))
}

func powerError(m *machine, err error) *reply {
	if errors.Is(err, simhw.ErrBMCAuth) {
		return text(500, "%s", bmcRefused)
	}
	return bmcUnreachable(m)
}

// bmcOf resolves the physical machine behind a record's power parameters and
// logs in. A nil machine without an error means that MAAS cannot control power.
func (s *Server) bmcOf(m *machine, op string) (*simhw.Machine, error) {
	if f := s.take(m, "bmc_unreachable", op); f != nil {
		return nil, simhw.ErrBMCUnreachable
	}
	if f := s.take(m, "bmc_auth", op); f != nil {
		return nil, simhw.ErrBMCAuth
	}
	if m.powerType == "" || m.powerType == "manual" {
		return nil, nil
	}
	hw := s.fleet.ByBMC(m.power["power_address"])
	if hw == nil {
		return nil, simhw.ErrBMCUnreachable
	}
	return hw, hw.CheckBMC(m.power["power_user"], m.power["power_pass"])
}

// bootEnvironment makes the machine boot from the network: on, or a cycle when
// it already runs. The caller has checked the BMC.
func (t *tx) bootEnvironment(m *machine, hw *simhw.Machine) {
	if hw == nil {
		return
	}
	s := t.s
	s.count(m, countPowerOn)
	s.event(m, "Powering on", debug, "")
	t.do(func() {
		if hw.Power() == simhw.On {
			hw.Reset(byMAAS)
			return
		}
		hw.PowerOn(byMAAS)
	})
}

func (t *tx) stop(m *machine, hw *simhw.Machine, hard bool) {
	if hw == nil {
		return
	}
	t.s.count(m, countPowerOff)
	t.s.event(m, "Powering off", debug, "")
	t.do(func() { hw.PowerOff(byMAAS, hard) })
}

// stopQuietly powers off after an environment ended; a BMC that refuses leaves
// the machine running, as in MAAS.
func (t *tx) stopQuietly(m *machine, op string) {
	hw, err := t.s.bmcOf(m, op)
	if err != nil {
		t.s.event(m, "Failed to power off node", failure, err.Error())
		return
	}
	t.stop(m, hw, true)
}

// powerOn is for a machine that somebody has; one that is Allocated starts to deploy, with the
// site's default image.
func (c *call) powerOn() *reply {
	m := c.rec
	if m.owner == "" {
		return stateConflict("Can't start node: it hasn't been allocated.")
	}
	if m.status == Allocated {
		c.form = url.Values{}
		return c.deploy()
	}
	hw, err := c.s.bmcOf(m, "power_on")
	if err != nil {
		return powerError(m, err)
	}
	if hw == nil {
		return jsonReply(nil)
	}
	out := jsonReply(c.s.machineJSON(m))
	c.s.count(m, countPowerOn)
	c.s.event(m, "Powering on", debug, "")
	c.do(func() { hw.PowerOn(byMAAS); c.settle(hw, simhw.On) })
	return out
}

func (c *call) powerOff() *reply {
	m := c.rec
	hard := c.form.Get("stop_mode") != "soft" // any other value is hard
	hw, err := c.s.bmcOf(m, "power_off")
	if err != nil {
		return powerError(m, err)
	}
	if hw == nil {
		return jsonReply(nil)
	}
	out := jsonReply(c.s.machineJSON(m)) // rendered before the power action
	c.stop(m, hw, hard)
	c.do(func() { c.settle(hw, simhw.Off) })
	return out
}

// settle waits until the power action ends, as the region does inside the
// request, for at most a virtual minute.
func (c *call) settle(hw *simhw.Machine, want simhw.Power) {
	clock := c.s.fleet.Clock()
	for until := clock.Now().Add(time.Minute); hw.Power() != want && clock.Now().Before(until); {
		if clock.Sleep(c.req.Context(), 250*time.Millisecond) != nil {
			return
		}
	}
}

func (c *call) queryPowerState() *reply {
	m, s := c.rec, c.s
	s.count(m, countPowerQuery)
	if f := s.take(m, "power_state", "query_power_state"); f != nil {
		m.powerState = cmp.Or(f.Params["value"], "error")
		return jsonReply(map[string]string{"state": m.powerState})
	}
	forced := s.peek(m, "bmc_unreachable", "query_power_state") != nil || s.peek(m, "bmc_auth", "query_power_state") != nil
	hw, err := s.bmcOf(m, "query_power_state")
	if err != nil {
		s.event(m, "Failed to query node's BMC", warning, err.Error())
		if forced {
			return powerError(m, err)
		}
		m.powerState = "error"
		return jsonReply(map[string]string{"state": "error"})
	}
	if hw == nil {
		return jsonReply(map[string]string{"state": "unknown"})
	}
	s.event(m, "Queried node's BMC", debug, "")
	state := powerWord(hw.Power())
	s.seePower(m, state) // updates the record and may finalise a release
	return jsonReply(map[string]string{"state": state})
}

func powerWord(p simhw.Power) string {
	if p == simhw.Off {
		return "off"
	}
	return "on"
}

// powerParameters are secrets; so is the answer.
func (c *call) powerParameters() *reply { return jsonReply(c.rec.power) }

func (c *call) allPowerParameters() *reply {
	out := map[string]map[string]string{}
	for _, m := range c.s.machines {
		if ids := c.form["id"]; len(ids) == 0 || contains(ids, m.id) {
			out[m.id] = m.power
		}
	}
	return jsonReply(out)
}

func contains(set []string, s string) bool {
	for _, x := range set {
		if x == s {
			return true
		}
	}
	return false
}
