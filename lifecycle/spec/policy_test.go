package spec_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func TestSiteSpecNamesEveryWrongField(t *testing.T) {
	t.Parallel()
	err := spec.SiteSpec{MAASURL: "ftp://x", MAASAPIKeyRef: "Bad Ref", SSHKeyRef: "/"}.Validate()
	var bad *spec.InvalidError
	require.ErrorAs(t, err, &bad)
	require.Len(t, bad.Fields, 3)
	require.NoError(t, spec.SiteSpec{MAASURL: "https://maas.example:5240/MAAS", MAASAPIKeyRef: "maas/main@2"}.Validate())
	require.ErrorContains(t, spec.SiteSpec{MAASURL: "https://u:p@maas.example", MAASAPIKeyRef: "k"}.Validate(), "password")
}

func TestProfileSpec(t *testing.T) {
	t.Parallel()
	p := spec.ProfileSpec{}.WithDefaults()
	require.NoError(t, p.Validate(nil))
	p.StageDeadlines = map[string]spec.Duration{"nope": spec.Duration(time.Minute)}
	require.ErrorContains(t, p.Validate([]string{"deploy_via_maas"}), "deploy_via_maas")
	p = spec.ProfileSpec{}.WithDefaults()
	p.MaxDeployRetryAttempts, p.PowerType = 99, "telepathy"
	require.ErrorContains(t, p.Validate(nil), "power_type")
	require.ErrorContains(t, p.Validate(nil), "max_deploy_retry_attempts")
	p = spec.ProfileSpec{AgentUpdateKey: "c2hvcnQ="}.WithDefaults()
	require.ErrorContains(t, p.Validate(nil), "agent_update_key")
	p.AgentUpdateKey = base64.StdEncoding.EncodeToString(make([]byte, 32))
	require.NoError(t, p.Validate(nil))
}

func TestDurationReadsText(t *testing.T) {
	t.Parallel()
	var p spec.ProfileSpec
	require.NoError(t, json.Unmarshal([]byte(`{"hardware_sync_interval":"90s"}`), &p))
	require.Equal(t, 90*time.Second, p.HardwareSyncInterval.D())
	require.ErrorContains(t, json.Unmarshal([]byte(`{"hardware_sync_interval":"soon"}`), &p), "15m")
}

func TestHostnames(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"gpu-01", "a", "r1u07"} {
		require.True(t, spec.ValidHostname(ok), ok)
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a.b", "a_b", "a b", "../x"} {
		require.False(t, spec.ValidHostname(bad), bad)
	}
}

func healthyNode() spec.HealthReport {
	mem, gpuMem, ecc, none, no := int64(1<<20), int64(81559), true, 0, false
	r := spec.HealthReport{MemoryMiB: &mem, Driver: "550.90.07"}
	for range 8 {
		r.GPUs = append(r.GPUs, spec.GPUReport{
			Model: "NVIDIA H100 80GB HBM3", MemoryMiB: &gpuMem, ECCEnabled: &ecc, UncorrectedECC: &none, RemapPending: &no, RemapFailed: &no,
		})
	}
	for range 4 {
		r.NICs = append(r.NICs, spec.NICReport{Up: true})
		r.Disks = append(r.Disks, spec.DiskReport{Name: "nvme"})
	}
	r.Disks = append(r.Disks, spec.DiskReport{Name: "sda", Boot: true})
	return r
}

