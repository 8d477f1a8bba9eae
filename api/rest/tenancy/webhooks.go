package tenancy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Webhook is an address that receives the events of a project.
type Webhook struct {
	ID             string     `json:"id"`
	Name           string     `json:"name"`
	URL            string     `json:"url"`
	EventTypes     []string   `json:"event_types" nullable:"false" doc:"Types such as member.added, or member.* for all of a kind; none means every event"`
	Status         string     `json:"status" enum:"enabled,disabled"`
	DisabledReason string     `json:"disabled_reason,omitempty" enum:"by_request,gone" doc:"gone: the endpoint answered 410"`
	Secret         string     `json:"secret,omitempty" doc:"Shown once, when it is made; not in a replayed answer"`
	PreviousUntil  *time.Time `json:"previous_secret_until,omitempty" doc:"Until then events are signed with the secret before too"`
	Failures       int        `json:"failures" doc:"Failed attempts since the last success; from 5 on there is one attempt at a time, after a pause"`
	LastError      string     `json:"last_error,omitempty"`
	LastFailureAt  *time.Time `json:"last_failure_at,omitempty"`
	LastSuccessAt  *time.Time `json:"last_success_at,omitempty"`
	Version        int64      `json:"version"`
	CreatedAt      time.Time  `json:"created_at"`
}

func webhookView(w webhookdb.Webhook) Webhook {
	return Webhook{
		ID: w.ID, Name: w.Name, URL: w.URL, EventTypes: db.EmptyIfNil(w.EventTypes), Status: w.Status, DisabledReason: w.DisabledReason,
		PreviousUntil: utc(w.PreviousUntil), Failures: w.Failures, LastError: w.LastReason, LastFailureAt: utc(w.LastFailureAt),
		LastSuccessAt: utc(w.LastSuccessAt), Version: w.Version, CreatedAt: w.CreatedAt.UTC(),
	}
}

// withoutSecret makes an answer fit to be kept for a replay.
func withoutSecret(w Webhook) Webhook {
	w.Secret = ""
	return w
}

// maxWebhooks bounds the webhooks of one project.
const maxWebhooks = 20

// WebhookRequest adds a webhook.
type WebhookRequest struct {
	Name       string   `json:"name" required:"true" maxLength:"100"`
	URL        string   `json:"url" required:"true" maxLength:"2000" doc:"https, with a public host"`
	EventTypes []string `json:"event_types" maxItems:"50" itemMaxLength:"64"`
}

// WebhookChange changes the fields that it holds.
type WebhookChange struct {
	Name       *string   `json:"name,omitempty" maxLength:"100"`
	URL        *string   `json:"url,omitempty" maxLength:"2000"`
	EventTypes *[]string `json:"event_types,omitempty" maxItems:"50" itemMaxLength:"64"`
	Enabled    *bool     `json:"enabled,omitempty"`
}

// WebhookPath is the path of a webhook.
type WebhookPath struct {
	ProjectPath
	WebhookID string `path:"webhook_id" maxLength:"200" doc:"whk_..."`
}

func (s *eventServer) registerWebhooks() {
	const base, one = "/projects/{id}/webhooks", "/projects/{id}/webhooks/{webhook_id}"
	route(s.server, "list-webhooks", http.MethodGet, base, "List the webhooks of a project", s.listWebhooks)
	route(s.server, "create-webhook", http.MethodPost, base, "Add a webhook; the answer shows its secret once", s.createWebhook)
	route(s.server, "get-webhook", http.MethodGet, one, "Read a webhook", s.getWebhook)
	route(s.server, "update-webhook", http.MethodPatch, one, "Change, disable or enable a webhook", s.updateWebhook)
	route(s.server, "delete-webhook", http.MethodDelete, one, "Delete a webhook with its deliveries", s.deleteWebhook)
	route(s.server, "rotate-webhook-secret", http.MethodPost, one+"/rotate-secret", "Make a new secret; events are signed with both until the overlap is over", s.rotateSecret)
	route(s.server, "test-webhook", http.MethodPost, one+"/test", "Send a test event", s.testWebhook)
	route(s.server, "replay-webhook", http.MethodPost, one+"/replay", "Send the events after a cursor again, 1000 at most", s.replayWebhook)
	route(s.server, "list-webhook-deliveries", http.MethodGet, one+"/deliveries", "List deliveries, newest first; status=dead lists those that were given up", s.listDeliveries)
	route(s.server, "redeliver-webhook-event", http.MethodPost, one+"/deliveries/{event_id}/redeliver", "Send one event again", s.redeliver)
}

func (s *eventServer) listWebhooks(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[Webhook], error) {
	return listIn(ctx, s.server, in.Page, webhookdb.List, func(w webhookdb.Webhook) string { return w.ID }, webhookView)
}

