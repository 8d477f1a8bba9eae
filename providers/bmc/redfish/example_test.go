package redfish_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// A provider implements a capability interface of package providers, here providers.BMC. Whatever
// it speaks, it keeps to three rules that the suites of test/conformance hold: nothing is sent to
// an address or a certificate that the target does not allow, a change that is already there is no
// change, and an error has a kind by which activities/fault classifies it.
func ExampleOpener() {
	if err := askSimulatedBMC(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// without an approved certificate: pin_mismatch
	// with a wrong password: unauthorized 1
	// power: On by map[On:1]
	// power: On by map[On:1]
}

func askSimulatedBMC() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	machine := simhw.NewMachine(ctx, simhw.NewClock(500), simhw.GPUServer("Dell", 7))
	server, err := redfishsim.New(redfishsim.Options{Machine: machine, TLS: true})
	if err != nil {
		return err
	}
	address, stop, err := server.Start(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer stop()

	var opener providers.BMCOpener = redfish.Opener{}
	target := providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: address, User: machine.Spec().BMCUser, Password: providers.NewSecret("wrong")}
	bmc, err := opener.OpenBMC(target)
	if err != nil {
		return err
	}
	_, err = bmc.Power(ctx)
	fmt.Println("without an approved certificate:", providers.KindOf(err))
	ident, err := bmc.Probe(ctx) // sends no login
	if err = errors.Join(err, bmc.Close(ctx)); err != nil {
		return err
	}
	target.PinSHA256 = ident.PinSHA256 // an operator has approved it
	if bmc, err = opener.OpenBMC(target); err != nil {
		return err
	}
	_, err = bmc.Power(ctx)
	fmt.Println("with a wrong password:", providers.KindOf(err), server.Counters().FailedLogins)
	if err = bmc.Close(ctx); err != nil {
		return err
	}
	target.Password = providers.NewSecret(machine.Spec().BMCPassword)
	if bmc, err = opener.OpenBMC(target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bmc.Close(ctx)) }()
	for range 2 {
		state, err := bmc.SetPower(ctx, providers.IntentOn)
		if err != nil {
			return err
		}
		fmt.Println("power:", state, "by", server.Counters().Resets)
	}
	return nil
}
