package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// The stages of a BMC credential rotation, in order. Until commit_credential
// both logins, the old and the new one, stay stored and known.
const (
	StagePrepareCandidate = "prepare_candidate"
	StageApplyToBMC       = "apply_to_bmc"
	StageVerifyLogin      = "verify_login"
	StageUpdateMAASPower  = "update_maas_power_parameters"
	StageCommitCredential = "commit_credential"
)

// BMCRotationStages lists the stages in order.
var BMCRotationStages = []string{
	StagePrepareCandidate, StageApplyToBMC, StageVerifyLogin, StageUpdateMAASPower, StageCommitCredential,
}

// BMCRotationInput is the accepted request. Hostname is the node's, "" for a
// BMC that no node has.
type BMCRotationInput struct {
	BMCID    string `json:"bmc_id"`
	Hostname string `json:"hostname,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Stages lists the names of a kind's stages in order; nil for an unknown kind.
func Stages(k JobKind) []string {
	switch k {
	case KindOnboarding:
		return OnboardingStages
	case KindBMCRotation:
		return BMCRotationStages
	case KindDecommission, KindNodeOperation:
		return lifecycle.DecommissionStages()
	}
	return nil
}
