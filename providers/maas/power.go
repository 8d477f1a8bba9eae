package maas

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// powerParams are a machine's power parameters as MAAS holds them: a password
// is among them, so they stay in this file.
type powerParams map[string]json.RawMessage

// text is a parameter that is one text; "" when it is absent or another type.
func (p powerParams) text(name string) string {
	var s string
	if json.Unmarshal(p[name], &s) != nil {
		return ""
	}
	return s
}

// PowerLogin reads how MAAS reaches the machine's BMC and compares address and
// password with the given ones. The password that MAAS holds leaves this call
// in no form.
func (c *client) PowerLogin(ctx context.Context, systemID, bmcAddress string, password providers.Secret) (providers.MAASPower, error) {
	m, params, err := c.powerOf(ctx, "power_login", systemID)
	if err != nil {
		return providers.MAASPower{}, err
	}
	held, address := params.text("power_pass"), params.text("power_address")
	return providers.MAASPower{
		Type: m.PowerType, Address: address, User: params.text("power_user"), SameBMC: sameBMC(address, bmcAddress),
		SamePassword: !password.IsZero() && subtle.ConstantTimeCompare([]byte(held), []byte(password.Reveal())) == 1,
	}, nil
}

// HeldLogin reads the login with which MAAS reaches the BMC at an address.
func (c *client) HeldLogin(ctx context.Context, systemID, bmcAddress string) (providers.Login, error) {
	const op = "held_login"
	_, params, err := c.powerOf(ctx, op, systemID)
	if err != nil {
		return providers.Login{}, err
	}
	user, password := params.text("power_user"), params.text("power_pass")
	if !sameBMC(params.text("power_address"), bmcAddress) || !printable(user, 255) || password == "" {
		return providers.Login{}, &providers.Error{Kind: providers.KindNotFound, Op: "maas." + op, Message: "MAAS holds no login for this BMC"}
	}
	return providers.Login{Username: user, Password: providers.NewSecret(password)}, nil
}

// SetPowerLogin gives MAAS another user and password for the machine's BMC. It
// sends back every other parameter as it was read, with the power type: so it
// does not matter whether this MAAS merges parameters or replaces them all. It
// proves nothing; ask QueryPower. KindUnsupported where MAAS controls no power.
func (c *client) SetPowerLogin(ctx context.Context, systemID, user string, password providers.Secret) error {
	const op = "set_power_login"
	if !printable(user, 255) || password.IsZero() {
		return invalid("maas."+op, "the BMC needs a user and a password")
	}
	m, params, err := c.powerOf(ctx, op, systemID)
	if err != nil {
		return err
	}
	if m.PowerType == "" || m.PowerType == "manual" {
		return &providers.Error{Kind: providers.KindUnsupported, Op: "maas." + op, Message: "MAAS does not control the power of this machine"}
	}
	v := params.values()
	v.Set("power_type", m.PowerType)
	v.Set("power_parameters_power_user", user)
	v.Set("power_parameters_power_pass", password.Reveal())
	shape := write(op)
	shape.secrets = []providers.Secret{password, providers.NewSecret(params.text("power_pass")), providers.NewSecret(params.text("k_g"))}
	return c.call(ctx, shape, func(s *session) error {
		return s.raw("machines", systemID).Put(v, func(data []byte) error {
			return keepMachine(data, systemID, new(providers.MAASMachine))
		})
	})
}

// powerOf reads the machine, which tells the power type, and its parameters.
func (c *client) powerOf(ctx context.Context, op, systemID string) (providers.MAASMachine, powerParams, error) {
	m, err := c.Machine(ctx, systemID)
	if err != nil {
		return m, nil, err
	}
	var params powerParams
	err = c.call(ctx, read(op), func(s *session) error {
		if err := s.get("power_parameters", url.Values{}, &params, "machines", systemID); err != nil {
			return errors.New("no power parameters") // the decoder's own words may hold a value
		}
		return nil
	})
	return m, params, err
}

// values are the parameters as a form takes them. A value that is neither a text, a number, a truth
// value nor a list of texts is left out: no driver of MAAS has such a parameter.
func (p powerParams) values() url.Values {
	v := url.Values{}
	for name, raw := range p {
		key := "power_parameters_" + name
		var text string
		var list []string
		switch bare := strings.TrimSpace(string(raw)); {
		case bare == "null" || bare == "":
		case json.Unmarshal(raw, &text) == nil:
			v.Set(key, text)
		case json.Unmarshal(raw, &list) == nil:
			v[key] = list
		case !strings.ContainsAny(bare[:1], "{["):
			v.Set(key, bare)
		}
	}
	return v
}
