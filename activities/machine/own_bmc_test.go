package machine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestOwnBMC_PowersAndBoots: a machine without a node has power control and a next boot by the BMC
// at its bmc_endpoint, once an administrator has said with which login.
func TestOwnBMC_PowersAndBoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	m := w.machine()
	stated := m.Spec
	stated.BMCEndpoint, stated.Serial = "10.20.30.41", "S1"
	register := func(s spec.MachineSpec) (m machinesdb.Machine) {
		w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
			m, err = machines.Register(ctx, tx, machines.Registration{ID: "m-1", Spec: s}, admin)
			return err
		})
		return m
	}
	register(stated)
	timeout := int(runenv.Patience(20 * time.Second).Seconds())
	netboot := runplan.Step{Name: "net-boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}}
	reboot := runplan.Step{Name: "restart", TimeoutSeconds: &timeout, Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}
	var refused *runplan.StartRefusal
	require.ErrorAs(t, w.start(reboot, nil), &refused, "nobody has said with which login")

	_, err := w.store.PutSecretVersion(t.Context(), "bmc/m-1", "keeper", []byte("sealed"), make([]byte, 32))
	require.NoError(t, err)
	_, err = w.store.SetSecretUse(t.Context(), "bmc/m-1", spec.SecretUse{Kind: spec.SecretBMCLogin, Sites: []string{*m.SiteID}})
	require.NoError(t, err)
	access := machines.Access{SiteID: *m.SiteID, HostKey: m.HostKey, BMCCredentialRef: "bmc/m-1"}
	set := func(a machines.Access) (m machinesdb.Machine) {
		w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
			m, err = machines.SetAccess(ctx, tx, "m-1", a, admin)
			return err
		})
		return m
	}
	m = set(access)
	require.NotNil(t, m.BMCID)
	require.Equal(t, *m.BMCID, *set(access).BMCID, "the record stays, with the certificate that was approved for it")
	bmc, err := w.store.BMC(t.Context(), *m.BMCID)
	require.NoError(t, err)
	require.Equal(t, []string{"10.20.30.41", "redfish", "bmc/m-1"}, []string{bmc.Address, bmc.Protocol, bmc.CredentialRef})
	require.Nil(t, bmc.NodeID)

	power := &nodePower{w: w, bmcID: bmc.ID, device: providers.BootNone, is: bmcact.MachineRecord{Serials: []string{"S1"}}}
	w.acts.Power = power
	in := w.step(netboot)
	facts, err := w.acts.SetNetboot(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, string(providers.BootPXE), facts.Netboot)
	w.endRun(in)
	in = w.step(reboot)
	after, err := w.acts.Reboot(t.Context(), machine.RebootIn{StepIn: in, Before: "11111111-aaaa"})
	require.NoError(t, err)
	require.Equal(t, "22222222-bbbb", after.BootID)
	require.Equal(t, []string{"cycle"}, power.calls)
	w.endRun(in)

	stated.BMCEndpoint = "10.20.30.42"
	require.Nil(t, register(stated).BMCID, "the login is not sent to another BMC")
	require.ErrorAs(t, w.start(reboot, nil), &refused)
}

// TestFake_JoinsACluster: a simulated machine joins a cluster, is verified, and has to join again
// after it was installed again.
func TestFake_JoinsACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fake")
	w.acts.Secrets, w.acts.TokenCache = kubeconfigs{value: "simulated"}, time.Millisecond
	s := spec.ClusterSpec{APIURL: "https://127.0.0.1:6443", CAPins: []string{"sha256:" + ownPin}, KubeconfigRef: "clusters/a", KubernetesVersion: "v1.34.1"}
	require.NoError(t, s.Validate())
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := clusterdb.Create(ctx, tx, "a", "", s)
		return err
	})
	verify := runplan.Step{Name: "verify", Verify: &runplan.VerifyInCluster{ClusterRef: "a"}}
	join := func() {
		in := w.step(joinStep(20))
		facts, err := w.acts.JoinCluster(t.Context(), machine.CommandIn{StepIn: in})
		require.NoError(t, err)
		require.True(t, facts.Simulated)
		stdout, _ := w.output(in)
		require.Contains(t, stdout, "is node m-1 of cluster a")
		w.endRun(in)
		in = w.step(verify)
		_, err = w.acts.VerifyInCluster(t.Context(), machine.VerifyIn{StepIn: in})
		require.NoError(t, err)
		w.endRun(in)
	}
	join()
	w.risk = true // the machine is in its cluster and not drained
	in := w.step(runplan.Step{Name: "install", Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}})
	_, err := w.acts.RepaveMachine(t.Context(), in)
	require.NoError(t, err)
	w.endRun(in)
	join()
}

const ownPin = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
