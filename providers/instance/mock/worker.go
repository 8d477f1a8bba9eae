package mock

import (
	"context"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// AgentInfo is what every simulated agent says of its program.
func AgentInfo() providers.WorkerInfo {
	return providers.WorkerInfo{Version: "mock", BuildDate: "2026-01-01", Checksum: Checksum}
}

// running returns the running server of an instance on which an action is due.
func (p *Provider) running(op, instanceID, action string) (*server, error) {
	for _, s := range p.servers {
		if s.instanceID == instanceID && p.view(s).State == providers.CloudRunning && p.hasReached(s, action) {
			return s, nil
		}
	}
	return nil, failure(providers.KindUnreachable, op, "the simulated server of %s is not that far", instanceID)
}

// ReachSSH implements providers.Worker.
func (p *Provider) ReachSSH(_ context.Context, t providers.WorkerTarget) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.running("reach_ssh", t.InstanceID, lifecycle.ActWorkerSSHAccessible)
	return err == nil, nil //nolint:nilerr // no answer is the answer
}

// Install implements providers.Worker.
func (p *Provider) Install(_ context.Context, t providers.WorkerTarget, in providers.WorkerInstall) (providers.WorkerPhases, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.running("install", t.InstanceID, lifecycle.ActWorkerSSHInstall)
	if err != nil {
		return providers.WorkerPhases{}, failure(providers.KindBusy, "install", "the simulated installation goes on")
	}
	s.installed = in.Model
	return providers.WorkerPhases{Done: lifecycle.WorkerPhases(), ExitStatus: "0", Info: AgentInfo()}, nil
}

// Readyz implements providers.Worker.
func (p *Provider) Readyz(_ context.Context, t providers.WorkerTarget) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.running("readyz", t.InstanceID, lifecycle.ActHealthCheck)
	return err == nil, err
}

// Models implements providers.Worker.
func (p *Provider) Models(_ context.Context, t providers.WorkerTarget) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.running("models", t.InstanceID, lifecycle.ActWorkerVLLMHTTPOK)
	if err != nil || !p.hasReached(s, lifecycle.ActWorkerModelLoaded) {
		return []string{}, err
	}
	return []string{s.installed}, nil
}

// Complete implements providers.Worker.
func (p *Provider) Complete(_ context.Context, t providers.WorkerTarget, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.running("complete", t.InstanceID, lifecycle.ActWorkerVLLMWarmup)
	return err
}

// Info implements providers.Worker.
func (p *Provider) Info(_ context.Context, t providers.WorkerTarget) (providers.WorkerInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.running("info", t.InstanceID, lifecycle.ActWorkerSSHInstall)
	return AgentInfo(), err
}
