package allocation_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/allocation"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func release(t *testing.T, root bool) *fixture {
	t.Helper()
	return setup(t, allocation.Release, contract.KindAllocationRelease, lifecycle.AllocationReleasing, root)
}

// TestRelease_RootTenant: what root left running is not asked for anything but to end; the power is
// cut, the disks are erased from outside, and the new system scrubs and validates.
func TestRelease_RootTenant(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, contract.Stages(contract.KindAllocationRelease), stageNames(f.Store.Steps()))
	for _, pair := range [][2]string{
		{"PowerOffByBMC", "EndAccess"}, {"EndAccess", "StopUsage"}, {"StopUsage", "EraseAndRelease"}, {"EraseAndRelease", "WaitForAgent"},
		{"WaitForAgent", "CompareSettings"}, {"CompareSettings", "CertifyNode"},
	} {
		require.True(t, f.before(pair[0], pair[1]), "%s before %s: %v", pair[0], pair[1], f.Calls())
	}
	require.Zero(t, f.count("OfferKeys"), "the sshd of a root tenant proves nothing")
	require.Equal(t, 1, f.count("CertifyNode"), "one certificate, at the end")
	moves := f.allocationMoves()
	last := moves[len(moves)-1]
	require.Equal(t, lifecycle.AllocationReleased, last.To)
	require.Equal(t, "cert_1", last.CertificateID)
	require.Empty(t, f.Store.Moves())
}

// TestRelease_OtherTenant: the installed system stays, and the keys are refused from outside.
func TestRelease_OtherTenant(t *testing.T) {
	t.Parallel()
	f := release(t, false)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Zero(t, f.count("PowerOffByBMC"))
	require.Zero(t, f.count("EraseAndRelease"))
	require.True(t, f.before("OfferKeys", "EndAccess"))
}

// TestRelease_OtherTenantWithoutAgent: an agent that cannot end the access cleans nothing either.
func TestRelease_OtherTenantWithoutAgent(t *testing.T) {
	t.Parallel()
	f := release(t, false)
	f.node.Agent = contract.AgentSilent
	f.Answer("WaitForAgent", func() (any, error) {
		f.node.Agent = contract.AgentAlive
		return contract.AgentFacts{Enrolled: true}, nil
	})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, 1, f.count("PowerOffByBMC"))
	require.Equal(t, 1, f.count("EraseAndRelease"))
}

// TestRelease_DisksOfTheRecord: where the power had to end the access, what the agent reported
// proves nothing, and the certificate is about the drives of the node's record.
func TestRelease_DisksOfTheRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		root  bool
		agent contract.AgentLiveness
		want  string
	}{
		"root":              {true, contract.AgentAlive, "D1"},
		"no agent":          {false, contract.AgentSilent, "D1"},
		"an agent and keys": {false, contract.AgentAlive, "REPORTED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := release(t, c.root)
			f.node.TenantRoot, f.node.Agent = c.root, c.agent
			f.node.Disks = []lifecycle.DeviceResult{{Kind: "disk", Name: "sda", Serial: "REPORTED"}}
			f.Answer("WaitForAgent", func() (any, error) {
				f.node.Agent = contract.AgentAlive
				return contract.AgentFacts{Enrolled: true}, nil
			})
			var in evidenceact.CertifyIn
			f.Env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
				if info.ActivityType.Name == "CertifyNode" {
					require.NoError(t, args.Get(&in))
				}
			})
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.Len(t, in.InitialDisks, 1)
			require.Equal(t, c.want, in.InitialDisks[0].Serial)
			require.Equal(t, c.want == "D1", in.DisksRecorded)
		})
	}
}

