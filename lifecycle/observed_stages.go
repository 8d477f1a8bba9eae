package lifecycle

import "slices"

// observedStages are the stages whose outcome can be observed outside, so that an operator may
// adopt it. A test of each kind of job compares them with its stages.
func observedStages() []string {
	return []string{
		StageResolvePower, StageCommission, StageWaitReady, StageConfigureStorage, StageApplyRoCE, StageEnsurePXE, StageDeploy, StageWaitDeployed, StageWaitHWSync,
		StageUpdateMAASPower, StageUpdateAgent, StageWaitAgentVersion,
		StageForceRelease, StageDrainNode, StageCleanupStorage, StageScrubGPU, StageValidateClean, StageReleaseMAAS, StagePowerOffMAAS,
		StageRemoveNode, StageRemoveMAAS, StageBootEraser, StagePowerOff, StageReplaceHardware, StageBootHardware,
		StageMatchAmount, StagePostCredit,
	}
}

// UnobservedStage returns the stage where it has no outside state to observe, else "". A job that
// has no stage yet has none.
func UnobservedStage(stage string) string {
	if stage == "" || slices.Contains(observedStages(), stage) {
		return ""
	}
	return stage
}
