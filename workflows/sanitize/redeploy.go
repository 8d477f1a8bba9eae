package sanitize

import (
	"time"

	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// The second half of a reimage: the onboarding's own activities install the
// machine again, with an enrolment token of its own, under the same node record.

// deployMargin is what the abort of a deployment that hangs needs.
const (
	deployLimit  = 2 * time.Hour
	deployMargin = 3 * time.Minute
)

func redeploy(ctx workflow.Context, s *State) error {
	if s.Deploy.Completed {
		return nil
	}
	s.Deploy.Attempt = max(s.Deploy.Attempt, 1)
	if s.Deploy.Unseen {
		if err := lookAgain(ctx, s); err != nil {
			return err
		}
	}
	if s.Deploy.Outcome != "" && s.Deploy.Outcome != contract.DeployOK {
		if err := releaseFailedDeployment(ctx, s); err != nil {
			return err
		}
	}
	for _, step := range []func(workflow.Context, *State) error{prepare, renderAgain, deployAgain, waitInstalled, logIn, waitEnrolled} {
		if err := step(ctx, s); err != nil {
			return err
		}
	}
	s.Deploy.Completed = true
	return nil
}

// lookAgain looks at a machine that nobody has looked at when its deployment should have ended. A
// machine that is deployed by now is kept.
func lookAgain(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, s.MachineIn(lifecycle.StageReleaseMAAS))
	if err != nil {
		return err
	}
	s.RecordMachine(f)
	s.Deploy.Unseen = false
	if f.Status == "Deployed" {
		s.Deploy.Outcome, s.Deploy.Until = "", time.Time{}
	}
	return nil
}

// releaseFailedDeployment brings a machine whose deployment failed back to Ready.
func releaseFailedDeployment(ctx workflow.Context, s *State) error {
	in := maasact.ReleaseIn{MachineIn: s.MachineIn(lifecycle.StageReleaseMAAS), OnlyOurs: true, DeployStarted: true}
	f, err := stage.Do(ctx, stage.KindPoll, "release the failed deployment", maas.ReturnToReady, in)
	if err != nil {
		return err
	}
	s.RecordMachine(f)
	s.Deploy = Deployment{Attempt: s.Deploy.Attempt + 1}
	return nil
}

// prepare lays out storage and links of a machine that is Ready: releasing keeps
// most of both, and gives up addresses.
func prepare(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, s.MachineIn(lifecycle.StageReleaseMAAS))
	if err != nil {
		return err
	}
	s.RecordMachine(f)
	if f.Status != "Ready" {
		return nil
	}
	ref := s.Job.At(lifecycle.StageReleaseMAAS)
	disks := maasact.StorageIn{JobRef: ref, SystemID: s.Node.SystemID, Rule: s.Config.Profile.BootDisk, Layout: s.Config.Profile.StorageLayout}
	if _, err := stage.Do(ctx, stage.KindMAASCall, "boot disk and layout", maas.ConfigureStorage, disks); err != nil {
		return err
	}
	links := maasact.NetworkIn{JobRef: ref, SystemID: s.Node.SystemID, Hostname: s.Node.Hostname, Strict: s.Config.Profile.StrictPXEPreflight}
	if s.Config.Profile.EnablePhase2RoCE {
		if _, err := stage.Do(ctx, stage.KindMAASCall, "RoCE ports", maas.ApplyRoCE, links); err != nil {
			return err
		}
	}
	_, err = stage.Do(ctx, stage.KindMAASCall, "one AUTO link", maas.EnsurePXEInterfaceAuto, links)
	return err
}

func renderAgain(ctx workflow.Context, s *State) error {
	in := nodeact.RenderIn{
		JobRef: s.Job.At(lifecycle.StageReleaseMAAS), Hostname: s.Node.Hostname, Profile: s.Config.Profile, Site: s.Config.Site,
		Attempt: s.Deploy.Attempt, Existing: s.UserData, InUse: s.Machine.Status == "Deploying" || s.Machine.Status == "Deployed",
	}
	ud, err := stage.Do(ctx, stage.KindLocalWork, "token, host key, user-data", node.RenderCloudInit, in)
	if err == nil {
		s.UserData = ud
	}
	return err
}