// TestRelease_AccessIsNeverCalledRevokedUnproven plays an agent that does nothing or is silent, a
// dead BMC and a dead MAAS, singly and together.
func TestRelease_AccessIsNeverCalledRevokedUnproven(t *testing.T) {
	t.Parallel()
	for _, root := range []bool{true, false} {
		for bits := range 8 {
			agentDead, bmcDead, maasDead := bits&1 != 0, bits&2 != 0, bits&4 != 0
			t.Run("", func(t *testing.T) {
				t.Parallel()
				f := release(t, root)
				if agentDead {
					f.fails("RunTask", lifecycle.FailNodeTaskUncertain, 1, lifecycle.TaskResult{OK: true, BootID: "boot-1"})
				}
				if bmcDead {
					f.fails("PowerOffByBMC", lifecycle.FailBMCUnreachable, always, nil)
				}
				if maasDead {
					f.fails("PowerOffByMAAS", lifecycle.FailPowerNotConfirmed, always, nil)
				}
				unproven := bmcDead && maasDead && (root || agentDead)
				parked := f.LastAt(10 * time.Minute)
				if unproven {
					f.says("EndAccess", contract.AllocationFacts{Access: lifecycle.AccessUnconfirmed})
					f.After(time.Hour, func() {
						f.says("PowerOffByBMC", contract.PowerFacts{State: "off", Done: true})
						f.says("EndAccess", contract.AllocationFacts{Access: lifecycle.AccessRevoked})
					})
					f.at(2*time.Hour, lifecycle.ActionRetryStage)
				}
				require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
				if !unproven {
					require.Equal(t, 1, f.count("EndAccess"))
					return
				}
				require.Equal(t, lifecycle.FailAccessUnconfirmed, parked.Failure.Class)
				require.Equal(t, lifecycle.AllocationReleaseFailed, allocationMove(*parked).To)
				require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(*parked).To, "the node is fenced")
				require.Equal(t, 2, f.count("EndAccess"))
			})
		}
	}
}

// TestRelease_ParksAndGoesOn lets each proof fail: the release has failed then, and a retry is one
// more attempt of the same job.
func TestRelease_ParksAndGoesOn(t *testing.T) {
	t.Parallel()
	for activity, class := range map[string]lifecycle.FailureClass{
		"EraseAndRelease": lifecycle.FailScrubUnverified, "WaitForAgent": lifecycle.FailNodeUnhealthy, "CompareSettings": lifecycle.FailBMCPinMismatch,
		"CertifyNode": lifecycle.FailStateDisagreement, "StopUsage": lifecycle.FailAccessUnconfirmed, "RenderCloudInit": lifecycle.FailSecretUnavailable,
	} {
		t.Run(activity, func(t *testing.T) {
			t.Parallel()
			f := release(t, true)
			good := map[string]any{
				"EraseAndRelease": contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Ready"}, Erased: true},
				"WaitForAgent":    contract.AgentFacts{Enrolled: true}, "CertifyNode": contract.CertificateFacts{CertificateID: "cert_1"}, "StopUsage": f.facts,
				"CompareSettings": contract.SettingsFacts{}, "RenderCloudInit": contract.UserData{},
			}[activity]
			f.fails(activity, class, 1, good)
			parked := f.LastAt(time.Hour)
			f.at(2*time.Hour, lifecycle.ActionRetryStage)
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.Equal(t, class, parked.Failure.Class)
			require.Equal(t, lifecycle.AllocationReleaseFailed, allocationMove(*parked).To)
			var to []lifecycle.AllocationStatus
			for _, m := range f.allocationMoves() {
				to = append(to, m.To)
			}
			require.Equal(t, []lifecycle.AllocationStatus{
				lifecycle.AllocationReleasing, lifecycle.AllocationReleaseFailed, lifecycle.AllocationReleasing, lifecycle.AllocationReleased,
			}, to)
			reads := 1 // what is proven is not done again
			if slices.Contains([]string{"EraseAndRelease", "StopUsage"}, activity) {
				reads = 2 // until the disks are erased, the power is read again
				if activity == "EraseAndRelease" {
					reads = 3 // MAAS had switched the machine on
				}
				require.Contains(t, parked.Failure.Message, "keep the machine off")
			}
			require.Equal(t, reads, f.count("PowerOffByBMC"))
		})
	}
}

// TestRelease_TriesAsOftenAsThePolicySays counts the tries of a MAAS that is away.
func TestRelease_TriesAsOftenAsThePolicySays(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.facts.MaxDeliver = 7
	f.fails("CompareSettings", lifecycle.FailBMCUnreachable, 7, nil)
	parked := f.LastAt(2 * time.Hour)
	f.at(3*time.Hour, lifecycle.ActionResume)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, 8, f.count("CompareSettings"))
	require.Equal(t, 7, parked.Attempt)
}

