package maas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// CreateIn is the input of CreateOrFindMachine.
type CreateIn struct {
	contract.JobRef
	Hostname string            `json:"hostname"`
	Profile  spec.ProfileSpec  `json:"profile"`
	BMC      contract.BMCFacts `json:"bmc"`
	// KnownSystemID is the system id of an earlier step, read again rather than sought.
	KnownSystemID string `json:"known_system_id,omitempty"`
	// NewLogin says that the job has changed the BMC's password, so that a machine which MAAS has
	// already needs it, whatever its state.
	NewLogin bool `json:"new_login,omitempty"`
}

// CreateOrFindMachine finds the machine by what the BMC said of it and adopts
// it, or creates it uncommissioned; the profile may let it claim the one machine
// that is New when none matches. More than one candidate requires operator
// action. A create whose answer was lost, or that lost a race with
// enlistment, is resolved by finding again.
func (a *Activities) CreateOrFindMachine(ctx context.Context, in CreateIn) (contract.MachineFacts, error) {
	keys := in.keys()
	in.BMC.Serial, in.BMC.UUID = keys.Serial, keys.UUID // what identifies nothing is as good as not told
	m, site, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if in.KnownSystemID != "" {
		if got, err := m.Machine(ctx, in.KnownSystemID); err == nil {
			return a.claimed(ctx, m, in, got)
		} else if !providers.IsKind(err, providers.KindNotFound) {
			return contract.MachineFacts{}, fault.MAAS(ctx, err)
		}
	}
	found, err := a.find(ctx, m, in)
	if err == nil && found == nil && in.Profile.AutoClaimSingleNewMachine {
		found, err = a.findNew(ctx, m, in)
	}
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if found != nil {
		return a.claimed(ctx, m, in, *found)
	}
	if in.ObserveOnly {
		return contract.MachineFacts{Status: providers.MAASAbsent}, nil
	}
	created, cerr := a.create(ctx, m, site, in)
	if cerr == nil {
		return a.claimed(ctx, m, in, created)
	}
	return a.afterFailedCreate(ctx, m, in, cerr)
}

func (a *Activities) create(ctx context.Context, m providers.MAAS, site spec.SiteSpec, in CreateIn) (providers.MAASMachine, error) {
	bmc, err := a.Store.BMC(ctx, in.BMC.BMCID)
	if err != nil {
		return providers.MAASMachine{}, deleted(ctx, err, "BMC", in.BMC.BMCID)
	}
	login, err := a.bmcLogin(ctx, in.JobRef, bmc.Address, bmc.CredentialRef)
	if err != nil {
		return providers.MAASMachine{}, err
	}
	// Written down first: what is found after a lost answer is this job's own.
	if err := a.Store.SetMAASCreateIntent(ctx, in.NodeID, in.JobID); err != nil {
		return providers.MAASMachine{}, fault.Internal(ctx, err)
	}
	return m.CreateMachine(ctx, providers.MAASCreate{
		Hostname: in.Hostname, Domain: site.DefaultDomain, Zone: site.Zone, Pool: site.Pool,
		Architecture: in.Profile.Architecture, MACs: in.BMC.MACs, PowerType: in.powerType(),
		PowerAddress: bmc.Address, PowerUser: login.Username, PowerPassword: login.Password,
		PowerNodeID: in.powerNode(),
	})
}

// powerType is how MAAS is to talk to the BMC: as Slipway does.
func (in CreateIn) powerType() string {
	if in.BMC.Protocol != "" {
		return in.BMC.Protocol
	}
	return in.Profile.PowerType
}

// powerNode names one of several systems behind a Redfish BMC; IPMI has one.
func (in CreateIn) powerNode() string {
	if in.powerType() != "redfish" {
		return ""
	}
	return in.BMC.RedfishSysID
}

