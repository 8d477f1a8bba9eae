package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// secret is the name of one of the site's own secrets.
func (s *Stack) secret(name string) string {
	if s.Options.Site == "" {
		return "sim/" + name
	}
	return s.Options.Site + "/" + name
}

// BMCSecret is the name of a machine's BMC login.
func BMCSecret(machine string) string { return "sim/bmc/" + machine }

// SeedSecrets stores what a site refers to: the MAAS API key, the nodes' SSH
// login and every BMC's login. It may be repeated.
func (s *Stack) SeedSecrets(ctx context.Context) error {
	put := func(kind spec.SecretKind, name, value string) error {
		if _, err := s.App.Store.SetSecretUse(ctx, name, simulatedUse(kind)); err != nil {
			return fmt.Errorf("state the use of secret %s: %w", name, err)
		}
		_, err := s.App.Secrets.Put(ctx, name, providers.NewSecret(value))
		if err != nil {
			return fmt.Errorf("store secret %s: %w", name, err)
		}
		return nil
	}
	if err := put(spec.SecretMAASKey, s.SiteSpec().MAASAPIKeyRef, s.Sims.APIKey); err != nil {
		return err
	}
	key, _, err := cloudinit.NewHostKey() // any ed25519 key in PEM form
	if err != nil {
		return err
	}
	if err := put(spec.SecretSSHKey, s.SiteSpec().SSHKeyRef, key.Reveal()); err != nil {
		return err
	}
	for _, m := range slices.Concat(s.Sims.Fleet.All(), s.pxe.All()) {
		if err := s.SeedBMC(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// Seeded is what Seed has stored.
type Seeded struct {
	Site    db.Site
	Profile db.Profile
	SKU     db.SKU
}

// Seed stores what an onboarding at the simulated site needs: secrets, the site with a profile, a
// SKU, and the RoCE records of every machine.
func (s *Stack) Seed(ctx context.Context, site, sku string, profile spec.ProfileSpec) (out Seeded, err error) {
	store := s.App.Store
	if err = s.SeedSecrets(ctx); err != nil {
		return out, err
	}
	if out.Site, err = store.CreateSite(ctx, site, s.SiteSpec()); err != nil {
		return out, err
	}
	if out.Profile, err = store.CreateProfile(ctx, out.Site.ID, "standard", profile); err != nil {
		return out, err
	}
	if out.SKU, err = store.CreateSKU(ctx, sku, s.SKUSpec()); err != nil {
		return out, err
	}
	for i, m := range s.Sims.Fleet.All() {
		if _, err = store.CreateRoCEAssignment(ctx, out.Site.ID, "gpu-"+m.Spec().ID, RoCEPorts(m, i)); err != nil {
			return out, err
		}
	}
	return out, nil
}

// SeedBMC stores the login of a machine's BMC. It may be repeated.
func (s *Stack) SeedBMC(ctx context.Context, m *simhw.Machine) error {
	machine := m.Spec()
	login, err := json.Marshal(map[string]string{"username": machine.BMCUser, "password": machine.BMCPassword})
	if err != nil {
		return err
	}
	if _, err := s.App.Store.SetSecretUse(ctx, BMCSecret(machine.ID), simulatedUse(spec.SecretBMCLogin)); err != nil {
		return fmt.Errorf("state the use of the login of the BMC of %s: %w", machine.ID, err)
	}
	if _, err := s.App.Secrets.Put(ctx, BMCSecret(machine.ID), providers.NewSecret(string(login))); err != nil {
		return fmt.Errorf("store the login of the BMC of %s: %w", machine.ID, err)
	}
	return nil
}

// simulatedUse is the use of the secrets of simulated equipment: loopback alone, for what is sent.
func simulatedUse(kind spec.SecretKind) spec.SecretUse {
	if kind == spec.SecretSSHKey || kind == spec.SecretStripeWebhook {
		return spec.SecretUse{Kind: kind, Installation: true}
	}
	return spec.SecretUse{Kind: kind, Networks: []string{"127.0.0.0/8"}}
}

// SiteSpec is the simulated site.
func (s *Stack) SiteSpec() spec.SiteSpec {
	return spec.SiteSpec{
		MAASURL: s.Sims.URL, MAASAPIKeyRef: s.secret("maas-api-key"), Region: "sim", SSHUser: cmp.Or(s.Options.SSHUser, "ubuntu"), SSHKeyRef: s.secret("node-ssh-key"),
		SSHPort: NodeSSHPort, TrustFirstBMCPin: true, BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true,
	}
}

// ProfileSpec is a profile that uses every stage.
func (s *Stack) ProfileSpec() spec.ProfileSpec {
	return spec.ProfileSpec{
		RequireHWSync: true, EnablePhase2RoCE: true, BootDisk: spec.BootDiskRule{ModelContains: "BOSS"},
		EnableDeployRetryOnDatasourceFailed: true, MaxDeployRetryAttempts: 2,
		PollInterval: spec.Duration(250 * time.Millisecond), AgentHeartbeatInterval: spec.Duration(time.Second),
		HardwareSyncInterval: spec.Duration(s.wall(15 * time.Minute)), DistroSeries: "jammy", BatchMaxParallel: 3,
	}
}

// wall is how long a virtual duration takes here.
func (s *Stack) wall(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)/s.Sims.Fleet.Clock().Speed()), time.Second)
}

// SKUSpec is what a simulated GPU server meets.
func (s *Stack) SKUSpec() spec.SKUSpec {
	return spec.SKUSpec{
		GPUs: 8, GPUModelContains: "H100", GPUMemoryMiB: 80000, DriverMinVersion: "535.0", NICsUp: 2, DataDisks: 4, RequireECC: true,
	}
}

// RoCEPorts are the records of a machine's two fast ports.
func RoCEPorts(m *simhw.Machine, n int) []spec.RoCEPort {
	var out []spec.RoCEPort
	for i, nic := range m.Spec().NICs {
		if nic.VLAN != 2 {
			continue
		}
		out = append(out, spec.RoCEPort{
			Interface: nic.Name, MTU: 9000, SubnetCIDR: "127.20.0.0/16", IP: fmt.Sprintf("127.20.%d.%d", i, n+10), Tags: []string{"roce"},
		})
	}
	return out
}
