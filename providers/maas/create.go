package maas

import (
	"context"
	"net/url"
	"regexp"

	"github.com/slipway-cloud/slipway/providers"
)

var archForm = regexp.MustCompile(`^[a-z0-9_]+/[a-z0-9_.-]+$|^[a-z0-9_]+$`)

// CreateMachine adds a machine with commission=false; the returned status says
// whether MAAS heeded that. A MAC address or name that MAAS already knows is
// KindInvalid with MAAS's words: find the machine again and adopt it. On
// KindUncertain (a BMC that MAAS cannot reach, a lost answer) the record may
// exist: find it by MAC before anything else.
func (c *client) CreateMachine(ctx context.Context, in providers.MAASCreate) (providers.MAASMachine, error) {
	var m providers.MAASMachine
	v, err := createValues(in)
	if err != nil {
		return m, err
	}
	shape := write("create_machine")
	shape.secrets = []providers.Secret{in.PowerPassword}
	err = c.call(ctx, shape, func(s *session) error {
		return s.post("", v, func(data []byte) error { return keepMachine(data, "", &m) }, "machines")
	})
	return orNone(m, err)
}

// createValues checks the request before MAAS, which reports errors late, and
// writes every power parameter as a string.
func createValues(in providers.MAASCreate) (url.Values, error) {
	const op = "create_machine"
	addrs, err := macs(op, in.MACs)
	if err != nil {
		return nil, err
	}
	if in.Hostname != "" {
		if err := hostLabel(op, in.Hostname); err != nil {
			return nil, err
		}
	}
	if err := checkNames(op, "domain", in.Domain, "zone", in.Zone, "pool", in.Pool); err != nil {
		return nil, err
	}
	switch {
	case in.PowerType != "redfish" && in.PowerType != "ipmi":
		return nil, invalid("maas."+op, "the power type must be redfish or ipmi")
	case !printable(in.PowerAddress, 1024) || !printable(in.PowerUser, 255) || in.PowerPassword.IsZero():
		return nil, invalid("maas."+op, "the BMC needs an address, a user and a password")
	case in.PowerNodeID != "" && (in.PowerType != "redfish" || !printable(in.PowerNodeID, 255)):
		return nil, invalid("maas."+op, "a power node id is one line and belongs to power type redfish only")
	case in.PowerType != "ipmi" && (len(addrs) == 0 || in.Architecture == ""):
		return nil, invalid("maas."+op, "a redfish machine needs its architecture and at least one MAC address")
	case in.Architecture != "" && !archForm.MatchString(in.Architecture):
		return nil, invalid("maas."+op, "the architecture has the form amd64/generic")
	}
	v := url.Values{
		"commission":                     {"false"},
		"power_type":                     {in.PowerType},
		"power_parameters_power_address": {in.PowerAddress},
		"power_parameters_power_user":    {in.PowerUser},
		"power_parameters_power_pass":    {in.PowerPassword.Reveal()},
	}
	if len(addrs) > 0 {
		v["mac_addresses"] = addrs
	}
	setNonEmpty(v, "power_parameters_node_id", in.PowerNodeID)
	setNonEmpty(v, "architecture", in.Architecture)
	setNonEmpty(v, "hostname", in.Hostname)
	setNonEmpty(v, "domain", in.Domain)
	setNonEmpty(v, "zone", in.Zone)
	setNonEmpty(v, "pool", in.Pool)
	return v, nil
}
