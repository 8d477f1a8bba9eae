package onboarding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/activities/fault"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestADeadlineThatNobodyWasThereFor: MAAS, or every worker, was away when the
// deployment should have been aborted. The job does not end with a deadline that
// nobody enforced: it asks for the abort and the cause until MAAS answers.
func TestADeadlineThatNobodyWasThereFor(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]int{"MAAS is back at once": 0, "MAAS stays away": lifecycle.Failure(lifecycle.FailMAASUnavailable).AutoAttempts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parkedAt(t, contract.StageWaitDeployed, State{
				Machine: contract.MachineFacts{SystemID: "abc", Status: "Deploying"}, Deploy: Deployment{Attempt: 1, Begun: true},
				Site: contract.SiteFacts{Profile: spec.ProfileSpec{}.WithDefaults()},
			})
			p.env.OnActivity("WaitForDeployed", mock.Anything, mock.Anything).After(24*time.Hour).Return(maasact.DeployedFacts{Outcome: contract.DeployOK}, nil)
			late := mock.MatchedBy(func(in maasact.ClassifyIn) bool { return in.Outcome == contract.DeployTimeout })
			if away > 0 {
				p.env.OnActivity("ClassifyDeployFailure", mock.Anything, late).
					Return(maasact.Classified{}, fault.New(lifecycle.FailMAASUnavailable, "connection refused")).Times(away)
			}
			p.env.OnActivity("ClassifyDeployFailure", mock.Anything, late).
				Return(maasact.Classified{Class: lifecycle.FailDeployTimeout, Message: "it did not end by its deadline and was aborted"}, nil)
			p.env.RegisterDelayedCallback(func() {
				p.env.UpdateWorkflow(string(lifecycle.ActionRetryStage), "", &testsuite.TestUpdateCallback{
					OnAccept: func() {}, OnReject: func(err error) { t.Error(err) }, OnComplete: func(_ any, err error) { assert.NoError(t, err) },
				}, contract.ActionRequest{Actor: "bert"})
			}, 10*time.Hour)
			_, err := p.asks(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
			require.NoError(t, err)
			var parkedAs []lifecycle.FailureClass
			for _, s := range p.steps {
				if s.Status.Parked() && s.Failure != nil {
					require.Equal(t, contract.StageClassifyFailure, s.Failure.Stage)
					parkedAs = append(parkedAs, s.Failure.Class)
				}
			}
			want := []lifecycle.FailureClass{lifecycle.FailDeployTimeout, lifecycle.FailDeployTimeout} // the person's retry asks once more
			if away > 0 {
				want[0] = lifecycle.FailMAASUnavailable
			}
			require.Equal(t, want, parkedAs)
		})
	}
}
