package cli

import (
	"net/url"

	"github.com/spf13/cobra"
)

// belowWebhook names what is below a webhook by its id, the first argument that a path takes.
func belowWebhook(path string) func([]string) string {
	return func(args []string) string { return below("/webhooks")(args) + path }
}

func (a *app) webhookCommand() *cobra.Command {
	columns := []string{"id", "name", "url", "status", "disabled_reason", "failures", "last_error"}
	shown := append([]string{"event_types", "secret", "previous_secret_until", "last_success_at", "last_failure_at", "version"}, columns...)
	return group("webhook", "Webhooks of a project: addresses that receive its events",
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List webhooks", method: "GET", path: at("/webhooks"), list: true, columns: columns}),
		a.projectCommandOf(projectAction{use: "show PROJECT WEBHOOK", short: "Show a webhook", method: "GET", args: 1, path: below("/webhooks"), columns: shown}),
		a.createWebhookCommand(shown), a.updateWebhookCommand(shown),
		a.projectCommandOf(projectAction{use: "delete PROJECT WEBHOOK", short: "Delete a webhook with its deliveries", method: "DELETE", args: 1, path: below("/webhooks")}),
		a.rotateWebhookCommand(shown),
		a.projectCommandOf(projectAction{
			use: "test PROJECT WEBHOOK", short: "Send a test event", method: "POST", args: 1, path: belowWebhook("/test"), columns: []string{"event_id"},
		}),
		a.webhookDeliveriesCommand(),
		a.projectCommandOf(projectAction{
			use: "redeliver PROJECT WEBHOOK EVENT", short: "Send one event again", method: "POST", args: 2, columns: []string{"event_id"},
			path: func(args []string) string {
				return belowWebhook("/deliveries/" + url.PathEscape(args[1]) + "/redeliver")(args)
			},
		}),
		a.replayWebhookCommand(),
	)
}

func (a *app) createWebhookCommand(columns []string) *cobra.Command {
	var types []string
	return a.projectCommandOf(projectAction{
		use: "create PROJECT NAME URL", short: "Add a webhook; its secret is shown once", method: "POST", args: 2, path: at("/webhooks"), columns: columns,
		flags: func(c *cobra.Command) {
			c.Flags().StringSliceVar(&types, "event-type", nil, "only events of this type, such as member.added or member.*; may be repeated")
		},
		body: func(args []string) (map[string]any, error) {
			body := map[string]any{"name": args[0], "url": args[1]}
			if len(types) > 0 {
				body["event_types"] = types
			}
			return body, nil
		},
	})
}

func (a *app) updateWebhookCommand(columns []string) *cobra.Command {
	var cmd *cobra.Command
	var types []string
	var name, address string
	var enabled, everything bool
	return a.projectCommandOf(projectAction{
		use: "update PROJECT WEBHOOK", short: "Change, disable or enable a webhook", method: "PATCH", args: 1, path: below("/webhooks"), columns: columns,
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
		body: func([]string) (map[string]any, error) {
			body := map[string]any{}
			set(body, "name", name)
			set(body, "url", address)
			if len(types) > 0 {
				body["event_types"] = types
			}
			if everything {
				body["event_types"] = []string{}
			}
			if cmd.Flags().Changed("enabled") {
				body["enabled"] = enabled
			}
			return body, nil
		},
	})
}

func (a *app) rotateWebhookCommand(columns []string) *cobra.Command {
	var overlap int
	return a.projectCommandOf(projectAction{
		use: "rotate-secret PROJECT WEBHOOK", short: "Make a new secret, which is shown once", method: "POST", args: 1, path: belowWebhook("/rotate-secret"),
		columns: columns, ifMatch: true,
		flags: func(c *cobra.Command) {
			c.Flags().IntVar(&overlap, "overlap-seconds", 86400, "for how long the secret before signs too; 0 ends it at once")
		},
		body: func([]string) (map[string]any, error) { return map[string]any{"overlap_seconds": overlap}, nil },
	})
}

func (a *app) webhookDeliveriesCommand() *cobra.Command {
	var status string
	return a.projectCommandOf(projectAction{
		use: "deliveries PROJECT WEBHOOK", short: "List the latest 200 deliveries, newest first", method: "GET", args: 1,
		columns: []string{"event_id", "cursor", "type", "status", "attempts", "answer", "error", "next_at"},
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&status, "status", "", "pending, delivered or dead; dead lists those that were given up")
		},
		path: func(args []string) string {
			query := url.Values{"limit": {"200"}}
			if status != "" {
				query.Set("status", status)
			}
			return belowWebhook("/deliveries?" + query.Encode())(args)
		},
	})
}

func (a *app) replayWebhookCommand() *cobra.Command {
	var after int64
	return a.projectCommandOf(projectAction{
		use: "replay PROJECT WEBHOOK", short: "Send the events after a cursor again, 1000 at most; next_cursor says where to go on", method: "POST", args: 1,
		path: belowWebhook("/replay"), columns: []string{"queued", "next_cursor"},
		flags: func(c *cobra.Command) {
			c.Flags().Int64Var(&after, "after", 0, "the cursor; 0 begins with the oldest event that is kept")
			_ = c.MarkFlagRequired("after")
		},
		body: func([]string) (map[string]any, error) { return map[string]any{"after_cursor": after}, nil },
	})
}

func (a *app) noticeCommand() *cobra.Command {
	return group("notice", "Notices of a project: what its owners have to know",
		a.projectCommandOf(projectAction{
			use: "list PROJECT", short: "List notices, newest first; -o json shows how each was delivered", method: "GET", path: at("/notices"), list: true,
			columns: []string{"created_at", "kind", "node", "message"},
		}),
	)
}
