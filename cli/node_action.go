package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// nodeActions are the commands for what an operator asks of a node.
func (a *app) nodeActions() []*cobra.Command {
	var out []*cobra.Command
	for _, info := range lifecycle.NodeActions() {
		out = append(out, a.nodeAction(info))
	}
	return out
}

func (a *app) nodeAction(info lifecycle.NodeActionInfo) *cobra.Command {
	var reason string
	var grace int
	var w watchFlags
	states := make([]string, 0, len(info.From))
	for _, s := range info.From {
		states = append(states, string(s))
	}
	cmd := &cobra.Command{
		Use: string(info.Action) + " NODE", Short: strings.ToUpper(info.Doc[:1]) + info.Doc[1:], Args: cobra.ExactArgs(1),
		Long: strings.ToUpper(info.Doc[:1]) + info.Doc[1:] + ".\n\nFor a node that is " + strings.Join(states, ", ") + ". Repeating it when it is done, or under way, succeeds and does nothing.",
	}
	why := "why; it stands in the node's history"
	if info.Reason {
		why += " (required)"
	}
	cmd.Flags().StringVar(&reason, "reason", "", why)
	hasJob := info.Mode != "" || info.Action == lifecycle.NodeActionResume
	if info.Mode == lifecycle.ModeDrain || info.Mode == lifecycle.ModeRetire {
		cmd.Flags().IntVar(&grace, "grace", 0, "how many seconds what runs on the node may take to end")
	}
	if hasJob {
		w.add(cmd)
	}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if info.Reason && strings.TrimSpace(reason) == "" {
			return fail(ExitUsage, "say with --reason why")
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		body := map[string]any{"reason": reason}
		if grace != 0 {
			body["grace_seconds"] = grace
		}
		r, err := a.ask(cmd.Context(), "POST", "/nodes/"+url.PathEscape(id)+"/actions/"+string(info.Action), body, nil)
		if err != nil {
			return err
		}
		var got struct {
			Status  string `json:"status"`
			JobID   string `json:"job_id"`
			Message string `json:"message"`
			Effect  string `json:"effect"`
		}
		if err := r.into(&got); err != nil {
			return err
		}
		if w.on && got.JobID != "" {
			return a.watchJob(cmd.Context(), got.JobID, w)
		}
		return a.show(r.raw, func() error {
			did := "done"
			if got.Effect == "noop" {
				did = "nothing to do"
			}
			said := got.Message
			if now := "the node is " + got.Status; !strings.HasSuffix(said, now) && !strings.HasSuffix(said, now+" already") {
				said += "; " + now
			}
			_, err := fmt.Fprintf(a.Out, "%s: %s\n", did, oneLine(said))
			return err
		})
	})
	return cmd
}