func deployAgain(ctx workflow.Context, s *State) error {
	if s.Machine.Status != "Deploying" && s.Machine.Status != "Deployed" {
		s.Deploy.Until = time.Time{} // another one begins
	}
	in := maasact.DeployIn{
		JobRef: s.Job.At(lifecycle.StageReleaseMAAS), SystemID: s.Node.SystemID, Profile: s.Config.Profile,
		UserDataRef: s.UserData.Ref, Attempt: s.Deploy.Attempt,
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "deploy "+s.Config.Profile.DistroSeries, maas.DeployMachine, in)
	if err == nil {
		s.RecordMachine(f)
	}
	return err
}

// waitInstalled gives up a deployment that hangs; why one failed is asked of MAAS, as in an
// onboarding. A try after one that failed goes on within the time of the first. Where MAAS or the
// workers were away when the stage ended, the deployment hangs on in MAAS: the next try releases
// the machine first, and does not wait for it again.
func waitInstalled(ctx workflow.Context, s *State) error {
	if s.Deploy.Until.IsZero() {
		s.Deploy.Until = stage.Within(ctx, deployLimit, deployMargin)
	}
	at := s.MachineIn(lifecycle.StageReleaseMAAS)
	f, err := stage.Do(ctx, stage.KindPoll, "wait for Deployed", maas.WaitForDeployed, maasact.WaitDeployedIn{MachineIn: at, Attempt: s.Deploy.Attempt, Until: s.Deploy.Until})
	if err != nil && stage.PastDeadline(ctx) && stage.Unfinished(err) {
		s.Deploy.Outcome, s.Deploy.Unseen = contract.DeployTimeout, true
	}
	if err != nil {
		return err
	}
	s.RecordMachine(f.MachineFacts)
	if s.Deploy.Outcome = f.Outcome; f.Outcome == contract.DeployOK {
		return nil
	}
	c, err := stage.Do(ctx, stage.KindMAASCall, "why the deployment failed", maas.ClassifyDeployFailure, maasact.ClassifyIn{MachineIn: at, Outcome: f.Outcome})
	if err != nil {
		return err
	}
	if c.Recovered {
		s.Deploy.Outcome = contract.DeployOK
		return nil
	}
	return stage.Fail(c.Class, "the disks are erased and the new installation failed: %s", c.Message)
}

// logIn reads the machine's new addresses and logs in, which stores them and
// proves the site's SSH key and the pinned host key. Hardware sync is switched
// on; that it syncs is the drift detectors' to see.
func logIn(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageReleaseMAAS
	act := maas.ObserveMachine
	if s.Config.Profile.RequireHWSync {
		act = maas.EnsureHardwareSync
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "read the machine, hardware sync on", act, s.MachineIn(at))
	if err != nil {
		return err
	}
	s.RecordMachine(f)
	if s.Config.Site.SSHKeyRef == "" {
		return nil
	}
	in := nodeact.SSHIn{JobRef: s.Job.At(at), Site: s.Config.Site, IPs: s.Machine.IPs, Poll: s.Config.Profile.PollInterval, Until: workflow.Now(ctx).Add(sshPatience)}
	_, err = stage.Do(ctx, stage.KindPoll, "log in by SSH and ask cloud-init", node.CheckSSHSeed, in)
	return err
}

// sshPatience is how long a node may take to let Slipway in.
const sshPatience = 8 * time.Minute

// waitEnrolled takes the new agent's enrolment and health as the proof of a
// working system: its certificate has a higher generation, and the old one is
// good no more.
func waitEnrolled(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageReleaseMAAS
	in := nodeact.WaitAgentIn{
		JobRef: s.Job.At(at), SKU: s.Config.SKU, Poll: s.Config.Profile.PollInterval, After: s.UserData.IssuedAt,
		UserDataRef: s.UserData.Ref, Until: stage.DeadlineAt(ctx),
	}
	f, err := stage.Do(ctx, stage.KindPoll, "wait for enrolment and health", node.WaitForAgent, in)
	if err != nil {
		return err
	}
	s.Agent = f
	_, err = stage.Do(ctx, stage.KindLocalWork, "discard the sealed user-data", node.DiscardUserData, s.Job.At(at))
	return err
}
