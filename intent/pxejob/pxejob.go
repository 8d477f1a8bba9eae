// Package pxejob accepts the states that an administrator sets on a node that boots from the
// network. Two of them, deprovisioning and migrating, come with the job that owns them.
package pxejob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Request asks for a state of a node.
type Request struct {
	NodeID  string
	State   lifecycle.NodeStatus
	Comment string
	// Force ignores the retry limit and a live job.
	Force bool
	Options
}

// Options say how a job of deprovisioning or migrating is done. All but GraceSeconds are for
// migrating.
type Options struct {
	GraceSeconds int
	Disks        string // "" is db.DisksNew
	EraseOld     bool
	Hardware     *Hardware // nil: it is planned later
}

// Checked is a request whose fields fit together. Check makes it.
type Checked struct {
	Request
	hardware *Planned
}

const (
	namesOwn = "is the node's own when its disks are the same; leave it out, or say that the disks are new"

	erasesMoved = "would erase the disks that are to move into the new hardware; leave it out, or say that the disks are new"
)

// Check refuses fields that do not go with the state, and hardware that is described wrongly.
func Check(ctx context.Context, store *db.Store, r Request) (Checked, error) {
	if !lifecycle.NodePXE.Has(r.State) {
		return Checked{}, intent.InvalidIf([]intent.Field{{Name: "state", Message: "is not a state of a PXE node; docs/states/node-pxe.md lists them"}})
	}
	bad := r.misplaced(r.State == lifecycle.NodeMigrating, "the state migrating")
	if _, owned := lifecycle.PXEModeOf(r.State); r.GraceSeconds != 0 && !owned {
		bad = append(bad, intent.Field{Name: "grace_seconds", Message: "is for the states deprovisioning and migrating only; leave it out"})
	}
	if err := intent.InvalidIf(bad); err != nil {
		return Checked{}, err
	}
	plan, err := CheckHardware(ctx, store, "hardware", r.Hardware)
	return Checked{r, plan}, err
}

// misplaced returns the options that are not for what is asked for.
func (o Options) misplaced(migrates bool, only string) []intent.Field {
	var bad []intent.Field
	if !migrates {
		for _, f := range []struct {
			name  string
			given bool
		}{{"disks", o.Disks != ""}, {"erase_old", o.EraseOld}, {"hardware", o.Hardware != nil}} {
			if f.given {
				bad = append(bad, intent.Field{Name: f.name, Message: "is for " + only + " only; leave it out"})
			}
		}
	}
	if migrates && o.Disks == db.DisksMoved && o.EraseOld {
		bad = append(bad, intent.Field{Name: "erase_old", Message: erasesMoved})
	}
	if migrates && o.Disks == db.DisksSame && o.Hardware != nil {
		bad = append(bad, intent.Field{Name: "hardware", Message: namesOwn})
	}
	return bad
}

// input adds the options to a request of a migration.
func (o Options) input(in contract.DecommissionInput) contract.DecommissionInput {
	in.GraceSeconds = o.GraceSeconds
	if in.Mode == lifecycle.ModeMigrate {
		in.EraseOld, in.Disks = o.EraseOld, o.Disks
		if in.Disks == "" {
			in.Disks = db.DisksNew
		}
		if in.Disks == db.DisksSame { // they are installed again, so nobody would know later what was on them
			in.EraseOld = true
		}
	}
	return in
}

// CheckMode is decommission.Check for the modes of nodes that boot from the network, with all that
// their jobs need before they begin.
func CheckMode(ctx context.Context, store *db.Store, r decommission.Request, o Options) (decommission.Checked, error) {
	if err := intent.InvalidIf(o.misplaced(r.Mode == lifecycle.ModeMigrate, "the mode migrate")); err != nil {
		return decommission.Checked{}, err
	}
	c, err := decommission.Check(ctx, store, r)
	if err != nil || c.Node.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return c, err
	}
	o.GraceSeconds = r.GraceSeconds
	c.Input = o.input(c.Input)
	plan, err := CheckHardware(ctx, store, "hardware", o.Hardware)
	if err != nil {
		return c, err
	}
	if o.Disks == db.DisksSame {
		plan = ownHardware(c.Node)
	}
	c.Hardware = plan.facts(c.Input.Disks)
	return c, store.ReadTx(ctx, func(tx *db.Tx) error {
		if err := needs(ctx, tx, c.Node, c.Input); err != nil {
			return err
		}
		return plan.available(ctx, tx, c.Node)
	})
}

