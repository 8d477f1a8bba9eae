package instance

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// StartServer starts the server, and waits until it runs. A server that is stopped again after its
// start was accepted has met a provider without a free machine.
func (a *Activities) StartServer(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	began := false
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, "the start of the server", func() (bool, error) {
		s, err := t.p.Cloud.Server(ctx, t.i.Zone, t.i.ServerID)
		if err != nil {
			return false, cloud(ctx, err)
		}
		switch s.State {
		case providers.CloudRunning:
			return true, nil
		case providers.CloudStopped, providers.CloudInPlace:
			if began {
				return false, fault.New(lifecycle.FailCloudCapacity, "%s took the order to start server %s and stopped it again: it has no %s free in %s", t.i.Provider, s.ID, t.i.Type, t.i.Zone)
			}
			err := t.p.Cloud.Start(ctx, t.ref())
			began = err == nil
			return false, cloud(ctx, err)
		case providers.CloudStarting:
			began = true
		case providers.CloudLocked:
			return false, fault.New(lifecycle.FailCloudRejected, "%s has locked server %s", t.i.Provider, s.ID)
		case providers.CloudStopping:
		}
		return false, nil
	})
	return t.facts("the server runs"), err
}

// WaitForAddress waits for the public address of the server, and stores it.
func (a *Activities) WaitForAddress(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	address := ""
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, "the public address", func() (bool, error) {
		s, err := t.p.Cloud.Server(ctx, t.i.Zone, t.i.ServerID)
		address = s.Address
		return address != "", cloud(ctx, err)
	})
	if err == nil {
		t.i.IPAddress = address
		err = fault.Internal(ctx, instancedb.StoreAddress(ctx, a.Store, t.i.ID, address))
	}
	return t.facts("the address is %s", address), err
}

// VerifySecurityGroup has the rules of the security group in force.
func (a *Activities) VerifySecurityGroup(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, "the rules of the security group", func() (bool, error) {
		done, err := t.p.Cloud.VerifyGroup(ctx, t.ref(), t.p.Sources)
		return done, cloud(ctx, err)
	})
	return t.facts("SSH and the ports of the worker are open to the configured networks"), err
}

// WaitForSSH waits until the server accepts a login. Its host key is pinned: another one is told at
// once.
func (a *Activities) WaitForSSH(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	w, _, err := t.worker(ctx)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, "the first login by SSH", func() (bool, error) {
		ok, err := t.p.Worker.ReachSSH(ctx, w)
		if providers.IsKind(err, providers.KindUnauthorized) {
			return false, nil // cloud-init has not stored our key yet
		}
		if err != nil && !passes(err) {
			err = fault.SSH(ctx, err)
		}
		return ok, err
	})
	return t.facts("the server accepts our login"), err
}

// InstallWorker installs the worker by the versioned script, and stores the checksum of its agent.
// The script is begun once for each try of the stage, whatever becomes of the connection.
func (a *Activities) InstallWorker(ctx context.Context, in contract.InstanceWait) (contract.InstancePhases, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstancePhases{}, err
	}
	w, c, err := t.worker(ctx)
	if err != nil {
		return contract.InstancePhases{}, err
	}
	info := activity.GetInfo(ctx)
	opts := providers.WorkerInstall{
		OpID: info.WorkflowExecution.RunID + "-" + info.ActivityID, Model: t.i.Model, Token: providers.NewSecret(c.Token), HeartbeatURL: a.HeartbeatURL, CAPEM: a.CAPEM,
	}
	var done providers.WorkerPhases
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, "the end of the installation", func() (bool, error) {
		got, err := t.p.Worker.Install(ctx, w, opts)
		if got.ExitStatus != "" || len(got.Done) > len(done.Done) { // a look that meets no server has read nothing
			done = got
		}
		switch {
		case err != nil && passes(err):
			return false, err
		case providers.IsKind(err, providers.KindExit):
			return false, fault.New(lifecycle.FailWorkerInstall, "%s", err.Error())
		case err != nil:
			return false, fault.SSH(ctx, err)
		}
		return true, nil
	})
	out := contract.InstancePhases{
		Phases: done.Done, ExitStatus: done.ExitStatus, Version: done.Info.Version, BuildDate: done.Info.BuildDate, Checksum: done.Info.Checksum,
	}
	if err != nil {
		return out, fault.WithDid(err, t.installMetadata(out))
	}
	if err := instancedb.StoreInstalledAgent(ctx, a.Store, t.i.ID, done.Info.Checksum); err != nil {
		return out, fault.WithDid(fault.Internal(ctx, err), t.installMetadata(out))
	}
	if err := t.awaitHeartbeat(ctx); err != nil {
		return out, fault.WithDid(err, t.installMetadata(out))
	}
	out.Done = true
	return out, nil
}

// installMetadata returns what the action log says of an installation on the server.
func (t *target) installMetadata(p contract.InstancePhases) lifecycle.ActionMetadata {
	return t.facts("").ActionMetadata().With(p.ActionMetadata())
}

// awaitHeartbeat says that the instance waits for the first heartbeat of its worker. A simulated
// worker sends none.
func (t *target) awaitHeartbeat(ctx context.Context) error {
	if t.p.Simulated {
		return nil
	}
	err := t.a.Store.Tx(ctx, func(tx *db.Tx) error {
		i, err := instancedb.Lock(ctx, tx, t.i.ID)
		if err != nil || i.HeartbeatAt != nil || i.Status != lifecycle.InstanceBooting {
			return err
		}
		return instancedb.SetError(ctx, tx, i.ID, lifecycle.InstanceWaitingHeartbeat, "the worker is installed and has sent no heartbeat yet")
	})
	return fault.Internal(ctx, err)
}

// WaitForVLLM waits until vLLM answers.
func (a *Activities) WaitForVLLM(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	return a.waitForWorker(ctx, in, "vLLM", func(h health) bool { return h.HTTP })
}

// WaitForModel waits until vLLM lists the model.
func (a *Activities) WaitForModel(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	return a.waitForWorker(ctx, in, "the model", func(h health) bool { return h.Model })
}

// WarmUpModel has the model complete one token.
func (a *Activities) WarmUpModel(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	w, _, err := t.worker(ctx)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, "the first completion", func() (bool, error) {
		err := t.p.Worker.Complete(ctx, w, t.i.Model)
		return err == nil, workerFailure(ctx, err)
	})
	return t.facts("the model has completed one token"), err
}

// CheckHealth waits until the worker is healthy, and proves from our side that its agent is the one
// that was installed.
func (a *Activities) CheckHealth(ctx context.Context, in contract.InstanceWait) (contract.InstanceFacts, error) {
	return a.waitForWorker(ctx, in, "the worker's readiness", func(h health) bool { return h.Ready && h.Verified })
}

func (a *Activities) waitForWorker(ctx context.Context, in contract.InstanceWait, what string, enough func(health) bool) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, in.JobRef)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	var last health
	err = t.until(ctx, in.Until, lifecycle.FailInstanceStartup, what, func() (bool, error) {
		if last, err = t.check(ctx, time.Now()); err != nil {
			return false, err
		}
		return enough(last), nil
	})
	return t.facts("%s", last), err
}
