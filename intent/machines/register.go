// Package machines is what is asked of machines, plans and runs: it checks, decides and writes in
// the transaction that it is given.
package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Registration is a machine that is registered or updated. The specification is checked already
// (spec.NormalMachine).
type Registration struct {
	ID        string // "" finds the machine by its MAC addresses, or makes one
	ProjectID string // "" keeps that of a machine that there is already
	Labels    map[string]string
	Spec      spec.MachineSpec
	Phase     lifecycle.MachinePhase // of a machine that is new: FACTORY_READY, or "" for READY
}

// Register writes a machine that there is not yet, and updates it otherwise. A machine is found by
// its id, or without one by its MAC addresses.
func Register(ctx context.Context, tx *db.Tx, in Registration, actor db.Actor) (machinesdb.Machine, error) {
	if in.ID != "" && !spec.ValidMachineID(in.ID) {
		return machinesdb.Machine{}, invalid("machine.machine_id", "must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-'")
	}
	owners, err := machinesdb.FindByMACs(ctx, tx, in.Spec.MACAddresses)
	if err != nil {
		return machinesdb.Machine{}, err
	}
	others := slices.DeleteFunc(slices.Clone(owners), func(id string) bool { return id == in.ID })
	switch {
	case in.ID != "" && len(others) > 0, len(owners) > 1:
		return machinesdb.Machine{}, &intent.Refusal{Kind: intent.Conflict, Existing: owners[0], Detail: fmt.Sprintf(
			"the MAC addresses belong to %s; a network card is in one machine: correct the addresses, or retire the other machine", strings.Join(owners, " and "))}
	case in.ID == "" && len(owners) == 1:
		in.ID = owners[0]
	}
	if in.ID != "" {
		found, err := machinesdb.Lock(ctx, tx, in.ID)
		if err == nil {
			if in.ProjectID == "" {
				in.ProjectID = text(found.ProjectID) // a registration that states no project takes it from nobody
			}
			return update(ctx, tx, found, in, "register_machine", actor)
		}
		if !errors.Is(err, db.ErrNotFound) {
			return machinesdb.Machine{}, err
		}
	}
	return machinesdb.Create(ctx, tx, machinesdb.New{
		ID: in.ID, ProjectID: in.ProjectID, Labels: in.Labels, Spec: in.Spec, Phase: cmp.Or(in.Phase, lifecycle.MachineReady), Actor: actor,
	})
}

// Update replaces labels and specification of a machine, and nothing else.
func Update(ctx context.Context, tx *db.Tx, in Registration, actor db.Actor) (machinesdb.Machine, error) {
	m, err := machinesdb.Lock(ctx, tx, in.ID)
	if err != nil {
		return m, err
	}
	in.ProjectID = text(m.ProjectID)
	return update(ctx, tx, m, in, "update_machine", actor)
}

// update writes a locked machine. How it is reached does not change while a run is active. A new
// SSH endpoint drops the pinned host key, and a new BMC endpoint the login of the BMC: another
// machine may answer there.
func update(ctx context.Context, tx *db.Tx, m machinesdb.Machine, in Registration, name string, actor db.Actor) (machinesdb.Machine, error) {
	if m.Status == lifecycle.MachineRetired {
		return m, &intent.Refusal{Kind: intent.IllegalTransition, Existing: m.ID, Detail: "the machine is RETIRED and does not change; register it under another id"}
	}
	changed := m.Spec.ChangedAccess(in.Spec)
	if len(changed) > 0 && m.ActiveRunID != nil {
		return m, activeRun(*m.ActiveRunID, "how the machine is reached ("+strings.Join(changed, ", ")+") cannot change while a run is active on it")
	}
	moves := in.ProjectID != text(m.ProjectID)
	if m.ActiveRunID != nil && moves {
		return m, activeRun(*m.ActiveRunID, "a machine changes its project only when no run is active on it")
	}
	if moves {
		if err := leaveCluster(ctx, tx, m.ID); err != nil {
			return m, err
		}
	}
	if slices.Contains(changed, "spec.ssh_endpoint") {
		m.HostKey = ""
	}
	former := m.BMCID
	if slices.Contains(changed, "spec.bmc_endpoint") {
		m.BMCID = nil // its login is for the BMC of before
	}
	m.Labels, m.Spec, m.ProjectID = in.Labels, in.Spec, optional(in.ProjectID)
	if moves {
		if err := checkProject(ctx, tx, m); err != nil {
			return m, err
		}
	}
	m, err := machinesdb.Update(ctx, tx, m)
	if err == nil {
		err = dropBMC(ctx, tx, former, m.BMCID, actor)
	}
	if err != nil {
		return m, err
	}
	return m, audit(ctx, tx, m, name, actor, map[string]any{"access_changed": changed})
}

