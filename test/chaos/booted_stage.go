package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/stack"
)

// bootedBy is who brings machines that boot from the network into service.
var bootedBy = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"}

// The installer and the live system of these machines.
const (
	bootedInstall = "#cloud-config\nautoinstall:\n  early-commands:\n    - {{ report \"started\" }}\n  late-commands:\n    - {{ report \"complete\" }}\n" +
		"  user-data:\n    runcmd:\n      - {{ install_agent }}\n"
	bootedErase = "#cloud-config\nruncmd:\n  - {{ install_agent }}\n"
)

// boot brings a machine of the case's own into service: discovered, approved,
// installed, its agent enrolled.
func (t *environment) boot(ctx context.Context, c Case, path *Path) (*Target, error) {
	target := &Target{Stack: t.stack, Store: t.store, SKU: t.sku, Case: c, DSN: t.dsn, plans: t.plans, retried: map[int64]bool{}}
	install, erase, err := t.bootedWorkflows(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.addBooted(ctx, target, path.Mode == lifecycle.ModeMigrate); err != nil {
		return nil, err
	}
	target.Machine.PowerOn("chaos")
	var n db.Node
	if !eventually(ctx, preparation, func() (found bool) {
		n, err = t.store.NodeOfMAC(ctx, target.Booted.MAC())
		pause(ctx, lookEvery)
		return err == nil
	}) {
		return nil, fmt.Errorf("machine %s was not discovered: %s", target.Machine.Spec().ID, target.Booted.Screen())
	}
	target.NodeID, target.Host = n.ID, n.Hostname
	steps := []func(*db.Tx, db.Node) (db.Node, error){
		func(tx *db.Tx, n db.Node) (db.Node, error) {
			return tx.AssignInstallWorkflow(ctx, n.ID, n.Version, install)
		},
		func(tx *db.Tx, n db.Node) (db.Node, error) {
			return tx.AssignEraseWorkflow(ctx, n.ID, n.Version, erase)
		},
		setsState(ctx, lifecycle.NodePending),
	}
	if err := t.change(ctx, n.ID, steps...); err != nil {
		return nil, err
	}
	if !target.becomes(ctx, lifecycle.NodeInstalled) || !eventually(ctx, preparation, func() bool {
		last, err := t.store.LatestHeartbeat(ctx, n.ID)
		drives, drivesErr := t.store.ReportedDrives(ctx, n.ID) // a job erases what was reported when it started
		pause(ctx, lookEvery)
		return err == nil && last.BootID == target.Machine.BootID() && drivesErr == nil && drives.Source != ""
	}) {
		return nil, fmt.Errorf("node %s was not installed, or its agent has not reported its drives", n.ID)
	}
	if err := t.change(ctx, n.ID, setsState(ctx, lifecycle.NodeActive)); err != nil {
		return nil, err
	}
	return target, target.withBMC(ctx)
}

func setsState(ctx context.Context, to lifecycle.NodeStatus) func(*db.Tx, db.Node) (db.Node, error) {
	return func(tx *db.Tx, n db.Node) (db.Node, error) {
		return tx.SetPXEState(ctx, n.ID, n.Version, to, false, bootedBy)
	}
}

// change does steps to a node, each on the version that the last one left.
func (t *environment) change(ctx context.Context, id string, steps ...func(*db.Tx, db.Node) (db.Node, error)) error {
	return t.store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, id)
		for _, step := range steps {
			if err == nil {
				n, err = step(tx, n)
			}
		}
		return err
	})
}

