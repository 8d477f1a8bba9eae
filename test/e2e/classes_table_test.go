package e2e_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// classesWithoutProducer are the classes that nothing in Slipway raises: the jobs that will
// do not exist yet. They are part of the contract between jobs and operators,
// so their runbooks are there and the runner parks in them; no fault
// outside can lead to them, and no row plants one.
func classesWithoutProducer() map[lifecycle.FailureClass]string {
	return map[lifecycle.FailureClass]string{
		lifecycle.FailStorageRejected: "the jobs that attach and detach storage",
	}
}

// classesRaisedElsewhere are the classes that no stage of a job raises, and who does.
func classesRaisedElsewhere() map[lifecycle.FailureClass]string {
	return map[lifecycle.FailureClass]string{
		lifecycle.FailCapacity:            "the provision of an allocation, which ends with it (workflows/allocation tests it)",
		lifecycle.FailPaymentMismatch:     "the reconciliation of a payment (workflows/paymentjob tests it)",
		lifecycle.FailPaymentCredit:       "the reconciliation of a payment (loops/paymentsync tests it)",
		lifecycle.FailPaymentsUnavailable: "the reconciliation of a payment (activities/payments tests it)",
		lifecycle.FailPaymentsRejected:    "the reconciliation of a payment (activities/payments tests it)",
		lifecycle.FailInstanceStartup:     "the creation of an instance (workflows/instance tests it)",
		lifecycle.FailAgentChecksum:       "the creation of an instance (workflows/instance tests it)",
		lifecycle.FailWorkerInstall:       "the creation of an instance (workflows/instance tests it)",
		lifecycle.FailCloudQuota:          "the creation of an instance, which ends with it (workflows/instance tests it)",
		lifecycle.FailCloudCapacity:       "the creation of an instance, which ends with it (workflows/instance tests it)",
		lifecycle.FailCloudRejected:       "the creation of an instance, which ends with it (workflows/instance tests it)",
		lifecycle.FailCloudUnavailable:    "the jobs of instances (workflows/instance tests it)",
		lifecycle.FailCloudUncertain:      "the creation of an instance (workflows/instance tests it)",
		lifecycle.FailFirmwareChanged:     "the release of an allocation (workflows/allocation tests it)",
		lifecycle.FailNetworkOpen:         "the provision of an allocation, which does not park (TestAllocation_NetworkOpen)",
		lifecycle.FailAccessUnconfirmed:   "the release of an allocation (workflows/allocation tests it)",
		lifecycle.FailCommand:             "a run on a machine, which does not park (TestCLI_MachineRuns)",
		lifecycle.FailCommandUncertain:    "a run on a machine, which does not park (activities/machine tests it)",
		lifecycle.FailNetworkRolledBack:   "a run on a machine, which does not park (activities/machine tests it)",
		lifecycle.FailClusterJoin:         "a run on a machine, which does not park (activities/machine tests it)",
		lifecycle.FailClusterNotReady:     "a run on a machine, which does not park (activities/machine tests it)",
		lifecycle.FailWorkflowLost:        "the sweeper, for a job whose workflow was ended in Temporal (sweep_test.go ends some)",
	}
}

func within(stage string, d time.Duration) func(*spec.ProfileSpec) {
	return func(s *spec.ProfileSpec) {
		s.StageDeadlines = map[string]spec.Duration{stage: spec.Duration(d)}
	}
}

func withNodeFault(f simnode.Faults) func(*classCase) { return func(c *classCase) { c.node(f) } }

func removeNodeFaults(c *classCase) { c.node(simnode.Faults{}) }

func withMAASFault(f maassim.Fault) func(*classCase) { return func(c *classCase) { c.maasFault(f) } }

func withBMCFault(f redfishsim.Fault) func(*classCase) {
	return func(c *classCase) { require.NoError(c.t, c.Sims.BMCs[c.m.Spec().ID].AddFault(f)) }
}

func clearLoginBlock(c *classCase) {
	require.NoError(c.t, c.App.Store.ClearBMCBlock(c.t.Context(), c.bmcID))
}

func withoutRedeployment(s *spec.ProfileSpec) { s.EnableDeployRetryOnDatasourceFailed = false }

// classGroup is the classes that one part of the outside world leads to.
type classGroup struct {
	name string
	rows []classRow
}

func classGroups() []classGroup {
	return []classGroup{
		{"site", siteClassRows()}, {"machine", machineClassRows()}, {"deployment", deploymentClassRows()}, {"node", nodeClassRows()},
	}
}

