package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// taskNote is the last word on the task.
func taskNote(t client.Task) string {
	note := t.Message
	if note == "" {
		note = t.Progress
	}
	if t.Simulated {
		note = "(simulated) " + note
	}
	return note
}

func (a *app) nodeTasks() *cobra.Command {
	var status, kind string
	var limit int
	cmd := &cobra.Command{Use: "tasks NODE", Short: "List what a node's agent was asked to do, newest first", Args: cobra.ExactArgs(1)}
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "only in this state, such as uncertain")
	f.StringVar(&kind, "kind", "", "only of this kind, such as gpu.scrub")
	f.IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		filter := client.ListNodeTasksParams{Status: optional[client.ListNodeTasksParamsStatus](status), Kind: optional[string](kind)}
		r, err := listAll(cmd.Context(), listBelow(a.api.ListNodeTasks, id, &filter), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListTask) error {
			t := a.table("ID", "KIND", "STATUS", "SINCE", "TRIES", "NOTE")
			for _, i := range got.Data {
				t.row(i.ID, i.Kind, i.Status, a.when(i.StatusSince), i.Attempt, taskNote(i))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) taskCommand() *cobra.Command {
	one := &cobra.Command{Use: "show TASK", Short: "Show a task with its steps and devices", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		r, err := a.api.GetTask(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showTask(r)
	})}
	return group("task", "What node agents were asked to do", one, a.taskRequeue())
}

func (a *app) taskRequeue() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "requeue TASK", Short: "Repeat a task whose outcome is unknown", Args: cobra.ExactArgs(1),
		Long: "Repeats a task that a node has begun and whose outcome is unknown. Check the node first.\n" +
			"Only a task in state uncertain can be requeued.",
		Example: "  slipway task requeue task_... --reason 'nothing was erased yet'",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "what you found on the node; it stands in the audit log")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return fail(ExitUsage, "say with --reason what you found on the node")
		}
		r, err := a.api.RequeueTask(cmd.Context(), args[0], client.RequeueTaskRequest{Reason: reason})
		if err != nil {
			return err
		}
		return a.showTask(r)
	})
	return cmd
}

func (a *app) showTask(r client.Answer[client.Task]) error {
	return show(a, r, func(t client.Task) error {
		err := a.fields("id", t.ID, "kind", t.Kind, "status", string(t.Status)+", "+a.when(t.StatusSince), "because", t.Message, "node", t.NodeID, "job", t.JobID,
			"asked by", t.CreatedBy, "asked at", a.when(t.CreatedAt), "handed out", fmt.Sprintf("%d times, last %s", t.Attempt, orDash(a.when(t.DispatchedAt))),
			"boot", t.BootID, "lease until", a.when(t.LeaseUntil), "deadline", a.when(t.DeadlineAt), "finished", a.when(t.FinishedAt), "progress", t.Progress,
			"code", t.Code, "arguments", string(t.Args))
		if err != nil || t.Result == nil {
			return err
		}
		return a.showResult(t)
	})
}

// showResult lists steps and devices.
func (a *app) showResult(t client.Task) error {
	if t.Simulated {
		_, _ = fmt.Fprintln(a.Out, "\nsimulated: recorded tools stood in for the real ones")
	}
	if len(t.Result.Steps) > 0 {
		_, _ = fmt.Fprintln(a.Out)
		steps := a.table("STEP", "OUTCOME", "DETAIL")
		for _, s := range t.Result.Steps {
			outcome := "failed"
			switch {
			case s.Skipped != "":
				outcome = "skipped: " + s.Skipped
			case s.Ok:
				outcome = "done"
			}
			steps.row(s.Name, outcome, s.Detail)
		}
		if err := steps.flush(); err != nil {
			return err
		}
	}
	if len(t.Result.Devices) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(a.Out)
	devices := a.table("DEVICE", "NAME", "SERIAL", "METHOD", "VERIFIED", "DETAIL")
	for _, d := range t.Result.Devices {
		verified := "NO"
		if d.Verified {
			verified = "yes"
		}
		devices.row(d.Kind, d.Name, orDash(d.Serial), d.Method, verified, d.Detail)
	}
	return devices.flush()
}
