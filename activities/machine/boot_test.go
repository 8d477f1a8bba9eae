package machine_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestReboot_ProvesAnotherBootID restarts a machine from within, twice under one number: it
// restarts once.
func TestReboot_ProvesAnotherBootID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	timeout := int(runenv.Patience(20 * time.Second).Seconds())
	in := w.step(runplan.Step{Name: "restart", TimeoutSeconds: &timeout, Reboot: &runplan.Reboot{Mode: runplan.RebootInBand}})
	before, err := w.acts.ReadBootID(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "11111111-aaaa", before.BootID)
	for range 2 {
		after, err := w.acts.Reboot(t.Context(), machine.RebootIn{StepIn: in, Before: before.BootID})
		require.NoError(t, err)
		require.Equal(t, "22222222-bbbb", after.BootID)
	}
	count, err := os.ReadFile(filepath.Join(w.dir, "reboots"))
	require.NoError(t, err)
	require.Equal(t, "r\n", string(count))
}

// A machine whose boot id stays the same did not restart, whatever it answered.
func TestReboot_WithTheSameBootIDFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	w.acts.RebootScript = "true"
	timeout := 2
	in := w.step(runplan.Step{Name: "restart", TimeoutSeconds: &timeout, Reboot: &runplan.Reboot{Mode: runplan.RebootInBand}})
	_, err := w.acts.Reboot(t.Context(), machine.RebootIn{StepIn: in, Before: "11111111-aaaa"})
	require.Equal(t, lifecycle.FailPowerNotConfirmed, classOf(err))
}

// A call that may have ordered the restart, of a machine whose boot id of before nobody knows,
// orders one: the boot id that it reads now is no proof.
func TestReboot_OfAnUnknownBootID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	timeout := int(runenv.Patience(20 * time.Second).Seconds())
	in := w.step(runplan.Step{Name: "restart", TimeoutSeconds: &timeout, Reboot: &runplan.Reboot{Mode: runplan.RebootInBand}})
	after, err := w.acts.Reboot(t.Context(), machine.RebootIn{StepIn: in, Ordered: true})
	require.NoError(t, err)
	require.Equal(t, "22222222-bbbb", after.BootID)
}

// TestNetboot_IsReadBackAndCleared sets the device of the next boot of a simulated machine.
func TestNetboot_IsReadBackAndCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fake")
	in := w.step(runplan.Step{Name: "net-boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}})
	set, err := w.acts.SetNetboot(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, string(providers.BootPXE), set.Netboot)
	require.True(t, set.Simulated)
	_, err = w.acts.ClearNetboot(t.Context(), in)
	require.NoError(t, err)
	left, err := w.acts.ReadNetboot(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, left.Netboot)
}

// nodePower is the BMC of the machine's node. cutsOff has a cycle end between off and on.
type nodePower struct {
	w       *world
	bmcID   string
	cutsOff bool
	calls   []string
	cycled  atomic.Bool
	// is what the BMC says that the machine is, device the one of its next boot.
	is     bmcact.MachineRecord
	device providers.BootTarget
}

// IdentifyByBMC implements machine.NodePower.
func (p *nodePower) IdentifyByBMC(_ context.Context, in bmcact.BootIn) (bmcact.BootFacts, error) {
	require.Equal(p.w.t, p.bmcID, in.BMCID)
	if !slices.Equal(p.is.Serials, in.Record.Serials) || !slices.Equal(p.is.MACs, in.Record.MACs) {
		return bmcact.BootFacts{}, fault.New(lifecycle.FailOtherMachine, "another machine than %v", in.Record)
	}
	return bmcact.BootFacts{Serial: p.is.Serials[0], Target: p.device}, nil
}

// SetBootByBMC implements machine.NodePower.
func (p *nodePower) SetBootByBMC(ctx context.Context, in bmcact.BootIn) (bmcact.BootFacts, error) {
	if in.Target != providers.BootNone {
		if _, err := p.IdentifyByBMC(ctx, in); err != nil {
			return bmcact.BootFacts{}, err
		}
	}
	p.device = in.Target
	return bmcact.BootFacts{Target: p.device}, nil
}

// ReadBootByBMC implements machine.NodePower.
func (p *nodePower) ReadBootByBMC(context.Context, bmcact.BootIn) (bmcact.BootFacts, error) {
	return bmcact.BootFacts{Target: p.device}, nil
}

// PowerCycleByBMC implements machine.NodePower.
func (p *nodePower) PowerCycleByBMC(_ context.Context, in bmcact.PowerIn) (contract.PowerFacts, error) {
	require.Equal(p.w.t, p.bmcID, in.BMCID)
	p.calls = append(p.calls, "cycle")
	if p.cutsOff {
		require.NoError(p.w.t, os.Remove(p.w.bootF)) // nothing answers as before
		return contract.PowerFacts{}, fault.New(lifecycle.FailBMCUnreachable, "the BMC went away")
	}
	p.w.boot("22222222-bbbb")
	p.cycled.Store(true)
	return contract.PowerFacts{}, nil
}

// PowerOnByBMC implements machine.NodePower.
func (p *nodePower) PowerOnByBMC(_ context.Context, in bmcact.PowerIn) (contract.PowerFacts, error) {
	require.Equal(p.w.t, p.bmcID, in.BMCID)
	p.calls = append(p.calls, "on")
	p.w.boot("22222222-bbbb")
	return contract.PowerFacts{}, nil
}

// TestReboot_ByTheBMCOfTheNode restarts a machine whose provider has no power control, but whose
// node has a BMC. An attempt that finds the machine without an answer switches it on, and cuts
// nothing.
func TestReboot_ByTheBMCOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	m := w.machine()
	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(*m.SiteID))
	require.NoError(t, w.store.SetNodeHostKey(t.Context(), node.ID, m.HostKey))
	link := func(nodeID string) {
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{NodeID: nodeID}, admin)
			return err
		})
	}
	link(node.ID)
	timeout := int(runenv.Patience(20 * time.Second).Seconds())
	reboot := runplan.Step{Name: "restart", TimeoutSeconds: &timeout, Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}
	var refused *runplan.StartRefusal
	require.ErrorAs(t, w.start(reboot, nil), &refused, "the node has no BMC")
	bmc, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "127.0.0.9", Protocol: "redfish", CredentialRef: "bmc/x"})
	require.NoError(t, err)
	power := &nodePower{w: w, bmcID: bmc.ID, cutsOff: true}
	w.acts.Power = power
	in := machine.RebootIn{StepIn: w.step(reboot), Before: "11111111-aaaa"}
	_, err = w.acts.Reboot(t.Context(), in)
	require.Equal(t, lifecycle.FailBMCUnreachable, classOf(err), "the BMC says what is wrong")
	in.Ordered = true
	for range 2 {
		after, err := w.acts.Reboot(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, "22222222-bbbb", after.BootID)
	}
	require.Equal(t, []string{"cycle", "on"}, power.calls)
	w.boot("33333333-cccc")
	in.Before, power.cutsOff, power.calls = "33333333-cccc", false, nil
	after, err := w.acts.Reboot(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "22222222-bbbb", after.BootID)
	require.Equal(t, []string{"cycle"}, power.calls)
}

