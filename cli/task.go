package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// task is what a node's agent was asked to do, as the tables show it.
type task struct {
	ID           string          `json:"id"`
	NodeID       string          `json:"node_id"`
	JobID        string          `json:"job_id"`
	Kind         string          `json:"kind"`
	Status       string          `json:"status"`
	StatusSince  *time.Time      `json:"status_since"`
	Message      string          `json:"message"`
	Progress     string          `json:"progress"`
	Attempt      int             `json:"attempt"`
	LeaseUntil   *time.Time      `json:"lease_until"`
	BootID       string          `json:"boot_id"`
	Code         string          `json:"code"`
	Simulated    bool            `json:"simulated"`
	DeadlineAt   *time.Time      `json:"deadline_at"`
	CreatedBy    string          `json:"created_by"`
	CreatedAt    *time.Time      `json:"created_at"`
	DispatchedAt *time.Time      `json:"dispatched_at"`
	FinishedAt   *time.Time      `json:"finished_at"`
	Args         json.RawMessage `json:"args"`
	Result       *struct {
		Steps []struct {
			Name    string `json:"name"`
			OK      bool   `json:"ok"`
			Skipped string `json:"skipped"`
			Detail  string `json:"detail"`
		} `json:"steps"`
		Devices []struct {
			Kind     string `json:"kind"`
			Name     string `json:"name"`
			Serial   string `json:"serial"`
			Method   string `json:"method"`
			Verified bool   `json:"verified"`
			Detail   string `json:"detail"`
		} `json:"devices"`
	} `json:"result"`
}

// note is the last word on the task.
func (t task) note() string {
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
		raw, err := a.listAll(cmd.Context(), listBelow(a.api.ListNodeTasks, id, &filter), limit)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct{ Data []task }
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("ID", "KIND", "STATUS", "SINCE", "TRIES", "NOTE")
			for _, i := range got.Data {
				t.row(i.ID, i.Kind, i.Status, a.when(i.StatusSince), i.Attempt, i.note())
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) taskCommand() *cobra.Command {
	show := &cobra.Command{Use: "show TASK", Short: "Show a task with its steps and devices", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		r, err := untyped(a.api.GetTask(cmd.Context(), args[0]))
		if err != nil {
			return err
		}
		return a.showTask(r)
	})}
	return group("task", "What node agents were asked to do", show, a.taskRequeue())
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
		r, err := untyped(a.api.RequeueTask(cmd.Context(), args[0], client.RequeueTaskRequest{Reason: reason}))
		if err != nil {
			return err
		}
		return a.showTask(r)
	})
	return cmd
}

func (a *app) showTask(r answer) error {
	return a.show(r.raw, func() error {
		var t task
		if err := r.into(&t); err != nil {
			return err
		}
		err := a.fields("id", t.ID, "kind", t.Kind, "status", t.Status+", "+a.when(t.StatusSince), "because", t.Message, "node", t.NodeID, "job", t.JobID,
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
func (a *app) showResult(t task) error {
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
			case s.OK:
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
