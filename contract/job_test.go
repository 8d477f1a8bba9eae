package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestAFingerprintIsThatOfTheStep: when the step is executed, and as the how many-th, makes no
// difference; whatever the job decided does.
func TestAFingerprintIsThatOfTheStep(t *testing.T) {
	t.Parallel()
	step := func() contract.Projection {
		at := time.Unix(0, 0)
		return contract.Projection{
			RunID: "run", Seq: 7, Status: lifecycle.JobRunning, StageOrdinal: 2, Attempt: 1, At: &at, StageDeadline: &at,
			Stages:  []lifecycle.StageRow{{Ordinal: 1, State: lifecycle.StageRunning, Attempts: 1, StartedAt: &at}},
			Actions: []contract.ActionEntry{{Action: lifecycle.ActionRetryStage, Actor: "someone"}},
		}
	}
	later := time.Unix(1000, 0)
	for name, change := range map[string]func(*contract.Projection){
		"time":     func(p *contract.Projection) { p.At, p.StageDeadline, p.Stages[0].StartedAt = &later, &later, &later },
		"number":   func(p *contract.Projection) { p.Seq++ },
		"progress": func(p *contract.Projection) { p.Progress++ },
	} {
		p := step()
		change(&p)
		require.Equal(t, step().Fingerprint(), p.Fingerprint(), name)
	}
	for name, change := range map[string]func(*contract.Projection){
		"status":    func(p *contract.Projection) { p.Status = lifecycle.JobCompensating },
		"stage":     func(p *contract.Projection) { p.StageOrdinal++ },
		"attempt":   func(p *contract.Projection) { p.Attempt++ },
		"its state": func(p *contract.Projection) { p.Stages[0].State = lifecycle.StageSucceeded },
		"its tries": func(p *contract.Projection) { p.Stages[0].Attempts++ },
		"failure":   func(p *contract.Projection) { p.Failure = &contract.Failure{Class: lifecycle.FailInternal} },
		"waiting":   func(p *contract.Projection) { p.WaitingOut = true },
		"frozen":    func(p *contract.Projection) { p.Frozen = true },
		"adopted":   func(p *contract.Projection) { p.Adopted = true },
		"node": func(p *contract.Projection) {
			p.Moves = []contract.Move{*contract.NodeMove{To: lifecycle.NodeActive}.Move()}
		},
		"action":     func(p *contract.Projection) { p.Actions[0].Action = lifecycle.ActionCancel },
		"no action":  func(p *contract.Projection) { p.Actions = nil },
		"who caused": func(p *contract.Projection) { p.By = "someone else" },
	} {
		p := step()
		change(&p)
		require.NotEqual(t, step().Fingerprint(), p.Fingerprint(), name)
	}
}

// TestPasses_ChargeEachMinute: the pass that charges usage and the pass that compares payments run
// each minute.
func TestPasses_ChargeEachMinute(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Minute, contract.BillPass.Every)
	require.Equal(t, time.Minute, contract.PaymentsPass.Every)
}