// A machine that hangs from the beginning has no boot id that could be read. Its BMC restarts it,
// whether the machine says nothing at all or something without a boot id.
func TestReboot_OfAMachineThatHangs(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(w *world, restarted func() bool){
		"no boot id": func(w *world, _ func() bool) { require.NoError(w.t, os.Remove(w.bootF)) },
		"no answer":  (*world).silentUntil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHang(t, hang)
		})
	}
}

// silentUntil has connections to the machine open and stay silent until it was restarted.
func (w *world) silentUntil(restarted func() bool) {
	listener, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = listener.Close() })
	to := w.machine().Spec.SSHEndpoint
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			w.t.Cleanup(func() { _ = in.Close() })
			if !restarted() {
				continue
			}
			out, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", to)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	login := w.acts.Login
	w.acts.Login = func(ctx context.Context, s providers.Secrets, ref providers.SecretRef, use providers.Use, to providers.SSHTarget, id string) (providers.SSHTarget, error) {
		to, err := login(ctx, s, ref, use, to, id)
		to.Address = listener.Addr().String()
		return to, err
	}
}

func testHang(t *testing.T, hang func(w *world, restarted func() bool)) {
	t.Helper()
	w := newWorld(t, "ssh")
	m := w.machine()
	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(*m.SiteID))
	require.NoError(t, w.store.SetNodeHostKey(t.Context(), node.ID, m.HostKey))
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{NodeID: node.ID}, admin)
		return err
	})
	bmc, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "127.0.0.9", Protocol: "redfish", CredentialRef: "bmc/x"})
	require.NoError(t, err)
	power := &nodePower{w: w, bmcID: bmc.ID}
	w.acts.Power = power
	timeout := int(runenv.Patience(8 * time.Second).Seconds())
	in := machine.RebootIn{StepIn: w.step(runplan.Step{Name: "restart", TimeoutSeconds: &timeout, Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}})}
	hang(w, func() bool { return power.cycled.Load() })
	before, err := w.acts.ReadBootID(t.Context(), in.StepIn)
	require.NoError(t, err)
	require.Empty(t, before.BootID)
	after, err := w.acts.Reboot(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "22222222-bbbb", after.BootID)
	require.Equal(t, []string{"cycle"}, power.calls)
}

// linked links the machine to a node with a BMC, and returns that.
func (w *world) linked(node db.Node) *nodePower {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{NodeID: node.ID}, admin)
		return err
	})
	bmc, err := w.store.CreateBMC(w.t.Context(), db.NewBMC{NodeID: &node.ID, Address: "127.0.0.9", Protocol: "redfish", CredentialRef: "bmc/x"})
	require.NoError(w.t, err)
	p := &nodePower{w: w, bmcID: bmc.ID, device: providers.BootNone}
	w.acts.Power = p
	return p
}

// TestNetboot_ByTheBMCOfTheNode sets the next boot of a machine whose provider cannot, on the BMC
// of its node. Another machine than that of the record gets nothing set.
func TestNetboot_ByTheBMCOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(*w.machine().SiteID))
	require.NoError(t, w.store.SetNodeMachine(t.Context(), node.ID, db.NodeMachine{Serial: "S1", MACs: []string{"02:00:00:00:00:07"}}))
	step := runplan.Step{Name: "net-boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}}
	var refused *runplan.StartRefusal
	require.ErrorAs(t, w.start(step, nil), &refused, "the machine is linked to no node")
	bmc := w.linked(node)
	in := w.step(step)
	_, err := w.acts.SetNetboot(t.Context(), in)
	require.Equal(t, lifecycle.FailOtherMachine, classOf(err))
	require.Equal(t, machine.CommandUnsent, machine.EndOf(err))
	require.Equal(t, providers.BootNone, bmc.device)
	bmc.is = bmcact.MachineRecord{Serials: []string{"S1"}, MACs: []string{"02:00:00:00:00:07"}}
	set, err := w.acts.SetNetboot(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, string(providers.BootPXE), set.Netboot)
	bmc.is = bmcact.MachineRecord{}
	_, err = w.acts.ClearNetboot(t.Context(), in)
	require.NoError(t, err, "a device is cleared on whatever machine it is")
	left, err := w.acts.ReadNetboot(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, left.Netboot)
}
