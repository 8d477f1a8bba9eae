package lifecycle

import "time"

// StageState is the state of one stage of a job.
type StageState string

// The stage states.
const (
	StagePending     StageState = "pending"
	StageRunning     StageState = "running"
	StageSucceeded   StageState = "succeeded"
	StageFailed      StageState = "failed"
	StageSkipped     StageState = "skipped"
	StageAdopted     StageState = "adopted"
	StageCompensated StageState = "compensated"
	// StageUndone is of a step of a run alone: it had succeeded before it was undone. The stage of
	// the job is compensated then.
	StageUndone StageState = "undone"
)

// Finished reports that a stage is done or not needed.
func (s StageState) Finished() bool {
	return s == StageSucceeded || s == StageSkipped || s == StageAdopted
}

// StageRow is one stage of a job as the workflow projects it and the database stores it.
type StageRow struct {
	Ordinal    int        `json:"ordinal"`
	Name       string     `json:"name"`
	State      StageState `json:"state"`
	Attempts   int        `json:"attempts"` // tries
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Message    string     `json:"message"`
	// FailureClass is of the last try that failed, while its message stands.
	FailureClass FailureClass `json:"failure_class,omitempty"`
}

// Observed is the outside state that a job last saw.
type Observed struct {
	MAAS  string     `json:"maas,omitempty"`  // MAAS label, or "absent"
	Power string     `json:"power,omitempty"` // on, off, unknown
	Agent string     `json:"agent,omitempty"` // none, enrolled, healthy, unhealthy
	At    *time.Time `json:"at,omitempty"`
}

// The onboarding stages.
const (
	StageLoadSiteConfig    = "load_site_config"
	StageResolvePower      = "resolve_power_credentials"
	StageCreateOrFind      = "create_or_find_in_maas"
	StageCommission        = "commission_node"
	StageWaitReady         = "wait_for_ready"
	StageConfigureStorage  = "configure_storage"
	StageApplyRoCE         = "apply_roce_phase2"
	StageEnsurePXE         = "ensure_pxe_interface_auto"
	StageRenderCloudInit   = "render_cloud_init"
	StageDeploy            = "deploy_via_maas"
	StageWaitDeployed      = "wait_for_deployed"
	StageClassifyFailure   = "classify_deploy_failure"
	StageRecoverDatasource = "recover_for_datasource_retry"
	StageEnsureHWSync      = "ensure_hardware_sync_configured"
	StageWaitHWSync        = "wait_for_hardware_sync_healthy"
	StageWaitAgent         = "wait_for_agent_enrollment"
)

// OnboardingStages lists the sixteen stages of an onboarding in order.
func OnboardingStages() []string {
	return []string{
		StageLoadSiteConfig, StageResolvePower, StageCreateOrFind, StageCommission, StageWaitReady, StageConfigureStorage, StageApplyRoCE, StageEnsurePXE,
		StageRenderCloudInit, StageDeploy, StageWaitDeployed, StageClassifyFailure, StageRecoverDatasource, StageEnsureHWSync, StageWaitHWSync, StageWaitAgent,
	}
}

// The stages of a BMC credential rotation. Until commit_credential both logins, the old and the new
// one, stay stored and known.
const (
	StagePrepareCandidate = "prepare_candidate"
	StageApplyToBMC       = "apply_to_bmc"
	StageVerifyLogin      = "verify_login"
	StageUpdateMAASPower  = "update_maas_power_parameters"
	StageCommitCredential = "commit_credential"
)

// BMCRotationStages lists the stages of a BMC credential rotation in order.
func BMCRotationStages() []string {
	return []string{StagePrepareCandidate, StageApplyToBMC, StageVerifyLogin, StageUpdateMAASPower, StageCommitCredential}
}

// The stages of the jobs of a node's agent.
const (
	StageIssueAgentToken   = "issue_agent_token"
	StageDeliverAgentToken = "deliver_agent_token"
	StageWaitNewIdentity   = "wait_for_new_identity"

	StageUpdateAgent      = "update_agent"
	StageWaitAgentVersion = "wait_for_agent_version"
)

// AgentReissueStages lists the stages by which an agent gets a new identity, in order.
func AgentReissueStages() []string {
	return []string{StageIssueAgentToken, StageDeliverAgentToken, StageWaitNewIdentity}
}

// AgentUpdateStages lists the stages by which an agent gets a new version, in order.
func AgentUpdateStages() []string { return []string{StageUpdateAgent, StageWaitAgentVersion} }
