package rest

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NodePXE is what a PXE node has beside its record.
type NodePXE struct {
	InstallWorkflowID    string     `json:"install_workflow_id,omitempty"`
	EraseWorkflowID      string     `json:"erase_workflow_id,omitempty" maxLength:"100" doc:"The live system that it is erased from; absent: that of its device group"`
	InstallationProgress int        `json:"installation_progress" doc:"Percent of the running attempt"`
	DeadlineAt           *time.Time `json:"deadline_at,omitempty" doc:"While installing: silent beyond it, the attempt counts as failed"`
	LastSeenAt           time.Time  `json:"last_seen_at"`
	LastSeenFrom         string     `json:"last_seen_from,omitempty"`
	Reported             PXEFacts   `json:"reported" doc:"What the machine says of itself; nothing of it is proven"`
	AdminStates          []string   `json:"admin_states" nullable:"false" doc:"States that an admin may set now; retired and active need force while a job holds the node"`

	JobID           string           `json:"job_id,omitempty" doc:"The live job that deprovisions or migrates it"`
	Netboot         *Netboot         `json:"netboot,omitempty" doc:"What a job has the machine boot from the network, whatever the node's state"`
	PlannedHardware *PlannedHardware `json:"planned_hardware,omitempty" doc:"While it migrates: the hardware that it is to get"`
}

// Netboot is what a job boots a node from the network for.
type Netboot struct {
	Purpose    string     `json:"purpose" enum:"install,erase" doc:"install: until the installer says that it is complete; erase: at every boot"`
	WorkflowID string     `json:"workflow_id"`
	JobID      string     `json:"job_id"`
	DoneAt     *time.Time `json:"done_at,omitempty" doc:"When the installer said that it is complete; the machine boots its disk since"`
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
		InstallWorkflowID: text(p.InstallWorkflowID), EraseWorkflowID: text(p.EraseWorkflowID), InstallationProgress: p.Progress, DeadlineAt: utc(p.DeadlineAt),
		LastSeenAt: p.SeenAt.UTC(), LastSeenFrom: p.SeenFrom, Reported: PXEFacts(p.Facts), PlannedHardware: plannedView(p.PlannedHardware),
		AdminStates: list(lifecycle.NodePXE.ReachableBy(view.Status, lifecycle.OwnerAdmin)),
	}
	if p.NetbootPurpose != "" {
		view.PXE.Netboot = &Netboot{Purpose: string(p.NetbootPurpose), WorkflowID: text(p.NetbootWorkflowID), JobID: text(p.NetbootJobID), DoneAt: utc(p.NetbootDoneAt)}
	}
	job, err := tx.LiveOperation(ctx, view.ID)
	switch {
	case err == nil:
		view.PXE.JobID = job.ID
	case !errors.Is(err, db.ErrNotFound):
		return err
	}
	if _, owned := lifecycle.PXEModeOf(view.Status); owned && err != nil {
		// Its job was cancelled: asking for the state again begins the next.
		view.PXE.AdminStates = append([]string{string(view.Status)}, view.PXE.AdminStates...)
	}
	return nil
}

