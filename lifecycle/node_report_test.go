package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Every status in every state, with the token of the running attempt.
func TestClassifyReport(t *testing.T) {
	t.Parallel()
	type cell struct {
		status lifecycle.InstallStatus
		state  lifecycle.NodeStatus
	}
	want := map[cell]lifecycle.ReportEffect{
		{"started", "pending"}:     lifecycle.ReportStarts,
		{"started", "installing"}:  lifecycle.ReportRestarts, // no state change: the attempt after a failure
		{"progress", "installing"}: lifecycle.ReportAdvances,
		{"complete", "installing"}: lifecycle.ReportFinishes,
		{"failed", "installing"}:   lifecycle.ReportFails,
	}
	for _, i := range lifecycle.NodePXE.States {
		for _, status := range append(lifecycle.InstallStatuses(), "") {
			for attempts := range lifecycle.MaxInstallAttempts {
				f := lifecycle.InstallFacts{Status: i.State, Round: 4, Attempts: attempts, Progress: 10}
				effect := want[cell{status, i.State}]
				runs := i.State == lifecycle.NodePending || i.State == lifecycle.NodeInstalling
				switch {
				case effect != "":
				case runs && status == "":
					effect = lifecycle.ReportHeard
				default:
					effect = lifecycle.ReportIgnored
				}
				if effect == lifecycle.ReportFails && attempts == 2 {
					effect = lifecycle.ReportExhausts
				}
				require.Equal(t, effect, classify(f, status, f.InstallAttempt(), 11), "%s in %s after %d", status, i.State, attempts)
				for _, other := range []lifecycle.InstallAttempt{{Round: 4, Attempt: attempts}, {Round: 4, Attempt: attempts + 2}, {Round: 3, Attempt: attempts + 1}, {Round: 5, Attempt: attempts + 1}, {}} {
					require.Equal(t, lifecycle.ReportIgnored, classify(f, status, other, 11), "of another attempt")
				}
				f.Started, f.Progress = true, 11
				if i.State == lifecycle.NodeInstalling && (status == "started" || status == "progress") {
					require.Equal(t, lifecycle.ReportHeard, classify(f, status, f.InstallAttempt(), 11), "it only shows that the node is alive")
				}
			}
		}
	}
}

// classify returns the effect of the first report of the newest boot.
func classify(f lifecycle.InstallFacts, status lifecycle.InstallStatus, t lifecycle.InstallAttempt, progress int) lifecycle.ReportEffect {
	return lifecycle.ClassifyReport(f, lifecycle.Report{Status: status, InstallAttempt: t, Progress: progress, Fresh: true})
}

// While a job boots the node, a report moves no state, whatever the state is.
func TestTheReportTableWhileAJobBootsTheNode(t *testing.T) {
	t.Parallel()
	type cell struct {
		status  lifecycle.InstallStatus
		netboot lifecycle.Netboot
	}
	want := map[cell]lifecycle.ReportEffect{
		{"started", "install"}: lifecycle.ReportBegins, {"started", "erase"}: lifecycle.ReportBegins,
		{"progress", "install"}: lifecycle.ReportAdvances, {"progress", "erase"}: lifecycle.ReportAdvances,
		{"failed", "install"}: lifecycle.ReportWarns, {"failed", "erase"}: lifecycle.ReportWarns,
		{"complete", "install"}: lifecycle.ReportLeaves,
	}
	for _, i := range lifecycle.NodePXE.States {
		for _, netboot := range []lifecycle.Netboot{lifecycle.NetbootInstall, lifecycle.NetbootErase} {
			for _, status := range append(lifecycle.InstallStatuses(), "") {
				for attempts := range lifecycle.MaxInstallAttempts + 1 {
					f := lifecycle.InstallFacts{Status: i.State, Round: 4, Attempts: attempts, Progress: 10, Netboot: netboot}
					effect := want[cell{status, netboot}]
					switch {
					case i.State == lifecycle.NodeRetired:
						effect = lifecycle.ReportIgnored
					case status == "":
						effect = lifecycle.ReportHeard
					case effect == "":
						effect = lifecycle.ReportIgnored
					}
					require.Equal(t, lifecycle.InstallAttempt{Round: 4, Attempt: 1}, f.InstallAttempt(), "a job counts its own tries")
					require.Equal(t, effect, classify(f, status, f.InstallAttempt(), 11), "%s in %s for %s", status, i.State, netboot)
					require.NotContains(t, []lifecycle.ReportEffect{lifecycle.ReportStarts, lifecycle.ReportRestarts, lifecycle.ReportFinishes, lifecycle.ReportFails, lifecycle.ReportExhausts}, effect)
					for _, other := range []lifecycle.InstallAttempt{{Round: 4, Attempt: 2}, {Round: 3, Attempt: 1}, {Round: 5, Attempt: 1}, {}} {
						require.Equal(t, lifecycle.ReportIgnored, classify(f, status, other, 11), "of another round")
					}
					f.Started, f.Progress = true, 11
					if status == "started" || status == "progress" {
						require.NotContains(t, []lifecycle.ReportEffect{lifecycle.ReportBegins, lifecycle.ReportAdvances}, classify(f, status, f.InstallAttempt(), 11), "said already")
					}
				}
			}
		}
	}
}

