package machines

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
)

// bmcOf returns the record of the BMC at the bmc_endpoint of a machine with a login, nil without
// one. The record that the machine has stays, with the certificate that was approved for it: ref ""
// keeps its login, and another ref changes that.
func bmcOf(ctx context.Context, tx *db.Tx, m machinesdb.Machine, ref string, actor db.Actor) (*string, error) {
	if ref == "" && (m.BMCID == nil || m.SiteID == nil) {
		return nil, nil
	}
	if m.Spec.BMCEndpoint == "" || m.SiteID == nil {
		return nil, invalid("bmc_credential_ref", "needs spec.bmc_endpoint of the machine, and a site whose networks hold for the BMC")
	}
	var known db.BMC
	if m.BMCID != nil {
		var err error
		if known, err = tx.BMC(ctx, *m.BMCID); err != nil {
			return nil, err
		}
		if ref == "" {
			ref = known.CredentialRef
		}
	}
	stated := db.NewBMC{Address: m.Spec.BMCEndpoint, Protocol: intent.ProtocolOfBMC(m.Spec.BMCEndpoint), CredentialRef: ref}
	if err := checkBMC(ctx, tx, stated, *m.SiteID); err != nil {
		return nil, err
	}
	if db.IsSameBMCAddress(known.Address, stated.Address) {
		_, err := tx.CorrectBMC(ctx, "", known, db.BMCSpec{NewBMC: stated}, actor)
		return m.BMCID, bmcTaken(err)
	}
	if err := tx.BMCFree(ctx, stated.Address, stated.Protocol, stated.SystemID, ""); err != nil {
		return nil, bmcTaken(err)
	}
	made, err := tx.CreateBMC(ctx, stated)
	if err != nil {
		return nil, err
	}
	return &made.ID, tx.AuditBMC(ctx, made.ID, "", "create", actor, map[string]any{"machine": m.ID, "address": made.Address, "protocol": made.Protocol, "credential_ref": ref})
}

// checkBMC refuses a BMC whose address the site does not allow, or whose login is not for it.
func checkBMC(ctx context.Context, tx *db.Tx, b db.NewBMC, siteID string) error {
	site, err := tx.Site(ctx, siteID)
	if err != nil {
		return err
	}
	bad, err := intent.CheckBMC(ctx, tx, intent.BMC{Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef, Site: &site})
	if err != nil {
		return err
	}
	for i, f := range bad {
		switch f.Name {
		case "credential_ref":
			bad[i].Name = "bmc_credential_ref"
		case "address":
			bad[i].Name = "spec.bmc_endpoint"
		}
	}
	return intent.InvalidIf(bad)
}

// bmcTaken turns a conflict about a BMC into a refusal.
func bmcTaken(err error) error {
	var taken *db.ConflictError
	if errors.As(err, &taken) {
		return &intent.Refusal{Kind: intent.Conflict, Existing: taken.Existing, Detail: taken.Message}
	}
	return err
}

// dropBMC deletes the record of the BMC that a machine had before, where nothing names it any more.
func dropBMC(ctx context.Context, tx *db.Tx, former, now *string, actor db.Actor) error {
	if former == nil || now != nil && *now == *former {
		return nil
	}
	return tx.DropBMCOfNothing(ctx, *former, actor)
}