func (s *server) registerPXENodes() {
	s.registerPXEBMC()
	tags := []string{"pxe"}
	op.Add(s.api, huma.Operation{
		OperationID: "set-node-state", Method: http.MethodPost, Path: "/nodes/{id}/state", Tags: tags, Summary: "Set the state of a PXE node",
		Description: "The states that may be set now stand in the node's pxe.admin_states. deprovisioning and migrating come with the job that does them: it is created in the same transaction " +
			"and stands in pxe.job_id; asked for once more while it works, nothing happens, and after it was cancelled the next one is created. " +
			"While it works, retired and active are refused without force. A node of lifecycle maas takes actions instead.",
	}, s.setNodeState)
	op.Add(s.api, huma.Operation{
		OperationID: "plan-node-hardware", Method: http.MethodPut, Path: "/nodes/{id}/hardware", Tags: tags, Summary: "Plan the hardware of a migrating PXE node",
		Description: "The job of the migration puts the node on it when the old hardware is out of the way; until then it may be changed. Its id, history and labels stay. " +
			"A machine that was discovered under one of the addresses meanwhile is that hardware: its node is purged then. 409 while no job migrates the node.",
	}, s.planNodeHardware)
	op.Add(s.api, huma.Operation{
		OperationID: "purge-discovered-nodes", Method: http.MethodPost, Path: "/admin/discovered-nodes/purge", Tags: tags, Summary: "Delete nodes that were only ever discovered",
		Description: "Such a node may be made by anybody on the boot network. A machine that is real is discovered again at its next boot. What stays is the audit.",
	}, s.purgeDiscovered)
	op.Add(s.api, huma.Operation{OperationID: "list-device-groups", Method: http.MethodGet, Path: "/admin/device-groups", Tags: tags, Summary: "List device groups"}, s.listDeviceGroups)
	op.Add(s.api, huma.Operation{
		OperationID: "put-device-group", Method: http.MethodPut, Path: "/admin/device-groups/{name}", Tags: tags, Summary: "Write the policy of a device group",
		Description: "A node belongs to the group that its label device-group names. Creates the group when there is none.",
	}, s.putDeviceGroup)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-device-group", Method: http.MethodDelete, Path: "/admin/device-groups/{name}", Tags: tags, Summary: "Delete a device group",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteDeviceGroup)
}

// assignEraser says from which live system a PXE node is erased; "" takes that
// of its device group. A boot that is armed already stays.
func (s *server) assignEraser(ctx context.Context, tx *db.Tx, n db.Node, version int64, id string) (db.Node, error) {
	if !op.PrincipalOf(ctx).May(op.RoleAdmin) {
		return n, problem.New(problem.Forbidden, "what a machine boots is an admin's to say; ask one to assign the erase workflow")
	}
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return n, problem.New(problem.Conflict, "only a PXE node has an erase workflow; this one is erased by its agent and by MAAS")
	}
	if n.Status == lifecycle.NodeRetired {
		return n, problem.New(problem.IllegalTransition, "the node is retired, and never erased again")
	}
	if err := checkEraser(ctx, tx, id); err != nil {
		return n, err
	}
	n, err := tx.AssignEraseWorkflow(ctx, n.ID, version, id)
	if err != nil {
		return n, err
	}
	return n, op.Audit(ctx, tx, "node", n.ID, &n.ID, "assign_erase_workflow", map[string]any{"erase_workflow_id": id})
}

// checkEraser refuses a workflow that could erase nothing; "" is none.
func checkEraser(ctx context.Context, tx *db.Tx, id string) error {
	if id == "" {
		return nil
	}
	wf, err := tx.InstallWorkflow(ctx, id)
	if errors.Is(err, db.ErrNotFound) {
		return problem.NewInvalid(problem.Field{Location: "body.erase_workflow_id", Message: "there is no such install workflow"})
	}
	if err == nil && wf.Spec.Agent == nil {
		return problem.NewInvalid(problem.Field{Location: "body.erase_workflow_id", Message: "installs no agent, and nobody else erases; " +
			"give the workflow an agent block and {{ install_agent }} in its user_data first"})
	}
	return err
}

// assignWorkflow says how a PXE node is installed.
func (s *server) assignWorkflow(ctx context.Context, tx *db.Tx, n db.Node, version int64, id string) (db.Node, error) {
	if !op.PrincipalOf(ctx).May(op.RoleAdmin) {
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
	return n, op.Audit(ctx, tx, "node", n.ID, &n.ID, "assign_install_workflow", map[string]any{"install_workflow_id": id})
}

// assignSKU says what a PXE node has to be like: its health, and the end of its
// jobs, are checked by it.
func (s *server) assignSKU(ctx context.Context, tx *db.Tx, n db.Node, version int64, id string) (db.Node, error) {
	if !op.PrincipalOf(ctx).May(op.RoleAdmin) {
		return n, problem.New(problem.Forbidden, "what a node is sold as is an admin's to say; ask one to assign the SKU")
	}
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return n, problem.New(problem.Conflict, "the SKU of a node that MAAS provisions is that of its onboarding; only a PXE node is assigned one")
	}
	if n.Status == lifecycle.NodeRetired {
		return n, problem.New(problem.IllegalTransition, "the node is retired; assign its SKU when it is in use again")
	}
	if _, err := tx.SKU(ctx, id); errors.Is(err, db.ErrNotFound) {
		return n, problem.NewInvalid(problem.Field{Location: "body.sku_id", Message: "there is no such SKU"})
	} else if err != nil {
		return n, err
	}
	n, err := tx.UpdateNode(ctx, n.ID, version, db.NodePatch{SKUID: &id})
	if err != nil {
		return n, err
	}
	return n, op.Audit(ctx, tx, "node", n.ID, &n.ID, "assign_sku", map[string]any{"sku_id": id})
}

