package sanitize

import (
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// checksTenantBMC reports whether the job gives the node of a tenant who was root to the next one.
// The release of an allocation has stages of its own for it.
func (s *State) checksTenantBMC() bool {
	return s.Mode == lifecycle.ModeReimage && !s.TenantRelease && s.Node.TenantRoot && s.Node.TenantLeft != nil && s.Node.BMCID != ""
}

// checkTenantBMC compares the BMC with what it was when the last tenant came, and gives it another
// password. It fails with firmware_changed where it is another one. Where no tenant is known there
// is nothing to compare with: the certificate says so.
func (s *State) checkTenantBMC(ctx workflow.Context, at string) error {
	if s.BMCChecked || !s.checksTenantBMC() {
		return nil
	}
	if s.RotatesBMC != "" { // until that has ended no login of the BMC is proven
		if done, err := RotateLogin(ctx, s.Job.At(at), s.RotatesBMC); err != nil || !done {
			return err
		}
	}
	n, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil || n.BMCID == "" || n.LastTenancy == "" {
		return err
	}
	ref := contract.AllocationRef{JobRef: s.Job.At(at), AllocationID: n.LastTenancy}
	f, err := stage.Do(ctx, stage.KindBMCCall, "compare the BMC's settings", bmc.CompareSettings,
		bmcact.SettingsIn{AllocationRef: ref, BMCID: n.BMCID, CAPEM: s.Config.Site.BMCCAPEM})
	if err != nil {
		return err
	}
	if len(f.Changed) > 0 {
		return stage.Fail(lifecycle.FailFirmwareChanged, "the BMC shows other settings than at the claim of %s: %s", n.LastTenancy, strings.Join(f.Changed, "; "))
	}
	s.RotatesBMC = n.BMCID
	if err := stage.Save(ctx); err != nil { // a workflow that is lost now ends the rotation all the same
		return err
	}
	if done, err := RotateLogin(ctx, s.Job.At(at), n.BMCID); err != nil || !done {
		return err
	}
	s.NotVerified, s.BMCChecked = NotVerified(f), true
	return nil
}

// NotVerified names what of a BMC nothing was compared of.
func NotVerified(f contract.SettingsFacts) []string {
	out := append(slices.Clone(f.Unreadable), f.NotOffered...)
	if !f.Done && len(out) == 0 {
		return []string{"the BMC shows none of its settings"}
	}
	if len(f.OtherAccounts) > 0 { // a rotation changes the password of Slipway's own alone
		out = append(out, "the passwords of the other enabled accounts of the BMC: "+strings.Join(f.OtherAccounts, ", "))
	}
	return out
}

// RotateLogin gives the BMC another password, since root could have learnt it, and reports whether
// it is in force. It can be repeated from the top: what is committed is found so.
func RotateLogin(ctx workflow.Context, job contract.JobRef, bmcID string) (bool, error) {
	in := bmcact.RotateIn{JobRef: job, BMCID: bmcID}
	f, err := stage.Do(ctx, stage.KindLocalWork, "make and store the new password", bmc.PrepareRotation, in)
	if err != nil {
		return false, err
	}
	if !f.Committed {
		if _, err = stage.Do(ctx, stage.KindBMCCall, "set the candidate on the BMC", bmc.ApplyRotation, in); err != nil {
			return false, err
		}
		if f, err = stage.Do(ctx, stage.KindBMCCall, "log in with the candidate", bmc.VerifyRotation, in); err != nil {
			return false, err
		}
	}
	power := maasact.PowerLoginIn{JobRef: job, BMCID: bmcID, CredentialRef: f.CandidateRef}
	if _, err = stage.Do(ctx, stage.KindMAASCall, "give MAAS the BMC's new login", maas.UpdatePowerLogin, power); err != nil {
		return false, err
	}
	f, err = stage.Do(ctx, stage.KindLocalWork, "make the candidate the BMC's login", bmc.CommitRotation, in)
	return err == nil && f.Committed, err
}

// EndRotation ends a rotation that its job does not finish, with the login that the BMC takes, and
// gives MAAS the same. It can be repeated.
func EndRotation(ctx workflow.Context, job contract.JobRef, bmcID string) error {
	f, err := stage.Do(ctx, stage.KindBMCCall, "end with the login that the BMC takes", bmc.UndoRotation, bmcact.RotateIn{JobRef: job, BMCID: bmcID})
	if err != nil {
		return err
	}
	power := maasact.PowerLoginIn{JobRef: job, BMCID: bmcID, CredentialRef: f.CurrentRef, Unproven: true}
	_, err = stage.Do(ctx, stage.KindMAASCall, "give MAAS the login that the BMC takes", maas.UpdatePowerLogin, power)
	return err
}

// undoValidate withdraws what the validation asked for, and ends a rotation that it began.
func undoValidate(ctx workflow.Context, s *State) error {
	if err := WithdrawTasks(ctx, s); err != nil || s.RotatesBMC == "" {
		return err
	}
	return EndRotation(ctx, s.Job.At(lifecycle.StageValidateClean), s.RotatesBMC)
}
