package runplan_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func plan(steps string) string {
	return `{"plan_id": "p-1", "display_name": "A plan", "steps": [` + steps + `]}`
}

func TestParse_TheSpecifiedSample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "proto", "testdata", "plan.json"))
	require.NoError(t, err)
	p, err := runplan.Parse(text)
	require.NoError(t, err)
	var kinds []runplan.Kind
	for _, s := range p.Steps {
		kinds = append(kinds, s.Kind())
	}
	require.Equal(t, []runplan.Kind{"netboot", "repave", "reboot", "join", "verify"}, kinds)
	require.Equal(t, 30*time.Minute, p.Steps[1].Timeout())
	require.Equal(t, 0, p.Steps[4].Retries())
	require.True(t, p.Verifies())
	require.True(t, p.Disruptive())
}

// Each case is one plan and the fields that are wrong with it.
func TestCheck(t *testing.T) {
	t.Parallel()
	step := func(kind string) string { return plan(`{"name": "a", ` + kind + `}`) }
	long := strings.Repeat("x", 65)
	for text, want := range map[string]string{
		step(`"ssh": {"command": "uptime"}`):                                                      "",
		step(`"ssh": {"command": "uptime", "idempotent": true}, "max_retries": 10`):               "",
		step(`"ssh": {"command": "uptime"}, "max_retries": 0, "timeout_seconds": 86400`):          "",
		step(`"ssh": {"command": "uptime"}, "max_retries": 1`):                                    "steps[0].ssh.idempotent",
		step(`"ssh": {"command": " \n"}`):                                                         "steps[0].ssh.command",
		step(`"ssh": {"command": "a\u0000b"}`):                                                    "steps[0].ssh.command",
		step(`"ssh": {"command": "` + strings.Repeat("x", runplan.MaxCommand+1) + `"}`):           "steps[0].ssh.command",
		step(`"reboot": {"mode": "bmc"}`):                                                         "",
		step(`"reboot": {"mode": "in-band"}`):                                                     "",
		step(`"reboot": {"mode": "BMC"}`):                                                         "steps[0].reboot.mode",
		step(`"reboot": {}`):                                                                      "steps[0].reboot.mode",
		step(`"netboot": {"mode": "PXE"}`):                                                        "",
		step(`"netboot": {"mode": "UEFI_HTTP"}`):                                                  "",
		step(`"netboot": {"mode": "DISK"}`):                                                       "",
		step(`"netboot": {"mode": "pxe"}`):                                                        "steps[0].netboot.mode",
		step(`"repave": {"image": "ubuntu-22.04"}`):                                               "",
		step(`"repave": {"image": ""}`):                                                           "steps[0].repave.image",
		step(`"repave": {"image": "a b"}`):                                                        "steps[0].repave.image",
		step(`"join": {}`):                                                                        "",
		step(`"join": {"cluster_ref": "../a"}`):                                                   "steps[0].join.cluster_ref",
		step(`"verify": {"kubelet_version": "v1.34.1"}`):                                          "",
		step(`"verify": {"kubelet_version": "latest", "cluster_ref": "a/b"}`):                     "steps[0].verify.cluster_ref steps[0].verify.kubelet_version",
		step(`"net": {"netplan": "network: {version: 2}", "confirm_seconds": 120}`):               "",
		step(`"net": {"confirm_seconds": 119}`):                                                   "steps[0].net.confirm_seconds",
		step(`"net": {"confirm_seconds": 1801}`):                                                  "steps[0].net.confirm_seconds",
		step(`"net": {"netplan": "` + strings.Repeat("x", runplan.MaxNetplan+1) + `"}`):           "steps[0].net.netplan",
		step(`"rma": {"ticket": "RMA-17"}`):                                                       "",
		step(`"rma": {"ticket": "` + long + `"}`):                                                 "steps[0].rma.ticket",
		step(`"timeout_seconds": 0, "reboot": {"mode": "bmc"}`):                                   "steps[0].timeout_seconds",
		step(`"timeout_seconds": 86401, "reboot": {"mode": "bmc"}`):                               "steps[0].timeout_seconds",
		step(`"max_retries": -1, "reboot": {"mode": "bmc"}`):                                      "steps[0].max_retries",
		step(`"max_retries": 11, "reboot": {"mode": "bmc"}`):                                      "steps[0].max_retries",
		step(`"timeout_seconds": 5`):                                                              "steps[0]",
		step(`"reboot": {"mode": "bmc"}, "join": {}`):                                             "steps[0]",
		plan(`{"name": "A", "join": {}}`):                                                         "steps[0].name",
		plan(`{"name": "a-", "join": {}}`):                                                        "steps[0].name",
		plan(`{"join": {}}`):                                                                      "steps[0].name",
		plan(`{"name": "` + long + `", "join": {}}`):                                              "steps[0].name",
		plan(`{"name": "a", "join": {}}, {"name": "b", "join": {}}, {"name": "a", "verify": {}}`): "steps[2].name",
		plan(``): "steps",
		plan(strings.Repeat(`{"name": "a", "join": {}},`, 32) + `{"name": "b", "join": {}}`):          "steps" + strings.Repeat(" steps[N].name", 31),
		`{"plan_id": "a b", "steps": [{"name": "a", "join": {}}]}`:                                    "plan_id",
		`{"plan_id": "p", "display_name": "a\nb", "steps": [{"name": "a", "join": {}}]}`:              "display_name",
		`{"plan_id": "p", "startable_by": "anybody", "steps": [{"name": "a", "join": {}}]}`:           "startable_by",
		`{"plan_id": "p", "display_name": "` + long + long + `", "steps": [{"name":"a","join": {}}]}`: "display_name",
	} {
		_, err := runplan.Parse([]byte(text))
		var invalid *spec.InvalidError
		errors.As(err, &invalid)
		var fields []string
		if invalid != nil {
			for i, f := range invalid.Fields {
				require.NotEmpty(t, f.Problem)
				if strings.Contains(want, "[N]") && i > 0 {
					f.Field = "steps[N].name"
				}
				fields = append(fields, f.Field)
			}
		} else {
			require.NoError(t, err, text)
		}
		require.Equal(t, want, strings.Join(fields, " "), text[:min(len(text), 200)])
	}
}

