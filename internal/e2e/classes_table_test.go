package e2e_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/devstack"
	"github.com/slipway-cloud/slipway/internal/simnode"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/bmcsim"
	"github.com/slipway-cloud/slipway/providers/maas/maassim"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// noProducerYet are the classes that nothing in Slipway raises: the jobs that will
// do not exist yet. They are part of the contract between jobs and operators
// (seed 001), so their runbooks are there and the runner parks in them; no fault
// outside can lead to them, and no row plants one.
func noProducerYet() map[lifecycle.FailureClass]string {
	return map[lifecycle.FailureClass]string{
		lifecycle.FailCapacity:        "the jobs that place work on nodes",
		lifecycle.FailStorageRejected: "the jobs that attach and detach storage",
		lifecycle.FailPaymentMismatch: "the jobs that settle payments",
	}
}

// raisedElsewhere are the classes that no stage of a job raises, and who does.
func raisedElsewhere() map[lifecycle.FailureClass]string {
	return map[lifecycle.FailureClass]string{
		lifecycle.FailWorkflowLost: "the sweeper, for a job whose workflow was ended in Temporal (sweep_test.go ends some)",
	}
}

func within(stage string, d time.Duration) func(*lifecycle.ProfileSpec) {
	return func(s *lifecycle.ProfileSpec) {
		s.StageDeadlines = map[string]lifecycle.Duration{stage: lifecycle.Duration(d)}
	}
}

func sick(f simnode.Faults) func(*patient) { return func(p *patient) { p.node(f) } }

func well(p *patient) { p.node(simnode.Faults{}) }

func region(f maassim.Fault) func(*patient) { return func(p *patient) { p.maasFault(f) } }

func bmc(f bmcsim.Fault) func(*patient) {
	return func(p *patient) { require.NoError(p.t, p.Sims.BMCs[p.m.Spec().ID].AddFault(f)) }
}

func login(p *patient) { require.NoError(p.t, p.App.Store.ClearBMCBlock(p.t.Context(), p.bmcID)) }

func noRedeployment(s *lifecycle.ProfileSpec) { s.EnableDeployRetryOnDatasourceFailed = false }

// illnesses is the table: every class that an onboarding, or the drain of a node,
// meets, by stage.
func illnesses() []illness {
	return append(append(illnessesOfTheSite(), illnessesOfTheMachine()...), append(illnessesOfTheDeployment(), illnessesOfTheNode()...)...)
}

func illnessesOfTheSite() []illness {
	return []illness{
		{class: lifecycle.FailMAASUnavailable, stage: contract.StageCommission, says: `maas\.commission: .*\(unreachable|uncertain\)`,
			fault: region(maassim.Fault{Name: "connection_reset", Op: "commission", Count: -1})},
		{class: lifecycle.FailMAASRejected, stage: contract.StageConfigureStorage, says: `forbidden, HTTP 403`,
			fault: region(maassim.Fault{Name: "http_403", Op: "set_boot_disk", Count: -1})},
		{class: lifecycle.FailSecretUnavailable, stage: contract.StageResolvePower, says: `there is no secret bmc/not-stored-yet`,
			login: "bmc/not-stored-yet", mend: func(p *patient) {
				p.storeLogin("bmc/not-stored-yet")
			}},
		{class: lifecycle.FailConfiguration, stage: contract.StageApplyRoCE, says: `have no RoCE assignment`,
			fault: (*patient).dropRoCE, mend: (*patient).addRoCE},
		{class: lifecycle.FailBMCUnreachable, stage: contract.StageResolvePower, says: `HTTP 503`,
			fault: bmc(bmcsim.Fault{Name: bmcsim.FaultUnavailable, Path: "/redfish/v1"})},
		{class: lifecycle.FailBMCAuthRejected, stage: contract.StageResolvePower, says: `unauthorized`,
			fault: bmc(bmcsim.Fault{Name: bmcsim.FaultAuthReject}), mend: login},
		{class: lifecycle.FailBMCLocked, stage: contract.StageResolvePower, says: `lock`, vendor: "Lenovo",
			fault: bmc(bmcsim.Fault{Name: bmcsim.FaultLockout, Count: 1}), mend: func(p *patient) {
				p.lockoutEnds()
				login(p)
			}},
		{class: lifecycle.FailBMCPinMismatch, stage: contract.StageResolvePower, says: `pin_mismatch`,
			pin: "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", mend: func(p *patient) {
				require.NoError(p.t, p.App.Store.SetBMCPin(p.t.Context(), p.bmcID, "")) // the site trusts the one that it sees first
			}},
		{class: lifecycle.FailInternal, stage: contract.StageCreateOrFind, says: `internal error; the worker's log holds the detail`,
			fault: breakDatabase("XX000"), mend: mendDatabase("XX000")}, // a bug of the server
		{class: lifecycle.FailStoreUnavailable, stage: contract.StageCreateOrFind, says: `Slipway's database did not answer`,
			tune: within(contract.StageCreateOrFind, 15*time.Second), fault: breakDatabase("53100"), mend: mendDatabase("53100")}, // no room on its disk
	}
}

