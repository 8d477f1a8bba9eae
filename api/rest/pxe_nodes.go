package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NodePXE is what a PXE node has beside its record.
type NodePXE struct {
	InstallWorkflowID    string     `json:"install_workflow_id,omitempty"`
	InstallationProgress int        `json:"installation_progress" doc:"Percent of the running attempt"`
	DeadlineAt           *time.Time `json:"deadline_at,omitempty" doc:"While installing: silent beyond it, the attempt counts as failed"`
	LastSeenAt           time.Time  `json:"last_seen_at"`
	LastSeenFrom         string     `json:"last_seen_from,omitempty"`
	Reported             PXEFacts   `json:"reported" doc:"What the machine says of itself; nothing of it is proven"`
	AdminStates          []string   `json:"admin_states" nullable:"false" doc:"States that an admin may set now"`
}

// PXEFacts is what a machine says of itself, cleaned of what could be harmful.
type PXEFacts struct {
	IPAddress    string `json:"ip_address,omitempty"`
	Hostname     string `json:"hostname,omitempty"`
	Vendor       string `json:"vendor,omitempty"`
	Model        string `json:"model,omitempty"`
	SerialNumber string `json:"serial_number,omitempty"`
	SystemUUID   string `json:"system_uuid,omitempty"`
}

func addPXE(ctx context.Context, tx *db.Tx, view *Node) error {
	p, err := tx.PXENode(ctx, view.ID)
	if err != nil {
		return err
	}
	view.PXE = &NodePXE{
		InstallWorkflowID: text(p.InstallWorkflowID), InstallationProgress: p.Progress, DeadlineAt: utc(p.DeadlineAt), LastSeenAt: p.SeenAt.UTC(),
		LastSeenFrom: p.SeenFrom, Reported: PXEFacts(p.Facts), AdminStates: list(lifecycle.NodePXE.ReachableBy(view.Status, lifecycle.OwnerAdmin)),
	}
	return nil
}

// StateTransition is a state that an admin sets (seed 000).
type StateTransition struct {
	State   lifecycle.NodeStatus `json:"state" required:"true" maxLength:"30"`
	Comment *string              `json:"comment,omitempty" maxLength:"2000"`
	Force   bool                 `json:"force,omitempty" doc:"Bypasses the retry limit and resets the counters: needed from install_failed"`
}

func (s *Server) registerPXENodes() {
	tags := []string{"pxe"}
	add(s, huma.Operation{
		OperationID: "set-node-state", Method: http.MethodPost, Path: "/nodes/{id}/state", Tags: tags, Summary: "Set the state of a PXE node",
		Description: "The states that may be set now stand in the node's pxe.admin_states. A node of lifecycle maas takes actions instead.",
	}, s.setNodeState)
	add(s, huma.Operation{
		OperationID: "replace-node-hardware", Method: http.MethodPut, Path: "/nodes/{id}/hardware", Tags: tags, Summary: "Put a migrating PXE node on other hardware",
		Description: "Its id, history and labels stay. A machine that was discovered under one of the addresses meanwhile is that hardware: its node is purged.",
	}, s.replaceHardware)
	add(s, huma.Operation{
		OperationID: "purge-discovered-nodes", Method: http.MethodPost, Path: "/admin/discovered-nodes/purge", Tags: tags, Summary: "Delete nodes that were only ever discovered",
		Description: "Such a node may be made by anybody on the boot network. A machine that is real is discovered again at its next boot. What stays is the audit.",
	}, s.purgeDiscovered)
	add(s, huma.Operation{OperationID: "list-device-groups", Method: http.MethodGet, Path: "/admin/device-groups", Tags: tags, Summary: "List device groups"}, s.listDeviceGroups)
	add(s, huma.Operation{
		OperationID: "put-device-group", Method: http.MethodPut, Path: "/admin/device-groups/{name}", Tags: tags, Summary: "Write the policy of a device group",
		Description: "A node belongs to the group that its label device-group names. Creates the group when there is none.",
	}, s.putDeviceGroup)
	add(s, huma.Operation{
		OperationID: "delete-device-group", Method: http.MethodDelete, Path: "/admin/device-groups/{name}", Tags: tags, Summary: "Delete a device group",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteDeviceGroup)
}

func (s *Server) setNodeState(ctx context.Context, in *struct {
	NodePath
	Match
	Body StateTransition
}) (*Versioned[Node], error) {
	var view Node
	err := s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.ID)
		if err != nil {
			return err
		}
		if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
			return problem.New(problem.IllegalTransition, "the state of a node that MAAS provisions is set by what happens to it; "+
				"use POST /api/v1/nodes/{id}/actions/{drain, retire, reactivate, quarantine, unquarantine, remove}, a decommission or an onboarding; "+
				"the actions that are possible now are listed").Allow(names(allowedActions(n, false)))
		}
		v, err := in.version(func() (int64, error) { return n.Version, nil })
		if err != nil {
			return err
		}
		if !lifecycle.NodePXE.Has(in.Body.State) {
			return problem.NewInvalid(problem.Field{Location: "body.state", Message: "is not a state of a PXE node; docs/states/node-pxe.md lists them"})
		}
		a := s.actor(ctx)
		a.Comment = text(in.Body.Comment)
		if in.Body.Force {
			a.Metadata = map[string]any{"force": true}
		}
		if n, err = tx.SetPXEState(ctx, in.ID, v, in.Body.State, in.Body.Force, a); err != nil {
			return explainNeed(err, in.Body)
		}
		view = nodeView(n)
		return addPXE(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return versioned(view.Version, view), nil
}

