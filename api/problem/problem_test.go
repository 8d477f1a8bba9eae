package problem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

func TestEveryErrorHasItsProblem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		kind     problem.Kind
		status   int
		existing string
		allowed  []string
	}{
		"not found":  {fmt.Errorf("x: %w", db.ErrNotFound), problem.NotFound, 404, "", nil},
		"stale":      {fmt.Errorf("x: %w", db.ErrStale), problem.Stale, 412, "", nil},
		"bad value":  {fmt.Errorf("x: %w", db.ErrInvalid), problem.Invalid, 422, "", nil},
		"conflict":   {&db.ConflictError{What: "name", Existing: "site_1", Message: "taken"}, problem.Conflict, 409, "site_1", nil},
		"live job":   {&db.ConflictError{What: "live_job", Existing: "job_1", Message: "busy"}, problem.LiveJob, 409, "job_1", nil},
		"transition": {&lifecycle.IllegalTransitionError{Resource: "node", From: "a", To: "b", Reason: "no", Allowed: []string{"c"}}, problem.IllegalTransition, 409, "", []string{"c"}},
		"refused":    {&lifecycle.ActionRefusedError{Action: "rerun", Allowed: []lifecycle.Action{"cancel"}}, problem.ActionRefused, 409, "", []string{"cancel"}},
		"invalid":    {&spec.InvalidError{Fields: []spec.Invalid{{Field: "a", Problem: "b"}}}, problem.Invalid, 422, "", nil},
		"no secret":  {&providers.Error{Kind: providers.KindNotFound, Op: "secrets.resolve", Message: "none"}, problem.NotFound, 404, "", nil},
		"vault away": {&providers.Error{Kind: providers.KindUnavailable, Op: "secrets.put", Message: "down"}, problem.Unavailable, 503, "", nil},
		"MAAS away":  {&providers.Error{Kind: providers.KindUnreachable, Op: "maas.version", Message: "down"}, problem.OutsideFailed, 502, "", nil},
		"late":       {context.DeadlineExceeded, problem.OutcomeUnknown, 504, "", nil},
		"unknown":    {errors.New("password=hunter2"), problem.Internal, 500, "", nil},
		"itself":     {fmt.Errorf("x: %w", problem.New(problem.Forbidden, "no")), problem.Forbidden, 403, "", nil},
	} {
		p := problem.From(c.err)
		require.True(t, p.Of(c.kind), "%s: %s", name, p.Type)
		require.Equal(t, c.status, p.Status, name)
		require.Equal(t, c.existing, p.Existing, name)
		require.Equal(t, c.allowed, p.Allowed, name)
		require.NotContains(t, p.Detail, "hunter2")
	}
}

// TestFrom_NamesWhatIsMissing: what the request named, and nothing else of the error.
func TestFrom_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	require.Contains(t, problem.From(fmt.Errorf("load it: %w", db.NotFound("node node_7"))).Detail, "Node node_7 was not found; slipway node list shows all.")
	for _, what := range []string{"drift finding drift_1", "device group dcgm", "instance inst_1", "machine mach_1", "run run_1", "webhook whk_1", "SKU h100x8", "campaign cmp_1", "rack device shelf", "SSH key key_1", "budget of project prj_1", "token tok_1", "event evt_1"} {
		detail := problem.From(db.NotFound(what)).Detail
		require.Contains(t, strings.ToLower(detail), strings.ToLower(what)+" was not found")
	}
	for _, other := range []string{"node node_7 refers to jobs_node_id_fkey", "read the clock", "node a\nb", "secret hunter2"} {
		require.Contains(t, problem.From(db.NotFound(other)).Detail, "What the request names was not found; check each id and name in it.")
	}
}

// A document of an outside system's failure has the class with which a job parks for the same
// reason.
func TestFrom_ClassOfOutsideFailure(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]map[providers.Kind]lifecycle.FailureClass{
		"maas.version":    {providers.KindUnreachable: lifecycle.FailMAASUnavailable, providers.KindUnauthorized: lifecycle.FailConfiguration},
		"redfish.probe":   {providers.KindUnreachable: lifecycle.FailBMCUnreachable, providers.KindPinMismatch: lifecycle.FailBMCPinMismatch},
		"ipmi.probe":      {providers.KindUnauthorized: lifecycle.FailBMCAuthRejected},
		"secrets.put":     {providers.KindUnavailable: lifecycle.FailStoreUnavailable, providers.KindForbidden: lifecycle.FailSecretUnavailable},
		"secrets.resolve": {providers.KindUnreachable: "", providers.KindInvalid: "", providers.KindNotFound: ""},
		"else":            {providers.KindUnreachable: ""},
	} {
		for kind, class := range want {
			p := problem.From(&providers.Error{Kind: kind, Op: op, Message: "x"})
			require.Equal(t, class, p.FailureClass, "%s %s", op, kind)
			if class != "" {
				require.Equal(t, "docs/runbooks/"+string(class)+".md", p.Runbook)
			} else {
				require.Empty(t, p.Runbook)
			}
		}
	}
	require.Empty(t, problem.From(errors.New("x")).FailureClass)
}

func TestActionErrors(t *testing.T) {
	t.Parallel()
	app := func(typ string) error {
		return temporal.NewNonRetryableApplicationError("m", typ, nil, []lifecycle.Action{"cancel"})
	}
	for kind, err := range map[problem.Kind]error{
		problem.ActionRefused: app(contract.ErrTypeActionRefused), problem.Invalid: app(contract.ErrTypeActionInvalid), problem.Internal: app("other"),
		problem.WorkflowGone: serviceerror.NewNotFound("x"), problem.EngineUnavailable: serviceerror.NewUnavailable("x"),
		problem.OutcomeUnknown: client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.Canceled),
	} {
		require.True(t, problem.FromAction(err).Of(kind), kind)
	}
	require.Equal(t, []string{"cancel"}, problem.FromAction(app(contract.ErrTypeActionRefused)).Allowed)
}

func TestKindsAreStableAndSayWhatToDo(t *testing.T) {
	t.Parallel()
	seen := map[problem.Kind]bool{}
	for _, i := range problem.Kinds() {
		require.False(t, seen[i.Kind], i.Kind)
		seen[i.Kind] = true
		rec := httptest.NewRecorder()
		problem.New(i.Kind, "do this").Write(rec)
		require.Equal(t, i.Status, rec.Code)
		require.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
		require.Contains(t, rec.Body.String(), `"detail":"Do this."`)
		require.True(t, strings.HasPrefix(i.Type(), "urn:slipway:problem:"))
		require.NotEmpty(t, i.Title)
	}
}
