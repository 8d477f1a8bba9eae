package problem_test

import (
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// codes is the table of kinds by gRPC code, written by hand.
var codes = map[connect.Code][]problem.Kind{
	connect.CodeInvalidArgument: {
		problem.Malformed, problem.KeyMissing, problem.NotAcceptable, problem.UnsupportedMedia, problem.Invalid, problem.KeyReused,
		problem.VersionMissing, problem.PlanMissing,
	},
	connect.CodeUnauthenticated:  {problem.Unauthenticated},
	connect.CodePermissionDenied: {problem.Forbidden, problem.StepUpRequired},
	connect.CodeNotFound:         {problem.NotFound},
	connect.CodeUnimplemented:    {problem.MethodNotAllowed},
	connect.CodeFailedPrecondition: {
		problem.Conflict, problem.LiveJob, problem.IllegalTransition, problem.ActionRefused, problem.WorkflowGone,
	},
	connect.CodeAborted:           {problem.KeyInFlight, problem.Stale, problem.PlanStale},
	connect.CodeOutOfRange:        {problem.EventsGone},
	connect.CodeResourceExhausted: {problem.NoCapacity, problem.TooLarge, problem.TooManyRequests},
	connect.CodeDeadlineExceeded:  {problem.RequestTimeout, problem.OutcomeUnknown},
	connect.CodeUnavailable:       {problem.OutsideFailed, problem.EngineUnavailable, problem.Unavailable},
	connect.CodeInternal:          {problem.Internal},
}

func TestCode_OfEveryKind(t *testing.T) {
	t.Parallel()
	listed := 0
	for code, kinds := range codes {
		for _, k := range kinds {
			listed++
			require.Equal(t, code, problem.New(k, "x").Code(), k)
		}
	}
	require.Len(t, problem.Kinds(), listed)
	for _, i := range problem.Kinds() {
		// connect answers JSON requests with a status of its own; a client must not repeat what the
		// other API tells it to correct, and the other way round.
		require.Equal(t, i.Status >= 500, i.Code == connect.CodeInternal || i.Code == connect.CodeUnavailable || i.Kind == problem.OutcomeUnknown, i.Kind)
	}
}

// The codes of the API of machines, plans and runs, by the error that is met.
func TestCode_OfMachinesPlansAndRuns(t *testing.T) {
	t.Parallel()
	reboot := runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "a", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}}}
	start := func(t lifecycle.RunType, change func(*runplan.StartFacts)) error {
		f := runplan.StartFacts{Provider: "fake", Offered: runplan.Capabilities(), Phase: lifecycle.MachineReady}
		change(&f)
		return fmt.Errorf("start a run: %w", runplan.CheckStart(t, reboot, f))
	}
	none := func(*runplan.StartFacts) {}
	for name, tc := range map[string]struct {
		err  error
		code connect.Code
	}{
		"machine not found": {fmt.Errorf("machine: %w", db.ErrNotFound), connect.CodeNotFound},
		"plan not found":    {fmt.Errorf("plan: %w", db.ErrNotFound), connect.CodeNotFound},
		"machine has an active run": {
			start("REBOOT", func(f *runplan.StartFacts) { f.ActiveRunID = "run-1" }), connect.CodeFailedPrecondition,
		},
		"machine retired": {
			start("REBOOT", func(f *runplan.StartFacts) { f.Phase = lifecycle.MachineRetired }), connect.CodeFailedPrecondition,
		},
		"capability missing": {
			start("REBOOT", func(f *runplan.StartFacts) { f.Offered = nil }), connect.CodeFailedPrecondition,
		},
		"unknown type":         {start("FORMAT", none), connect.CodeInvalidArgument},
		"plan not valid":       {runplan.Plan{}.Check(), connect.CodeInvalidArgument},
		"wrong field":          {intent.InvalidIf([]intent.Field{{Name: "filter", Message: "is not known"}}), connect.CodeInvalidArgument},
		"phase does not allow": {&lifecycle.IllegalTransitionError{Resource: "machine", From: "RETIRED", To: "READY"}, connect.CodeFailedPrecondition},
		"position is gone":     {problem.New(problem.EventsGone, "x"), connect.CodeOutOfRange},
		"something else":       {errors.New("disk on fire"), connect.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem.From(tc.err)
			require.Equal(t, tc.code, p.Code(), p.Detail)
			require.NotContains(t, p.Detail, "disk on fire")
			require.Equal(t, name == "machine has an active run", p.Existing == "run-1")
		})
	}
}
