package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// PowerLoginIn is the input of UpdatePowerLogin.
type PowerLoginIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
	// CredentialRef is the login that the BMC takes now, by reference.
	CredentialRef string `json:"credential_ref"`
	// Unproven is for a clean-up, which must not wait for what was broken
	// before: MAAS is not asked for the power state, and left alone where it
	// controls the machine through another BMC.
	Unproven bool `json:"unproven,omitempty"`
}

// UpdatePowerLogin gives MAAS the login that a BMC takes now: MAAS keeps its own
// copy, and with an old one it can control the machine's power no longer. It
// reads first and writes only what differs, reads back, and proves the login by
// asking for the power state. Nothing is to do where the node is no machine of
// MAAS, where MAAS controls no power, and where it logs in as another user.
func (a *Activities) UpdatePowerLogin(ctx context.Context, in PowerLoginIn) (contract.MachineFacts, error) {
	systemID, err := a.machineOfNode(ctx, in.NodeID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if systemID == "" {
		return nothingToDo("", "the BMC's node is no machine of MAAS"), nil
	}
	bmc, err := a.Store.BMC(ctx, in.BMCID)
	if err != nil {
		return contract.MachineFacts{}, fault.Internal(ctx, err)
	}
	login, err := a.bmcLogin(ctx, in.JobRef, bmc.Address, in.CredentialRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	now, err := m.PowerLogin(ctx, systemID, bmc.Address, login.Password)
	if providers.IsKind(err, providers.KindNotFound) {
		return nothingToDo(systemID, "the machine is no longer in MAAS"), nil
	}
	switch {
	case err != nil:
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	case now.Type == "" || now.Type == "manual":
		return nothingToDo(systemID, "MAAS does not control the machine's power"), nil
	case now.User != login.Username:
		return nothingToDo(systemID, "MAAS logs in to the BMC as another user"), nil
	case !now.SameBMC && in.Unproven:
		return nothingToDo(systemID, "MAAS controls the machine through another BMC"), nil
	case !now.SameBMC:
		return contract.MachineFacts{}, fault.New(lifecycle.FailStateDisagreement,
			"MAAS controls machine %s through a BMC at %s, not at %s; correct one of the two", systemID, now.Address, bmc.Address)
	case in.ObserveOnly:
		return contract.MachineFacts{SystemID: systemID, Done: now.SamePassword, Status: heldPassword(now)}, nil
	}
	if !now.SamePassword {
		if err := a.writePowerLogin(ctx, m, systemID, bmc.Address, login); err != nil {
			return contract.MachineFacts{}, err
		}
	}
	return provePower(ctx, m, systemID, in.Unproven)
}

// machineOfNode is the node's MAAS system id; "" where it has none.
func (a *Activities) machineOfNode(ctx context.Context, nodeID string) (string, error) {
	if nodeID == "" {
		return "", nil
	}
	node, err := a.Store.Node(ctx, nodeID)
	if err != nil || node.MAASSystemID == nil {
		return "", fault.Internal(ctx, err)
	}
	return *node.MAASSystemID, nil
}

func nothingToDo(systemID, why string) contract.MachineFacts {
	return contract.MachineFacts{SystemID: systemID, Done: true, Note: why}
}

func heldPassword(p providers.MAASPower) string {
	if p.SamePassword {
		return "current"
	}
	return "outdated"
}

// writePowerLogin writes and reads back. A write whose answer was lost counts
// by what is read afterwards.
func (a *Activities) writePowerLogin(ctx context.Context, m providers.MAAS, systemID, address string, login providers.Login) error {
	werr := m.SetPowerLogin(ctx, systemID, login.Username, login.Password)
	if werr != nil && !transient(werr) {
		return fault.MAAS(ctx, werr)
	}
	got, err := m.PowerLogin(ctx, systemID, address, login.Password)
	switch {
	case err != nil:
		return fault.MAAS(ctx, err)
	case got.SamePassword:
		return nil
	case werr != nil:
		return fault.MAAS(ctx, werr)
	}
	return fault.New(lifecycle.FailMAASRejected, "MAAS took the new BMC login of machine %s and still holds another", systemID)
}

// provePower asks for the power state, which makes MAAS log in to the BMC.
func provePower(ctx context.Context, m providers.MAAS, systemID string, unproven bool) (contract.MachineFacts, error) {
	out := contract.MachineFacts{SystemID: systemID, Done: true, Status: "current", Note: "MAAS holds the BMC's login"}
	if unproven {
		return out, nil
	}
	power, err := m.QueryPower(ctx, systemID)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	if power == "error" {
		return out, fault.New(lifecycle.FailPowerNotConfirmed,
			"MAAS holds the BMC's new login, and cannot read the power state of machine %s; look at the machine's events in MAAS", systemID)
	}
	out.Power, out.Note = power, "MAAS reads the power state with the BMC's login"
	return out, nil
}