func illnessesOfTheMachine() []illness {
	return []illness{
		{class: lifecycle.FailConflictingCandidates, stage: contract.StageCreateOrFind, says: `2 MAAS machines match`,
			fault: region(maassim.Fault{Name: "conflicting_candidates"}), mend: (*patient).deleteTwin},
		{class: lifecycle.FailCommissioning, stage: contract.StageWaitReady, says: `Failed commissioning: failed scripts: `,
			fault: region(maassim.Fault{Name: "commission_fail", Count: 2})},
		{class: lifecycle.FailStageDeadline, stage: contract.StageWaitReady, says: `wait_for_ready did not end within 5s`,
			tune: within(contract.StageWaitReady, 5*time.Second), mend: func(p *patient) { p.status(maassim.Ready) }},
		{class: lifecycle.FailBootDiskNotFound, stage: contract.StageConfigureStorage, says: `no disk matches the boot disk rule \(model contains "BOSS"\)`,
			fault: region(maassim.Fault{Name: "no_boss_disk"})},
		{class: lifecycle.FailStorageLayoutRejected, stage: contract.StageConfigureStorage, says: `MAAS refused layout "vmfs7"`,
			tune: func(s *lifecycle.ProfileSpec) { s.StorageLayout = "vmfs7" },
			mend: func(p *patient) { p.correctProfile(func(s *lifecycle.ProfileSpec) { s.StorageLayout = "flat" }) }},
		{class: lifecycle.FailPXEUnfixable, stage: contract.StageEnsurePXE, says: `is on no VLAN`,
			fault: region(maassim.Fault{Name: "boot_nic_no_vlan"}), mend: (*patient).cable},
	}
}

func illnessesOfTheDeployment() []illness {
	return []illness{
		{class: lifecycle.FailDeploy, stage: contract.StageClassifyFailure, says: `Installation failed \(refer to the installation log`,
			fault: region(maassim.Fault{Name: "deploy_curtin_fail"})},
		{class: lifecycle.FailDeployPower, stage: contract.StageClassifyFailure, says: `No rack controllers can access the BMC`,
			fault: region(maassim.Fault{Name: "bmc_unreachable", Op: "deploy"})},
		{class: lifecycle.FailDeployTimeout, stage: contract.StageClassifyFailure, says: `did not end by its deadline and was aborted`,
			tune: within(contract.StageWaitDeployed, 20*time.Second), fault: region(maassim.Fault{Name: "stuck_deploying"})},
		{class: lifecycle.FailDatasource, stage: contract.StageClassifyFailure, says: `searching for network data from DataSourceMAAS`,
			tune: noRedeployment, fault: region(maassim.Fault{Name: "deploy_datasource_none"})},
		{class: lifecycle.FailDatasourceRepeated, stage: contract.StageClassifyFailure, says: `after 2 deployments: .*DataSourceMAAS`,
			tune:  func(s *lifecycle.ProfileSpec) { s.MaxDeployRetryAttempts = 1 },
			fault: region(maassim.Fault{Name: "deploy_datasource_none", Count: 2})},
		{class: lifecycle.FailPowerNotConfirmed, stage: contract.StageRecoverDatasource, says: `could not be powered off for release`,
			fault: func(p *patient) {
				p.maasFault(maassim.Fault{Name: "deploy_datasource_none"})
				p.maasFault(maassim.Fault{Name: "release_power_fail", Count: 2})
			}},
		{class: lifecycle.FailScrubUnverified, stage: contract.StageRecoverDatasource, says: `failed to erase its disks`,
			fault: region(maassim.Fault{Name: "deploy_datasource_none"}), later: (*patient).failToErase},
		{class: lifecycle.FailMAASMachineDeleted, stage: contract.StageWaitDeployed, says: `was deleted from MAAS while we waited`,
			fault: region(maassim.Fault{Name: "machine_deleted", Op: "stage:installing"})},
		{class: lifecycle.FailStateDisagreement, stage: contract.StageWaitDeployed, says: `was released by someone else`,
			fault: region(maassim.Fault{Name: "externally_released", Op: "stage:installing"})},
	}
}

