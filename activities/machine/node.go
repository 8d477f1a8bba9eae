package machine

import (
	"context"
	"errors"
	"slices"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// These steps go through the node to which the machine is linked, because the adapter reaches
// neither BMC nor MAAS.

// nodeBMC returns the BMC of the node of the machine, or the one of its own.
func (s *session) nodeBMC(ctx context.Context) (db.BMC, error) {
	if id := s.machine.BMCID; id != nil && s.a.Power != nil {
		bmc, err := s.a.Store.BMC(ctx, *id)
		return bmc, fault.Internal(ctx, err)
	}
	if s.node.ID == "" || s.a.Power == nil {
		return db.BMC{}, fault.New(lifecycle.FailConfiguration, "the machine is linked to no node and has no login of a BMC of its own, and its provider reaches none")
	}
	bmc, err := s.a.Store.BMCOfNode(ctx, s.node.ID)
	if errors.Is(err, db.ErrNotFound) {
		return bmc, fault.New(lifecycle.FailConfiguration, "node %s of the machine has no BMC any more", s.node.ID)
	}
	return bmc, fault.Internal(ctx, err)
}

// bootIn returns the input of a call to the node's BMC. It holds the hardware that the records of
// the node and of the machine name, so that the call can be refused for another machine.
func (s *session) bootIn(ctx context.Context, target providers.BootTarget) (bmcact.BootIn, error) {
	bmc, err := s.nodeBMC(ctx)
	in := bmcact.BootIn{JobRef: s.in.JobRef, BMCID: bmc.ID, CAPEM: s.site.Spec.BMCCAPEM, Target: target}
	for _, serial := range []string{s.node.Serial, s.machine.Spec.Serial} {
		if serial = spec.NormalSerial(serial); serial != "" && !slices.Contains(in.Record.Serials, serial) {
			in.Record.Serials = append(in.Record.Serials, serial)
		}
	}
	for _, text := range append(slices.Clone(s.node.MACs), s.machine.Spec.MACAddresses...) {
		if mac, ok := spec.NormalMAC(text); ok && !slices.Contains(in.Record.MACs, mac) {
			in.Record.MACs = append(in.Record.MACs, mac)
		}
	}
	return in, err
}

func (s *session) setNodeDevice(ctx context.Context, device providers.BootTarget) (StepFacts, error) {
	in, err := s.bootIn(ctx, device)
	if err != nil {
		return StepFacts{}, unsentFirst(ctx, s.in, err)
	}
	f, err := s.a.Power.SetBootByBMC(ctx, in)
	if err != nil && !f.Sent {
		err = unsentFirst(ctx, s.in, err)
	}
	return s.deviceFacts(f.Target), err
}

func (s *session) readNodeDevice(ctx context.Context) (StepFacts, error) {
	in, err := s.bootIn(ctx, "")
	if err != nil {
		return StepFacts{}, err
	}
	f, err := s.a.Power.ReadBootByBMC(ctx, in)
	return s.deviceFacts(f.Target), err
}

// CheckMachine returns whether the node or the adapter carries out a step that cannot be undone. If
// it is the node, the BMC must report the machine of the record. Otherwise CheckMachine fails with
// other_machine, and nothing was changed. A simulated machine is not compared.
func (a *Activities) CheckMachine(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.read(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.Repave != nil && s.adapter.Imaging != nil || s.step.RMA != nil && s.adapter.Return != nil {
		return s.facts("the provider of the machine does it"), nil
	}
	f, err := s.compareNode(ctx)
	if err != nil {
		return StepFacts{}, err
	}
	facts := s.facts("the machine is the one of the record: serial number %s", f.Serial)
	facts.ByNode = true
	if s.step.Repave != nil {
		facts.Series = runplan.SeriesOf(s.step.Repave.Image)
	}
	return facts, nil
}

// compareNode fails when the node's BMC reports another machine than the record.
func (s *session) compareNode(ctx context.Context) (bmcact.BootFacts, error) {
	in, err := s.bootIn(ctx, "")
	if err != nil {
		return bmcact.BootFacts{}, err
	}
	return s.a.Power.IdentifyByBMC(ctx, in)
}

// RepaveMachine lets the adapter of the machine install the image of a step. An attempt installs
// once, even when the call is repeated.
func (a *Activities) RepaveMachine(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.open(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.Repave == nil || s.adapter.Imaging == nil {
		return StepFacts{}, s.lacks(runplan.CapImaging)
	}
	ctx, cancel := context.WithTimeout(ctx, s.step.Timeout())
	defer cancel()
	if err := s.adapter.Imaging.Repave(ctx, s.target, s.opID(""), s.step.Repave.Image); err != nil {
		return StepFacts{}, s.failureOf(ctx, err)
	}
	return s.facts("image %s is installed", s.step.Repave.Image), nil
}