func TestUnknownIsNotHealthy(t *testing.T) {
	t.Parallel()
	sku := spec.SKUSpec{
		GPUs: 8, GPUModelContains: "H100", GPUMemoryMiB: 80000, DriverMinVersion: "550.54", NICsUp: 4, DataDisks: 4,
		MinMemoryMiB: 1000, RequireECC: true,
	}
	require.Empty(t, sku.CheckHealth(healthyNode()))
	cases := map[string]func(*spec.HealthReport){
		"7 found":                       func(r *spec.HealthReport) { r.GPUs = r.GPUs[1:] },
		"could not be read":             func(r *spec.HealthReport) { r.GPUError = "nvidia-smi: not found" },
		"ECC is not known":              func(r *spec.HealthReport) { r.GPUs[3].ECCEnabled = nil },
		"errors are unknown":            func(r *spec.HealthReport) { r.GPUs[3].UncorrectedECC = nil },
		"recovery action is \"Reboot\"": func(r *spec.HealthReport) { r.GPUs[0].RecoveryAction = "Reboot" },
		"row remaps are unknown":        func(r *spec.HealthReport) { r.GPUs[0].RemapFailed = nil },
		"driver 550.54":                 func(r *spec.HealthReport) { r.Driver = "" },
		"4 NICs up":                     func(r *spec.HealthReport) { r.NICs[0].Up = false },
		"4 data disks":                  func(r *spec.HealthReport) { r.Disks = r.Disks[1:] },
		"unknown found":                 func(r *spec.HealthReport) { r.MemoryMiB = nil },
	}
	for want, spoil := range cases {
		r := healthyNode()
		spoil(&r)
		problems := sku.CheckHealth(r)
		require.Len(t, problems, 1, want)
		require.Contains(t, problems[0], want)
	}
}

func TestProfile_DurationsHaveBounds(t *testing.T) {
	t.Parallel()
	long, negative := spec.Duration(1000*time.Hour), spec.Duration(-time.Second)
	for field, set := range map[string]func(*spec.ProfileSpec, spec.Duration){
		"agent_heartbeat_interval": func(p *spec.ProfileSpec, d spec.Duration) { p.AgentHeartbeatInterval = d },
		"hardware_sync_interval":   func(p *spec.ProfileSpec, d spec.Duration) { p.HardwareSyncInterval = d },
		"poll_interval":            func(p *spec.ProfileSpec, d spec.Duration) { p.PollInterval = d },
		"stage_deadlines.deploy":   func(p *spec.ProfileSpec, d spec.Duration) { p.StageDeadlines = map[string]spec.Duration{"deploy": d} },
	} {
		for _, d := range []spec.Duration{long, negative} {
			p := spec.ProfileSpec{}.WithDefaults()
			set(&p, d)
			require.ErrorContains(t, p.Validate([]string{"deploy"}), field+": must be ", "%s", d.D())
		}
		p := spec.ProfileSpec{}.WithDefaults()
		set(&p, spec.Duration(time.Minute))
		require.NoError(t, p.Validate([]string{"deploy"}), field)
	}
}

func TestSecretUse_RuleWithoutSite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		networks       []string
		http, loopback bool
	}{
		"none":                    {nil, false, false},
		"real networks":           {[]string{"10.0.0.0/8"}, false, false},
		"loopback and real":       {[]string{"127.0.0.0/8", "10.0.0.0/8"}, false, true},
		"loopback networks alone": {[]string{"127.0.0.0/8", "::1/128"}, true, true},
	} {
		rule := spec.SecretUse{Networks: c.networks}.RuleWithoutSite()
		require.Equal(t, c.http, rule.PlainHTTP, name)
		require.Equal(t, c.loopback, rule.Loopback, name)
		require.False(t, rule.Anywhere, name)
	}
}

// TestSiteSpec_SSHAddress: a login goes to the first address that the site allows, so that it is
// not tried on a network of storage or of GPUs.
func TestSiteSpec_SSHAddress(t *testing.T) {
	t.Parallel()
	s := spec.SiteSpec{NodeNetworks: []string{"10.1.0.0/16", "fd00::/8"}}
	for want, addresses := range map[string][]string{
		"":               nil,
		"10.1.0.5:22":    {"192.168.0.5", "none", "10.1.0.5", "10.1.0.6"},
		"[fd00::5]:22":   {"192.168.0.5", "fd00::5"},
		"192.168.0.5:22": {"192.168.0.5", "192.168.0.6"},
	} {
		require.Equal(t, want, s.SSHAddress(addresses))
	}
	require.Equal(t, "10.0.0.5:2222", spec.SiteSpec{SSHPort: 2222}.SSHAddress([]string{"10.0.0.5"}))
}