// TestRelease_ChangedFirmware keeps the node from everybody until it is as it was.
func TestRelease_ChangedFirmware(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.says("CompareSettings", contract.SettingsFacts{Changed: []string{"firmware/BIOS"}})
	parked := f.LastAt(time.Hour)
	f.After(90*time.Minute, func() { f.says("CompareSettings", contract.SettingsFacts{Done: true}) })
	f.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, lifecycle.FailFirmwareChanged, parked.Failure.Class)
	require.Contains(t, parked.Failure.Message, "firmware/BIOS")
	require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(*parked).To)
}

// TestRelease_NoEndWithoutProof: a certificate that proves less keeps the allocation where it is.
func TestRelease_NoEndWithoutProof(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.says("CertifyNode", contract.CertificateFacts{CertificateID: "cert_1", Verdict: "incomplete", Unproven: []string{"disk sda"}})
	parked := f.LastAt(time.Hour)
	f.After(90*time.Minute, func() { f.says("CertifyNode", contract.CertificateFacts{CertificateID: "cert_2", Verdict: "clean"}) })
	f.at(2*time.Hour, lifecycle.ActionResume)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, lifecycle.FailScrubUnverified, parked.Failure.Class)
	moves := f.allocationMoves()
	require.Equal(t, "cert_2", moves[len(moves)-1].CertificateID)
}

// TestRelease_OnlyGoesForward: nobody cancels it, begins it clean again or takes it on trust, until
// the allocation has lost its node another way.
func TestRelease_OnlyGoesForward(t *testing.T) {
	t.Parallel()
	for a, says := range map[lifecycle.Action]string{
		lifecycle.ActionCancel: "a release is not taken back", lifecycle.ActionRestartClean: "a release is not taken back",
		lifecycle.ActionAdopt: "no outside state to observe",
	} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			f := release(t, true)
			f.fails("CompareSettings", lifecycle.FailBMCAuthRejected, 1, nil)
			refused := f.at(2*time.Hour, a)
			f.at(3*time.Hour, lifecycle.ActionRetryStage)
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.ErrorContains(t, refused.Err, says)
		})
	}
	f := release(t, true)
	f.fails("CompareSettings", lifecycle.FailBMCAuthRejected, always, nil)
	f.endedAt(time.Hour)
	cancelled := f.at(2*time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.NoError(t, cancelled.Err)
}

// TestRelease_NodeOfSomebodyElse: a node that the allocation has let go of is not touched, and one
// that another job has is not waited for without an end.
func TestRelease_NodeOfSomebodyElse(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.says("TakeNode", contract.AllocationFacts{Status: lifecycle.AllocationReleased, TenantRoot: true})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	for _, touches := range []string{"PowerOffByBMC", "PowerOffByMAAS", "RunTask", "EraseAndRelease", "EndAccess"} {
		require.Zero(t, f.count(touches), touches)
	}
	f = release(t, true)
	f.fails("TakeNode", lifecycle.FailAccessUnconfirmed, 1, f.facts)
	parked := f.LastAt(time.Hour)
	f.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, lifecycle.FailAccessUnconfirmed, parked.Failure.Class)
	require.Equal(t, lifecycle.AllocationReleaseFailed, allocationMove(*parked).To)
	require.Nil(t, stagetest.NodeMove(*parked), "the other job keeps the node")
}

// TestRelease_ProtectedDrives: a machine that MAAS must not release is not released; the way on is
// to remove the assignment, which cancels the job.
func TestRelease_ProtectedDrives(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.node.ProtectSerials = []string{"D9"}
	parked := f.LastAt(time.Hour)
	f.endedAt(90 * time.Minute)
	f.at(2*time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Equal(t, lifecycle.FailConfiguration, parked.Failure.Class)
	require.Zero(t, f.count("EraseAndRelease"))
}

// TestRelease_LostRun goes on from what is stored: what was proven is not done again.
func TestRelease_LostRun(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.fails("CompareSettings", lifecycle.FailBMCAuthRejected, 1, contract.SettingsFacts{Done: true})
	f.RunUntil(time.Hour, func() []any { return nil })
	f.register()
	f.at(time.Hour, lifecycle.ActionResume)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, 1, f.count("PowerOffByBMC"))
	require.Equal(t, 1, f.count("EraseAndRelease"))
}
