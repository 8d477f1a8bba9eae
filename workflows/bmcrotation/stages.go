package bmcrotation

import (
	"context"
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	bmc  *bmcact.Activities
	maas *maasact.Activities
)

// stages is the story of a rotation. Only MAAS can be observed: to look whether
// the BMC takes a password is a login, and a wrong one counts towards a lockout,
// so the activities decide themselves when one is worth it.
func stages() []stage.Stage[State] {
	return []stage.Stage[State]{
		{Name: contract.StagePrepareCandidate, Weight: 1, Deadline: 5 * time.Minute, Undo: takeBack(contract.StagePrepareCandidate), Remains: ended,
			Run: step(contract.StagePrepareCandidate, stage.KindLocalWork, "make and store the new password", bmc.PrepareRotation),
			Doc: "check that logins are allowed, make the new password and store it as the candidate"},
		{Name: contract.StageApplyToBMC, Weight: 4, Deadline: 15 * time.Minute, Undo: takeBack(contract.StageApplyToBMC), Remains: settled,
			Run: step(contract.StageApplyToBMC, stage.KindBMCCall, "set the candidate on the BMC", bmc.ApplyRotation),
			Doc: "log in with the old password and set the candidate, or find it set"},
		{Name: contract.StageVerifyLogin, Weight: 2, Deadline: 10 * time.Minute, Run: verify,
			Doc: "log in anew with the candidate"},
		{Name: contract.StageUpdateMAASPower, Weight: 2, Deadline: 15 * time.Minute, DeadlineClass: lifecycle.FailMAASUnavailable,
			Skip: withoutNode, Run: tellMAAS, Observe: observeMAAS, Adoptable: []string{},
			Doc: "give MAAS the new login and see that it reads the power state with it"},
		{Name: contract.StageCommitCredential, Weight: 1, Deadline: 5 * time.Minute,
			Run: step(contract.StageCommitCredential, stage.KindLocalWork, "make the candidate the BMC's login", bmc.CommitRotation),
			Doc: "make the candidate the BMC's login and close the history row"},
	}
}

func withoutNode(s *State) string {
	if s.Job.NodeID == "" {
		return "no node has this BMC, so no machine of MAAS does"
	}
	return ""
}

// ref names the job at a stage.
func (s *State) ref(name string) contract.JobRef {
	r := s.Job
	r.Stage = name
	return r
}

func (s *State) rotateIn(name string) bmcact.RotateIn {
	return bmcact.RotateIn{JobRef: s.ref(name), BMCID: s.Request.BMCID}
}

type rotate = func(context.Context, bmcact.RotateIn) (contract.RotationFacts, error)

// step runs one activity of the rotation and keeps what it found.
func step(name string, k stage.Kind, summary string, act rotate) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		f, err := stage.Do(ctx, k, summary, act, s.rotateIn(name))
		if err == nil {
			s.Facts = f
		}
		return err
	}
}

// verify notes, before the next stage begins, that MAAS is about to be told.
func verify(ctx workflow.Context, s *State) error {
	err := step(contract.StageVerifyLogin, stage.KindBMCCall, "log in with the candidate", bmc.VerifyRotation)(ctx, s)
	s.MAASTold = s.MAASTold || err == nil && s.Job.NodeID != ""
	return err
}

func (s *State) powerIn(name, ref string) maasact.PowerLoginIn {
	return maasact.PowerLoginIn{JobRef: s.ref(name), BMCID: s.Request.BMCID, CredentialRef: ref}
}

func tellMAAS(ctx workflow.Context, s *State) error {
	in := s.powerIn(contract.StageUpdateMAASPower, s.Facts.CandidateRef)
	f, err := stage.Do(ctx, stage.KindMAASCall, "give MAAS the BMC's new login", maas.UpdatePowerLogin, in)
	if err == nil {
		s.Machine = f
	}
	return err
}

func observeMAAS(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.powerIn(contract.StageUpdateMAASPower, s.Facts.CandidateRef)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe MAAS's login", maas.UpdatePowerLogin, in)
	return stage.Observation{Done: f.Done, State: f.Status, Note: f.Note}, err
}

// takeBack ends the rotation with the login that the BMC takes, and sees to it
// that MAAS holds the same: it may have been told of the other one, or of none.
// Both are repeatable, so each stage that was begun may ask for it.
func takeBack(name string) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		f, err := stage.Do(ctx, stage.KindBMCCall, "end with the login that the BMC takes", bmc.UndoRotation, s.rotateIn(name))
		if err != nil {
			return err
		}
		s.Facts = f
		return settleMAAS(ctx, s, name)
	}
}

func settleMAAS(ctx workflow.Context, s *State, name string) error {
	if s.Job.NodeID == "" || !s.MAASTold && !s.Facts.Committed || s.Settled == s.Facts.CurrentRef {
		return nil
	}
	in := s.powerIn(name, s.Facts.CurrentRef)
	in.Unproven = true
	_, err := stage.Do(ctx, stage.KindMAASCall, "give MAAS the login that the BMC takes", maas.UpdatePowerLogin, in)
	if err == nil {
		s.Settled = s.Facts.CurrentRef
	}
	return err
}

// ended proves a clean-up in what is stored: the rotation is closed and no
// candidate is left.
func ended(ctx workflow.Context, s *State) (string, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look whether the rotation is closed", bmc.CheckRotationEnded, s.rotateIn(contract.StagePrepareCandidate))
	return f.Note, err
}

// settled proves a clean-up in MAAS; what the BMC takes was proven by a login.
func settled(ctx workflow.Context, s *State) (string, error) {
	if s.Settled == "" {
		return "", nil
	}
	in := s.powerIn(contract.StageApplyToBMC, s.Settled)
	in.ObserveOnly, in.Unproven = true, true
	f, err := stage.Do(ctx, stage.KindMAASCall, "look at MAAS's login", maas.UpdatePowerLogin, in)
	if err != nil || f.Done {
		return "", err
	}
	return "MAAS holds another login than the BMC takes", nil
}
