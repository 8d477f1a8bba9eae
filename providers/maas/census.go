package maas

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/slipway-cloud/slipway/providers"
)

var _ providers.MAASCensus = (*client)(nil)

// EachMachine hands on every machine of the region, read from one answer.
func (c *client) EachMachine(ctx context.Context, f func(providers.MAASMachine) error) error {
	shape := read("census")
	shape.stream = true
	return c.call(ctx, shape, func(s *session) error {
		return s.each(url.Values{}, func(one json.RawMessage) error {
			m, err := decodeMachine(one)
			if err != nil {
				return err
			}
			return f(m)
		}, "machines")
	})
}

// PowerAddresses reads the address of each machine's BMC and nothing else of
// its power parameters.
func (c *client) PowerAddresses(ctx context.Context, systemIDs []string) (map[string]string, error) {
	if len(systemIDs) > providers.MaxPowerAddresses {
		return nil, invalid("maas.power_addresses", "too many machines in one question")
	}
	out := map[string]string{}
	if len(systemIDs) == 0 {
		return out, nil
	}
	err := c.call(ctx, read("power_addresses"), func(s *session) error {
		var params map[string]struct {
			Address any `json:"power_address"`
		}
		if err := s.get("power_parameters", url.Values{"id": systemIDs}, &params, "machines"); err != nil {
			return err
		}
		for id, p := range params {
			if address, _ := p.Address.(string); address != "" {
				out[id] = bounded(plain(address), maxMessage)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Whoami names the user of the API key.
func (c *client) Whoami(ctx context.Context) (string, error) {
	name := ""
	err := c.call(ctx, read("whoami"), func(s *session) error {
		user, err := s.api.Users.Whoami()
		if err == nil && user.UserName == "" {
			err = errors.New("the answer names no user")
		}
		if err != nil {
			return err
		}
		name = user.UserName
		return nil
	})
	return name, err
}
