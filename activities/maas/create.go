package maas

import (
	"cmp"
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// CreateIn is the input of CreateOrFindMachine.
type CreateIn struct {
	contract.JobRef
	Hostname string            `json:"hostname"`
	Profile  spec.ProfileSpec  `json:"profile"`
	BMC      contract.BMCFacts `json:"bmc"`
	// KnownSystemID is the system id of an earlier step, read again rather than sought.
	KnownSystemID string `json:"known_system_id,omitempty"`
	// NewLogin says that the job has changed the BMC's password, so that a machine which MAAS has already
	// needs it, whatever its state.
	NewLogin bool `json:"new_login,omitempty"`
}

// CreateOrFindMachine finds the machine by what the BMC said of it and adopts
// it, or creates it uncommissioned; the profile may let it claim the one machine
// that is New when none matches. More than one candidate requires operator
// action. A create whose answer was lost, or that lost a race with
// enlistment, is resolved by finding again.
func (a *Activities) CreateOrFindMachine(ctx context.Context, in CreateIn) (contract.MachineFacts, error) {
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
		return out, fault.New(lifecycle.FailStateDisagreement, "machine %s is %s for another job, %s",
			got.SystemID, got.Status, got.Annotations[annotationJob])
	}
	if (got.Status == providers.MAASDeployed || got.Status == providers.MAASDeploying) && got.Annotations[annotationJob] == "" {
		return out, fault.New(lifecycle.FailStateDisagreement, "machine %s is already %s by someone else; release it in MAAS, or cancel",
			got.SystemID, got.Status)
	}
	if in.ObserveOnly {
		return out, nil
	}
	err = a.Store.SetNodeMachine(ctx, in.NodeID, db.NodeMachine{
		SystemID: got.SystemID, Serial: cmp.Or(in.BMC.Serial, got.Serial), HardwareUUID: cmp.Or(in.BMC.UUID, got.UUID), MACs: in.BMC.MACs,
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

// recordSerialSource keeps who named the node's serial number: the BMC, or MAAS where the BMC told none.
func (a *Activities) recordSerialSource(ctx context.Context, in CreateIn, got providers.MAASMachine) error {
	if in.BMC.Serial == "" {
		return hardwaredb.RecordSerialSource(ctx, a.Store, in.NodeID, got.Serial, hardwaredb.SerialOfMAAS)
	}
	return hardwaredb.RecordSerialSource(ctx, a.Store, in.NodeID, in.BMC.Serial, hardwaredb.SerialOfBMC(in.BMC.SerialSource))
}

// adoptPower gives MAAS the BMC login that Slipway has, where the one that an adopted record holds does
// not work: each enlistment sets the password of the same BMC user, so that a second record of the
// machine makes the first one's invalid. A login that works is left alone, and so is another BMC.
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
