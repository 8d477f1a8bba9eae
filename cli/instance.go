package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func instanceColumns() []string {
	return []string{"id", "name", "project_id", "provider", "zone", "type", "status", "progress_percent", "error_code", "ip_address"}
}

func instanceShown() []string {
	return append(instanceColumns(), "model", "image", "reached_percent", "failed_stage", "error_message", "server_id", "job_id", "heartbeat_at", "agent_checksum",
		"agent_verified_at", "last_health_check", "deleted_by_provider", "created_at", "ready_at", "failed_at", "terminated_at", "version")
}

func (a *app) instanceCommand() *cobra.Command {
	return group("instance", "Instances: GPU servers at cloud providers that projects have",
		a.instanceListCommand(), a.instanceShowCommand(), a.instanceCreateCommand(), a.instanceTerminateCommand(),
		rowsCommand(a, "history INSTANCE", "List how an instance moved, and why", func(ctx context.Context, args []string) (client.Answer[client.ListInstanceMove], error) {
			return a.api.ListInstanceHistory(ctx, args[0])
		}, "from_status", "to_status", "reason", "created_at"),
		a.instanceActionsCommand(), a.ownInstanceCommand(),
		rowsCommand(a, "types", "List the types of servers that instances may have", func(ctx context.Context, _ []string) (client.Answer[client.ListInstanceType], error) {
			return a.api.ListInstanceTypes(ctx)
		}, "name", "provider", "gpu", "zones", "startup_seconds"),
		rowsCommand(a, "orphans", "List what providers bill and no live instance has", func(ctx context.Context, _ []string) (client.Answer[client.ListInstanceOrphan], error) {
			return a.api.ListInstanceOrphans(ctx)
		}, "provider", "zone", "kind", "resource_id", "instance_id", "hourly_micro", "currency", "found_at"),
	)
}

// rowsCommand shows what one request answers, whose list has one page. Arguments that name
// resources are ids in the request.
func rowsCommand[T any](a *app, use, short string, send func(context.Context, []string) (client.Answer[T], error), columns ...string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(strings.Count(use, " ")), RunE: does(func(cmd *cobra.Command, args []string) error {
		args, err := a.resolveArgs(cmd.Context(), usageWords(use), args, lookup{})
		if err != nil {
			return err
		}
		r, err := send(cmd.Context(), args)
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, columns)
	})}
}

func (a *app) instanceActionsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "actions INSTANCE", Short: "List the action log of an instance, newest first", Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), instanceKind(), lookup{}, args[0])
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), listBelow(a.api.ListInstanceActionLogs, id, &client.ListInstanceActionLogsParams{}), limit)
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, []string{"started_at", "action_type", "stage", "attempt", "status", "duration_ms", "error_message"})
	})
	return cmd
}

func (a *app) instanceListCommand() *cobra.Command {
	var project, status string
	var archived bool
	cmd := &cobra.Command{Use: "list", Short: "List instances, newest first", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&project, "project", "", "only those of this project, by name or id")
	cmd.Flags().StringVar(&status, "status", "", "only those of this status, such as ready")
	cmd.Flags().BoolVar(&archived, "archived", false, "archived ones too")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		project, err := a.optionalProject(cmd.Context(), project)
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), list(a.api.ListInstances, &client.ListInstancesParams{
			ProjectID: optional[string](project), Status: optional[client.ListInstancesParamsStatus](status), Archived: &archived,
		}), 0)
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, instanceColumns())
	})
	return cmd
}

func (a *app) instanceShowCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{Use: "show INSTANCE", Short: "Show an instance", Args: cobra.ExactArgs(1)}
	w.add(cmd)
	cmd.Flags().Lookup("watch").Usage = "follow it until it is ready or has ended; exits with 6 when it failed"
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), instanceKind(), lookup{}, args[0])
		if err != nil {
			return err
		}
		if w.on {
			return a.watchInstance(cmd, id, w, "ready")
		}
		r, err := a.api.GetInstance(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, instanceShown())
	})
	return cmd
}

