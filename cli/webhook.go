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
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List webhooks", list: allOf(a.api.ListWebhooks), columns: columns}),
		a.projectCommandOf(projectAction{use: "show PROJECT WEBHOOK", short: "Show a webhook", args: 1, send: inProject(a.api.GetWebhook), columns: shown}),
		a.createWebhookCommand(shown), a.updateWebhookCommand(shown),
		a.projectCommandOf(projectAction{use: "delete PROJECT WEBHOOK", short: "Delete a webhook with its deliveries", args: 1, send: inProject(a.api.DeleteWebhook, client.IfMatch("*"))}),
		a.rotateWebhookCommand(shown),
		a.projectCommandOf(projectAction{
			use: "test PROJECT WEBHOOK", short: "Send a test event", args: 1, send: inProject(a.api.TestWebhook), columns: []string{"event_id"},
		}),
		a.webhookDeliveriesCommand(),
		a.projectCommandOf(projectAction{
			use: "redeliver PROJECT WEBHOOK EVENT", short: "Send one event again", args: 2, columns: []string{"event_id"},
			send: func(ctx context.Context, project string, args []string, because client.Option) (answer, error) {
				return untyped(a.api.RedeliverWebhookEvent(ctx, project, args[0], args[1], because))
			},
		}),
		a.replayWebhookCommand(),
	)
}

func (a *app) createWebhookCommand(columns []string) *cobra.Command {
	var types []string
	return a.projectCommandOf(projectAction{
		use: "create PROJECT NAME URL", short: "Add a webhook; its secret is shown once", args: 2, columns: columns,
		flags: func(c *cobra.Command) {
			c.Flags().StringSliceVar(&types, "event-type", nil, "only events of this type, such as member.added or member.*; may be repeated")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (answer, error) {
			body := client.WebhookRequest{Name: args[0], URL: args[1], EventTypes: types}
			return untyped(a.api.CreateWebhook(ctx, project, body, because))
		},
	})
}

func (a *app) updateWebhookCommand(columns []string) *cobra.Command {
	var cmd *cobra.Command
	var types []string
	var name, address string
	var enabled, everything bool
	return a.projectCommandOf(projectAction{
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
		send: func(ctx context.Context, project string, args []string, because client.Option) (answer, error) {
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
			return untyped(a.api.UpdateWebhook(ctx, project, args[0], body, client.IfMatch("*"), because))
		},
	})
}

func (a *app) rotateWebhookCommand(columns []string) *cobra.Command {
	var overlap int
	return a.projectCommandOf(projectAction{
		use: "rotate-secret PROJECT WEBHOOK", short: "Make a new secret, which is shown once", args: 1, columns: columns,
		flags: func(c *cobra.Command) {
			c.Flags().IntVar(&overlap, "overlap-seconds", 86400, "for how long the secret before signs too; 0 ends it at once")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (answer, error) {
			body := client.RotateRequest{OverlapSeconds: new(int64(overlap))}
			return untyped(a.api.RotateWebhookSecret(ctx, project, args[0], body, client.IfMatch("*"), because))
		},
	})
}

func (a *app) webhookDeliveriesCommand() *cobra.Command {
	var status string
	return a.projectCommandOf(projectAction{
		use: "deliveries PROJECT WEBHOOK", short: "List the latest 200 deliveries, newest first", args: 1,
		columns: []string{"event_id", "cursor", "type", "status", "attempts", "answer", "error", "next_at"},
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&status, "status", "", "pending, delivered or dead; dead lists those that were given up")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (answer, error) {
			page := client.ListWebhookDeliveriesParams{Limit: new(int64(maxPage)), Status: optional[client.ListWebhookDeliveriesParamsStatus](status)}
			return untyped(a.api.ListWebhookDeliveries(ctx, project, args[0], &page, because))
		},
	})
}

func (a *app) replayWebhookCommand() *cobra.Command {
	var after int64
	return a.projectCommandOf(projectAction{
		use: "replay PROJECT WEBHOOK", short: "Send the events after a cursor again, 1000 at most; next_cursor says where to go on", args: 1,
		columns: []string{"queued", "next_cursor"},
		flags: func(c *cobra.Command) {
			c.Flags().Int64Var(&after, "after", 0, "the cursor; 0 begins with the oldest event that is kept")
			_ = c.MarkFlagRequired("after")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (answer, error) {
			return untyped(a.api.ReplayWebhook(ctx, project, args[0], client.ReplayRequest{AfterCursor: &after}, because))
		},
	})
}

func (a *app) noticeCommand() *cobra.Command {
	return group("notice", "Notices of a project: what its owners have to know",
		a.projectCommandOf(projectAction{
			use: "list PROJECT", short: "List notices, newest first; -o json shows how each was delivered", list: allOf(a.api.ListNotices),
			columns: []string{"created_at", "kind", "node", "message"},
		}),
	)
}
