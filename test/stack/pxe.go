package stack

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// PXEMachine is a simulated server that boots from the network and is known to
// no MAAS.
type PXEMachine struct {
	Spec   simhw.Spec
	NoBMC  bool
	NoDisk bool // built without drives, to take those of another
	// PlainBMC answers without TLS, so that nobody has a certificate to approve.
	PlainBMC bool
}

// PXEServer is one of them, switched off until somebody switches it on.
type PXEServer struct {
	*pxesim.Server
	BMC *redfishsim.Server // nil without one
}

// firstPXE keeps serials, MAC addresses and ids apart from those of the site.
const firstPXE = 2000

// PXEMachines are count machines of all vendors.
func PXEMachines(count int) []PXEMachine {
	out := make([]PXEMachine, 0, count)
	for i := range count {
		out = append(out, NewPXEMachine(i))
	}
	return out
}

// NewPXEMachine is the n-th of them.
func NewPXEMachine(n int) PXEMachine {
	return PXEMachine{Spec: simhw.GPUServer(simhw.Vendors[n%len(simhw.Vendors)], firstPXE+n)}
}

// AddPXE builds a machine that boots from this stack's API. It lives as long as
// the stack.
func (s *Stack) AddPXE(ctx context.Context, p PXEMachine) (*PXEServer, error) {
	if p.NoDisk {
		p.Spec.Disks = nil
	}
	p.Spec.BMCPassword = "sim-" + randomHex(12) // a secret of this run, for the leak test
	m, err := s.pxe.Add(p.Spec)
	if err != nil {
		return nil, err
	}
	out := &PXEServer{}
	if !p.NoBMC {
		var stop func()
		if out.BMC, stop, err = startBMC(s.ctx, m, s.Options.Speed, !p.PlainBMC); err != nil {
			return nil, err
		}
		s.onClose(stop)
	}
	out.Server, err = pxesim.NewServer(pxesim.Options{
		Machine: m, Slipway: "http://" + s.Config.Boot.Listen, Dir: filepath.Join(s.Dir, "pxe", p.Spec.ID), AgentBinary: filepath.Join(s.Bin, "slipway-agent"),
		SSHListen: [2]string{ownLoopback(), ownLoopback()}, Log: slog.New(slog.NewTextHandler(orDiscard(s.Options.Log), nil)),
	})
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", p.Spec.ID, err)
	}
	s.onClose(out.Close)
	s.PXE = append(s.PXE, out)
	return out, ctx.Err()
}

// machines starts those that the options ask for.
func (s *Stack) machines(ctx context.Context) error {
	for _, p := range s.Options.PXE {
		if _, err := s.AddPXE(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
