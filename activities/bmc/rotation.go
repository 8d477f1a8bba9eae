package bmc

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// RotateIn is the input of every step of a rotation.
type RotateIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
}

func unready(string) (contract.RotationFacts, error) {
	return contract.RotationFacts{}, fault.New(lifecycle.FailConfiguration, "this build rotates no BMC login; use a newer one")
}

// PrepareRotation makes and stores the candidate before anything is sent.
func (a *Activities) PrepareRotation(_ context.Context, in RotateIn) (contract.RotationFacts, error) {
	return unready(in.BMCID)
}

// ApplyRotation sets the candidate on the BMC, or finds it set.
func (a *Activities) ApplyRotation(_ context.Context, in RotateIn) (contract.RotationFacts, error) {
	return unready(in.BMCID)
}

// VerifyRotation logs in anew with the candidate.
func (a *Activities) VerifyRotation(_ context.Context, in RotateIn) (contract.RotationFacts, error) {
	return unready(in.BMCID)
}

// CommitRotation makes the candidate the stored login.
func (a *Activities) CommitRotation(_ context.Context, in RotateIn) (contract.RotationFacts, error) {
	return unready(in.BMCID)
}

// UndoRotation ends a rotation with the login that the BMC takes.
func (a *Activities) UndoRotation(_ context.Context, in RotateIn) (contract.RotationFacts, error) {
	return unready(in.BMCID)
}