// checkWebhook refuses a URL that is not allowed and types that no event can have.
func (s *eventServer) checkWebhook(ctx context.Context, w webhookdb.Webhook) error {
	if err := op.CheckName(w.Name); err != nil {
		return err
	}
	rule, err := s.cfg.Rule(ctx)
	if err != nil {
		return err
	}
	if err := rule.CheckWebhookURL(w.URL); err != nil {
		return invalid("url", err.Error())
	}
	for i, t := range w.EventTypes {
		if !lifecycle.MatchesProjectEvents(t) {
			return invalid(fmt.Sprintf("event_types[%d]", i), "no event has this type; give one that docs/webhooks.md lists, such as member.added, or member.* for all of a kind")
		}
	}
	return nil
}

// putSecret stores a new signing secret of a webhook under a name of its own.
func (s *eventServer) putSecret(ctx context.Context, webhookID string) (providers.Secret, string, error) {
	secret := s.cfg.NewSecret()
	ref, err := s.cfg.Secrets.Put(ctx, spec.ReservedSecrets+"webhooks/"+webhookID+"/"+db.NewID("sec"), secret)
	return secret, string(ref), err
}

func secretName(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	return name
}

// dropLimit bounds the deletion of secrets after a request.
const dropLimit = 10 * time.Second

// dropUnused deletes those of the secrets that the webhook does not use. It is called after a
// change, however that ended: an error does not tell that nothing was committed, so the row is read
// again under the lock of its project, which a commit under way holds. A secret that stays after a
// crash opens nothing.
func (s *eventServer) dropUnused(ctx context.Context, webhookID string, refs ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	var used webhookdb.Webhook
	err := s.api.Store().ForProject(ctx, op.ProjectAccessOf(ctx).Project, func(tx *db.ProjectTx) (err error) {
		if _, err = webhookdb.LockProject(ctx, tx); err == nil {
			used, err = webhookdb.Find(ctx, tx, webhookID)
		}
		return err
	})
	if errors.Is(err, db.ErrNotFound) {
		err = nil
	}
	for _, ref := range refs {
		if name := secretName(ref); err == nil && name != "" && name != secretName(used.SecretRef) && name != secretName(used.PreviousSecretRef) {
			err = s.cfg.Secrets.Delete(ctx, name)
		}
	}
	if err != nil {
		s.api.Log().WarnContext(ctx, "secrets that a webhook does not use were not deleted", "webhook", webhookID, "error", err)
	}
}

func (s *eventServer) createWebhook(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body WebhookRequest
}) (*op.Created[Webhook], error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	w := webhookdb.Webhook{ID: db.NewID("whk"), Name: in.Body.Name, URL: in.Body.URL, EventTypes: in.Body.EventTypes}
	if err := s.checkWebhook(ctx, w); err != nil {
		return nil, err
	}
	// The secret is stored before the transaction, which must not wait for what seals it.
	secret, ref, err := s.putSecret(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	defer s.dropUnused(ctx, w.ID, ref) // a replay, or nothing was made
	w.SecretRef = ref
	return op.CreateInProject(ctx, s.api, in.Key, in.Body, withoutSecret, func(tx *db.ProjectTx) (*op.Created[Webhook], error) {
		if err := lockActive(ctx, tx); err != nil {
			return nil, err
		}
		n, err := webhookdb.Count(ctx, tx)
		if err != nil {
			return nil, err
		}
		if n >= maxWebhooks {
			return nil, problem.New(problem.Conflict, fmt.Sprintf("the project has %d webhooks, as many as it may have; delete one first", n))
		}
		row, err := webhookdb.Add(ctx, tx, w)
		if err != nil {
			return nil, err
		}
		view := webhookView(row)
		view.Secret = secret.Reveal()
		return op.NewCreated(op.Prefix+"/projects/"+in.ID+"/webhooks/"+row.ID, row.Version, view),
			op.AuditProject(ctx, tx, "create_webhook", map[string]any{"webhook": row.ID, "name": row.Name})
	})
}

func (s *eventServer) getWebhook(ctx context.Context, in *WebhookPath) (*op.Versioned[Webhook], error) {
	w, err := readIn(ctx, s.server, func(tx *db.ProjectTx) (webhookdb.Webhook, error) { return webhookdb.Find(ctx, tx, in.WebhookID) }, webhookView)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(w.Version, w), nil
}

// changeWebhook runs a change of the version that the request names, in an active project.
func (s *eventServer) changeWebhook(ctx context.Context, in WebhookPath, match op.Match, do func(*db.ProjectTx, webhookdb.Webhook) error) error {
	return s.withWebhook(ctx, in, match, lockActive, do)
}

// endWebhook is changeWebhook in a project of any status: what is left of a closed one can be
// deleted.
func (s *eventServer) endWebhook(ctx context.Context, in WebhookPath, match op.Match, do func(*db.ProjectTx, webhookdb.Webhook) error) error {
	lock := func(ctx context.Context, tx *db.ProjectTx) error {
		_, err := tenancydb.LockProject(ctx, tx, tx.Project())
		return err
	}
	return s.withWebhook(ctx, in, match, lock, do)
}

func (s *eventServer) withWebhook(
	ctx context.Context, in WebhookPath, match op.Match, lock func(context.Context, *db.ProjectTx) error, do func(*db.ProjectTx, webhookdb.Webhook) error,
) error {
	if err := refuseProjectToken(ctx); err != nil {
		return err
	}
	return op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if err := lock(ctx, tx); err != nil {
			return err
		}
		w, err := webhookdb.Find(ctx, tx, in.WebhookID)
		if err != nil {
			return err
		}
		if w.Version, err = match.Version(func() (int64, error) { return w.Version, nil }); err != nil {
			return err
		}
		return do(tx, w)
	})
}

