package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
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

// nodeOperation asks something of a node.
type nodeOperation func(ctx context.Context, id string, body client.NodeActionRequest, options ...client.Option) (client.Answer[client.NodeActionAnswer], error)

// actOnNode returns the operation of an action.
func (a *app) actOnNode(action lifecycle.NodeAction) nodeOperation {
	switch action {
	case lifecycle.NodeActionDrain:
		return a.api.DrainNode
	case lifecycle.NodeActionRetire:
		return a.api.RetireNode
	case lifecycle.NodeActionReactivate:
		return a.api.ReactivateNode
	case lifecycle.NodeActionQuarantine:
		return a.api.QuarantineNode
	case lifecycle.NodeActionUnquarantine:
		return a.api.UnquarantineNode
	case lifecycle.NodeActionRemove:
		return a.api.RemoveNode
	case lifecycle.NodeActionResume:
		return a.api.ResumeNode
	}
	return func(context.Context, string, client.NodeActionRequest, ...client.Option) (client.Answer[client.NodeActionAnswer], error) {
		return client.Answer[client.NodeActionAnswer]{}, fmt.Errorf("the API has no action %q", action)
	}
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
		r, err := a.actOnNode(info.Action)(cmd.Context(), id, client.NodeActionRequest{Reason: &reason, GraceSeconds: graceSeconds(grace)})
		if err != nil {
			return err
		}
		got, err := r.Decode()
		if err != nil {
			return err
		}
		if w.on && got.JobID != "" {
			return a.watchJob(cmd.Context(), got.JobID, w)
		}
		return a.show(r.Raw, func() error {
			did := "done"
			if got.Effect == client.NodeActionAnswerEffectNoop {
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