// checkProject refuses a machine of a project whose node another project has, or is giving back.
func checkProject(ctx context.Context, tx *db.Tx, m machinesdb.Machine) error {
	err := machinesdb.KeepRight(ctx, tx, m, text(m.ProjectID))
	if errors.Is(err, db.ErrNotFound) {
		return &intent.Refusal{Kind: intent.ActionRefused, Existing: *m.NodeID, Detail: fmt.Sprintf(
			"node %s of machine %s is allocated to another project, or its allocation is being changed or released; give the machine to project %s when it has the node", *m.NodeID, m.ID, *m.ProjectID)}
	}
	return err
}

// leaveCluster forgets which node a machine was in a cluster of the project that it leaves. It
// refuses that while nothing proves that the machine has left the cluster: it may hold what that
// project runs and knows.
func leaveCluster(ctx context.Context, tx *db.Tx, id string) error {
	is, err := clusterdb.IsInCluster(ctx, tx, id)
	if err != nil {
		return err
	}
	if is {
		return &intent.Refusal{Kind: intent.ActionRefused, Existing: id, Detail: "a run had the machine join a cluster of its project, and nothing proves that it has left it; " +
			"repave it, or where it is linked to no node take it out of the cluster, and then change its project"}
	}
	return clusterdb.ForgetMember(ctx, tx, id)
}

// leaveNode refuses to end the link of a machine to its node while nothing proves that the machine
// has left the cluster that a run had it join. The link alone says what may be on the disks of the
// node, so that no other tenant gets it.
func leaveNode(ctx context.Context, tx *db.Tx, m machinesdb.Machine) error {
	is, err := clusterdb.IsInCluster(ctx, tx, m.ID)
	if err == nil && is {
		err = &intent.Refusal{Kind: intent.ActionRefused, Existing: *m.NodeID, Detail: fmt.Sprintf("a run had machine %s join a cluster, and nothing has proven node %s clean since; "+
			"repave the machine, or decommission the node with mode reimage, and then change the link", m.ID, *m.NodeID)}
	}
	return err
}

// Access is how a machine is reached besides its endpoints. A machine of a node has the site and
// the pinned host key of the node.
type Access struct {
	NodeID, SiteID, HostKey string // "" for none
	// BMCCredentialRef names the login of the BMC at spec.bmc_endpoint of a machine without a node.
	// "" keeps the login that the machine has, while the machine has a site.
	BMCCredentialRef string
}

// SetAccess links a machine to a node, or gives it a site and a pinned host key.
func SetAccess(ctx context.Context, tx *db.Tx, id string, in Access, actor db.Actor) (machinesdb.Machine, error) {
	m, err := machinesdb.Lock(ctx, tx, id)
	if err != nil {
		return m, err
	}
	if m.ActiveRunID != nil {
		return m, activeRun(*m.ActiveRunID, "how a machine is reached cannot change while a run is active on it")
	}
	if m.NodeID != nil && *m.NodeID != in.NodeID {
		if err := leaveNode(ctx, tx, m); err != nil {
			return m, err
		}
	}
	if in.NodeID != "" {
		if in.SiteID != "" || in.HostKey != "" || in.BMCCredentialRef != "" {
			return m, invalid("site_id", "must be empty beside node_id, as ssh_host_key and bmc_credential_ref: a machine of a node has its site, its host key and its BMC")
		}
		if _, err := tx.Node(ctx, in.NodeID); err != nil {
			return m, err
		}
	}
	if in.SiteID != "" {
		if _, err := tx.Site(ctx, in.SiteID); err != nil {
			return m, err
		}
	}
	m.NodeID, m.SiteID, m.HostKey = optional(in.NodeID), optional(in.SiteID), in.HostKey
	former := m.BMCID
	if m.BMCID, err = bmcOf(ctx, tx, m, in.BMCCredentialRef, actor); err != nil {
		return m, err
	}
	if err := makeWay(ctx, tx, m, actor); err != nil {
		return m, err
	}
	if m, err = machinesdb.SetAccess(ctx, tx, m); err == nil {
		err = dropBMC(ctx, tx, former, m.BMCID, actor)
	}
	if err != nil {
		return m, err
	}
	return m, audit(ctx, tx, m, "set_machine_access", actor, map[string]any{"node_id": in.NodeID, "site_id": in.SiteID, "host_key": in.HostKey, "bmc_credential_ref": in.BMCCredentialRef, "bmc_id": text(m.BMCID)})
}

