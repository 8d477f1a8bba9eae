package rest

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/intent/nodeaction"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Node is the record of one machine. Agent, BMC and live job are in the answer
// for one node only.
type Node struct {
	ID                string                  `json:"id"`
	Lifecycle         string                  `json:"lifecycle"`
	Status            lifecycle.NodeStatus    `json:"status"`
	Hostname          string                  `json:"hostname"`
	SiteID            string                  `json:"site_id"`
	ProfileID         string                  `json:"profile_id,omitempty"`
	SKUID             string                  `json:"sku_id,omitempty" maxLength:"100"`
	Serial            string                  `json:"serial,omitempty"`
	HardwareUUID      string                  `json:"hardware_uuid,omitempty"`
	MACs              []string                `json:"macs" nullable:"false"`
	MAASSystemID      string                  `json:"maas_system_id,omitempty"`
	IPAddresses       []string                `json:"ip_addresses" nullable:"false"`
	IPAddressesSource lifecycle.AddressSource `json:"ip_addresses_source,omitempty" enum:"maas,agent,installer" doc:"The system that names the addresses"`
	IPAddressesAt     *time.Time              `json:"ip_addresses_at,omitempty" doc:"Since when the source names these addresses"`
	Simulated         bool                    `json:"simulated" doc:"The machine is made up: results on it prove nothing about hardware"`
	Labels            map[string]string       `json:"labels"`
	AllocationID      string                  `json:"allocation_id,omitempty"`
	TenantLeftAt      *time.Time              `json:"tenant_left_at,omitempty" doc:"When a tenant left the node, if nothing proves it clean since: until a certificate does, it does not become active again"`
	StateChangedAt    time.Time               `json:"state_changed_at"`
	Version           int64                   `json:"version"`
	CreatedAt         time.Time               `json:"created_at"`
	UpdatedAt         time.Time               `json:"updated_at"`

	InstallAttempts  int      `json:"install_attempts" doc:"Failed attempts of a PXE node's installation"`
	LastInstallError string   `json:"last_install_error,omitempty"`
	PXE              *NodePXE `json:"pxe,omitempty" doc:"Of lifecycle pxe, in the answer for one node"`

	AllowedStates        []string                        `json:"allowed_states,omitempty" doc:"States that a transition leads to from here"`
	AllowedActions       []lifecycle.NodeAction          `json:"allowed_actions,omitempty" doc:"Actions that its state and its jobs allow now"`
	ActionNeeds          map[lifecycle.NodeAction]string `json:"action_needs,omitempty" doc:"What allowed actions need beyond the state; it is checked when they are requested"`
	AllowedDecommissions []lifecycle.DecommissionMode    `json:"allowed_decommissions,omitempty" doc:"Modes that a decommission may be started with now"`
	LiveJobID            string                          `json:"live_job_id,omitempty" doc:"The job that holds the node"`
	BMCID                string                          `json:"bmc_id,omitempty"`
	Agent                *NodeAgent                      `json:"agent,omitempty"`
}

// NodeAgent is the node's agent as last heard.
type NodeAgent struct {
	LastHeartbeatAt time.Time          `json:"last_heartbeat_at"`
	Version         string             `json:"version,omitempty"`
	BootID          string             `json:"boot_id,omitempty"`
	Address         string             `json:"address,omitempty"`
	ReportedAt      *time.Time         `json:"reported_at,omitempty"`
	Unhealthy       []string           `json:"unhealthy" nullable:"false" doc:"What keeps the report from meeting the SKU"`
	Report          *spec.HealthReport `json:"report,omitempty"`
}

