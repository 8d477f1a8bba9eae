package onboarding

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

func (s *State) deployIn() maasact.DeployIn {
	return maasact.DeployIn{
		JobRef: s.Job.At(lifecycle.StageDeploy), SystemID: s.Machine.SystemID, Profile: s.Site.Profile,
		UserDataRef: s.UserData.Ref, Attempt: max(s.Deploy.Attempt, 1),
	}
}

func deploy(ctx workflow.Context, s *State) error {
	s.Deploy.Attempt = max(s.Deploy.Attempt, 1)
	s.Deploy.Started = s.Deploy.Started || s.Machine.Status == "Ready"
	f, err := stage.Do(ctx, stage.KindMAASCall, "deploy "+s.Site.Profile.DistroSeries, maas.DeployMachine, s.deployIn())
	if err != nil {
		return err
	}
	s.Deploy = Deployment{Attempt: s.Deploy.Attempt, Started: s.Deploy.Started}
	s.SSHFailures, s.SyncRepaired = 0, false // of another installation
	s.recordMachine(f)
	return nil
}

// waitDeployed ends at its deadline with an outcome too, whoever was away then.
func waitDeployed(ctx workflow.Context, s *State) error {
	until := stage.DeadlineAt(ctx).Add(-abortMargin)
	in := maasact.WaitDeployedIn{MachineIn: s.machineIn(lifecycle.StageWaitDeployed), Attempt: s.Deploy.Attempt, Until: until}
	f, err := stage.Do(ctx, stage.KindPoll, "wait for Deployed", maas.WaitForDeployed, in)
	switch {
	case err != nil && stage.PastDeadline(ctx) && stage.Unfinished(err):
		// MAAS or the workers were away when the deployment should have been
		// aborted: the next stage does it, when they are back.
		s.Deploy.Outcome = contract.DeployTimeout
		return nil
	case err != nil:
		return err
	}
	s.recordMachine(f.MachineFacts)
	s.Deploy.Outcome, s.Deploy.SyncBefore = f.Outcome, f.LastSync
	return nil
}

// classify fails the job with the cause, unless it is one that
// recover_for_datasource_retry may repair.
func classify(ctx workflow.Context, s *State) error {
	in := maasact.ClassifyIn{MachineIn: s.machineIn(lifecycle.StageClassifyFailure), Outcome: s.Deploy.Outcome}
	c, err := stage.Do(ctx, stage.KindMAASCall, "why the deployment failed", maas.ClassifyDeployFailure, in)
	if err != nil {
		return err
	}
	s.recordMachine(c.MachineFacts)
	if c.Recovered {
		s.Deploy.Outcome, s.Deploy.SyncBefore = contract.DeployOK, c.LastSync
		return nil
	}
	s.Deploy.Class, s.Deploy.Message = c.Class, c.Message
	if c.Class == lifecycle.FailDatasource && s.mayRetryDatasource() {
		return nil
	}
	if c.Class == lifecycle.FailDatasource && s.Deploy.Attempt > 1 {
		return stage.Fail(lifecycle.FailDatasourceRepeated, "after %d deployments: %s", s.Deploy.Attempt, c.Message)
	}
	return stage.Fail(c.Class, "%s", c.Message)
}

func (s *State) mayRetryDatasource() bool {
	p := s.Site.Profile
	return p.EnableDeployRetryOnDatasourceFailed && s.Deploy.Attempt <= p.MaxDeployRetryAttempts
}

// recoverDatasource releases the machine, waits until it is Ready and goes back
// to configure_storage, so that storage and link are verified before the next
// deployment. User-data is rendered again, since the token of the first may have
// been used.
func recoverDatasource(ctx workflow.Context, s *State) error {
	in := maasact.ReleaseIn{MachineIn: s.machineIn(lifecycle.StageRecoverDatasource), OnlyOurs: true, DeployStarted: true}
	f, err := stage.Do(ctx, stage.KindPoll, "release and wait for Ready", maas.ReturnToReady, in)
	if err != nil {
		return err
	}
	s.recordMachine(f)
	switch f.Status {
	case "Ready", "New":
	case "absent":
		return stage.Fail(lifecycle.FailMAASMachineDeleted, "machine %s was deleted from MAAS before it could be deployed again", s.Machine.SystemID)
	default:
		return stage.Fail(lifecycle.FailStateDisagreement, "machine %s is %s and not this job's any more (%s)", s.Machine.SystemID, f.Status, f.Note)
	}
	s.Deploy = Deployment{Attempt: s.Deploy.Attempt + 1}
	return stage.GoTo(lifecycle.StageConfigureStorage)
}

// sshIn names the node to log in to, and how long a try may wait for it to
// answer: a share of the time left, so that the stage has several.
func (s *State) sshIn(ctx workflow.Context, name string) nodeact.SSHIn {
	patience := min(stage.DeadlineAt(ctx).Sub(workflow.Now(ctx))/4, maxSSHPatience)
	return nodeact.SSHIn{
		JobRef: s.Job.At(name), Site: s.Site.Site, IPs: s.Machine.IPs, Poll: s.Site.Profile.PollInterval, Until: workflow.Now(ctx).Add(patience),
	}
}