// applyTo returns the webhook with the change.
func (c WebhookChange) applyTo(w webhookdb.Webhook) webhookdb.Webhook {
	if c.Name != nil {
		w.Name = *c.Name
	}
	if c.URL != nil {
		w.URL = *c.URL
	}
	if c.EventTypes != nil {
		w.EventTypes = *c.EventTypes
	}
	if c.Enabled != nil {
		w.Status, w.DisabledReason = webhookdb.Enabled, ""
		if !*c.Enabled {
			w.Status, w.DisabledReason = webhookdb.Disabled, webhookdb.ByRequest
		}
	}
	return w
}

func (s *eventServer) updateWebhook(ctx context.Context, in *struct {
	WebhookPath
	op.Match
	Body WebhookChange
}) (out *op.Versioned[Webhook], err error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	find := func(tx *db.ProjectTx) (webhookdb.Webhook, error) { return webhookdb.Find(ctx, tx, in.WebhookID) }
	changed, err := readIn(ctx, s.server, find, in.Body.applyTo)
	if err != nil {
		return nil, err
	}
	// The rule asks name servers. That must not happen while the transaction holds the project.
	checked := changed
	if in.Body.EventTypes == nil { // one from before a type was refused can still be disabled
		checked.EventTypes = nil
	}
	if err := s.checkWebhook(ctx, checked); err != nil {
		return nil, err
	}
	err = s.changeWebhook(ctx, in.WebhookPath, in.Match, func(tx *db.ProjectTx, w webhookdb.Webhook) error {
		if w.Version != changed.Version {
			return fmt.Errorf("webhook %s was changed while the URL was checked: %w", w.ID, db.ErrStale)
		}
		row, err := webhookdb.Update(ctx, tx, changed)
		if err != nil {
			return err
		}
		out = op.WithVersion(row.Version, webhookView(row))
		return op.AuditProject(ctx, tx, "update_webhook", map[string]any{"webhook": row.ID, "name": row.Name, "status": row.Status})
	})
	return out, err
}

func (s *eventServer) deleteWebhook(ctx context.Context, in *struct {
	WebhookPath
	op.Match
}) (*struct{}, error) {
	var refs []string
	err := s.endWebhook(ctx, in.WebhookPath, in.Match, func(tx *db.ProjectTx, w webhookdb.Webhook) error {
		refs = []string{w.SecretRef, w.PreviousSecretRef}
		if err := webhookdb.Delete(ctx, tx, w.ID, w.Version); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "delete_webhook", map[string]any{"webhook": w.ID, "name": w.Name})
	})
	if len(refs) > 0 {
		s.dropUnused(ctx, in.WebhookID, refs...)
	}
	return nil, err
}

// RotateRequest says how long the secret before signs too.
type RotateRequest struct {
	OverlapSeconds int `json:"overlap_seconds" minimum:"0" maximum:"604800" default:"86400" doc:"How long events are signed with the secret before too; 0 ends it at once, after a leak"`
}

func (s *eventServer) rotateSecret(ctx context.Context, in *struct {
	WebhookPath
	op.Match
	Body RotateRequest
}) (out *op.Versioned[Webhook], err error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	// Only a webhook of this project gets a secret stored.
	if _, err := readIn(ctx, s.server, func(tx *db.ProjectTx) (webhookdb.Webhook, error) { return webhookdb.Find(ctx, tx, in.WebhookID) }, webhookView); err != nil {
		return nil, err
	}
	secret, ref, err := s.putSecret(ctx, in.WebhookID)
	if err != nil {
		return nil, err
	}
	replaced := ""
	err = s.changeWebhook(ctx, in.WebhookPath, in.Match, func(tx *db.ProjectTx, w webhookdb.Webhook) error {
		replaced = w.PreviousSecretRef
		row, err := webhookdb.RotateSecret(ctx, tx, w.ID, w.Version, ref, time.Duration(in.Body.OverlapSeconds)*time.Second)
		if err != nil {
			return err
		}
		view := webhookView(row)
		view.Secret = secret.Reveal()
		out = op.WithVersion(row.Version, view)
		return op.AuditProject(ctx, tx, "rotate_webhook_secret", map[string]any{"webhook": row.ID, "name": row.Name})
	})
	s.dropUnused(ctx, in.WebhookID, ref, replaced)
	return out, err
}