func nodeView(n db.Node) Node {
	return Node{
		ID: n.ID, Lifecycle: n.Lifecycle, Status: n.Status, Hostname: n.Hostname, SiteID: n.SiteID, ProfileID: text(n.ProfileID), SKUID: text(n.SKUID),
		Serial: n.Serial, HardwareUUID: n.HardwareUUID, MACs: list(n.MACs), MAASSystemID: text(n.MAASSystemID), IPAddresses: list(n.IPAddresses),
		IPAddressesSource: n.IPAddressesSource, IPAddressesAt: utc(n.IPAddressesAt),
		Simulated: n.Simulated, Labels: labels(n.Labels), TenantLeftAt: utc(n.TenantLeftAt), StateChangedAt: n.StateChangedAt.UTC(),
		Version: n.Version, CreatedAt: n.CreatedAt.UTC(), UpdatedAt: n.UpdatedAt.UTC(),
		InstallAttempts: n.InstallAttempts, LastInstallError: n.LastInstallError,
	}
}

// addOccupants names the allocation that occupies each node, by the relation and not by the pointer
// of the node.
func addOccupants(ctx context.Context, c allocationdb.Conn, views ...*Node) error {
	ids := make([]string, 0, len(views))
	for _, v := range views {
		ids = append(ids, v.ID)
	}
	occupants, err := allocationdb.OccupantsOf(ctx, c, ids)
	for _, v := range views {
		v.AllocationID = occupants[v.ID]
	}
	return err
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

func labels(l db.Labels) map[string]string {
	if l == nil {
		return map[string]string{}
	}
	return l
}

// NodePath is the path of one.
type NodePath struct {
	ID string `path:"id" maxLength:"200" doc:"node_..."`
}

func (s *server) registerNodes() {
	tags := []string{"nodes"}
	op.Add(s.api, huma.Operation{OperationID: "list-nodes", Method: http.MethodGet, Path: "/nodes", Tags: tags, Summary: "List nodes"}, s.listNodes)
	op.Add(s.api, huma.Operation{OperationID: "get-node", Method: http.MethodGet, Path: "/nodes/{id}", Tags: tags, Summary: "Read a node with its agent, BMC and live job"}, s.getNode)
	op.Add(s.api, huma.Operation{
		OperationID: "update-node", Method: http.MethodPatch, Path: "/nodes/{id}", Tags: tags, Summary: "Change a node's labels, its install workflow or its erase workflow",
		Description: "Labels that are named are set, those with null are removed, the others stay; device-group of a PXE node is an admin's to change. Install and erase workflow are assigned to a PXE node by an admin, the first not while it installs.",
	}, s.updateNode)
	op.Add(s.api, huma.Operation{
		OperationID: "node-history", Method: http.MethodGet, Path: "/nodes/{id}/history", Tags: tags, Summary: "A node's state transitions, newest first",
	}, s.nodeHistory)
	op.Add(s.api, huma.Operation{
		OperationID: "node-occupancies", Method: http.MethodGet, Path: "/nodes/{id}/occupancies", Tags: tags, Summary: "What a node was used for, newest first",
		Description: "Each row lasts until the next one begins. Between two tenants there are releasing, sanitizing and clean, with the certificate that proves it; maintenance is a node that was left and that nothing proves clean.",
	}, s.nodeOccupancies)
	op.Add(s.api, huma.Operation{
		OperationID: "node-timeline", Method: http.MethodGet, Path: "/nodes/{id}/timeline", Tags: tags,
		Summary: "Everything that happened to a node and its jobs, newest first", Description: "Transitions, actions, calls that changed something outside, and observations.",
	}, s.nodeTimeline)
}

func (s *server) listNodes(ctx context.Context, in *struct {
	op.Page
	IDs       []string `query:"ids,explode" maxItems:"200" itemMaxLength:"200" nullable:"false" doc:"Only these nodes; may be repeated"`
	Status    []string `query:"status,explode" maxItems:"50" itemMaxLength:"200" nullable:"false" doc:"A state; may be repeated for any of several"`
	Except    string   `query:"except_status" maxLength:"200" doc:"Every state but this one, such as deleted"`
	Lifecycle string   `query:"lifecycle" enum:"maas,pxe"`
	SiteID    string   `query:"site_id" maxLength:"200"`
	SKUID     string   `query:"sku_id" maxLength:"200"`
	Hostname  string   `query:"hostname" maxLength:"253" doc:"The whole hostname"`
	Q         string   `query:"q" maxLength:"100" doc:"Part of a hostname or serial, or a whole id, MAAS system id or MAC"`
}) (*op.Listed[Node], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	for _, status := range append([]string{in.Except}, in.Status...) {
		if status != "" && !lifecycle.IsNodeStatus(status) {
			return nil, problem.NewInvalid(problem.Field{Location: "query.status", Message: "or query.except_status names no state of a node; docs/states lists them"})
		}
	}
	f := db.NodeFilter{IDs: in.IDs, Statuses: nonEmpty(in.Status), SKUID: in.SKUID, ExceptStatus: in.Except, Lifecycle: in.Lifecycle, SiteID: in.SiteID, Hostname: in.Hostname, Q: in.Q}
	rows, err := s.store.ListNodes(ctx, f, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	views := make([]*Node, 0, len(rows))
	for _, n := range rows {
		view := nodeView(n)
		views = append(views, &view)
	}
	if err := addOccupants(ctx, s.store, views...); err != nil {
		return nil, err
	}
	return op.Paged(views, in.Limit, func(n *Node) string { return n.ID }, func(n *Node) Node { return *n }), nil
}

// nonEmpty leaves out empty texts: status= asks for every state.
func nonEmpty(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

func (s *server) getNode(ctx context.Context, in *NodePath) (*op.Versioned[Node], error) {
	row, err := s.store.NodeOverview(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	view := overviewOf(row)
	if row.Node.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return op.WithVersion(view.Version, view), nil
	}
	// The node is read again, so that the facts of a PXE node are of the same moment.
	err = s.store.ReadTx(ctx, func(tx *db.Tx) error {
		if row, err = tx.NodeOverview(ctx, in.ID); err != nil {
			return err
		}
		view = overviewOf(row)
		return addPXE(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(view.Version, view), nil
}

func overviewOf(row db.NodeOverview) Node {
	n := row.Node
	view := nodeView(n)
	if m, known := lifecycle.NodeMachine(n.Lifecycle); known {
		view.AllowedStates = m.Reachable(n.Status)
	}
	view.BMCID, view.LiveJobID, view.AllocationID = row.BMCID, row.LiveJobID, row.AllocationID
	busy := view.LiveJobID != ""
	view.AllowedActions, view.AllowedDecommissions = nodeaction.Allowed(n, busy), decommission.AllowedModes(n, busy)
	view.ActionNeeds = lifecycle.NodeActionNeeds(view.AllowedActions)
	if row.Heard {
		view.Agent = &NodeAgent{
			LastHeartbeatAt: row.ReceivedAt.UTC(), Version: row.AgentVersion, BootID: row.BootID, Address: row.Address,
			ReportedAt: utc(row.ReportedAt), Unhealthy: list(row.Unhealthy), Report: row.Report,
		}
	}
	return view
}

// NodePatch is what an operator may change of a node.
type NodePatch struct {
	Labels map[string]*string `json:"labels,omitempty" maxProperties:"128" itemMaxLength:"256" doc:"Keys of 1 to 63 and values of at most 256 characters; null removes"`
	// InstallWorkflowID is for admins.
	InstallWorkflowID string `json:"install_workflow_id,omitempty" maxLength:"100" doc:"wf_...: how a PXE node is installed from now on; an admin assigns it"`
	// EraseWorkflowID is for admins; "" takes the device group's.
	EraseWorkflowID *string `json:"erase_workflow_id,omitempty" maxLength:"100" doc:"wf_...: the live system that a PXE node is erased from; empty: that of its device group; an admin assigns it"`
	// SKUID is for admins.
	SKUID string `json:"sku_id,omitempty" maxLength:"100" doc:"sku_...: what a PXE node's reports are held against from now on; an admin assigns it. A node that MAAS provisions has that of its onboarding"`
}

const (
	maxLabels     = 64
	maxLabelValue = 256
)

var labelPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/-]{0,62}$`)

func (p NodePatch) apply(to map[string]string) (db.Labels, error) {
	out := db.Labels{}
	for k, v := range to {
		out[k] = v
	}
	var bad []problem.Field
	for k, v := range p.Labels {
		switch {
		case v == nil:
			delete(out, k)
			continue
		case !labelPattern.MatchString(k):
			bad = append(bad, problem.Field{Location: "body.labels", Message: fmt.Sprintf("key %q must be 1 to 63 letters, digits, dots, dashes, slashes or underscores", k)})
		case len(*v) > maxLabelValue:
			bad = append(bad, problem.Field{Location: "body.labels." + k, Message: "must have at most 256 characters"})
		}
		out[k] = *v
	}
	if value, ok := p.Labels[lifecycle.LabelProtectSerials]; ok && value != nil {
		if _, err := spec.ParseProtectLabel(*value); err != nil {
			bad = append(bad, problem.Field{Location: "body.labels." + lifecycle.LabelProtectSerials, Message: err.Error()})
		}
	}
	if len(out) > maxLabels {
		bad = append(bad, problem.Field{Location: "body.labels", Message: "a node has at most 64 labels"})
	}
	if len(bad) > 0 {
		return nil, problem.NewInvalid(bad...)
	}
	return out, nil
}

// mayRegroup refuses what an operator who is no admin may not do by a label: the
// device group of a PXE node says whether it goes into service by itself, and
// from which live system it is erased.
func mayRegroup(ctx context.Context, n db.Node, want db.Labels) error {
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle || op.PrincipalOf(ctx).May(op.RoleAdmin) {
		return nil
	}
	was, had := n.Labels[lifecycle.LabelDeviceGroup]
	if is, has := want[lifecycle.LabelDeviceGroup]; is == was && has == had {
		return nil
	}
	return problem.New(problem.Forbidden, "the label "+lifecycle.LabelDeviceGroup+" decides what a PXE node is erased from and whether it goes into service by itself, "+
		"which is an admin's to say; ask one to change it, and change the other labels without it")
}

func (s *server) updateNode(ctx context.Context, in *struct {
	NodePath
	op.Match
	Body NodePatch
}) (*op.Versioned[Node], error) {
	var row db.Node
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return n.Version, nil })
		if err != nil {
			return err
		}
		row, err = s.patchNode(ctx, tx, n, v, in.Body)
		return err
	})
	if err != nil {
		return nil, err
	}
	view := nodeView(row)
	err = addOccupants(ctx, s.store, &view)
	return op.WithVersion(view.Version, view), err
}

// patchNode changes what the patch names, in one version after the other.
func (s *server) patchNode(ctx context.Context, tx *db.Tx, n db.Node, version int64, p NodePatch) (db.Node, error) {
	if p.Labels == nil && p.InstallWorkflowID == "" && p.EraseWorkflowID == nil && p.SKUID == "" {
		return n, problem.NewInvalid(problem.Field{Location: "body", Message: "must name labels, install_workflow_id, erase_workflow_id or sku_id"})
	}
	if p.Labels != nil {
		want, err := p.apply(n.Labels)
		if err != nil {
			return n, err
		}
		if err := mayRegroup(ctx, n, want); err != nil {
			return n, err
		}
		if n, err = tx.UpdateNode(ctx, n.ID, version, db.NodePatch{Labels: want}); err != nil {
			return n, err
		}
		version = n.Version
		if err := op.Audit(ctx, tx, "node", n.ID, &n.ID, "set_labels", map[string]any{"labels": p.Labels}); err != nil {
			return n, err
		}
	}
	if p.EraseWorkflowID != nil {
		var err error
		if n, err = s.assignEraser(ctx, tx, n, version, *p.EraseWorkflowID); err != nil {
			return n, err
		}
		version = n.Version
	}
	if p.SKUID != "" {
		var err error
		if n, err = s.assignSKU(ctx, tx, n, version, p.SKUID); err != nil {
			return n, err
		}
		version = n.Version
	}
	if p.InstallWorkflowID == "" {
		return n, nil
	}
	return s.assignWorkflow(ctx, tx, n, version, p.InstallWorkflowID)
}
