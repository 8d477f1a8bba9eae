package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// setTenantRoot gives the target's node the SKU whose tenants are root there, or the one whose are
// not.
func (t *Target) setTenantRoot(ctx context.Context, root bool) error {
	sku := t.shared
	if root {
		sku = t.SKU
	}
	t.sku = sku
	return dbtest.SetNodeSKU(ctx, t.Store, t.NodeID, sku.ID)
}

// offer makes a tenant who may have the target's node, and no other.
func (l letting) offer(ctx context.Context, t *Target) error {
	if err := t.setTenantRoot(ctx, l.root); err != nil {
		return err
	}
	var err error
	if t.tenant, err = stack.NewTenant(ctx, t.Store, t.sku.ID, t.Profile.ID); err != nil {
		return err
	}
	t.log.addKey(t.tenant)
	if err := dbtest.CreditAccount(ctx, t.Store, t.tenant.Account, credit); err != nil {
		return err
	}
	return countEffects(ctx, t)
}

// occupy puts a tenant on the node, as if a provision had done so. He can pay, since the billing
// pass would end his allocation otherwise.
func (t *Target) occupy(ctx context.Context) (allocationdb.Allocation, error) {
	a, err := dbtest.OccupyNode(ctx, t.Store, t.NodeID)
	if err != nil {
		return a, err
	}
	p, err := tenancydb.ReadProject(ctx, t.Store, a.ProjectID)
	if err != nil {
		return a, err
	}
	return a, dbtest.CreditAccount(ctx, t.Store, p.BillingAccountID, credit)
}

// mostProvisions is how often a provision that prepares a case is begun again: those that kill the
// workers of a neighbour may end it too.
const mostProvisions = 3

// let gives the node to a tenant, who uses it, and makes what the release meets there.
func (l letting) let(ctx context.Context, t *Target) error {
	if err := l.offer(ctx, t); err != nil {
		return err
	}
	var err error
	for range mostProvisions {
		if err = t.through(ctx, contract.KindAllocationProvision, startProvision); err == nil {
			break
		}
		if again := t.returnToService(ctx); again != nil {
			return errors.Join(err, again)
		}
	}
	if err != nil {
		return fmt.Errorf("let the node: %w", err)
	}
	if err := l.use(t); err != nil {
		return fmt.Errorf("use the node: %w", err)
	}
	if l.trouble != nil {
		if err := l.trouble(ctx, t); err != nil {
			return fmt.Errorf("prepare the trouble: %w", err)
		}
	}
	t.watchAccess(ctx)
	return countEffects(ctx, t)
}

// use leaves what a tenant leaves.
func (l letting) use(t *Target) error {
	if !l.root {
		return t.leaveData(t.allocation, "in files of disks", t.node().Fill)
	}
	return t.useAsRoot(t.allocation)
}

// leaveData leaves what a tenant leaves, under his name. It is noted in the machine's log.
func (t *Target) leaveData(tenant, how string, leave func() error) error {
	t.node().SetTenant(tenant)
	t.log.add("tenant %s leaves data, %s", tenant, how)
	return leave()
}

// useAsRoot leaves what a tenant who is root leaves, but for an entry of the firmware's boot menu:
// no release takes that away, which TestAllocation_OneTenantAfterAnother plays, and a later case on
// the same machine would find it.
func (t *Target) useAsRoot(tenant string) error {
	menu := t.Machine.BootEntries()
	err := t.leaveData(tenant, "as root", t.node().Occupy)
	t.Machine.SetBootEntries(menu...)
	return err
}

// returnToService waits for the end of an allocation that was not provisioned, and does what an
// operator does with its node.
func (t *Target) returnToService(ctx context.Context) error {
	a, err := t.allocationEnds(ctx)
	if err != nil || !lifecycle.Allocation.Terminal(a.Status) {
		return fmt.Errorf("allocation %s is %s: %w", t.allocation, a.Status, err)
	}
	n, err := t.Store.Node(ctx, t.NodeID)
	if err == nil && n.Status == lifecycle.NodeQuarantined {
		err = t.Store.Tx(ctx, func(tx *db.Tx) error {
			by := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"}
			_, err := tx.TransitionNode(ctx, t.NodeID, lifecycle.NodeUnquarantine, lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy}, by)
			return err
		})
	}
	if err == nil && !t.becomes(ctx, lifecycle.NodeActive) {
		err = fmt.Errorf("node %s did not become active", t.NodeID)
	}
	if err == nil {
		err = t.requireClean(ctx)
	}
	return err
}

// allocationSettles is how long an allocation may take to end after its provision did: the release
// may have to install its node again.
const allocationSettles = 4 * time.Minute

// allocationEnds waits until the target's allocation is in a state that no job moves on, and
// returns it.
func (t *Target) allocationEnds(ctx context.Context) (allocationdb.Allocation, error) {
	var a allocationdb.Allocation
	var err error
	eventually(ctx, runenv.Patience(allocationSettles), func() bool {
		a, err = allocationdb.Get(ctx, t.Store, t.allocation)
		pause(ctx, lookEvery)
		return err == nil && (lifecycle.Allocation.Terminal(a.Status) || a.Status == lifecycle.AllocationReleaseFailed || a.Status == lifecycle.AllocationActive)
	})
	return a, err
}

