package onboarding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/fault"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestADeadlineThatNobodyWasThereFor: MAAS, or every worker, was away when the
// deployment should have been aborted. The job does not end with a deadline that
// nobody enforced: it asks for the abort and the cause until MAAS answers.
func TestADeadlineThatNobodyWasThereFor(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]int{"MAAS is back at once": 0, "MAAS stays away": lifecycle.Failure(lifecycle.FailMAASUnavailable).AutoAttempts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parkedAt(t, lifecycle.StageWaitDeployed, State{
				Machine: contract.MachineFacts{SystemID: "abc", Status: "Deploying"}, Deploy: Deployment{Attempt: 1, Started: true},
				Site: contract.SiteFacts{Profile: spec.ProfileSpec{}.WithDefaults()},
			})
			p.Env.OnActivity("WaitForDeployed", mock.Anything, mock.Anything).After(24*time.Hour).Return(maasact.DeployedFacts{Outcome: contract.DeployOK}, nil)
			late := mock.MatchedBy(func(in maasact.ClassifyIn) bool { return in.Outcome == contract.DeployTimeout })
			if away > 0 {
				p.Env.OnActivity("ClassifyDeployFailure", mock.Anything, late).
					Return(maasact.Classified{}, fault.New(lifecycle.FailMAASUnavailable, "connection refused")).Times(away)
			}
			p.Env.OnActivity("ClassifyDeployFailure", mock.Anything, late).
				Return(maasact.Classified{Class: lifecycle.FailDeployTimeout, Message: "it did not end by its deadline and was aborted"}, nil)
			retried := p.Act(10*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "bert"})
			_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
			require.NoError(t, err)
			require.NoError(t, retried.Err)
			var parkedAs []lifecycle.FailureClass
			for _, s := range p.Store.Steps() {
				if s.Status.Parked() && s.Failure != nil {
					require.Equal(t, lifecycle.StageClassifyFailure, s.Failure.Stage)
					parkedAs = append(parkedAs, s.Failure.Class)
				}
			}
			want := []lifecycle.FailureClass{lifecycle.FailDeployTimeout, lifecycle.FailDeployTimeout} // the operator's retry deploys once more
			if away > 0 {
				want[0] = lifecycle.FailMAASUnavailable
			}
			require.Equal(t, want, parkedAs)
		})
	}
}