// makeWay checks that the project of a machine may have its node, and ends the link of a machine
// that no project has any more: the former link of a node does not block the next one.
func makeWay(ctx context.Context, tx *db.Tx, m machinesdb.Machine, actor db.Actor) error {
	if m.NodeID == nil || m.ProjectID == nil {
		return nil
	}
	if err := checkProject(ctx, tx, m); err != nil {
		return err
	}
	former, err := machinesdb.UnlinkFromNode(ctx, tx, *m.NodeID, m.ID)
	if err != nil || former == "" {
		return err
	}
	return audit(ctx, tx, machinesdb.Machine{ID: former, NodeID: m.NodeID}, "end_machine_link", actor, map[string]any{"linked_instead": m.ID})
}

// phases has the transition to each phase that an operator may set.
var phases = map[lifecycle.MachinePhase]lifecycle.Transition[lifecycle.MachinePhase]{
	lifecycle.MachineMaintenance: lifecycle.MachineSetMaintenance, lifecycle.MachineReady: lifecycle.MachineSetReady,
	lifecycle.MachineInService: lifecycle.MachineSetInService, lifecycle.MachineRMA: lifecycle.MachineSetRMA, lifecycle.MachineRetired: lifecycle.MachineRetire,
}

// SetPhase sets the phase of a machine on which no run is active. The phase that it has already is
// no change.
func SetPhase(ctx context.Context, tx *db.Tx, id string, to lifecycle.MachinePhase, reason string, actor db.Actor) (machinesdb.Machine, error) {
	t, ok := phases[to]
	if !ok {
		return machinesdb.Machine{}, invalid("phase", "must be MAINTENANCE, READY, IN_SERVICE, RMA or RETIRED")
	}
	if strings.TrimSpace(reason) == "" || len(reason) > db.MaxComment {
		return machinesdb.Machine{}, invalid("reason", fmt.Sprintf("must say in 1 to %d bytes why, for the audit log", db.MaxComment))
	}
	m, err := machinesdb.Lock(ctx, tx, id)
	if err != nil || m.Status == to {
		return m, err
	}
	if m.ActiveRunID != nil {
		return m, activeRun(*m.ActiveRunID, "the phase of a machine is that of its run while one is active")
	}
	var proof lifecycle.Proof
	if to == lifecycle.MachineInService && m.Conditions.Holds(lifecycle.InCustomerClusterCondition) && m.Conditions.Known(lifecycle.InCustomerClusterCondition) {
		proof = lifecycle.Proof{lifecycle.NeedInCluster}
	}
	actor.Comment = reason
	return machinesdb.MoveTo(ctx, tx, m, t, proof, "", actor)
}

func activeRun(runID, detail string) error {
	return &intent.Refusal{Kind: intent.Conflict, Existing: runID, Detail: fmt.Sprintf("%s; wait for run %s, or cancel it", detail, runID)}
}

func invalid(field, message string) error {
	return intent.InvalidIf([]intent.Field{{Name: field, Message: message}})
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// audit writes what somebody did to a machine.
func audit(ctx context.Context, tx *db.Tx, m machinesdb.Machine, name string, actor db.Actor, meta map[string]any) error {
	actor.Metadata = meta
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: machinesdb.Resource, ResourceID: m.ID, NodeID: m.NodeID, Kind: db.EntryAction, Name: name, Actor: actor})
}