// A kind that a later version has is refused, not passed over.
func TestParse_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		plan(`{"name": "a", "join": {}, "firmware": {}}`), plan(`{"name": "a", "join": {"force": true}}`), `{"steps": [], "when": "now"}`,
		plan(`{"name": "a", "join": {}}`) + " {}", "[]", "", plan(`{"name": "a", "join": {}}`) + strings.Repeat(" ", 1<<20),
	} {
		_, err := runplan.Parse([]byte(text))
		require.Error(t, err, text[:min(len(text), 200)])
	}
}

// TestDefaults_NeverChangeUnderTheirID: a plan that a run has used never changes. Give a changed
// default plan a new id, and add the new id here; leave the lines of the old ids.
func TestDefaults_NeverChangeUnderTheirID(t *testing.T) {
	t.Parallel()
	golden := map[string]string{
		"default-repave-v1":       "42a89f3587eccd01487c09d3c1384e2e063e515c4924a499c777939a05d5f4b5",
		"default-reboot-v1":       "5925f9692d1360f738a505c777f0af12b889b2d696d1b1f1e463ef3f62f674ed",
		"default-upgrade-v1":      "d4740f7c39201535b5dfc9c725d5cb10d9e5c980caa03741bc066bda631b3fe2",
		"default-net-reconfig-v1": "3949350a6d751877e21d7535708b06ca17a049553c8ad3417c62f942978dc8d4",
		"default-rma-v1":          "177798b56673b4bed4817dff0106f483e91c08405097d96c0a294284d4003b3b",
	}
	plans, err := runplan.Defaults()
	require.NoError(t, err)
	for _, p := range plans {
		raw, err := json.Marshal(p)
		require.NoError(t, err)
		require.Equal(t, golden[p.ID], fmt.Sprintf("%x", sha256.Sum256(raw)), "%s: %s", p.ID, raw)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	plans, err := runplan.Defaults()
	require.NoError(t, err)
	require.Len(t, plans, len(lifecycle.RunTypes()))
	want := map[lifecycle.RunType][2]string{ // for a machine without a cluster, with one
		"REPAVE": {"netboot repave reboot", "netboot repave reboot join verify"}, "REBOOT": {"reboot", "reboot verify"},
		"UPGRADE": {"ssh reboot", "ssh reboot verify"}, "NET_RECONFIG": {"net", "net"}, "RMA": {"rma", "rma"},
	}
	ids := map[string]bool{}
	for runType, p := range plans {
		require.False(t, ids[p.ID], p.ID)
		ids[p.ID] = true
		for i, cluster := range []string{"", "cluster-a"} {
			own := p.For(cluster)
			require.NoError(t, own.Check())
			var kinds []string
			for _, s := range own.Steps {
				kinds = append(kinds, string(s.Kind()))
				if s.Join != nil {
					require.Equal(t, cluster, s.Join.ClusterRef)
				}
				if s.Verify != nil {
					require.Equal(t, cluster, s.Verify.ClusterRef)
				}
			}
			require.Equal(t, want[runType][i], strings.Join(kinds, " "), "%s, cluster %q", runType, cluster)
		}
		for _, s := range p.Steps {
			require.True(t, s.Join == nil || s.Join.ClusterRef == "", "For does not change the plan")
		}
	}
	named := runplan.Plan{Steps: []runplan.Step{{Name: "a", Join: &runplan.KubeadmJoin{ClusterRef: "other"}}}}
	require.Equal(t, "other", named.For("").Steps[0].Join.ClusterRef)
	require.Equal(t, "other", named.For("cluster-a").Steps[0].Join.ClusterRef)
}

// Each kind of step has a capability, a timeout and at least one machine that can do it.
func TestKinds_HaveTheirTraits(t *testing.T) {
	t.Parallel()
	steps := []runplan.Step{
		{SSH: &runplan.SSHCommand{}}, {Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}, {Netboot: &runplan.SetNetboot{}}, {Repave: &runplan.RepaveImage{}},
		{Join: &runplan.KubeadmJoin{}}, {Verify: &runplan.VerifyInCluster{}}, {Net: &runplan.NetReconfig{}}, {RMA: &runplan.RMAAction{}},
	}
	needs := []runplan.Capability{"RemoteExec", "PowerControl", "Netboot", "Imaging", "ClusterJoin", "ClusterJoin", "NetworkConfig", "Return"}
	retries := []int{0, 1, 2, 1, 1, 0, 0, 0} // a command is not repeated by itself
	require.Len(t, steps, len(runplan.Kinds()))
	for i, s := range steps {
		require.Equal(t, retries[i], s.Retries(), s.Kind())
		require.Equal(t, runplan.Kinds()[i], s.Kind())
		require.Equal(t, needs[i], s.Needs(), s.Kind())
		require.Contains(t, runplan.Capabilities(), s.Needs())
		require.Positive(t, s.Timeout(), s.Kind())
		require.LessOrEqual(t, s.Timeout(), runplan.MaxTimeoutSeconds*time.Second)
		require.Equal(t, slices.Contains([]runplan.Kind{"reboot", "repave", "join", "net", "rma"}, s.Kind()), s.Disruptive(), s.Kind())
	}
	inBand := runplan.Step{Reboot: &runplan.Reboot{Mode: runplan.RebootInBand}}
	require.Equal(t, runplan.CapRemoteExec, inBand.Needs())
	none := runplan.Step{}
	require.Empty(t, none.Kind())
	require.Empty(t, none.Needs(), "a step without a kind is offered by nobody")
}

func TestCheckStart(t *testing.T) {
	t.Parallel()
	reboot := runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "restart", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}}}
	command := runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "look", SSH: &runplan.SSHCommand{Command: "uptime"}}}}
	conditions := func(words string) (c lifecycle.Conditions) {
		for word := range strings.FieldsSeq(words) {
			name, value, _ := strings.Cut(word, "=")
			c = c.Observe(lifecycle.ConditionType(name), value != "no", "Probe", time.Time{})
			if strings.HasSuffix(value, "?") {
				c = c.Fail(lifecycle.ConditionType(name))
			}
		}
		return c
	}
	facts := func(change func(*runplan.StartFacts)) runplan.StartFacts {
		f := runplan.StartFacts{Provider: "datacenter", Offered: []runplan.Capability{runplan.CapPowerControl, runplan.CapRemoteExec}, Phase: lifecycle.MachineReady}
		change(&f)
		return f
	}
	with := func(words string) func(*runplan.StartFacts) {
		return func(f *runplan.StartFacts) { f.Conditions = conditions(words) }
	}
	for i, tc := range []struct {
		runType lifecycle.RunType
		plan    runplan.Plan
		change  func(*runplan.StartFacts)
		want    runplan.StartReason
	}{
		{"REBOOT", reboot, with(""), ""},
		{"reboot", reboot, with(""), runplan.ReasonUnknownType},
		{"REBOOT", runplan.Plan{ID: "p"}, with(""), runplan.ReasonNoSteps},
		{"REBOOT", reboot, func(f *runplan.StartFacts) { f.Offered = f.Offered[1:] }, runplan.ReasonMissingCapability},
		{"REBOOT", runplan.Plan{ID: "p", Steps: []runplan.Step{reboot.Steps[0], {Name: "x"}}}, with(""), runplan.ReasonMissingCapability},
		{"REBOOT", reboot, func(f *runplan.StartFacts) { f.Phase = lifecycle.MachineRetired; f.ActiveRunID = "run-1" }, runplan.ReasonRetired},
		{"REBOOT", reboot, func(f *runplan.StartFacts) { f.ActiveRunID = "run-1"; f.AcceptRisk = true }, runplan.ReasonActiveRun},
		{"REBOOT", reboot, with("InCustomerCluster=yes"), runplan.ReasonClusterUnknown},
		{"REBOOT", reboot, with("InCustomerCluster=yes Drained=no"), runplan.ReasonNotDrained},
		{"REBOOT", reboot, with("InCustomerCluster=yes Drained=yes"), ""},
		{"REBOOT", reboot, with("InCustomerCluster=yes Drained=yes?"), runplan.ReasonClusterUnknown},
		{"REBOOT", reboot, with("InCustomerCluster=no Drained=no"), ""},
		{"REBOOT", reboot, with("InCustomerCluster=yes? Drained=yes"), runplan.ReasonClusterUnknown},
		{"REBOOT", reboot, func(f *runplan.StartFacts) { f.Phase = lifecycle.MachineInService }, runplan.ReasonClusterUnknown},
		{"REBOOT", reboot, func(f *runplan.StartFacts) { with("InCustomerCluster=yes Drained=no")(f); f.AcceptRisk = true }, ""},
		{"UPGRADE", command, with("InCustomerCluster=yes Drained=no"), ""},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			err := runplan.CheckStart(tc.runType, tc.plan, facts(tc.change))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			var refusal *runplan.StartRefusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tc.want, refusal.Reason)
			require.NotEmpty(t, refusal.Detail)
			require.Equal(t, tc.want == runplan.ReasonUnknownType, refusal.Invalid())
			require.Equal(t, tc.want == runplan.ReasonActiveRun, refusal.Existing == "run-1")
		})
	}
}

