package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) jobActionLog() *cobra.Command {
	return a.actionLog("actions JOB", "Every try of a job's stages, newest first", a.jobOf, func(id, status, action, component string) lister[client.ListActionLog] {
		return listBelow(a.api.ListJobActionLogs, id, &client.ListJobActionLogsParams{
			Status: optional[client.ListJobActionLogsParamsStatus](status), ActionType: optional[string](action), Component: optional[client.ListJobActionLogsParamsComponent](component),
		})
	})
}

func (a *app) nodeActionLog() *cobra.Command {
	return a.actionLog("actions NODE", "Every try of the stages of a node's jobs, newest first", a.nodeOf, func(id, status, action, component string) lister[client.ListActionLog] {
		return listBelow(a.api.ListNodeActionLogs, id, &client.ListNodeActionLogsParams{
			Status: optional[client.ListNodeActionLogsParamsStatus](status), ActionType: optional[string](action), Component: optional[client.ListNodeActionLogsParamsComponent](component),
		})
	})
}

// actionLog lists the action log of what find finds.
func (a *app) actionLog(use, short string, find func(context.Context, string) (string, error), of func(id, status, action, component string) lister[client.ListActionLog]) *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	f := cmd.Flags()
	status := f.String("status", "", "only in this state: in_progress, success or failed")
	action := f.String("type", "", "only of this type, such as deploy_via_maas")
	component := f.String("component", "", "only of this component: api or orchestrator")
	f.IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), of(id, *status, *action, *component), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(tries client.ListActionLog) error {
			t := a.table("SINCE", "JOB", "ACTION", "TRY", "STATUS", "TOOK", "FAILURE", "MESSAGE")
			for _, i := range tries.Data {
				t.row(a.when(i.StartedAt), i.JobID, i.ActionType, i.Attempt, i.Status, tryTook(i), orDash(i.FailureClass), i.ErrorMessage)
			}
			return t.flush()
		})
	})
	return cmd
}

// tryTook is how long a try of a stage lasted, "-" while it does.
func tryTook(t client.ActionLog) string {
	if t.FinishedAt.IsZero() {
		return "-"
	}
	return (time.Duration(t.DurationMs) * time.Millisecond).String()
}
