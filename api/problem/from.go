package problem

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// From turns any error into a problem document, by type and never by text. A
// document of status 500 and above means that the error belongs into the log.
func From(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		copied := *p
		return &copied
	}
	if p := fromDomain(err); p != nil {
		return p
	}
	var out *providers.Error
	if errors.As(err, &out) {
		return fromProvider(out)
	}
	switch {
	case errors.Is(err, db.ErrNotFound):
		return New(NotFound, missing(err))
	case errors.Is(err, db.ErrStale):
		return New(Stale, "the resource was changed meanwhile; read it again and repeat the change with its new ETag")
	case errors.Is(err, db.ErrInvalid):
		return New(Invalid, "the database refuses a value: a text is too long, empty, or holds a zero byte; correct it")
	case errors.Is(err, db.ErrLastOwner):
		return New(Conflict, db.ErrLastOwner.Error())
	case errors.Is(err, db.ErrNoCustomerLogin):
		return New(Unavailable, "this server has no database login for customers, so that it serves no projects; whoever runs it sets database.customer_url")
	case errors.Is(err, db.ErrDiscoveryFull):
		return New(TooManyRequests, "the list of discovered nodes is full; an admin has to approve or purge some").After(60)
	}
	if p := fromOutage(err); p != nil {
		return p
	}
	return New(Internal, internalDetail)
}

func fromDomain(err error) *Problem {
	if r := intent.AsRefusal(err); r != nil {
		return fromRefusal(r)
	}
	var conflict *db.ConflictError
	if errors.As(err, &conflict) {
		k := Conflict
		if conflict.What == "live_job" {
			k = LiveJob
		}
		return New(k, conflict.Message).With(conflict.Existing)
	}
	var illegal *lifecycle.IllegalTransitionError
	if errors.As(err, &illegal) {
		return New(IllegalTransition, illegal.Error()).Allow(illegal.Allowed)
	}
	var refused *lifecycle.ActionRefusedError
	if errors.As(err, &refused) {
		return refusal(refused.Error(), refused.Allowed)
	}
	var start *runplan.StartRefusal
	if errors.As(err, &start) {
		return fromStart(start)
	}
	var invalid *spec.InvalidError
	if errors.As(err, &invalid) {
		fields := make([]Field, 0, len(invalid.Fields))
		for _, f := range invalid.Fields {
			fields = append(fields, Field{Location: f.Field, Message: f.Problem})
		}
		return NewInvalid(fields...)
	}
	return nil
}

// fromStart returns why a run may not start.
func fromStart(r *runplan.StartRefusal) *Problem {
	switch {
	case r.Invalid():
		return New(Invalid, r.Detail)
	case r.Reason == runplan.ReasonActiveRun:
		return New(LiveJob, r.Detail).With(r.Existing)
	}
	return New(ActionRefused, r.Detail)
}

func refusal(detail string, allowed []lifecycle.Action) *Problem {
	names := make([]string, 0, len(allowed))
	for _, a := range allowed {
		names = append(names, string(a))
	}
	return New(ActionRefused, detail).Allow(names)
}

// FromAction turns what Temporal says to an action into a problem.
// serviceerror.NotFound means that no workflow runs: the caller decides, and
// what comes here is WorkflowGone.
func FromAction(err error) *Problem {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		switch app.Type() {
		case contract.ErrTypeActionRefused:
			var allowed []lifecycle.Action
			if app.HasDetails() {
				_ = app.Details(&allowed) // without them the sentence still says it
			}
			return refusal(app.Message(), allowed)
		case contract.ErrTypeActionInvalid:
			return New(Invalid, app.Message())
		}
		if p := fromOutage(err); p != nil {
			return p
		}
		return New(Internal, internalDetail)
	}
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return New(WorkflowGone, "no workflow runs for this job any more; resume starts it again and continues from the last projected stage").
			Allow([]string{string(lifecycle.ActionResume)})
	}
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	if errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded) {
		return New(OutcomeUnknown, "the workflow did not answer in time, so it is not known whether the action was taken; "+
			"look at the job, and repeat the action, with the same Idempotency-Key if it had one")
	}
	if isTemporalAway(err) {
		return New(EngineUnavailable, "Temporal does not answer, so it is not known whether the action was taken; "+
			"repeat the action when Temporal is back, with the same Idempotency-Key if it had one")
	}
	return From(err)
}

// fromProvider answers for the secret store and for a probe of the outside. The
// message of a provider is bounded and free of secrets.
func fromProvider(e *providers.Error) *Problem {
	text := e.Message
	inside := e.Side() == providers.SideSecrets
	unresolved := inside && e.Kind == providers.KindUnreachable // a name, of no side that is known here
	switch {
	case e.Kind == providers.KindInvalid && inside:
		return New(Invalid, text)
	case e.Kind == providers.KindNotFound && inside:
		return New(NotFound, text)
	case inside && !unresolved:
		return New(Unavailable, text).Class(e.Side().FailureClass(e.Kind))
	case e.Kind == providers.KindUnreachable, e.Kind == providers.KindUnavailable, e.Kind == providers.KindBusy:
		text = fmt.Sprintf("%s (%s); check that it is up and reachable from here, then repeat", text, e.Kind)
	default:
		text = fmt.Sprintf("%s (%s)", text, e.Kind)
	}
	p := New(OutsideFailed, text)
	if e.Side() != "" && !unresolved {
		return p.Class(e.Side().FailureClass(e.Kind))
	}
	return p
}

// asked is what a request names: a kind and an id or a name. Nothing else of an error is shown.
var asked = regexp.MustCompile(`^(node|job|site|profile|SKU|sku|bmc|BMC|task|batch|finding|drift finding|install workflow|device group|project|billing account|allocation|payment session|instance|machine|plan|run|webhook|campaign|cluster|rack device|member|invitation|SSH key|price|budget of project|quota of project) [A-Za-z0-9._-]{1,100}$|` +
	`^(API )?token tok_[A-Za-z0-9-]{1,64}$|^event evt_[A-Za-z0-9-]{1,64}$|^audit log of [a-z_]{1,40} [A-Za-z0-9._-]{1,100}$`)

// listCommands are the commands that list the resources of a kind, with what they show.
func listCommands() map[string]string {
	return map[string]string{
		"node": "slipway node list shows all", "job": "slipway job list shows the newest", "site": "slipway site list shows all", "SKU": "slipway sku list shows all",
		"batch": "slipway batch list shows all", "drift finding": "slipway drift list shows all", "install workflow": "slipway install-workflow list shows all",
		"project": "slipway project list shows yours", "billing account": "slipway billing-account list shows all", "allocation": "slipway allocation list shows yours",
		"machine": "slipway machine list shows yours", "plan": "slipway plan list shows those that you may start", "run": "slipway run list shows yours",
		"campaign": "slipway campaign list shows yours", "cluster": "slipway cluster list shows all", "price": "slipway price list shows all",
		"invitation": "slipway invitation mine shows yours", "API token": "slipway token list shows all", "device group": "slipway device-group list shows all",
	}
}

// missing says what was not found, where the error is about no more than what a request names, and
// which command lists what there is.
func missing(err error) string {
	var absent *db.NotFoundError
	if !errors.As(err, &absent) || !asked.MatchString(absent.What) {
		return "what the request names was not found; check each id and name in it"
	}
	text := absent.What + " was not found"
	kind := absent.What[:strings.LastIndexByte(absent.What, ' ')]
	if command := listCommands()[kind]; command != "" {
		text += "; " + command
	}
	return text
}
