package bmcrotation

import (
	"context"
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
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
		{Name: lifecycle.StagePrepareCandidate, Weight: 1, Deadline: 5 * time.Minute, Undo: undoRotation(lifecycle.StagePrepareCandidate), VerifyUndo: verifyRotationClosed,
			Run: step(lifecycle.StagePrepareCandidate, stage.KindLocalWork, "make and store the new password", bmc.PrepareRotation),
			Doc: "check that logins are allowed, make the new password and store it as the candidate"},
		{Name: lifecycle.StageApplyToBMC, Weight: 4, Deadline: 15 * time.Minute, Undo: undoRotation(lifecycle.StageApplyToBMC), VerifyUndo: verifyMAASLogin,
			Run: step(lifecycle.StageApplyToBMC, stage.KindBMCCall, "set the candidate on the BMC", bmc.ApplyRotation),
			Doc: "log in with the old password and set the candidate, or find it set"},
		{Name: lifecycle.StageVerifyLogin, Weight: 2, Deadline: 10 * time.Minute, Run: verify,
			Doc: "log in again with the candidate"},
		{Name: lifecycle.StageUpdateMAASPower, Weight: 2, Deadline: 15 * time.Minute, DeadlineClass: lifecycle.FailMAASUnavailable,
			Skip: withoutNode, Run: updateMAAS, Observe: observeMAAS, Adoptable: []string{},
			Doc: "give MAAS the new login and see that it reads the power state with it"},
		{Name: lifecycle.StageCommitCredential, Weight: 1, Deadline: 5 * time.Minute,
			Run: step(lifecycle.StageCommitCredential, stage.KindLocalWork, "make the candidate the BMC's login", bmc.CommitRotation),
			Doc: "make the candidate the BMC's login and close the history row"},
	}
}

func withoutNode(s *State) string {
	if s.Job.NodeID == "" {
		return "no node has this BMC, so no machine of MAAS does"
	}
	return ""
}

func (s *State) rotateIn(name string) bmcact.RotateIn {
	return bmcact.RotateIn{JobRef: s.Job.At(name), BMCID: s.Request.BMCID}
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
	err := step(lifecycle.StageVerifyLogin, stage.KindBMCCall, "log in with the candidate", bmc.VerifyRotation)(ctx, s)
	s.MAASUpdated = s.MAASUpdated || err == nil && s.Job.NodeID != ""
	return err
}

func (s *State) powerIn(name, ref string) maasact.PowerLoginIn {
	return maasact.PowerLoginIn{JobRef: s.Job.At(name), BMCID: s.Request.BMCID, CredentialRef: ref}
}

func updateMAAS(ctx workflow.Context, s *State) error {
	in := s.powerIn(lifecycle.StageUpdateMAASPower, s.Facts.CandidateRef)
	f, err := stage.Do(ctx, stage.KindMAASCall, "give MAAS the BMC's new login", maas.UpdatePowerLogin, in)
	if err == nil {
		s.Machine = f
	}
	return err
}

func observeMAAS(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.powerIn(lifecycle.StageUpdateMAASPower, s.Facts.CandidateRef)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe MAAS's login", maas.UpdatePowerLogin, in)
	return stage.Observation{Done: f.Done, State: f.Status, Note: f.Note}, err
}