// retryRelease does what an operator does once a site is back: the release that followed a
// provision met neither the BMC nor MAAS, and waits for him.
func (t *Target) retryRelease(ctx context.Context) (allocationdb.Allocation, error) {
	var a allocationdb.Allocation
	for range mostRetries {
		pause(ctx, runenv.Patience(retryAfter))
		j, err := t.Store.LiveJobOfResource(ctx, allocationdb.Resource, t.allocation)
		if err != nil {
			return a, err
		}
		if err := t.retryStage(ctx, j, "the site is back", client.WorkflowUpdateStageCompleted); err != nil {
			return a, err
		}
		pause(ctx, retryAfter)
		if a, err = t.allocationEnds(ctx); err != nil || a.Status != lifecycle.AllocationReleaseFailed {
			return a, err
		}
	}
	return a, nil
}

// An operator looks after a site that is away this often, after this time.
const (
	mostRetries = 4
	retryAfter  = 3 * time.Second
)

// The troubles of a release.

// agentLies makes the agent answer that it has removed the account, while the node still lets the
// tenant in.
func agentLies(_ context.Context, t *Target) error {
	f := t.node().Faults()
	f.SSHKeepsAccess = true
	return t.node().SetFaults(f)
}

// agentStopped stops the agent's process until the system goes down.
func agentStopped(ctx context.Context, t *Target) error {
	var err error
	eventually(ctx, 5*time.Second, func() bool {
		err = t.node().StopAgent()
		return err == nil
	})
	return err
}

func processStuck(_ context.Context, t *Target) error {
	return t.node().HoldProcess(lifecycle.TenantAccount(t.allocation))
}

// bmcDead takes the BMC away, from MAAS too.
func bmcDead(_ context.Context, t *Target) error {
	t.Machine.SetBMCDown(true)
	return nil
}

// giveBack releases the target's allocation.
func (t *Target) giveBack(ctx context.Context, tx *db.Tx) (allocation.Released, error) {
	return allocation.Release(ctx, tx, t.allocation, "done", db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"})
}

// askRelease gives the node back in the midst of its provision, as the API does: after the commit
// the job is told, which may not reach it.
func (t *Target) askRelease(ctx context.Context) error {
	t.mu.Lock()
	t.givenBack = true
	t.mu.Unlock()
	return t.end(ctx, t.giveBack)
}

// end changes the target's allocation, and tells its job.
func (t *Target) end(ctx context.Context, change func(context.Context, *db.Tx) (allocation.Released, error)) error {
	var r allocation.Released
	err := t.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		r, err = change(ctx, tx)
		return err
	})
	if err != nil || r.Job == nil || r.Action == "" {
		return err
	}
	_, err = t.Stack.App.Temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: contract.JobWorkflowID(contract.JobKind(r.Job.Kind), r.Job.ID), UpdateName: string(r.Action),
		WaitForStage: client.WorkflowUpdateStageAccepted, Args: []any{contract.ActionRequest{Actor: "chaos", Reason: "the allocation is to end"}},
	})
	if r.Action == lifecycle.ActionCancel {
		return nil // a job that is not reached finds out by itself
	}
	return err
}

// endRelease does what ends a release that has failed because nothing proves the end of the access.
// It does so once for each time that the job parked.
func (l letting) endRelease(ctx context.Context, t *Target, job db.Job) bool {
	t.mu.Lock()
	done := t.operated[job.Seq]
	t.mu.Unlock()
	if done || job.FailureClass != lifecycle.FailAccessUnconfirmed {
		return done
	}
	if err := l.operator(ctx, t, job); err != nil {
		return false
	}
	t.mu.Lock()
	t.operated[job.Seq] = true
	t.mu.Unlock()
	return true
}

// forceRelease has the BMC repaired, and the release tried again.
func forceRelease(ctx context.Context, t *Target, _ db.Job) error {
	t.unconfirmed(ctx)
	t.Machine.SetBMCDown(false)
	return t.end(ctx, func(ctx context.Context, tx *db.Tx) (allocation.Released, error) {
		return allocation.ForceRelease(ctx, tx, t.allocation, "the BMC answers again", db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"})
	})
}

// removeAssignment gives the release up. Its node is quarantined, so that nobody reads its power.
func removeAssignment(ctx context.Context, t *Target, _ db.Job) error {
	t.unconfirmed(ctx)
	a, err := allocationdb.Get(ctx, t.Store, t.allocation)
	if err != nil {
		return err
	}
	return t.end(ctx, func(ctx context.Context, tx *db.Tx) (allocation.Released, error) {
		by := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"}
		return allocation.RemoveAssignment(ctx, tx, t.allocation, "the BMC is broken", a.Version, allocation.PowerProof{}, by)
	})
}

// unconfirmed keeps what is wrong with an allocation whose release has failed: its access is
// unconfirmed, it has its node, and the node is quarantined.
func (t *Target) unconfirmed(ctx context.Context) {
	a, err := allocationdb.Get(ctx, t.Store, t.allocation)
	n, nerr := t.Store.Node(ctx, t.NodeID)
	wrong := ""
	switch {
	case err != nil || nerr != nil:
		return
	case a.Status != lifecycle.AllocationReleaseFailed || a.Access != lifecycle.AccessUnconfirmed:
		wrong = fmt.Sprintf("the job is parked, and the allocation is %s with access %q, should be release_failed and unconfirmed", a.Status, a.Access)
	case n.Status != lifecycle.NodeQuarantined || n.AllocationID == nil || *n.AllocationID != a.ID:
		wrong = fmt.Sprintf("the release has failed, and the node is %s of %v, should be quarantined and the allocation's", n.Status, n.AllocationID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parkedOnce = true; wrong != "" {
		t.wrong = append(t.wrong, wrong)
	}
}