// classRows is the table: every class that an onboarding, or the drain of a node, meets.
func classRows() (all []classRow) {
	for _, group := range classGroups() {
		all = append(all, group.rows...)
	}
	return all
}

func siteClassRows() []classRow {
	return []classRow{
		{class: lifecycle.FailMAASUnavailable, stage: lifecycle.StageCommission, says: `maas\.commission: .*\(unreachable|uncertain\)`,
			tune:  within(lifecycle.StageCommission, runenv.Patience(10*time.Second)), // ends the retries early
			fault: withMAASFault(maassim.Fault{Name: "connection_reset", Op: "commission", Count: -1})},
		{class: lifecycle.FailMAASRejected, stage: lifecycle.StageConfigureStorage, says: `forbidden, HTTP 403`,
			fault: withMAASFault(maassim.Fault{Name: "http_403", Op: "set_boot_disk", Count: -1})},
		{class: lifecycle.FailSecretUnavailable, stage: lifecycle.StageResolvePower, says: `there is no secret bmc/not-stored-yet`,
			login: "bmc/not-stored-yet", repair: func(c *classCase) {
				c.storeLogin("bmc/not-stored-yet-" + c.host)
			}},
		{class: lifecycle.FailConfiguration, stage: lifecycle.StageApplyRoCE, says: `have no RoCE assignment`,
			fault: (*classCase).dropRoCE, repair: (*classCase).addRoCE},
		{class: lifecycle.FailBMCUnreachable, stage: lifecycle.StageResolvePower, says: `HTTP 503`,
			fault: withBMCFault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Path: "/redfish/v1"})},
		{class: lifecycle.FailBMCAuthRejected, stage: lifecycle.StageResolvePower, says: `unauthorized`,
			fault: withBMCFault(redfishsim.Fault{Name: redfishsim.FaultAuthReject}), repair: clearLoginBlock},
		{class: lifecycle.FailBMCLocked, stage: lifecycle.StageResolvePower, says: `lock`, vendor: "Lenovo",
			fault: withBMCFault(redfishsim.Fault{Name: redfishsim.FaultLockout, Count: 1}), repair: func(c *classCase) {
				c.lockoutEnds()
				clearLoginBlock(c)
			}},
		{class: lifecycle.FailBMCPinMismatch, stage: lifecycle.StageResolvePower, says: `pin_mismatch`,
			pin: "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", repair: func(c *classCase) {
				require.NoError(c.t, c.App.Store.SetBMCPin(c.t.Context(), c.bmcID, "")) // the site trusts the one that it sees first
			}},
		{class: lifecycle.FailInternal, stage: lifecycle.StageCreateOrFind, says: `internal error; the worker's log holds the detail`,
			fault: breakDatabase("XX000"), repair: repairDatabase("XX000")}, // a bug of the server
		{class: lifecycle.FailStoreUnavailable, stage: lifecycle.StageCreateOrFind, says: `Slipway's database did not answer`,
			// No room on its disk. The stage is tried up to 24 s, and then not before 28 s: a slow
			// try is not cut off by the deadline.
			tune: within(lifecycle.StageCreateOrFind, 27*time.Second), fault: breakDatabase("53100"), repair: repairDatabase("53100")},
	}
}

func machineClassRows() []classRow {
	return []classRow{
		{class: lifecycle.FailConflictingCandidates, stage: lifecycle.StageCreateOrFind, says: `2 MAAS machines match`,
			fault: withMAASFault(maassim.Fault{Name: "conflicting_candidates"}), repair: (*classCase).deleteSecondRecord},
		{class: lifecycle.FailCommissioning, stage: lifecycle.StageWaitReady, says: `Failed commissioning: failed scripts: `,
			fault: withMAASFault(maassim.Fault{Name: "commission_fail", Count: 2})},
		{class: lifecycle.FailStageDeadline, stage: lifecycle.StageWaitReady, says: `wait_for_ready did not end within 1s`,
			// Commissioning takes some seconds, of which a busy machine uses up a part before the
			// stage.
			tune: within(lifecycle.StageWaitReady, time.Second), repair: func(c *classCase) { c.status(maassim.Ready) }},
		{class: lifecycle.FailBootDiskNotFound, stage: lifecycle.StageConfigureStorage, says: `no disk matches the boot disk rule \(model contains "BOSS"\)`,
			fault: withMAASFault(maassim.Fault{Name: "no_boss_disk"})},
		{class: lifecycle.FailStorageLayoutRejected, stage: lifecycle.StageConfigureStorage, says: `MAAS refused layout "vmfs7"`,
			tune:   func(s *spec.ProfileSpec) { s.StorageLayout = "vmfs7" },
			repair: func(c *classCase) { c.correctProfile(func(s *spec.ProfileSpec) { s.StorageLayout = "flat" }) }},
		{class: lifecycle.FailPXEUnfixable, stage: lifecycle.StageEnsurePXE, says: `is on no VLAN`,
			fault: withMAASFault(maassim.Fault{Name: "boot_nic_no_vlan"}), repair: (*classCase).connectBootNIC},
	}
}

