package server

import (
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/fake"
	"github.com/slipway-cloud/slipway/providers/ssh"
)

// The names of the providers, as machines state them. A machine of a data center is what one of ssh is: its
// power, its next boot and its installation go through the node that it is linked to.
const (
	providerSSH        = "ssh"
	providerDatacenter = "datacenter"
	providerFake       = "fake"
)

// machineAdapters returns the adapter of each provider of machines.
func machineAdapters(c config.Machine) providers.MachineAdapters {
	var options []ssh.Option
	if c.StateDir != "" {
		options = append(options, ssh.WithStateDir(c.StateDir))
	}
	adapter := ssh.New(options...).Adapter()
	adapters := providers.MachineAdapters{providerSSH: adapter, providerDatacenter: adapter}
	if c.Simulated {
		adapters[providerFake] = fake.New().Adapter()
	}
	return adapters
}

// machineOffers returns a function that lists the capabilities of a provider.
func (a *App) machineOffers() func(string) []runplan.Capability {
	return func(provider string) []runplan.Capability {
		adapter, err := a.machines.For(provider)
		if err != nil {
			return nil
		}
		return adapter.Offers()
	}
}
