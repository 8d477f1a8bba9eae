package rig

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/bench/noop"
)

var operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "rig"}

const (
	secretMAAS = "noop/maas"
	secretBMC  = "noop/bmc"
	secretSSH  = "noop/ssh"
)

// AgentCA is what nodes are told to trust, in PEM form; nobody listens.
func AgentCA() string { return agentCA() }

var agentCA = sync.OnceValue(func() string {
	ca, err := nodeca.Create()
	if err != nil {
		return ""
	}
	return string(ca.CertPEM())
})

// seed stores secrets, site, profile and SKU; the profile uses every stage.
func (r *Rig) seed(tb testing.TB, tune []func(*spec.ProfileSpec)) {
	tb.Helper()
	ctx := tb.Context()
	login, err := json.Marshal(map[string]string{"username": noop.BMCUser, "password": noop.BMCPassword})
	require.NoError(tb, err)
	for name, value := range map[string]string{secretMAAS: noop.APIKey, secretBMC: string(login), secretSSH: sshKey(tb)} {
		use := spec.SecretUse{Kind: map[string]spec.SecretKind{secretMAAS: spec.SecretMAASKey, secretBMC: spec.SecretBMCLogin, secretSSH: spec.SecretSSHKey}[name], Installation: true}
		_, err := r.Store.SetSecretUse(ctx, name, use)
		require.NoError(tb, err)
		_, err = r.secrets.Put(ctx, name, providers.NewSecret(value))
		require.NoError(tb, err)
	}
	r.Site, err = r.Store.CreateSite(ctx, "noop", spec.SiteSpec{
		MAASURL: "http://127.0.0.1:5240/MAAS", MAASAPIKeyRef: secretMAAS, Region: "noop", SSHUser: "ubuntu", SSHKeyRef: secretSSH,
		TrustFirstBMCPin: true, BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true,
	})
	require.NoError(tb, err)
	profile := spec.ProfileSpec{
		RequireHWSync: true, EnablePhase2RoCE: true, BootDisk: spec.BootDiskRule{ModelContains: "BOSS"}, DistroSeries: "jammy",
		EnableDeployRetryOnDatasourceFailed: true, MaxDeployRetryAttempts: 2, PollInterval: spec.Duration(50 * time.Millisecond),
		HardwareSyncInterval: spec.Duration(15 * time.Minute), BatchMaxParallel: 50,
	}
	for _, f := range tune {
		f(&profile)
	}
	r.Profile, err = r.Store.CreateProfile(ctx, r.Site.ID, "standard", profile)
	require.NoError(tb, err)
	r.SKU, err = r.Store.CreateSKU(ctx, "h100x8", spec.SKUSpec{
		GPUs: 8, GPUModelContains: "H100", GPUMemoryMiB: 80000, DriverMinVersion: "535.0", NICsUp: 2, DataDisks: 4, RequireECC: true,
	})
	require.NoError(tb, err)
}

func sshKey(tb testing.TB) string {
	tb.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(tb, err)
	block, err := ssh.MarshalPrivateKey(priv, "slipway-rig")
	require.NoError(tb, err)
	return string(pem.EncodeToMemory(block))
}

// Node is a node that can be onboarded, with the request for it.
type Node struct {
	ID, Hostname string
	Input        contract.OnboardingInput
}

// AddNode adds a node. A node that is bootstrapped by hand has no BMC, and its agent has sent a
// heartbeat.
func (r *Rig) AddNode(ctx context.Context, host string, manual bool) (Node, error) {
	n := Node{Hostname: host}
	err := r.Store.Tx(ctx, func(tx *db.Tx) error {
		node, err := tx.CreateNode(ctx, db.NewNode{
			Hostname: host, SiteID: r.Site.ID, SKUID: &r.SKU.ID, ProfileID: &r.Profile.ID, Simulated: true, Actor: operator,
		})
		if err != nil {
			return err
		}
		n.ID = node.ID
		n.Input = contract.OnboardingInput{SiteID: r.Site.ID, ProfileID: r.Profile.ID, SKUID: r.SKU.ID, Hostname: host, Manual: manual}
		if !manual {
			bmc, err := tx.CreateBMC(ctx, db.NewBMC{NodeID: &node.ID, Address: bmcAddress(host), Protocol: "redfish", CredentialRef: secretBMC})
			if err != nil {
				return err
			}
			n.Input.BMCID = bmc.ID
			if _, err := tx.CreateRoCEAssignment(ctx, r.Site.ID, host, fastPorts()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return n, fmt.Errorf("add node %s: %w", host, err)
	}
	r.nodes.Store(host, n.ID)
	if manual {
		return n, r.RecordHeartbeat(ctx, host)
	}
	return n, nil
}

// bmcAddress gives each host an address of its own, where nothing listens.
func bmcAddress(host string) string {
	sum := sha256.Sum256([]byte(host))
	ip := netip.AddrFrom4([4]byte{127, sum[0], sum[1], sum[2]})
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(sum[3:])|1).String()
}

func fastPorts() []spec.RoCEPort {
	var out []spec.RoCEPort
	for i, name := range noop.FastPorts() {
		out = append(out, spec.RoCEPort{
			Interface: name, MTU: 9000, SubnetCIDR: noop.FastCIDR, IP: fmt.Sprintf("127.20.0.%d", 10+i), Tags: []string{"roce"},
		})
	}
	return out
}

// boot simulates the first boot of a deployed machine: its agent sends a heartbeat.
func (r *Rig) boot(ctx context.Context, host string, _ []byte) error {
	return r.RecordHeartbeat(ctx, host)
}

// RecordHeartbeat records a heartbeat with a report that meets the SKU.
func (r *Rig) RecordHeartbeat(ctx context.Context, host string) error {
	id, ok := r.nodes.Load(host)
	if !ok {
		return fmt.Errorf("there is no node %s", host)
	}
	return r.Store.RecordHeartbeats(ctx, []db.Heartbeat{{
		NodeID: id.(string), BootID: "boot-" + host, AgentVersion: "rig", Generation: 1, ReceivedAt: time.Now(), Report: Healthy(),
	}})
}

// Healthy is the report of a node that meets the rig's SKU.
func Healthy() *spec.HealthReport {
	memory, ecc, errs, no := int64(81559), true, 0, false
	r := &spec.HealthReport{Simulated: true, CPUs: 192, Driver: "580.159.04"}
	for i := range 8 {
		r.GPUs = append(r.GPUs, spec.GPUReport{
			UUID: fmt.Sprintf("GPU-%d", i), Model: "NVIDIA H100 80GB HBM3", MemoryMiB: &memory, ECCEnabled: &ecc, UncorrectedECC: &errs,
			RemapPending: &no, RemapFailed: &no,
		})
	}
	for i, name := range noop.FastPorts() {
		r.NICs = append(r.NICs, spec.NICReport{Name: name, MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Up: true, SpeedMbps: 400000})
	}
	for i := range 4 {
		r.Disks = append(r.Disks, spec.DiskReport{Name: fmt.Sprintf("nvme%dn1", i), Serial: noop.DataSerial(i), Bytes: 3840e9})
	}
	return r
}

func (r *Rig) reveal(_ context.Context, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revealed = append(r.revealed, value)
}

// Revealed lists every secret value that was stored or read so far.
func (r *Rig) Revealed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.revealed)
}