// A change of the network needs a configuration, and somebody who can restart a machine that is cut
// off.
func TestCheckStart_OfANetworkChange(t *testing.T) {
	t.Parallel()
	plan := runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "net", Net: &runplan.NetReconfig{}}}}
	facts := runplan.StartFacts{Provider: "ssh", Offered: []runplan.Capability{runplan.CapNetworkConfig}, Phase: lifecycle.MachineReady}
	var refused *runplan.StartRefusal
	require.ErrorAs(t, runplan.CheckStart(lifecycle.RunTypeNetReconfig, plan, facts), &refused)
	require.Equal(t, runplan.ReasonNoNetplan, refused.Reason)
	plan = plan.WithNetplan("network: {version: 2}")
	require.ErrorAs(t, runplan.CheckStart(lifecycle.RunTypeNetReconfig, plan, facts), &refused)
	require.Equal(t, runplan.ReasonNoConsole, refused.Reason)
	risky := facts
	risky.AcceptRisk = true
	require.NoError(t, runplan.CheckStart(lifecycle.RunTypeNetReconfig, plan, risky))
	facts.Offered = append(facts.Offered, runplan.CapPowerControl)
	require.NoError(t, runplan.CheckStart(lifecycle.RunTypeNetReconfig, plan, facts))
}

