package maas

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"sort"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	// powerChunk is how many machines one power_parameters request names.
	powerChunk = 200
	// maxPowerRequests bounds FindMachines by BMC address: 200,000 machines.
	maxPowerRequests = 1000
)

// FindMachines lists machines that match any of the given facts, each fact
// asked for separately, joined by system id and sorted by it. MAC addresses and
// the host name are filters of MAAS; serial and BMC address need the whole
// list, which is read only when one of them is given. The BMC address is
// compared with the power parameters of machines that nothing else matched;
// passwords in those are never decoded.
func (c *client) FindMachines(ctx context.Context, q providers.MAASQuery) ([]providers.MAASMachine, error) {
	addrs, err := macs("find", q.MACs)
	if err != nil {
		return nil, err
	}
	if q.Hostname != "" {
		if err := hostLabel("find", q.Hostname); err != nil {
			return nil, err
		}
	}
	found := map[string]providers.MAASMachine{}
	if len(addrs) > 0 {
		if err := c.listInto(ctx, found, url.Values{"mac_address": addrs}); err != nil {
			return nil, err
		}
	}
	if q.Hostname != "" {
		if err := c.listInto(ctx, found, url.Values{"hostname": {q.Hostname}}); err != nil {
			return nil, err
		}
	}
	if q.New {
		if err := c.listInto(ctx, found, url.Values{"status": {"new"}}); err != nil {
			return nil, err
		}
	}
	serial, bmc := spec.NormalSerial(q.Serial), strings.TrimSpace(q.BMCAddress)
	if serial != "" || bmc != "" {
		if err := c.scan(ctx, found, serial, bmc); err != nil {
			return nil, err
		}
	}
	out := make([]providers.MAASMachine, 0, len(found))
	for _, m := range found {
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].SystemID < out[j].SystemID })
	return out, nil
}

// listInto adds the machines that a filter of MAAS selects.
func (c *client) listInto(ctx context.Context, found map[string]providers.MAASMachine, filter url.Values) error {
	return c.call(ctx, read("find"), func(s *session) error {
		var raw []json.RawMessage
		if err := s.get("", filter, &raw, "machines"); err != nil {
			return err
		}
		for _, one := range raw {
			m, err := decodeMachine(one)
			if err != nil {
				return err
			}
			found[m.SystemID] = m
		}
		return nil
	})
}

// scan reads the whole list once, keeps what has the serial, and asks for the
// BMC address of the others.
func (c *client) scan(ctx context.Context, found map[string]providers.MAASMachine, serial, bmc string) error {
	var rest []string
	list := read("find")
	list.stream = true
	err := c.call(ctx, list, func(s *session) error {
		return s.each(url.Values{}, func(one json.RawMessage) error {
			m, err := decodeMachine(one)
			if err != nil {
				return err
			}
			if serial != "" && (strings.EqualFold(m.Serial, serial) || strings.EqualFold(m.UUID, serial)) {
				found[m.SystemID] = m
			}
			if _, known := found[m.SystemID]; !known && m.PowerType != "" && m.PowerType != "manual" {
				rest = append(rest, m.SystemID)
			}
			return nil
		}, "machines")
	})
	if err != nil || bmc == "" || len(rest) == 0 {
		return err
	}
	ids, err := c.withBMC(ctx, rest, bmc)
	if err != nil || len(ids) == 0 {
		return err
	}
	return c.listInto(ctx, found, url.Values{"id": ids})
}

// withBMC returns those of the machines whose power parameters name the BMC.
func (c *client) withBMC(ctx context.Context, ids []string, bmc string) ([]string, error) {
	var out []string
	shape := read("find_bmc")
	shape.requests = maxPowerRequests
	err := c.call(ctx, shape, func(s *session) error {
		for chunk := range slices.Chunk(ids, powerChunk) {
			var params map[string]struct {
				Address any `json:"power_address"`
			}
			if err := s.get("power_parameters", url.Values{"id": chunk}, &params, "machines"); err != nil {
				return err
			}
			for _, id := range chunk {
				if address, _ := params[id].Address.(string); address != "" && sameBMC(address, bmc) {
					out = append(out, id)
				}
			}
		}
		return nil
	})
	return out, err
}

// sameBMC compares two spellings of a BMC address.
func sameBMC(a, b string) bool { return providers.SameBMC(a, b) }
