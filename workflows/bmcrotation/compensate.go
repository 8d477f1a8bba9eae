package bmcrotation

import (
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// undoRotation ends the rotation with the login that the BMC takes, and sees to it
// that MAAS holds the same: it may have been told of the other one, or of none.
// Both are repeatable, so each stage that was begun may ask for it.
func undoRotation(name string) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		f, err := stage.Do(ctx, stage.KindBMCCall, "end with the login that the BMC takes", bmc.UndoRotation, s.rotateIn(name))
		if err != nil {
			return err
		}
		s.Facts = f
		return restoreMAASLogin(ctx, s, name)
	}
}

func restoreMAASLogin(ctx workflow.Context, s *State, name string) error {
	if s.Job.NodeID == "" || !s.MAASUpdated && !s.Facts.Committed || s.RestoredLogin == s.Facts.CurrentRef {
		return nil
	}
	in := s.powerIn(name, s.Facts.CurrentRef)
	in.Unproven = true
	_, err := stage.Do(ctx, stage.KindMAASCall, "give MAAS the login that the BMC takes", maas.UpdatePowerLogin, in)
	if err == nil {
		s.RestoredLogin = s.Facts.CurrentRef
	}
	return err
}

// verifyRotationClosed proves a clean-up in what is stored: the rotation is closed and no
// candidate is left.
func verifyRotationClosed(ctx workflow.Context, s *State) (string, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look whether the rotation is closed", bmc.CheckRotationEnded, s.rotateIn(lifecycle.StagePrepareCandidate))
	return f.Note, err
}

// verifyMAASLogin proves a clean-up in MAAS; what the BMC takes was proven by a login.
func verifyMAASLogin(ctx workflow.Context, s *State) (string, error) {
	if s.RestoredLogin == "" {
		return "", nil
	}
	in := s.powerIn(lifecycle.StageApplyToBMC, s.RestoredLogin)
	in.ObserveOnly, in.Unproven = true, true
	f, err := stage.Do(ctx, stage.KindMAASCall, "look at MAAS's login", maas.UpdatePowerLogin, in)
	if err != nil || f.Done {
		return "", err
	}
	return "MAAS holds another login than the BMC takes", nil
}