func names(actions []lifecycle.NodeAction) []string {
	out := make([]string, 0, len(actions))
	for _, a := range actions {
		out = append(out, string(a))
	}
	return out
}

// explainNeed says what to do where the state allows the move and something
// else is missing.
func explainNeed(err error, t StateTransition) error {
	var illegal *lifecycle.IllegalTransitionError
	if !errors.As(err, &illegal) || t.State != lifecycle.NodePending {
		return err
	}
	switch lifecycle.NodeStatus(illegal.From) {
	case lifecycle.NodeInstallFailed:
		return problem.New(problem.IllegalTransition, "the installation failed three times: assign an install workflow with PATCH, then send force: true to begin anew").
			Allow(illegal.Allowed)
	case lifecycle.NodeDiscovered, lifecycle.NodeReprovision:
		return problem.New(problem.IllegalTransition, "the node has no install workflow: assign one with PATCH first").Allow(illegal.Allowed)
	default:
		return err
	}
}

// assignWorkflow says how a PXE node is installed.
func (s *Server) assignWorkflow(ctx context.Context, tx *db.Tx, n db.Node, version int64, id string) (db.Node, error) {
	if !principal(ctx).may(RoleAdmin) {
		return n, problem.New(problem.Forbidden, "what a machine installs is an admin's to say; ask one to assign the install workflow")
	}
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return n, problem.New(problem.Conflict, "only a PXE node has an install workflow; this one is installed by MAAS, as its profile says")
	}
	if n.Status == lifecycle.NodeInstalling || n.Status == lifecycle.NodeRetired {
		return n, problem.New(problem.IllegalTransition, "the node is "+string(n.Status)+"; an install workflow is assigned before an installation or after it")
	}
	if _, err := tx.InstallWorkflow(ctx, id); err != nil {
		if errors.Is(err, db.ErrNotFound) {
			return n, problem.NewInvalid(problem.Field{Location: "body.install_workflow_id", Message: "there is no such install workflow"})
		}
		return n, err
	}
	n, err := tx.AssignInstallWorkflow(ctx, n.ID, version, id)
	if err != nil {
		return n, err
	}
	return n, s.audit(ctx, tx, "node", n.ID, &n.ID, "assign_install_workflow", map[string]any{"install_workflow_id": id})
}

// PurgeRequest narrows what is purged.
type PurgeRequest struct {
	Source        string `json:"source,omitempty" maxLength:"64" doc:"Only what was last seen from this address"`
	UnseenMinutes int    `json:"unseen_minutes,omitempty" minimum:"0" maximum:"525600" doc:"Only what was not seen for so long"`
}

// PurgeAnswer says how many nodes are gone.
type PurgeAnswer struct {
	Purged int `json:"purged"`
}

func (s *Server) purgeDiscovered(ctx context.Context, in *struct{ Body PurgeRequest }) (*struct{ Body PurgeAnswer }, error) {
	n, err := s.cfg.Store.Purge(ctx, in.Body.Source, time.Duration(in.Body.UnseenMinutes)*time.Minute, s.actor(ctx))
	return &struct{ Body PurgeAnswer }{PurgeAnswer{n}}, err
}

// DeviceGroup is the policy of nodes with the label device-group=NAME.
type DeviceGroup struct {
	Name        string    `json:"name"`
	AutoPromote bool      `json:"auto_promote" doc:"An installed node becomes active without a person"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

func groupView(g db.DeviceGroup) DeviceGroup {
	return DeviceGroup{g.Name, g.AutoPromote, g.CreatedAt.UTC(), g.UpdatedAt.UTC()}
}

// GroupPath is the path of one.
type GroupPath struct {
	Name string `path:"name" maxLength:"100"`
}

func (s *Server) listDeviceGroups(ctx context.Context, in *Page) (*Listed[DeviceGroup], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	rows, err := s.cfg.Store.ListDeviceGroups(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(rows, in.Limit, func(g db.DeviceGroup) string { return g.Name }, groupView), nil
}

func (s *Server) putDeviceGroup(ctx context.Context, in *struct {
	GroupPath
	Body struct {
		AutoPromote bool `json:"auto_promote" required:"true"`
	}
}) (*struct{ Body DeviceGroup }, error) {
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	out := &struct{ Body DeviceGroup }{}
	return out, s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		g, err := tx.PutDeviceGroup(ctx, in.Name, in.Body.AutoPromote)
		if err != nil {
			return err
		}
		out.Body = groupView(g)
		return s.audit(ctx, tx, "device_group", in.Name, nil, "put", map[string]any{"auto_promote": in.Body.AutoPromote})
	})
}

func (s *Server) deleteDeviceGroup(ctx context.Context, in *GroupPath) (*struct{}, error) {
	return nil, s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.DeleteDeviceGroup(ctx, in.Name); err != nil {
			return err
		}
		return s.audit(ctx, tx, "device_group", in.Name, nil, "delete", nil)
	})
}