const maxSSHPatience = 8 * time.Minute

// countSSHFailure counts logins that failed until their deadline. When the automatic tries and an
// operator's retry have failed, waiting does not help: the keys, the image or the user-data are
// wrong.
func (s *State) countSSHFailure(err error) error {
	if stage.ClassOf(err) != lifecycle.FailSSHSeed {
		return err
	}
	s.SSHFailures++
	if budget := lifecycle.Failure(lifecycle.FailSSHSeed).AutoAttempts; s.SSHFailures <= budget {
		return err
	}
	return stage.Fail(lifecycle.FailSSHSeedRepeated, "after %d tries: %s", s.SSHFailures, messageOf(err))
}

// messageOf is what an activity's typed failure says.
func messageOf(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}

// ensureSync reads the machine before it logs in: the address may be newer than the deployment. The
// login is proven also where the profile does not require hardware sync.
func ensureSync(ctx workflow.Context, s *State) error {
	act, summary := maas.ObserveMachine, "read the machine"
	if s.Site.Profile.RequireHWSync {
		act, summary = maas.EnsureHardwareSync, "hardware sync on"
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, summary, act, s.machineIn(lifecycle.StageEnsureHWSync))
	if err != nil {
		return err
	}
	s.recordMachine(f)
	if s.Site.Site.SSHKeyRef == "" {
		return nil
	}
	_, err = stage.Do(ctx, stage.KindPoll, "log in by SSH and ask cloud-init", node.CheckSSHSeed, s.sshIn(ctx, lifecycle.StageEnsureHWSync))
	return s.countSSHFailure(err)
}

// waitSync waits two and a half intervals, a broken agent being visible no
// earlier, repairs the timer over SSH once, and waits again.
func waitSync(ctx workflow.Context, s *State) error {
	for {
		f, err := syncOnce(ctx, s)
		if err != nil {
			return err
		}
		s.recordMachine(f)
		if f.Done {
			return nil
		}
		if s.SyncRepaired || s.Site.Site.SSHKeyRef == "" {
			s.SyncRepaired = false // an operator's retry repairs again
			return stage.Fail(lifecycle.FailHWSyncRepeated, "no hardware sync later than the deployment was seen on %s", s.Machine.SystemID)
		}
		if err := repairSync(ctx, s); err != nil {
			return err
		}
		s.SyncRepaired = true
	}
}

// repairSync gives the node its own MAAS token, in passing: the stored copy is
// deleted whatever comes of it.
func repairSync(ctx workflow.Context, s *State) error {
	ref, err := stage.Do(ctx, stage.KindMAASCall, "machine token", maas.MachineCredentials, s.machineIn(lifecycle.StageWaitHWSync))
	if err != nil {
		return err
	}
	in := nodeact.RepairSyncIn{SSHIn: s.sshIn(ctx, lifecycle.StageWaitHWSync), TokenRef: ref, Interval: s.Site.Profile.HardwareSyncInterval}
	_, err = stage.Do(ctx, stage.KindNodeTask, "install and start the sync timer", node.RepairHardwareSync, in)
	forget, _ := workflow.NewDisconnectedContext(ctx) // also when an operator or the deadline ends the repair
	_, ferr := stage.Do(forget, stage.KindLocalWork, "forget the machine token", maas.ForgetMachineCredentials, s.Job.At(lifecycle.StageWaitHWSync))
	if err != nil {
		return s.countSSHFailure(err)
	}
	return ferr
}

func syncOnce(ctx workflow.Context, s *State) (contract.MachineFacts, error) {
	patience := s.Site.Profile.HardwareSyncInterval.D() * 5 / 2
	in := maasact.WaitSyncIn{
		MachineIn: s.machineIn(lifecycle.StageWaitHWSync), After: s.Deploy.SyncBefore, Until: workflow.Now(ctx).Add(patience),
	}
	return stage.Do(ctx, stage.KindPoll, "wait for a later sync", maas.WaitForHardwareSync, in)
}

// waitAgent takes enrolment, and nothing less, as the proof of a working node.
func waitAgent(ctx workflow.Context, s *State) error {
	in := nodeact.WaitAgentIn{
		JobRef: s.Job.At(lifecycle.StageWaitAgent), SKU: s.Site.SKU, Poll: s.Site.Profile.PollInterval, After: s.UserData.IssuedAt,
		UserDataRef: s.UserData.Ref, Until: stage.DeadlineAt(ctx),
	}
	f, err := stage.Do(ctx, stage.KindPoll, "wait for enrolment and health", node.WaitForAgent, in)
	if err != nil {
		return err
	}
	s.Agent = f
	_, err = stage.Do(ctx, stage.KindLocalWork, "discard the sealed user-data", node.DiscardUserData, s.Job.At(lifecycle.StageWaitAgent))
	return err
}