func deploymentClassRows() []classRow {
	return []classRow{
		{class: lifecycle.FailDeploy, stage: lifecycle.StageClassifyFailure, says: `Installation failed \(refer to the installation log`,
			fault: withMAASFault(maassim.Fault{Name: "deploy_curtin_fail"})},
		{class: lifecycle.FailDeployPower, stage: lifecycle.StageClassifyFailure, says: `No rack controllers can access the BMC`,
			fault: withMAASFault(maassim.Fault{Name: "bmc_unreachable", Op: "deploy"})},
		{class: lifecycle.FailDeployTimeout, stage: lifecycle.StageClassifyFailure, says: `did not end by its deadline and was aborted`,
			tune: within(lifecycle.StageWaitDeployed, runenv.Patience(10*time.Second)), fault: withMAASFault(maassim.Fault{Name: "stuck_deploying"})},
		{class: lifecycle.FailDatasource, stage: lifecycle.StageClassifyFailure, says: `searching for network data from DataSourceMAAS`,
			tune: withoutRedeployment, fault: withMAASFault(maassim.Fault{Name: "deploy_datasource_none"})},
		{class: lifecycle.FailDatasourceRepeated, stage: lifecycle.StageClassifyFailure, says: `after 2 deployments: .*DataSourceMAAS`,
			tune:  func(s *spec.ProfileSpec) { s.MaxDeployRetryAttempts = 1 },
			fault: withMAASFault(maassim.Fault{Name: "deploy_datasource_none", Count: 2})},
		{class: lifecycle.FailPowerNotConfirmed, stage: lifecycle.StageRecoverDatasource, says: `could not be powered off for release`,
			fault: func(c *classCase) {
				c.maasFault(maassim.Fault{Name: "deploy_datasource_none"})
				c.maasFault(maassim.Fault{Name: "release_power_fail", Count: -1})
			}},
		{class: lifecycle.FailScrubUnverified, stage: lifecycle.StageRecoverDatasource, says: `failed to erase its disks`,
			fault: withMAASFault(maassim.Fault{Name: "deploy_datasource_none"}), later: (*classCase).failToErase},
		{class: lifecycle.FailMAASMachineDeleted, stage: lifecycle.StageWaitDeployed, says: `was deleted from MAAS while we waited`,
			fault: withMAASFault(maassim.Fault{Name: "machine_deleted", Op: "stage:installing"})},
		{class: lifecycle.FailStateDisagreement, stage: lifecycle.StageWaitDeployed, says: `was released by someone else`,
			fault: withMAASFault(maassim.Fault{Name: "externally_released", Op: "stage:installing"})},
	}
}