// PurgeRequest narrows what is purged.
type PurgeRequest struct {
	Source        string `json:"source,omitempty" maxLength:"64" doc:"Only what was last seen from this address"`
	UnseenMinutes int    `json:"unseen_minutes,omitempty" minimum:"0" maximum:"525600" doc:"Only what was not seen for so long"`
}

// source is the address as it is written where it was seen; "" for any.
func (r PurgeRequest) source() (string, error) {
	if r.Source == "" {
		return "", nil
	}
	from, err := netip.ParseAddr(r.Source)
	if err != nil {
		return "", problem.NewInvalid(problem.Field{Location: "body.source", Message: "must be an IP address, such as 10.0.0.7: the last_seen_from of a node"})
	}
	return from.Unmap().String(), nil
}

// PurgeAnswer says how many nodes are gone.
type PurgeAnswer struct {
	Purged int `json:"purged"`
}

func (s *server) purgeDiscovered(ctx context.Context, in *struct{ Body PurgeRequest }) (*struct{ Body PurgeAnswer }, error) {
	source, err := in.Body.source()
	if err != nil {
		return nil, err
	}
	n, err := s.store.Purge(ctx, source, time.Duration(in.Body.UnseenMinutes)*time.Minute, op.Actor(ctx))
	return &struct{ Body PurgeAnswer }{PurgeAnswer{n}}, err
}

// DeviceGroup is the policy of nodes with the label device-group=NAME.
type DeviceGroup struct {
	Name            string    `json:"name"`
	AutoPromote     bool      `json:"auto_promote" doc:"An installed node becomes active without an operator"`
	EraseWorkflowID string    `json:"erase_workflow_id,omitempty" maxLength:"100" doc:"The live system that nodes without one of their own are erased from"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
}

func groupView(g db.DeviceGroup) DeviceGroup {
	return DeviceGroup{g.Name, g.AutoPromote, text(g.EraseWorkflowID), g.CreatedAt.UTC(), g.UpdatedAt.UTC()}
}

// GroupPath is the path of one.
type GroupPath struct {
	Name string `path:"name" maxLength:"100"`
}

func (s *server) listDeviceGroups(ctx context.Context, in *op.Page) (*op.Listed[DeviceGroup], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListDeviceGroups(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(g db.DeviceGroup) string { return g.Name }, groupView), nil
}

func (s *server) putDeviceGroup(ctx context.Context, in *struct {
	GroupPath
	Body struct {
		AutoPromote     bool   `json:"auto_promote" required:"true"`
		EraseWorkflowID string `json:"erase_workflow_id,omitempty" maxLength:"100" doc:"wf_...; absent: none"`
	}
}) (*struct{ Body DeviceGroup }, error) {
	if err := op.CheckName(in.Name); err != nil {
		return nil, err
	}
	out := &struct{ Body DeviceGroup }{}
	return out, s.store.Tx(ctx, func(tx *db.Tx) error {
		if err := checkEraser(ctx, tx, in.Body.EraseWorkflowID); err != nil {
			return err
		}
		g, err := tx.PutDeviceGroup(ctx, in.Name, in.Body.AutoPromote, in.Body.EraseWorkflowID)
		if err != nil {
			return err
		}
		out.Body = groupView(g)
		return op.Audit(ctx, tx, "device_group", in.Name, nil, "put", map[string]any{"auto_promote": in.Body.AutoPromote, "erase_workflow_id": in.Body.EraseWorkflowID})
	})
}

func (s *server) deleteDeviceGroup(ctx context.Context, in *GroupPath) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.DeleteDeviceGroup(ctx, in.Name); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "device_group", in.Name, nil, "delete", nil)
	})
}