func TestPlan_ChecksNetworkSteps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		net     runplan.NetReconfig
		timeout int
		field   string
	}{
		"a secret":             {runplan.NetReconfig{Netplan: "network:\n  wifis:\n    w0:\n      access-points: {a: {password: x}}\n"}, 0, "netplan"},
		"a secret in a list":   {runplan.NetReconfig{Netplan: "tunnels:\n  wg0:\n    key: {private: x}\n"}, 0, "netplan"},
		"no port":              {runplan.NetReconfig{Netplan: "network: {}", SSHEndpoint: "10.0.0.1"}, 0, "ssh_endpoint"},
		"no time to find out":  {runplan.NetReconfig{Netplan: "network: {}", ConfirmSeconds: 600}, 600, "confirm_seconds"},
		"whole":                {runplan.NetReconfig{Netplan: "network: {}", ConfirmSeconds: 600, SSHEndpoint: "10.0.0.1:22"}, 0, ""},
		"as long as it takes":  {runplan.NetReconfig{Netplan: "network: {}", ConfirmSeconds: 600}, 840, ""},
		"a word of the secret": {runplan.NetReconfig{Netplan: "network: {version: 2, ethernets: {private0: {dhcp4: true}}}"}, 0, ""},
	} {
		step := runplan.Step{Name: "net", Net: &tc.net}
		if tc.timeout > 0 {
			step.TimeoutSeconds = &tc.timeout
		}
		err := runplan.Plan{ID: "p", Steps: []runplan.Step{step}}.Check()
		if tc.field == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, tc.field, name)
	}
}

func TestSeriesOf(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{"ubuntu-22.04": "jammy", "ubuntu-24.04": "noble", "custom/rocky9": "custom/rocky9"} {
		require.Equal(t, want, runplan.SeriesOf(image))
	}
}