func nodeClassRows() []classRow {
	const seed, sync = lifecycle.StageEnsureHWSync, lifecycle.StageWaitHWSync
	refuses := withNodeFault(simnode.Faults{SSHRefusesKeys: true})
	silent := withNodeFault(simnode.Faults{AgentDown: true})
	return []classRow{
		{class: lifecycle.FailSSHSeed, stage: seed, says: `rejected the login of user "ubuntu"`,
			tune: within(seed, time.Minute), fault: refuses, repair: removeNodeFaults},
		{class: lifecycle.FailSSHSeedRepeated, stage: seed, says: `after 4 tries: .*rejected the login`,
			tune: within(seed, time.Minute), fault: refuses, first: lifecycle.FailSSHSeed, repair: removeNodeFaults},
		{class: lifecycle.FailHWSyncUnhealthy, stage: sync, says: `install -D .*/etc/maas/maas-machine-creds.yml on the node ended with status`,
			fault: withMAASFault(maassim.Fault{Name: "hw_sync_disabled_by_userdata"}), later: (*classCase).blockCredentials, repair: (*classCase).unblockCredentials},
		{class: lifecycle.FailHWSyncRepeated, stage: sync, says: `no hardware sync later than the deployment`,
			fault: withMAASFault(maassim.Fault{Name: "hw_sync_never"}), repair: (*classCase).restartHardwareSync},
		{class: lifecycle.FailNodeTaskUncertain, stage: sync, says: `it is not known whether install -D .* was carried out: .*and the node could not be looked at`,
			tune: within(sync, 80*time.Second), repair: removeNodeFaults, fault: func(c *classCase) {
				c.maasFault(maassim.Fault{Name: "hw_sync_disabled_by_userdata"})
				c.node(simnode.Faults{SSHLosesAnswerTo: "maas"})
			}},
		{class: lifecycle.FailAgentNotEnrolled, stage: lifecycle.StageWaitAgent, says: `wait_for_agent_enrollment did not end within \S+s`,
			tune: within(lifecycle.StageWaitAgent, runenv.Patience(20*time.Second)), fault: silent, repair: removeNodeFaults},
		{class: lifecycle.FailNodeUnhealthy, stage: lifecycle.StageWaitAgent, says: `the node does not meet its SKU: .*GPU`,
			fault: withNodeFault(simnode.Faults{MissingGPUs: 1}), repair: func(c *classCase) {
				c.node(simnode.Faults{AgentDown: true}) // the server is opened for the repair
				removeNodeFaults(c)
			}},
		{class: lifecycle.FailNodeTask, stage: lifecycle.StageDrainNode, says: `refuse_new: .*drained\.json`,
			later: (*classCase).drainWithBlockedMarker, repair: (*classCase).unblockMarker, node: lifecycle.NodeRetired},
		{class: lifecycle.FailDriveUnexpected, stage: lifecycle.StageCleanupStorage, says: `does not expect the drive nvme\dn1 \(serial number "S`,
			later: cleanStorageWithRecord(func(d []spec.ExpectedDrive) []spec.ExpectedDrive { return d[:len(d)-1] }), repair: (*classCase).acceptDrives},
		{class: lifecycle.FailDriveMissing, stage: lifecycle.StageCleanupStorage, says: `expects a drive with serial number GONE, which is not there`,
			later: cleanStorageWithRecord(func(d []spec.ExpectedDrive) []spec.ExpectedDrive {
				return append(d, spec.ExpectedDrive{Serial: "GONE"})
			}),
			repair: (*classCase).acceptDrives},
		{class: lifecycle.FailOtherMachine, stage: lifecycle.StageCleanupStorage, says: `this machine has serial number ANOTHER and the task is for `,
			fault: withNodeFault(simnode.Faults{Scrub: simnode.ScrubFaults{OtherMachine: true}}),
			later: func(c *classCase) { c.startJob(lifecycle.ModeStorageCleanup, nil) }, repair: removeNodeFaults},
		{class: lifecycle.FailFrozen, stage: lifecycle.StageWaitAgent, says: `frozen by engine \(claimed: test\)`, fault: silent, later: func(c *classCase) {
			c.reachesStage(lifecycle.StageWaitAgent)
			c.act(lifecycle.ActionMarkManual)
		}, repair: removeNodeFaults},
		{class: lifecycle.FailCompensation, stage: lifecycle.StageCreateOrFind, says: `undoing create_or_find_in_maas failed: .*403`, fault: silent, later: func(c *classCase) {
			c.reachesStage(lifecycle.StageWaitAgent)
			c.maasFault(maassim.Fault{Name: "http_403", Op: "delete", Count: -1})
			c.act(lifecycle.ActionCancel)
		}, ends: lifecycle.JobCancelled},
	}
}

func (c *classCase) storeLogin(name string) {
	m := c.m.Spec()
	_, err := c.App.Store.SetSecretUse(c.t.Context(), name, dbtest.SimulatedUse(spec.SecretBMCLogin))
	require.NoError(c.t, err)
	_, err = c.App.Secrets.Put(c.t.Context(), name, providers.NewSecret(`{"username": "`+m.BMCUser+`", "password": "`+m.BMCPassword+`"}`))
	require.NoError(c.t, err)
}

func (c *classCase) addRoCE() {
	_, err := c.App.Store.CreateRoCEAssignment(c.t.Context(), c.site.ID, c.host, stack.RoCEPorts(c.m, 200))
	require.NoError(c.t, err)
}
