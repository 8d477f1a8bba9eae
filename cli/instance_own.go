package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// ownInstanceCommand has the commands of the members of a project.
func (a *app) ownInstanceCommand() *cobra.Command {
	columns := []string{"id", "name", "provider", "zone", "type", "model", "status", "progress_percent", "error_code", "created_at", "ready_at", "terminated_at"}
	return group("own", "Instances of a project, for its members",
		projectCommandOf(a, projectAction[client.ListProjectInstance]{
			use: "list PROJECT", short: "List the instances of a project, newest first", columns: columns,
			list: func(project string, because client.Option) lister[client.ListProjectInstance] {
				return listBelow(a.api.ListProjectInstances, project, &client.ListProjectInstancesParams{}, because)
			},
		}),
		projectCommandOf(a, projectAction[client.ProjectInstance]{
			use: "show PROJECT INSTANCE", short: "Show an instance of a project", args: 1, columns: columns,
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.ProjectInstance], error) {
				return a.api.GetProjectInstance(ctx, project, args[0], because)
			},
		}),
		projectCommandOf(a, projectAction[client.ListProjectInstanceAction]{
			use: "actions PROJECT INSTANCE", short: "List the latest 200 actions for an instance of a project, newest first", args: 1,
			columns: []string{"started_at", "action_type", "attempt", "status", "duration_ms"},
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.ListProjectInstanceAction], error) {
				page := client.ListProjectInstanceActionLogsParams{Limit: new(int64(maxPage))}
				return a.api.ListProjectInstanceActionLogs(ctx, project, args[0], &page, because)
			},
		}),
		rowsCommand(a, "types", "List the types of servers that instances may be made with now", func(ctx context.Context, _ []string) (client.Answer[client.ListInstanceType], error) {
			return a.api.ListOfferedInstanceTypes(ctx)
		}, "name", "provider", "gpu", "zones", "startup_seconds"),
		a.ownInstanceCreateCommand(columns),
		a.ownInstanceTerminateCommand(columns),
	)
}

func (a *app) ownInstanceCreateCommand(columns []string) *cobra.Command {
	var body client.ProjectInstanceRequest
	var drain int64
	return projectCommandOf(a, projectAction[client.ProjectInstance]{
		use: "create PROJECT NAME", short: "Make an instance for a project, where its members may", args: 1, columns: columns,
		flags: func(c *cobra.Command) {
			f := c.Flags()
			f.StringVar(&body.Provider, "provider", "scaleway", "who makes the server")
			f.StringVar(&body.Zone, "zone", "fr-par-2", "zone of the provider")
			f.StringVar(&body.Type, "type", "", "type of the server; see slipway instance own types")
			f.StringVar(&body.Model, "model", "", "what vLLM serves")
			f.Int64Var(&drain, "drain-seconds", 0, "how long its end waits for the work that it has")
			_ = c.MarkFlagRequired("type")
			_ = c.MarkFlagRequired("model")
		},
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.ProjectInstance], error) {
			body.Name, body.DrainSeconds = args[0], &drain
			return a.api.CreateProjectInstance(ctx, project, body, because)
		},
	})
}

func (a *app) ownInstanceTerminateCommand(columns []string) *cobra.Command {
	var why string
	return projectCommandOf(a, projectAction[client.ProjectInstance]{
		use: "terminate PROJECT INSTANCE", short: "End an instance of a project; everything on it is deleted", args: 1, columns: columns,
		flags: func(c *cobra.Command) { c.Flags().StringVar(&why, "why", "", "why, for the audit log of the project") },
		send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.ProjectInstance], error) {
			return a.api.TerminateProjectInstance(ctx, project, args[0], client.ProjectTerminateRequest{Reason: why}, because)
		},
	})
}
