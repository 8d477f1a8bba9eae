package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// RoCE is the wanted state of a host's RoCE ports, used when the profile
// enables them. It may be written before the node is there.
type RoCE struct {
	SiteID    string          `json:"site_id"`
	Hostname  string          `json:"hostname"`
	Ports     []spec.RoCEPort `json:"ports" nullable:"false"`
	Version   int64           `json:"version"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

func roceView(r db.RoCEAssignment) RoCE {
	out := RoCE{r.SiteID, r.Hostname, r.Spec, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
	if out.Ports == nil {
		out.Ports = []spec.RoCEPort{}
	}
	return out
}

// RoCERequest replaces all ports of a host.
type RoCERequest struct {
	Ports []spec.RoCEPort `json:"ports" required:"true" maxItems:"64" nullable:"false"`
}

// minMTU and maxMTU are what MAAS takes.
const (
	minMTU = 552
	maxMTU = 65535
)

func (r RoCERequest) validate() error {
	var bad []problem.Field
	wrong := func(i int, field, message string) {
		bad = append(bad, problem.Field{Location: fmt.Sprintf("body.ports[%d].%s", i, field), Message: message})
	}
	seen, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for i, p := range r.Ports {
		name := p.Interface
		if mac, ok := spec.NormalMAC(name); ok { // one address, however it is written
			name = mac
		}
		switch {
		case name == "" || !isWord(name, 64):
			wrong(i, "interface", "must be an interface's name or MAC address")
		case seen[name]:
			wrong(i, "interface", "is listed twice")
		}
		seen[name] = true
		if p.MTU != 0 && (p.MTU < minMTU || p.MTU > maxMTU) {
			wrong(i, "mtu", fmt.Sprintf("must be %d to %d, or 0, which leaves it", minMTU, maxMTU))
		}
		for _, t := range p.Tags {
			if !isWord(t, 64) {
				wrong(i, "tags", "must be words without spaces and commas")
				break
			}
		}
		ip, field, message := roceAddress(p)
		if message == "" && ip.IsValid() && addresses[ip] {
			field, message = "ip", "is listed twice"
		}
		if addresses[ip] = true; message != "" {
			wrong(i, field, message)
		}
	}
	if len(bad) > 0 {
		return problem.NewInvalid(bad...)
	}
	return nil
}

// roceAddress returns the address of a port, or the field that is wrong and why. A port without an
// address has the zero one.
func roceAddress(p spec.RoCEPort) (ip netip.Addr, field, message string) {
	subnet, err := netip.ParsePrefix(p.SubnetCIDR)
	if p.SubnetCIDR != "" && (err != nil || subnet != subnet.Masked()) {
		return ip, "subnet_cidr", "must be a subnet such as 10.1.0.0/24, as MAAS has it"
	}
	if p.IP == "" {
		return ip, "", ""
	}
	ip, err = netip.ParseAddr(p.IP)
	switch {
	case err != nil || ip.Zone() != "" || ip.Is4In6():
		return ip, "ip", "must be an IP address"
	case p.SubnetCIDR == "":
		return ip, "subnet_cidr", "is needed with ip"
	case !subnet.Contains(ip):
		return ip, "ip", "does not lie in subnet_cidr"
	case subnet.Bits() < ip.BitLen()-1 && (ip == subnet.Addr() || ip.Is4() && !subnet.Contains(ip.Next())):
		return ip, "ip", "is the address of the subnet itself, or of all its hosts"
	}
	return ip, "", ""
}

// isWord returns whether a text stays one word in a list that is written with commas.
func isWord(s string, most int) bool {
	return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

// RoCEPath is the path of one.
type RoCEPath struct {
	SitePath
	Hostname string `path:"hostname" maxLength:"253"`
}

func (s *server) registerRoCE() {
	const base = "/admin/maas-sites/{id}/roce-assignments"
	tags := []string{"roce"}
	op.Add(s.api, huma.Operation{OperationID: "list-roce", Method: http.MethodGet, Path: base, Tags: tags, Summary: "List a site's RoCE assignments"}, s.listRoCE)
	op.Add(s.api, huma.Operation{OperationID: "get-roce", Method: http.MethodGet, Path: base + "/{hostname}", Tags: tags, Summary: "Read a host's RoCE assignment"}, s.getRoCE)
	op.Add(s.api, huma.Operation{
		OperationID: "put-roce", Method: http.MethodPut, Path: base + "/{hostname}", Tags: tags, Summary: "Write a host's RoCE assignment",
		Description: "Creates it when there is none. If-Match is heeded when sent.",
	}, s.putRoCE)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-roce", Method: http.MethodDelete, Path: base + "/{hostname}", Tags: tags, Summary: "Delete a host's RoCE assignment",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteRoCE)
}

func (s *server) listRoCE(ctx context.Context, in *struct {
	SitePath
	op.Page
}) (*op.Listed[RoCE], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	if _, err := s.store.Site(ctx, in.ID); err != nil {
		return nil, err
	}
	rows, err := s.store.ListRoCEAssignments(ctx, in.ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.RoCEAssignment) string { return r.ID }, roceView), nil
}

func (s *server) getRoCE(ctx context.Context, in *RoCEPath) (*op.Versioned[RoCE], error) {
	row, err := s.store.RoCEAssignmentOfHost(ctx, in.ID, in.Hostname)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, roceView(row)), nil
}

func (s *server) putRoCE(ctx context.Context, in *struct {
	RoCEPath
	op.Match
	Body RoCERequest
}) (*op.Versioned[RoCE], error) {
	if !spec.ValidHostname(in.Hostname) {
		return nil, problem.NewInvalid(problem.Field{Location: "path.hostname", Message: "must be one DNS label in lower case"})
	}
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var row db.RoCEAssignment
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Site(ctx, in.ID); err != nil {
			return err
		}
		now, err := tx.RoCEAssignmentOfHost(ctx, in.ID, in.Hostname)
		switch {
		case errors.Is(err, db.ErrNotFound) && in.IfMatch != "":
			return db.ErrStale // a version that is gone
		case errors.Is(err, db.ErrNotFound):
			row, err = tx.CreateRoCEAssignment(ctx, in.ID, in.Hostname, in.Body.Ports)
		case err == nil:
			v := now.Version
			if in.IfMatch != "" {
				if v, err = in.Version(func() (int64, error) { return now.Version, nil }); err != nil {
					return err
				}
			}
			row, err = tx.UpdateRoCEAssignment(ctx, now.ID, v, in.Body.Ports)
		}
		if err != nil {
			return err
		}
		return op.Audit(ctx, tx, "roce_assignment", row.ID, nil, "put", map[string]any{"hostname": in.Hostname})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, roceView(row)), nil
}

func (s *server) deleteRoCE(ctx context.Context, in *struct {
	RoCEPath
	op.Match
}) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := tx.RoCEAssignmentOfHost(ctx, in.ID, in.Hostname)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if err := tx.DeleteRoCEAssignment(ctx, now.ID, v); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "roce_assignment", now.ID, nil, "delete", map[string]any{"hostname": in.Hostname})
	})
}