// afterFailedCreate looks whether the machine is there all the same: an error
// from MAAS does not mean that nothing happened.
func (a *Activities) afterFailedCreate(ctx context.Context, m providers.MAAS, in CreateIn, cerr error) (contract.MachineFacts, error) {
	if transient(cerr) || providers.IsKind(cerr, providers.KindInvalid) {
		found, err := a.find(ctx, m, in)
		if err != nil {
			return contract.MachineFacts{}, err
		}
		if found != nil {
			return a.claimed(ctx, m, in, *found)
		}
	}
	if !transient(cerr) && ctx.Err() == nil {
		// MAAS refused, and has no record: one that somebody makes from now on must not be deleted
		// as this job's own.
		if err := a.Store.SetMAASCreateIntent(ctx, in.NodeID, ""); err != nil {
			return contract.MachineFacts{}, fault.Internal(ctx, err)
		}
	}
	return contract.MachineFacts{}, fault.MAAS(ctx, cerr)
}

// find returns the one machine that matches, nil for none.
func (a *Activities) find(ctx context.Context, m providers.MAAS, in CreateIn) (*providers.MAASMachine, error) {
	found, err := m.FindMachines(ctx, providers.MAASQuery{
		MACs: in.BMC.MACs, Hostname: in.Hostname, Serial: in.BMC.Serial, BMCAddress: in.BMC.Address,
	})
	if err != nil {
		return nil, fault.MAAS(ctx, err)
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	return nil, fault.New(lifecycle.FailConflictingCandidates, "%d MAAS machines match %s: %s", len(found), in.Hostname, listed(found))
}

// claimed refuses a machine that someone else uses and records the rest on the
// node.
func (a *Activities) claimed(ctx context.Context, m providers.MAAS, in CreateIn, got providers.MAASMachine) (contract.MachineFacts, error) {
	out := facts(got)
	out.Done = true
	node, err := a.Store.Node(ctx, in.NodeID)
	if dryRun := in.ObserveOnly && in.NodeID == ""; err != nil && !dryRun {
		return out, fault.Internal(ctx, err)
	}
	// An enlisted machine has a name of MAAS's own.
	out.Created = node.MAASCreateIntent == in.JobID && got.Hostname == in.Hostname
	if got.Locked {
		return out, fault.New(lifecycle.FailStateDisagreement, "machine %s is locked in MAAS; unlock it first", got.SystemID)
	}
	if inUse(got.Status) && got.Annotations[annotationJob] != in.JobID && got.Annotations[annotationJob] != "" {
		return out, a.heldBy(ctx, got)
	}
	if (got.Status == providers.MAASDeployed || got.Status == providers.MAASDeploying) && got.Annotations[annotationJob] == "" {
		return out, fault.New(lifecycle.FailStateDisagreement, "machine %s is already %s by someone else; release it in MAAS, or cancel",
			got.SystemID, got.Status)
	}
	if err := in.otherMachine(got); err != nil || in.ObserveOnly {
		return out, err
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error {
		err := tx.SetNodeMachine(ctx, in.NodeID, db.NodeMachine{
			SystemID: got.SystemID, Serial: cmp.Or(in.BMC.Serial, got.Serial), HardwareUUID: cmp.Or(in.BMC.UUID, got.UUID), MACs: in.BMC.MACs,
		})
		if err != nil {
			return err
		}
		return driftdb.ObserveIdentity(ctx, tx, in.NodeID)
	})
	var conflict *db.ConflictError
	if errors.As(err, &conflict) {
		return out, fault.New(lifecycle.FailConflictingCandidates, "MAAS machine %s (%s) belongs to another node already, %s",
			got.SystemID, got.Hostname, conflict.Existing)
	}
	if err == nil {
		err = a.recordSerialSource(ctx, in, got)
	}
	if err != nil || out.Created {
		return out, fault.Internal(ctx, err)
	}
	return out, a.adoptPower(ctx, m, in, got)
}

// heldBy says whose a machine is that a job of another node deployed, and how it gets free: a node
// that was removed leaves its machine deployed in MAAS. A machine of a node that lives is never to
// be released.
func (a *Activities) heldBy(ctx context.Context, got providers.MAASMachine) error {
	id := got.Annotations[annotationJob]
	what := fmt.Sprintf("machine %s is %s for another job, %s", got.SystemID, got.Status, id)
	job, err := a.Store.Job(ctx, id)
	if errors.Is(err, db.ErrNotFound) || err == nil && job.NodeID == nil {
		return fault.New(lifecycle.FailStateDisagreement, "%s, which is not known here; find out which installation manages the machine", what)
	}
	if err != nil {
		return fault.Internal(ctx, err)
	}
	node, err := a.Store.Node(ctx, *job.NodeID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	if node.Status != lifecycle.NodeDeleted {
		return fault.New(lifecycle.FailStateDisagreement, "%s, of node %s (%s), which is %s; decommission that node first", what, node.Hostname, node.ID, node.Status)
	}
	return fault.New(lifecycle.FailStateDisagreement, "%s, of node %s (%s), which was removed; release the machine with its disks erased: maas PROFILE machine release %s erase=true; then retry",
		what, node.Hostname, node.ID, got.SystemID)
}

// keys returns what the BMC says of its machine, as it is compared.
func (in CreateIn) keys() spec.MachineKeys {
	return spec.MachineKeys{Serial: in.BMC.Serial, UUID: in.BMC.UUID, MACs: in.BMC.MACs}.Normal()
}

// otherMachine refuses a record of MAAS with another serial number or UUID than the BMC tells,
// unless two keys agree. The BMC's network cards may be others than those that MAAS knows. A serial
// number that is a chassis's, and what IPMI tells, may differ from what MAAS reads on the host.
func (in CreateIn) otherMachine(got providers.MAASMachine) error {
	bmc, rec := in.keys(), spec.MachineKeys{Serial: got.Serial, UUID: got.UUID, MACs: got.MACs}
	like := bmc.Compare(rec)
	const enough = 2
	if len(like.Same) >= enough || in.powerType() != "redfish" {
		return nil
	}
	ofSystem := strings.HasPrefix(in.BMC.SerialSource, "system")
	for _, key := range like.Differ {
		if key == spec.KeyUUID || key == spec.KeySerial && ofSystem {
			return fault.New(lifecycle.FailConflictingCandidates,
				"MAAS machine %s (%s) has serial number %q and UUID %q, and the BMC says %q and %q: the record is another machine's, or wrong; correct the BMC's address, or delete the record in MAAS",
				got.SystemID, got.Hostname, got.Serial, got.UUID, bmc.Serial, bmc.UUID)
		}
	}
	return nil
}

// recordSerialSource keeps who named the node's serial number: the BMC, or MAAS where the BMC told
// none.
func (a *Activities) recordSerialSource(ctx context.Context, in CreateIn, got providers.MAASMachine) error {
	if in.BMC.Serial == "" {
		return hardwaredb.RecordSerialSource(ctx, a.Store, in.NodeID, got.Serial, hardwaredb.SerialOfMAAS)
	}
	return hardwaredb.RecordSerialSource(ctx, a.Store, in.NodeID, in.BMC.Serial, hardwaredb.SerialOfBMC(in.BMC.SerialSource))
}

// adoptPower gives MAAS the BMC login that Slipway has, where the one that an adopted record holds
// does not work: each enlistment sets the password of the same BMC user, so that a second record of
// the machine makes the first one's invalid. A login that works is left alone, and so is another
// BMC.
func (a *Activities) adoptPower(ctx context.Context, m providers.MAAS, in CreateIn, got providers.MAASMachine) error {
	if got.Status != providers.MAASNew && got.Status != providers.MAASFailedCommissioning && !in.NewLogin {
		return nil
	}
	if power, err := m.QueryPower(ctx, got.SystemID); err == nil && power != "error" {
		return nil
	}
	bmc, err := a.Store.BMC(ctx, in.BMC.BMCID)
	if err != nil {
		return deleted(ctx, err, "BMC", in.BMC.BMCID)
	}
	login, err := a.bmcLogin(ctx, in.JobRef, bmc.Address, bmc.CredentialRef)
	if err != nil {
		return err
	}
	now, err := m.PowerLogin(ctx, got.SystemID, bmc.Address, login.Password)
	switch {
	case err != nil:
		return fault.MAAS(ctx, err)
	case !now.SameBMC || now.SamePassword && now.User == login.Username:
		return nil // what is wrong is not the login; commissioning says it
	}
	return a.writePowerLogin(ctx, m, got.SystemID, bmc.Address, login)
}