func (a *app) instanceCreateCommand() *cobra.Command {
	var body client.InstanceRequest
	var image string
	var drain int64
	var w watchFlags
	cmd := &cobra.Command{
		Use: "create [PROJECT] NAME", Short: "Make an instance at a cloud provider", Args: cobra.RangeArgs(1, 2),
		Example: "  slipway instance create training chat --provider scaleway --zone fr-par-2 --type L4-1-24G --model meta-llama/Llama-3.1-8B-Instruct --watch",
	}
	f := cmd.Flags()
	f.StringVar(&body.Provider, "provider", "scaleway", "who makes the server")
	f.StringVar(&body.Zone, "zone", "fr-par-2", "zone of the provider")
	f.StringVar(&body.Type, "type", "", "type of the server; see slipway instance types")
	f.StringVar(&body.Model, "model", "", "what vLLM serves")
	f.StringVar(&image, "image", "", "label of the image; empty is the configured one")
	f.Int64Var(&drain, "drain-seconds", 0, "how long its end waits for the work that it has")
	_ = cmd.MarkFlagRequired("type")
	_ = cmd.MarkFlagRequired("model")
	w.add(cmd)
	cmd.Flags().Lookup("watch").Usage = "follow it until it is ready; exits with 6 when it failed"
	cmd.RunE = a.withProject(cmd, 1, func(cmd *cobra.Command, project string, args []string) error {
		body.ProjectID, body.Name = project, args[0]
		body.Image, body.DrainSeconds = optional[string](image), &drain
		r, err := a.api.CreateInstance(cmd.Context(), body)
		made, err := client.Value(r, err)
		if err != nil {
			return err
		}
		if w.on {
			return a.watchInstance(cmd, made.ID, w, "ready")
		}
		return a.showRows(r.Raw, instanceShown())
	})
	return cmd
}

func (a *app) instanceTerminateCommand() *cobra.Command {
	var reason string
	var w watchFlags
	cmd := &cobra.Command{Use: "terminate INSTANCE", Short: "End an instance and delete everything that its provider bills", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	_ = cmd.MarkFlagRequired("reason")
	w.add(cmd)
	cmd.Flags().Lookup("watch").Usage = "follow it until the provider has nothing of it; exits with 6 when that failed"
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), instanceKind(), lookup{}, args[0])
		if err != nil {
			return err
		}
		r, err := a.api.TerminateInstance(cmd.Context(), id, client.TerminateRequest{Reason: reason})
		if err != nil {
			return err
		}
		if w.on {
			return a.watchInstance(cmd, id, w, "terminated")
		}
		return a.showRows(r.Raw, instanceShown())
	})
	return cmd
}

// watchInstance follows an instance until it has the status that is awaited, or one that leads
// nowhere.
func (a *app) watchInstance(cmd *cobra.Command, id string, w watchFlags, awaited string) error {
	read := func(ctx context.Context) (client.Answer[client.Instance], error) { return a.api.GetInstance(ctx, id) }
	shown := ""
	return follow(cmd.Context(), read, w, func(r client.Answer[client.Instance], i client.Instance) (bool, error) {
		if at := fmt.Sprintf("%s %d %%", i.Status, i.ProgressPercent); at != shown && a.output == "table" {
			shown = at
			fmt.Fprintln(a.Out, oneLine(at))
		}
		failed := i.Status == "provisioning_failed" || i.Status == "startup_failed" || i.Status == "failed"
		switch {
		case i.Status == awaited, i.Status == "terminated", i.Status == "archived":
			return true, a.showRows(r.Raw, instanceShown())
		case failed:
			return true, fail(ExitJobFailed, "instance %s is %s (%s): %s\n  look at it: slipway instance actions %s", i.ID, i.Status, i.ErrorCode, oneLine(i.ErrorMessage), i.ID)
		}
		return false, nil
	})
}
