package server

import (
	"maps"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/loops/campaigns"
	"github.com/slipway-cloud/slipway/loops/clustersync"
	"github.com/slipway-cloud/slipway/loops/machineprobe"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/fake"
	"github.com/slipway-cloud/slipway/providers/ssh"
)

// machineAdapters returns the adapter of each provider of machines: under its own name, and under
// those that the settings give it. A machine of a data center is what one of ssh is: its power, its
// next boot and its installation go through its BMC, or the node that it is linked to.
func machineAdapters(c config.Machine) providers.MachineAdapters {
	var options []ssh.Option
	if c.StateDir != "" {
		options = append(options, ssh.WithStateDir(c.StateDir))
	}
	adapter := ssh.New(options...).Adapter()
	adapters := providers.MachineAdapters{config.AdapterSSH: adapter, config.AdapterDatacenter: adapter}
	if c.Simulated {
		adapters[config.AdapterFake] = fake.New().Adapter() // one, so that its clusters are those of every provider
	}
	for _, p := range c.Named() {
		adapters[p.Name] = adapters[p.Adapter]
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

// machineLogsIn reports whether a provider logs in to its machines by SSH: those that are simulated
// are reached in this process.
func (a *App) machineLogsIn(provider string) bool {
	adapter, err := a.machines.For(provider)
	return err == nil && !adapter.Simulated
}

// UseMachines takes other adapters for some providers of machines. Tests call it before UseClusters
// and before a worker runs: the places on machines that an SSH server simulates are named by no
// setting.
func (a *App) UseMachines(adapters providers.MachineAdapters) { maps.Copy(a.machines, adapters) }

// UseClusters has machines join Kubernetes clusters. The programs call it before Run, so that this
// package does without the client of Kubernetes.
func (a *App) UseClusters(join providers.ClusterJoin) {
	a.clusters = join
	for name, adapter := range a.machines {
		if adapter.JoinHost != nil && !adapter.Simulated {
			adapter.ClusterJoin = join
			a.machines[name] = adapter
		}
	}
}

// ClusterPasses looks at clusters: at their bootstrap tokens and at the nodes of machines.
func (a *App) ClusterPasses() *clustersync.Passes {
	return &clustersync.Passes{Store: a.Store, Secrets: a.Secrets, Clusters: a.clusters, Simulated: simulatedClusters(a.machines), Log: a.Log}
}

// simulatedClusters returns a function that returns the provider of a cluster that simulated
// machines have joined, nil for every other one.
func simulatedClusters(adapters providers.MachineAdapters) func(ref string) providers.ClusterJoin {
	return func(ref string) providers.ClusterJoin {
		for _, adapter := range adapters {
			if p, ok := adapter.ClusterJoin.(*fake.Provider); ok && p.HasCluster(ref) {
				return p
			}
		}
		return nil
	}
}

// MachineProbes asks machines that are linked to no node whether they answer.
func (a *App) MachineProbes() *machineprobe.Passes {
	return &machineprobe.Passes{Store: a.Store, Secrets: a.Secrets, Adapters: a.machines, BMCs: a.bmcActivities().Openers, Log: a.Log}
}

// Campaigns drives campaigns: the same plan over many machines.
func (a *App) Campaigns() *campaigns.Driver {
	return &campaigns.Driver{Store: a.Store, Offers: a.machineOffers(), LogsIn: a.machineLogsIn, Log: a.Log}
}
