package rest

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// StateTransition is a state that an admin sets (seed 000). Behind force it holds
// what the jobs of deprovisioning and migrating are asked for.
type StateTransition struct {
	State   lifecycle.NodeStatus `json:"state" required:"true" maxLength:"30"`
	Comment *string              `json:"comment,omitempty" maxLength:"2000"`
	Force   bool                 `json:"force,omitempty" doc:"Passes by the retry limit and sets the counters back: needed from install_failed. Also passes by a live job, which then stands still: needed for retired and active while one holds the node"`

	GraceSeconds int              `json:"grace_seconds,omitempty" minimum:"0" maximum:"86400" doc:"With deprovisioning and migrating: how long what runs on the node may take to end"`
	Disks        string           `json:"disks,omitempty" enum:"new,moved" doc:"With migrating: new (as when absent), the hardware brings empty disks and is installed; moved, the node's disks move into it"`
	EraseOld     bool             `json:"erase_old,omitempty" doc:"With migrating to new disks: the old hardware is erased and proven clean first"`
	Hardware     *HardwareRequest `json:"hardware,omitempty" doc:"With migrating: the new hardware, if it is known; else it is planned later"`
}

// check refuses fields that do not go with the state.
func (t StateTransition) check() error {
	var bad []problem.Field
	wrong := func(field, message string) {
		bad = append(bad, problem.Field{Location: "body." + field, Message: message})
	}
	if !lifecycle.NodePXE.Has(t.State) {
		return problem.NewInvalid(problem.Field{Location: "body.state", Message: "is not a state of a PXE node; docs/states/node-pxe.md lists them"})
	}
	if t.State != lifecycle.NodeMigrating {
		for field, given := range map[string]bool{"disks": t.Disks != "", "erase_old": t.EraseOld, "hardware": t.Hardware != nil} {
			if given {
				wrong(field, "is for the state migrating only; leave it out")
			}
		}
	}
	if t.GraceSeconds != 0 && !t.hasJob() {
		wrong("grace_seconds", "is for the states deprovisioning and migrating only; leave it out")
	}
	if t.Disks == db.DisksMoved && t.EraseOld {
		wrong("erase_old", erasesMoved)
	}
	if len(bad) > 0 {
		return problem.NewInvalid(bad...)
	}
	return nil
}

const erasesMoved = "would erase the disks that are to move into the new hardware; leave it out, or say that the disks are new"

// hasJob says that a job owns the state.
func (t StateTransition) hasJob() bool {
	_, owned := lifecycle.PXEModeOf(t.State)
	return owned
}

func (s *Server) setNodeState(ctx context.Context, in *struct {
	NodePath
	Match
	Body StateTransition
}) (*Versioned[Node], error) {
	plan, err := s.checkPlanned(ctx, in.Body.Hardware, "body.hardware.")
	if err != nil {
		return nil, err
	}
	var view Node
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.ID)
		if err != nil {
			return err
		}
		if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
			return problem.New(problem.IllegalTransition, "the state of a node that MAAS provisions is set by what happens to it; "+
				"take an action (slipway node ACTION NODE, or POST "+prefix+"/nodes/{id}/actions/{action}), a decommission or an onboarding; "+
				"the actions that are possible now are listed").Allow(names(allowedActions(n, false)))
		}
		v, err := in.version(func() (int64, error) { return n.Version, nil })
		if err != nil {
			return err
		}
		if err := in.Body.check(); err != nil {
			return err
		}
		if in.Body.hasJob() {
			n, err = s.startPXEJob(ctx, tx, n, v, in.Body, plan)
		} else {
			n, err = s.movePXENode(ctx, tx, n, v, in.Body)
		}
		if err != nil {
			return err
		}
		view = nodeView(n)
		return addPXE(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return versioned(view.Version, view), nil
}

// movePXENode sets a state that no job owns.
func (s *Server) movePXENode(ctx context.Context, tx *db.Tx, n db.Node, version int64, t StateTransition) (db.Node, error) {
	a := s.actor(ctx)
	a.Comment = text(t.Comment)
	if t.Force {
		a.Metadata = map[string]any{"force": true}
	}
	out, err := tx.SetPXEState(ctx, n.ID, version, t.State, t.Force, a)
	if err == nil {
		return out, nil
	}
	var busy *db.ConflictError
	if errors.As(err, &busy) && busy.What == "live_job" {
		return n, s.heldBy(ctx, tx, n, busy.Existing, fmt.Sprintf("or send force: true (--force) to set %s all the same, which leaves the job standing", t.State))
	}
	return n, explainNeed(err, t)
}

// heldBy names the job that is in the way, and the two ways on.
func (s *Server) heldBy(ctx context.Context, tx *db.Tx, n db.Node, jobID, otherwise string) error {
	job, err := tx.Job(ctx, jobID)
	if err != nil {
		return err
	}
	return problem.New(problem.LiveJob, fmt.Sprintf(
		"job %s (%s) is %s and holds node %s; wait for it to end, cancel it (slipway job cancel %s, or POST %s/admin/jobs/%s/actions/cancel), %s",
		job.ID, whatOf(job), job.Status, n.Hostname, job.ID, prefix, job.ID, otherwise)).With(job.ID)
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
		return problem.New(problem.IllegalTransition, "the installation failed three times: assign an install workflow (slipway node assign-workflow, or PATCH with install_workflow_id), "+
			"then set pending with --force, or with force: true").
			Allow(illegal.Allowed)
	case lifecycle.NodeDiscovered, lifecycle.NodeReprovision:
		return problem.New(problem.IllegalTransition, "the node has no install workflow: assign one first (slipway node assign-workflow, or PATCH with install_workflow_id)").Allow(illegal.Allowed)
	default:
		return err
	}
}