// A machine that a job boots may boot more than once in a round: late and repeated reports count
// for nothing, and neither do those of a machine that fails over and over.
func TestReportsOfWhatAJobBootsCountOnce(t *testing.T) {
	t.Parallel()
	at := func(f lifecycle.InstallFacts, r lifecycle.Report) lifecycle.ReportEffect {
		f.Status, f.Round, f.Netboot = lifecycle.NodeMigrating, 2, lifecycle.NetbootInstall
		r.InstallAttempt = f.InstallAttempt()
		return lifecycle.ClassifyReport(f, r)
	}
	failed := lifecycle.InstallFacts{Warnings: 1}
	for name, c := range map[string]struct {
		f    lifecycle.InstallFacts
		r    lifecycle.Report
		want lifecycle.ReportEffect
	}{
		"started again by the boot that failed":    {failed, lifecycle.Report{Status: lifecycle.InstallStarted}, lifecycle.ReportIgnored},
		"started by a later boot":                  {failed, lifecycle.Report{Status: lifecycle.InstallStarted, Fresh: true}, lifecycle.ReportBegins},
		"progress of the boot that failed":         {failed, lifecycle.Report{Status: lifecycle.InstallProgress, Progress: 5}, lifecycle.ReportIgnored},
		"the same error":                           {failed, lifecycle.Report{Status: lifecycle.InstallFailure, Said: true}, lifecycle.ReportIgnored},
		"another error":                            {failed, lifecycle.Report{Status: lifecycle.InstallFailure}, lifecycle.ReportWarns},
		"a boot before the last fails":             {lifecycle.InstallFacts{Started: true}, lifecycle.Report{Status: lifecycle.InstallFailure, Stale: true}, lifecycle.ReportIgnored},
		"a boot before the last completes":         {lifecycle.InstallFacts{Started: true}, lifecycle.Report{Status: lifecycle.InstallComplete, Stale: true}, lifecycle.ReportIgnored},
		"one error too many":                       {lifecycle.InstallFacts{Warnings: lifecycle.MaxWarnings}, lifecycle.Report{Status: lifecycle.InstallFailure, Fresh: true}, lifecycle.ReportIgnored},
		"a boot after one error too many":          {lifecycle.InstallFacts{Warnings: lifecycle.MaxWarnings}, lifecycle.Report{Status: lifecycle.InstallStarted, Fresh: true}, lifecycle.ReportIgnored},
		"complete counts also then":                {lifecycle.InstallFacts{Warnings: lifecycle.MaxWarnings}, lifecycle.Report{Status: lifecycle.InstallComplete, Fresh: true}, lifecycle.ReportLeaves},
		"the last error that counts, while it ran": {lifecycle.InstallFacts{Started: true, Warnings: lifecycle.MaxWarnings - 1}, lifecycle.Report{Status: lifecycle.InstallFailure}, lifecycle.ReportWarns},
	} {
		require.Equal(t, c.want, at(c.f, c.r), name)
	}
}

// The required transitions, written by hand.
func TestNodePXE_Transitions(t *testing.T) {
	t.Parallel()
	seed := map[lifecycle.NodeStatus][]string{
		"discovered": {"pending"}, "pending": {"installing"}, "installing": {"installed", "install_failed"}, "install_failed": {"pending"},
		"installed": {"active"}, "active": {"reprovision", "deprovisioning", "migrating"}, "reprovision": {"pending"}, "deprovisioning": {}, "migrating": {"active"},
	}
	require.Len(t, lifecycle.NodePXE.States, 10)
	for _, i := range lifecycle.NodePXE.States {
		want := seed[i.State]
		if i.State != lifecycle.NodeRetired {
			want = append(want, "retired")
			require.Contains(t, lifecycle.NodePXE.ReachableBy(i.State, lifecycle.OwnerAdmin), "retired", "an admin may retire from %s", i.State)
		}
		require.ElementsMatch(t, want, lifecycle.NodePXE.Reachable(i.State), "from %s", i.State)
	}
	owners := map[string]lifecycle.Owner{
		"approve": lifecycle.OwnerAdmin, "start_install": lifecycle.OwnerNodeReport, "complete_install": lifecycle.OwnerNodeReport, "fail_install": lifecycle.OwnerNodeReport,
		"reset_install": lifecycle.OwnerAdmin, "verify": lifecycle.OwnerAdmin, "retire": lifecycle.OwnerAdmin,
	}
	for _, tr := range lifecycle.NodePXE.Transitions {
		for _, from := range tr.From {
			for _, o := range []lifecycle.Owner{lifecycle.OwnerCustomer, lifecycle.OwnerJob, lifecycle.OwnerHeartbeat, lifecycle.OwnerReconciler, lifecycle.OwnerOnboarding} {
				require.ErrorIs(t, lifecycle.NodePXE.Check(tr, from, o, tr.Needs), lifecycle.ErrIllegalTransition, "%s by %s", tr.Name, o)
			}
			if o, named := owners[tr.Name]; named {
				require.NoError(t, lifecycle.NodePXE.Check(tr, from, o, tr.Needs))
			}
			for i := range tr.Needs {
				missing := append(append(lifecycle.Proof{}, tr.Needs[:i]...), tr.Needs[i+1:]...)
				require.ErrorIs(t, lifecycle.NodePXE.Check(tr, from, tr.Owners[0], missing), lifecycle.ErrIllegalTransition, "%s without %s", tr.Name, tr.Needs[i])
			}
		}
	}
}

func TestNormalMAC(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"52:54:00:AB:cd:01", "52-54-00-ab-cd-01", "5254.00ab.cd01", "525400ABCD01"} {
		got, valid := spec.NormalMAC(ok)
		require.True(t, valid, ok)
		require.Equal(t, "52:54:00:ab:cd:01", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 30).Draw(t, "text")
		got, valid := spec.NormalMAC(text)
		if valid {
			again, ok := spec.NormalMAC(got)
			if !ok || again != got || len(got) != 17 {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
