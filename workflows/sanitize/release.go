package sanitize

import (
	"time"

	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// loadSite proves what the release needs of MAAS, and looks at the machine while
// it is still as the tenant left it: from then on the release is this job's.
func loadSite(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageLoadSite
	if s.Mode == lifecycle.ModeReimage {
		in := maasact.LoadSiteIn{JobRef: s.Job.At(at), Series: s.Series, Request: contract.OnboardingInput{
			SiteID: s.Job.SiteID, ProfileID: s.Config.ProfileID, SKUID: s.Config.SKUID, Hostname: s.Node.Hostname, BMCID: s.Node.BMCID,
		}}
		f, err := stage.Do(ctx, stage.KindMAASCall, "read site, profile, SKU", maas.LoadSiteConfig, in)
		if err != nil {
			return err
		}
		s.Config.Site, s.Config.Profile, s.Config.SKU = f.Site, f.Profile, f.SKU
	} else if _, err := stage.Do(ctx, stage.KindMAASCall, "ask MAAS for what it allows", maas.ProbeRegion, s.Job.At(at)); err != nil {
		return err
	}
	if s.Release.MachineObserved {
		return nil
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "look at the machine before its release", maas.ReadMachineBeforeRelease, s.MachineIn(at))
	if err != nil {
		return err
	}
	s.Release = Release{ReleaseFacts: f, MachineObserved: true}
	s.RecordMachine(f.MachineFacts)
	return nil
}

// eraseShare is the part of the stage's time that erasing disks may take.
const eraseShare = 3.0 / 4

func (s *State) releaseIn(ctx workflow.Context) maasact.EraseAndReleaseIn {
	left := stage.DeadlineAt(ctx).Sub(workflow.Now(ctx))
	next := 0
	if !s.IsFullDecommission() {
		next = max(s.Deploy.Attempt, 1)
	}
	return maasact.EraseAndReleaseIn{
		NextAttempt: next,
		MachineIn:   s.MachineIn(lifecycle.StageReleaseMAAS), AfterEvent: s.Release.LastEvent, ReleaseStarted: s.Release.Status != "Ready" && s.Release.Status != "New",
		Fallback: s.Config.Profile.ReleaseFallbackNoErase, EraseUntil: workflow.Now(ctx).Add(time.Duration(float64(left) * eraseShare)),
	}
}

// release makes MAAS erase the disks and release the machine. After that a full decommission signs
// its certificate, and a reimage deploys the machine again.
func release(ctx workflow.Context, s *State) error {
	if !s.Release.Completed {
		f, err := stage.Do(ctx, stage.KindPoll, "release with erase and wait", maas.EraseAndRelease, s.releaseIn(ctx))
		if err != nil {
			return err
		}
		s.recordRelease(f)
	}
	if s.IsFullDecommission() {
		return s.Certify(ctx, lifecycle.StageReleaseMAAS)
	}
	distrusted := s.IsDistrusted()
	if err := redeploy(ctx, s); err != nil || !distrusted {
		return err
	}
	s.AgentUnreachable = ""
	return stage.GoTo(lifecycle.StageScrubGPU) // by the system that is new
}

// recordRelease keeps what was found, and what was known before it of the disks.
func (s *State) recordRelease(f contract.ReleaseFacts) {
	f.Disks, f.LastEvent = s.Release.Disks, s.Release.LastEvent
	f.Erased = f.Erased || s.Release.Erased
	s.Release.ReleaseFacts, s.Release.Completed = f, true
	s.RecordMachine(f.MachineFacts)
}

// observeReleased takes nothing for done but what this stage has seen through:
// a full decommission with its certificate, a reimage with its agent.
func observeReleased(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.MachineIn(lifecycle.StageReleaseMAAS)
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, in)
	if err != nil {
		return stage.Observation{}, err
	}
	s.RecordMachine(f)
	o := stage.Observation{State: f.Status, Note: f.Status}
	switch {
	case !s.Release.Completed:
	case s.IsFullDecommission():
		o.Done = s.IsProven()
	default:
		o.Done = s.Deploy.Completed && f.Status == "Deployed" && !f.Foreign
	}
	return o, nil
}