func illnessesOfTheNode() []illness {
	const seed, sync = contract.StageEnsureHWSync, contract.StageWaitHWSync
	refuses := sick(simnode.Faults{SSHRefusesKeys: true})
	silent := sick(simnode.Faults{AgentDown: true})
	return []illness{
		{class: lifecycle.FailSSHSeed, stage: seed, says: `rejected the login of user "ubuntu"`,
			tune: within(seed, 40*time.Second), fault: refuses, mend: well},
		{class: lifecycle.FailSSHSeedRepeated, stage: seed, says: `after 4 tries: .*rejected the login`,
			tune: within(seed, 40*time.Second), fault: refuses, first: lifecycle.FailSSHSeed, mend: well},
		{class: lifecycle.FailHWSyncUnhealthy, stage: sync, says: `install -D .*/etc/maas/maas-machine-creds.yml on the node ended with status`,
			fault: region(maassim.Fault{Name: "hw_sync_disabled_by_userdata"}), later: (*patient).blockCredentials, mend: (*patient).unblockCredentials},
		{class: lifecycle.FailHWSyncRepeated, stage: sync, says: `no hardware sync later than the deployment`,
			fault: region(maassim.Fault{Name: "hw_sync_never"}), mend: (*patient).mendSync},
		{class: lifecycle.FailNodeTaskUncertain, stage: sync, says: `it is not known whether install -D .* was carried out: .*and the node could not be looked at`,
			tune: within(sync, 80*time.Second), mend: well, fault: func(p *patient) {
				p.maasFault(maassim.Fault{Name: "hw_sync_disabled_by_userdata"})
				p.node(simnode.Faults{SSHLosesAnswerTo: "maas"})
			}},
		{class: lifecycle.FailAgentNotEnrolled, stage: contract.StageWaitAgent, says: `wait_for_agent_enrollment did not end within 30s`,
			tune: within(contract.StageWaitAgent, 30*time.Second), fault: silent, mend: well},
		{class: lifecycle.FailNodeUnhealthy, stage: contract.StageWaitAgent, says: `the node does not meet its SKU: .*GPU`,
			fault: sick(simnode.Faults{MissingGPUs: 1}), mend: func(p *patient) {
				p.node(simnode.Faults{AgentDown: true}) // the server is opened for the repair
				well(p)
			}},
		{class: lifecycle.FailNodeTask, stage: lifecycle.StageDrainNode, says: `refuse_new: .*drained\.json`,
			later: (*patient).drainsOverADamagedMark, mend: (*patient).mendMark, node: lifecycle.NodeRetired},
		{class: lifecycle.FailFrozen, stage: contract.StageWaitAgent, says: `frozen by test`, fault: silent, later: func(p *patient) {
			p.reaches(contract.StageWaitAgent)
			p.act(lifecycle.ActionMarkManual)
		}, mend: well},
		{class: lifecycle.FailCompensation, stage: contract.StageCreateOrFind, says: `undoing create_or_find_in_maas failed: .*403`, fault: silent, later: func(p *patient) {
			p.reaches(contract.StageWaitAgent)
			p.maasFault(maassim.Fault{Name: "http_403", Op: "delete", Count: -1})
			p.act(lifecycle.ActionCancel)
		}, ends: lifecycle.JobCancelled},
	}
}

func (p *patient) storeLogin(name string) {
	spec := p.m.Spec()
	_, err := p.App.Secrets.Put(p.t.Context(), name, providers.NewSecret(`{"username": "`+spec.BMCUser+`", "password": "`+spec.BMCPassword+`"}`))
	require.NoError(p.t, err)
}

func (p *patient) addRoCE() {
	_, err := p.App.Store.CreateRoCEAssignment(p.t.Context(), p.site.ID, p.host, devstack.RoCEPorts(p.m, 200))
	require.NoError(p.t, err)
}
