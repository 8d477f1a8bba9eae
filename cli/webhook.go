package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) webhookCommand() *cobra.Command {
	columns := []string{"id", "name", "url", "status", "disabled_reason", "failures", "last_error"}
	shown := append([]string{"event_types", "secret", "previous_secret_until", "last_success_at", "last_failure_at", "version"}, columns...)
	return group("webhook", "Webhooks of a project: addresses that receive its events",
		projectCommandOf(a, projectAction[client.ListWebhook]{use: "list PROJECT", short: "List webhooks", list: allOf(a.api.ListWebhooks), columns: columns}),
		projectCommandOf(a, projectAction[client.Webhook]{use: "show PROJECT WEBHOOK", short: "Show a webhook", args: 1, send: inProject(a.api.GetWebhook), columns: shown}),
		a.createWebhookCommand(shown), a.updateWebhookCommand(shown),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT WEBHOOK", short: "Delete a webhook with its deliveries", args: 1, send: inProject(a.api.DeleteWebhook, client.IfMatch("*"))}),
		a.rotateWebhookCommand(shown),
		projectCommandOf(a, projectAction[client.Queued]{
			use: "test PROJECT WEBHOOK", short: "Send a test event", args: 1, send: inProject(a.api.TestWebhook), columns: []string{"event_id"},
		}),
		a.webhookDeliveriesCommand(),
		projectCommandOf(a, projectAction[client.Queued]{
			use: "redeliver PROJECT WEBHOOK EVENT", short: "Send one event again", args: 2, columns: []string{"event_id"},
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Queued], error) {
				return a.api.RedeliverWebhookEvent(ctx, project, args[0], args[1], because)
			},
		}),
		a.replayWebhookCommand(),
	)
}

func (a *app) createWebhookCommand(columns []string) *cobra.Command {
	var types []string
	return projectCommandOf(a, projectAction[client.Webhook]{
		use: "create PROJECT NAME URL", short: "Add a webhook; its secret is shown once", args: 2, columns: columns,
		flags: func(c *cobra.Command) {
			c.Flags().StringSliceVar(&types, "event-type", nil, "only events of this type, such as member.added or member.*; may be repeated")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Webhook], error) {
			body := client.WebhookRequest{Name: args[0], URL: args[1], EventTypes: types}
			return a.api.CreateWebhook(ctx, project, body, because)
		},
	})
}

func (a *app) updateWebhookCommand(columns []string) *cobra.Command {
	var cmd *cobra.Command
	var types []string
	var name, address string
	var enabled, everything bool
	return projectCommandOf(a, projectAction[client.Webhook]{
		use: "update PROJECT WEBHOOK", short: "Change, disable or enable a webhook", args: 1, columns: columns,
		flags: func(c *cobra.Command) {
			cmd = c
			c.Flags().StringVar(&name, "name", "", "the new name")
			c.Flags().StringVar(&address, "url", "", "the new address")
			c.Flags().StringSliceVar(&types, "event-type", nil, "only events of this type; may be repeated")
			c.Flags().BoolVar(&everything, "every-event", false, "events of every type")
			c.Flags().BoolVar(&enabled, "enabled", true, "--enabled=false disables it")
			c.MarkFlagsMutuallyExclusive("event-type", "every-event")
			c.MarkFlagsOneRequired("name", "url", "event-type", "every-event", "enabled")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Webhook], error) {
			body := client.WebhookChange{Name: optional[string](name), URL: optional[string](address)}
			if len(types) > 0 {
				body.EventTypes = &types
			}
			if everything {
				body.EventTypes = &[]string{}
			}
			if cmd.Flags().Changed("enabled") {
				body.Enabled = &enabled
			}
			return a.api.UpdateWebhook(ctx, project, args[0], body, client.IfMatch("*"), because)
		},
	})
}

func (a *app) rotateWebhookCommand(columns []string) *cobra.Command {
	var overlap int
	return projectCommandOf(a, projectAction[client.Webhook]{
		use: "rotate-secret PROJECT WEBHOOK", short: "Make a new secret, which is shown once", args: 1, columns: columns,
		flags: func(c *cobra.Command) {
			c.Flags().IntVar(&overlap, "overlap-seconds", 86400, "for how long the secret before signs too; 0 ends it at once")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Webhook], error) {
			body := client.RotateRequest{OverlapSeconds: new(int64(overlap))}
			return a.api.RotateWebhookSecret(ctx, project, args[0], body, client.IfMatch("*"), because)
		},
	})
}

func (a *app) webhookDeliveriesCommand() *cobra.Command {
	var status string
	return projectCommandOf(a, projectAction[client.ListDelivery]{
		use: "deliveries PROJECT WEBHOOK", short: "List the latest 200 deliveries, newest first", args: 1,
		columns: []string{"event_id", "cursor", "type", "status", "attempts", "answer", "error", "next_at"},
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&status, "status", "", "pending, delivered or dead; dead lists those that were given up")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.ListDelivery], error) {
			page := client.ListWebhookDeliveriesParams{Limit: new(int64(maxPage)), Status: optional[client.ListWebhookDeliveriesParamsStatus](status)}
			return a.api.ListWebhookDeliveries(ctx, project, args[0], &page, because)
		},
	})
}

func (a *app) replayWebhookCommand() *cobra.Command {
	var after int64
	return projectCommandOf(a, projectAction[client.Replay]{
		use: "replay PROJECT WEBHOOK", short: "Send the events after a cursor again, 1000 at most; next_cursor says where to go on", args: 1,
		columns: []string{"queued", "next_cursor"},
		flags: func(c *cobra.Command) {
			c.Flags().Int64Var(&after, "after", 0, "the cursor; 0 begins with the oldest event that is kept")
			_ = c.MarkFlagRequired("after")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Replay], error) {
			return a.api.ReplayWebhook(ctx, project, args[0], client.ReplayRequest{AfterCursor: &after}, because)
		},
	})
}

func (a *app) noticeCommand() *cobra.Command {
	return group("notice", "Notices of a project: what its owners have to know",
		projectCommandOf(a, projectAction[client.ListNotice]{
			use: "list PROJECT", short: "List notices, newest first; -o json shows how each was delivered", list: allOf(a.api.ListNotices),
			columns: []string{"created_at", "kind", "node", "message"},
		}),
	)
}