// Accept sets the state, with its job where one owns it. version is the node's that the request is
// meant for; 0 is whichever is there. The same request again finds the job at work and changes
// nothing; one for a job that was cancelled starts the next.
func Accept(ctx context.Context, tx *db.Tx, c Checked, version int64, actor db.Actor) (db.Node, error) {
	n, err := tx.LockNode(ctx, c.NodeID)
	if err != nil {
		return n, err
	}
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		r := &intent.Refusal{Kind: intent.IllegalTransition, Advice: intent.Advice{Reason: intent.ReasonMAASNodeState}, Allowed: []string{},
			Detail: "the state of a node that MAAS provisions is set by what happens to it; take an action, a decommission or an onboarding; the actions that are possible now are listed"}
		for _, a := range lifecycle.AllowedNodeActions(n.Status, false) {
			r.Allowed = append(r.Allowed, string(a))
		}
		return n, r
	}
	if version == 0 {
		version = n.Version
	}
	if mode, owned := lifecycle.PXEModeOf(c.State); owned {
		return c.start(ctx, tx, n, version, mode, actor)
	}
	return c.move(ctx, tx, n, version, actor)
}

// move sets a state that no job owns.
func (c Checked) move(ctx context.Context, tx *db.Tx, n db.Node, version int64, actor db.Actor) (db.Node, error) {
	actor.Comment = c.Comment
	if c.Force {
		actor.Metadata = map[string]any{"force": true}
	}
	out, err := tx.SetPXEState(ctx, n.ID, version, c.State, c.Force, actor)
	if err == nil {
		return out, nil
	}
	var busy *db.ConflictError
	if !errors.As(err, &busy) || busy.What != "live_job" {
		return n, c.explain(err)
	}
	job, jerr := tx.Job(ctx, busy.Existing)
	if jerr != nil {
		return n, jerr
	}
	r := heldBy(n, job, fmt.Sprintf("cancel it, or force the state %s all the same, which leaves the job standing", c.State))
	r.Reason = intent.ReasonJobHoldsState
	return n, r
}

// heldBy names the job that holds the node.
func heldBy(n db.Node, job db.Job, otherwise string) *intent.Refusal {
	return &intent.Refusal{Kind: intent.LiveJob, Existing: job.ID, Advice: intent.Advice{Reason: intent.ReasonJobHoldsNode, JobID: job.ID}, Detail: fmt.Sprintf(
		"job %s (%s) is %s and holds node %s; wait for it to end, %s", job.ID, intent.JobLabel(job), job.Status, n.Hostname, otherwise)}
}

// explain says what to do where the state allows the move and something else is missing.
func (c Checked) explain(err error) error {
	var illegal *lifecycle.IllegalTransitionError
	if !errors.As(err, &illegal) || c.State != lifecycle.NodePending {
		return err
	}
	r := &intent.Refusal{Kind: intent.IllegalTransition, Allowed: illegal.Allowed}
	switch lifecycle.NodeStatus(illegal.From) {
	case lifecycle.NodeInstallFailed:
		r.Reason, r.Detail = intent.ReasonInstallFailed, "the installation failed three times: assign an install workflow, then force the state pending"
	case lifecycle.NodeDiscovered, lifecycle.NodeReprovision:
		r.Reason, r.Detail = intent.ReasonInstallUnassigned, "the node has no install workflow: assign one first"
	default:
		return err
	}
	return r
}

// start sets a state together with the job that owns it.
func (c Checked) start(ctx context.Context, tx *db.Tx, n db.Node, version int64, mode lifecycle.DecommissionMode, actor db.Actor) (db.Node, error) {
	if n.Version != version {
		return n, fmt.Errorf("node %s: %w", n.ID, db.ErrStale)
	}
	in, err := decommission.Input(ctx, tx, n, mode, n.Status)
	if err != nil {
		return n, err
	}
	in = c.input(in)
	in.Reason = c.Comment
	live, err := tx.LiveJobOfNode(ctx, n.ID)
	switch {
	case err == nil && underWay(live, in):
		return c.hardware.plan(ctx, tx, n, n.Version, in.Disks, actor)
	case err == nil:
		return n, heldBy(n, live, "or cancel it, then ask again")
	case !errors.Is(err, db.ErrNotFound):
		return n, err
	}
	info, _ := lifecycle.DecommissionModeOf(mode)
	if !slices.Contains(info.From, n.Status) {
		return n, &lifecycle.IllegalTransitionError{
			Resource: lifecycle.NodePXE.Resource, From: string(n.Status), To: string(c.State), Allowed: lifecycle.NodePXE.ReachableBy(n.Status, lifecycle.OwnerAdmin),
			Reason: fmt.Sprintf("it is set on a node that is %s", lifecycle.OneOf(info.From)),
		}
	}
	if err := needs(ctx, tx, n, in); err != nil {
		return n, err
	}
	if _, n, err = decommission.Start(ctx, tx, "", n, in, actor); err != nil {
		return n, err
	}
	if in.Disks == db.DisksSame {
		c.hardware = ownHardware(n)
	}
	return c.hardware.plan(ctx, tx, n, n.Version, in.Disks, actor)
}

// underWay reports whether a live job does what is asked for.
func underWay(live db.Job, ask contract.DecommissionInput) bool {
	var has contract.DecommissionInput
	return live.Kind == string(contract.KindNodeOperation) && json.Unmarshal(live.Input, &has) == nil &&
		has.Mode == ask.Mode && has.Disks == ask.Disks && has.EraseOld == ask.EraseOld && has.GraceSeconds == ask.GraceSeconds
}