// addBooted adds the machine, its wire to the BMC, and the one that takes its
// place.
func (t *environment) addBooted(ctx context.Context, target *Target, fresh bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(plain bool) (*stack.PXEServer, error) {
		m := stack.NewPXEMachine(t.booted)
		m.PlainBMC = plain
		t.booted++
		return t.stack.AddPXE(ctx, m)
	}
	var err error
	if target.Booted, err = add(false); err != nil {
		return err
	}
	target.Machine = target.Booted.Hardware
	spec := target.Machine.Spec()
	if target.bmc, err = newWire(context.WithoutCancel(ctx), hostOf(spec.BMCAddress)); err != nil {
		return err
	}
	target.Machine.SetBMC(strings.Replace(spec.BMCAddress, hostOf(spec.BMCAddress), target.bmc.Address(), 1), spec.BMCUser, spec.BMCPassword)
	if err := t.seedBMC(ctx, target.Booted); err != nil || !fresh {
		return err
	}
	// Its BMC shows no certificate: nobody has to approve one.
	if target.Fresh, err = add(true); err != nil {
		return err
	}
	return t.seedBMC(ctx, target.Fresh)
}

// seedBMC stores a BMC's login over the product's own connections, which the
// cases of the neighbours cut.
func (t *environment) seedBMC(ctx context.Context, s *stack.PXEServer) error {
	var err error
	eventually(ctx, time.Minute, func() bool {
		err = t.stack.SeedBMC(ctx, s.Hardware)
		return err == nil
	})
	return err
}

// bootedWorkflows makes the two workflows once for an environment. The images are
// Slipway's own start script: no simulated firmware looks into them.
func (t *environment) bootedWorkflows(ctx context.Context) (install, erase string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]string, 0, 2)
	for _, one := range [][3]string{{"install", "autoinstall", bootedInstall}, {"erase", pxesim.LiveWord, bootedErase}} {
		w, err := t.store.InstallWorkflowByName(ctx, one[0])
		if errors.Is(err, db.ErrNotFound) {
			w, err = t.store.CreateInstallWorkflow(ctx, one[0], spec.InstallWorkflowSpec{
				Kernel: spec.BootImage{URL: "http://" + t.stack.Config.Boot.Listen + "/boot/start.ipxe"}, Initrds: []spec.BootImage{},
				CommandLine: one[1] + " ds=nocloud-net;s={{ .SeedURL }}", UserData: one[2], Agent: &spec.InstallAgent{Simulated: true, HeartbeatSeconds: 1},
			})
		}
		if err != nil {
			return "", "", err
		}
		ids = append(ids, w.ID)
	}
	return ids[0], ids[1], nil
}

// withBMC names the machine's BMC with the certificate that it shows.
func (t *Target) withBMC(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	spec := t.Machine.Spec()
	b, err := redfish.Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: spec.BMCAddress})
	if err != nil {
		return err
	}
	id, err := b.Probe(ctx)
	if err = errors.Join(err, b.Close(ctx)); err != nil {
		return err
	}
	_, err = t.Store.CreateBMC(ctx, db.NewBMC{
		NodeID: &t.NodeID, Address: spec.BMCAddress, Protocol: "redfish", CredentialRef: stack.BMCSecret(spec.ID), PinSHA256: id.PinSHA256,
	})
	return err
}

// plan names the hardware that takes the machine's place.
func (t *Target) plan(ctx context.Context, tx *db.Tx, n db.Node) error {
	spec := t.Fresh.Hardware.Spec()
	_, err := tx.PlanHardware(ctx, n.ID, n.Version, db.PlannedHardware{
		MACs: []string{t.Fresh.MAC()}, SerialNumber: spec.Serial, SystemUUID: spec.UUID, Disks: db.DisksNew,
		BMC: &db.PlannedBMC{Address: spec.BMCAddress, Protocol: "redfish", CredentialRef: stack.BMCSecret(spec.ID)},
	}, bootedBy)
	return err
}

// prepare lets a tenant in.
func (b booted) prepare(ctx context.Context, t *Target) error {
	a, err := t.occupy(ctx)
	if err != nil {
		return err
	}
	t.Booted.Disk.SetTenant(a.ID)
	if err := t.Booted.Disk.Occupy(); err != nil {
		return fmt.Errorf("let a tenant in: %w", err)
	}
	return nil
}
