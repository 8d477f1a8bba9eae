package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func simulatedText(n client.Node) string {
	if n.Simulated {
		return "simulated"
	}
	return ""
}

// allowedActions lists the actions that the node's state allows, with what they need
// besides.
func allowedActions(n client.Node) string {
	out := make([]string, 0, len(n.AllowedActions))
	for _, name := range n.AllowedActions {
		if needs := n.ActionNeeds[name]; needs != "" {
			name += " (needs " + needs + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func (a *app) nodeCommand() *cobra.Command {
	cmd := group("node", "Nodes", a.nodeList(), a.nodeShow(), a.nodeHistory(), a.nodeOccupancies(), a.nodeTimeline(), a.nodeTasks(), a.nodeActionLog(), a.nodeLabel(), a.nodeDrives(), a.nodeHealth(), a.nodeInventory(), a.nodeBMCLog(), a.nodeBootstrap(), a.nodeOnboard(), a.nodeDecommission(),
		a.nodeReissueAgent(), a.nodeUpdateAgent())
	cmd.AddCommand(a.nodeActions()...)
	cmd.AddCommand(a.pxeNodeCommands()...)
	return cmd
}

func (a *app) nodeList() *cobra.Command {
	var status, lifecycle, site, hostname, q string
	var limit int
	var all bool
	cmd := &cobra.Command{Use: "list", Short: "List nodes, without deleted ones", Args: cobra.NoArgs}
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "only nodes in this state; deleted for those that are gone")
	f.BoolVar(&all, "all", false, "deleted nodes too")
	f.StringVar(&lifecycle, "lifecycle", "", "only nodes of this lifecycle: maas or pxe")
	f.StringVar(&site, "site", "", "only nodes of this site, by name or id")
	f.StringVar(&hostname, "hostname", "", "only this hostname")
	f.StringVarP(&q, "query", "q", "", "part of a hostname or serial, or a whole id, MAAS system id or MAC")
	f.IntVar(&limit, "limit", 0, "at most so many (default: all)")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		filter := client.ListNodesParams{
			Lifecycle: optional[client.ListNodesParamsLifecycle](lifecycle), Hostname: optional[string](hostname), Q: optional[string](q),
		}
		if site != "" {
			id, err := a.siteOf(cmd.Context(), site)
			if err != nil {
				return err
			}
			filter.SiteID = &id
		}
		switch {
		case status != "":
			filter.Status = []string{status}
		case !all:
			filter.ExceptStatus = new("deleted")
		}
		r, err := listAll(cmd.Context(), list(a.api.ListNodes, &filter), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListNode) error {
			t := a.table("HOSTNAME", "STATUS", "ID", "SERIAL", "SINCE", "")
			for _, n := range got.Data {
				t.row(n.Hostname, n.Status, n.ID, orDash(n.Serial), a.when(n.StateChangedAt), simulatedText(n))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) nodeShow() *cobra.Command {
	return &cobra.Command{Use: "show NODE", Short: "Show a node, by hostname or id", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.GetNode(cmd.Context(), id)
		if err != nil {
			return err
		}
		return show(a, r, func(n client.Node) error {
			siteName, profileName, skuName := a.namesOf(cmd.Context(), n)
			pairs := []any{
				"hostname", n.Hostname, "id", n.ID, "status", n.Status + ", " + a.when(n.StateChangedAt), "simulated", simulatedText(n), "site", siteName,
				"profile", profileName, "sku", skuName, "serial", n.Serial, "maas system", n.MaasSystemID, "addresses", a.addressesOf(n),
				"labels", labelsOf(n), "bmc", n.BmcID, "live job", n.LiveJobID,
				"allowed now", allowedActions(n), "decommission modes", strings.Join(n.AllowedDecommissions, ", "),
			}
			if n.Pxe != nil {
				pairs = append(pairs, pxeFields(n, a.workflowNames(cmd.Context()), a.when)...)
			}
			if n.Agent != nil {
				health := "meets the SKU"
				if len(n.Agent.Unhealthy) > 0 {
					health = strings.Join(n.Agent.Unhealthy, "; ")
				}
				pairs = append(pairs, "agent", fmt.Sprintf("%s, last heard %s", n.Agent.Version, a.when(n.Agent.LastHeartbeatAt)), "health", health)
			}
			return a.fields(pairs...)
		})
	})}
}

// addressesOf returns the addresses of a node, who named them, and since when.
func (a *app) addressesOf(n client.Node) string {
	text := strings.Join(n.IPAddresses, ", ")
	if n.IPAddressesSource != "" {
		text += fmt.Sprintf(" (%s, %s)", n.IPAddressesSource, a.when(n.IPAddressesAt))
	}
	return text
}

// namesOf returns the names and ids of what a node belongs to.
func (a *app) namesOf(ctx context.Context, n client.Node) (site, profile, sku string) {
	site = nameOf(n.SiteID, func() (client.Answer[client.Site], error) { return a.api.GetSite(ctx, n.SiteID) })
	profile = nameOf(n.ProfileID, func() (client.Answer[client.Profile], error) { return a.api.GetProfile(ctx, n.SiteID, n.ProfileID) })
	sku = nameOf(n.SkuID, func() (client.Answer[client.SKU], error) { return a.api.GetSku(ctx, n.SkuID) })
	return site, profile, sku
}

func (a *app) nodeHistory() *cobra.Command {
	var limit, offset int
	cmd := &cobra.Command{Use: "history NODE", Short: "List a node's state transitions, newest first", Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many")
	cmd.Flags().IntVar(&offset, "offset", 0, "pass over so many")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.NodeHistory(cmd.Context(), id, &client.NodeHistoryParams{Limit: new(int64(limit)), Offset: new(int64(offset))})
		if err != nil {
			return err
		}
		return show(a, r, func(got client.History) error {
			t := a.table("AT", "FROM", "TO", "BY", "WHO", "COMMENT")
			for _, h := range got.Data {
				t.row(a.when(h.CreatedAt), orDash(h.FromState), h.ToState, h.TriggeredBy, orDash(h.UserID), h.Comment)
			}
			if err := t.flush(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.Out, "%d of %d\n", len(got.Data), got.Total)
			return err
		})
	})
	return cmd
}

func (a *app) nodeTimeline() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "timeline NODE", Short: "List everything that happened to a node and its jobs, newest first", Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), listBelow(a.api.NodeTimeline, id, nil), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListTimelineEntry) error {
			t := a.table("AT", "OF", "KIND", "NAME", "CHANGE", "OUTCOME", "BY", "COMMENT")
			for _, e := range got.Data {
				facts, _ := e.Metadata.(map[string]any)
				text := func(name string) string { s, _ := facts[name].(string); return s }
				outcome := text("outcome")
				change := "-"
				switch {
				case e.Kind == "call" && e.FromState == "" && outcome == "":
					outcome = e.ToState // of a login: its outcome
				case e.ToState != "":
					change = orDash(e.FromState) + " -> " + e.ToState
				}
				if e.Comment == "" {
					e.Comment = text("note")
				}
				outcome = orDash(timelineOutcome(facts, outcome))
				if len(outcome) > maxOutcome { // one long line would make the column wide in all
					outcome, e.Comment = "see comment", strings.TrimSpace(outcome+" "+e.Comment)
				}
				by := e.Owner
				if e.Actor != "" {
					by += " " + e.Actor
				}
				t.row(a.when(e.At), e.ResourceKind, e.Kind, e.Name, change, outcome, by, e.Comment)
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) nodeLabel() *cobra.Command {
	return &cobra.Command{
		Use: "label NODE KEY=VALUE|KEY- ...", Short: "Set labels of a node; KEY- removes one", Args: cobra.MinimumNArgs(2),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			id, err := a.nodeOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			labels := map[string]*string{}
			for _, l := range args[1:] {
				if k, v, ok := strings.Cut(l, "="); ok {
					labels[k] = &v
				} else if k, ok := strings.CutSuffix(l, "-"); ok {
					labels[k] = nil
				} else {
					return fail(ExitUsage, "%q must be KEY=VALUE or KEY-", l)
				}
			}
			r, err := a.api.UpdateNode(cmd.Context(), id, client.NodePatch{Labels: &labels}, client.IfMatch("*"))
			if err != nil {
				return err
			}
			return a.sayNode(r, func(n client.Node) string { return "labels of " + n.Hostname + ": " + orDash(labelsOf(n)) })
		}),
	}
}

// sayNode says in a sentence what an answer that is a node means.
func (a *app) sayNode(r client.Answer[client.Node], say func(client.Node) string) error {
	return show(a, r, func(n client.Node) error {
		_, err := fmt.Fprintln(a.Out, oneLine(say(n)))
		return err
	})
}

// labelsOf lists a node's labels in one order.
func labelsOf(n client.Node) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		out = append(out, k+"="+n.Labels[k])
	}
	return strings.Join(out, ", ")
}

func (a *app) nodeBootstrap() *cobra.Command {
	var t target
	var dir, again string
	cmd := &cobra.Command{
		Use: "bootstrap", Short: "Create a node that you install yourself, without MAAS, and get what goes onto it", Args: cobra.NoArgs,
		Long: "The enrolment token is shown once. With --out it is written into a folder, readable by you only, instead.",
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&dir, "out", "", "folder to write token and agent.yaml into")
	cmd.Flags().StringVar(&again, "reissue", "", "a node created before, by hostname or id: issue a new token for it")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		r, err := a.bootstrap(cmd.Context(), t, again)
		b, err := client.Value(r, err)
		if err != nil {
			return err
		}
		if dir != "" {
			if err := writeBundle(b, dir); err != nil {
				return err
			}
			b.Token = "written to " + filepath.Join(dir, "token")
		}
		return a.show(r.Raw, func() error {
			err := a.fields("node", b.Node.ID, "hostname", b.Node.Hostname, "job", b.JobID, "token", orShownOnce(b.Token), "expires", a.when(b.TokenExpiresAt),
				"token goes to", b.TokenPath, "config goes to", b.ConfigPath)
			if err == nil && dir == "" {
				_, err = fmt.Fprintf(a.Out, "\n%s\n", strings.TrimSpace(b.AgentConfig))
			}
			if err == nil {
				_, err = fmt.Fprintf(a.Out, "\n%s\n", b.Next)
			}
			return err
		})
	})
	return cmd
}

// bootstrap creates a node, or asks for a new token of the node again.
func (a *app) bootstrap(ctx context.Context, t target, again string) (client.Answer[client.Bundle], error) {
	if again != "" {
		id, err := a.nodeOf(ctx, again)
		if err != nil {
			return client.Answer[client.Bundle]{}, err
		}
		return a.api.ReissueBootstrap(ctx, id)
	}
	body, err := t.resolve(ctx, a)
	if err != nil {
		return client.Answer[client.Bundle]{}, err
	}
	return a.api.CreateNode(ctx, body)
}

func orShownOnce(token string) string {
	if token == "" {
		return "was shown once; issue a new one with --reissue"
	}
	return token
}

func writeBundle(b client.Bundle, dir string) error {
	if b.Token == "" {
		return fail(ExitRefused, "the token was shown once already; issue a new one with --reissue %s", strconv.Quote(b.Node.Hostname))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{"token": b.Token + "\n", "agent.yaml": b.AgentConfig} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// maxOutcome is the longest outcome that stands in a column of its own, in bytes.
const maxOutcome = 60

// timelineOutcome says in a few words how a row of the timeline ended, "" where its facts do not
// say. The facts of other rows may have these names with other types.
func timelineOutcome(facts map[string]any, outcome string) string {
	text := func(name string) string { s, _ := facts[name].(string); return s }
	var says []string
	ok, isBool := facts["ok"].(bool)
	switch {
	case text("refused") != "":
		says = append(says, "refused: "+text("refused"))
	case outcome != "":
		says = append(says, outcome)
	case ok:
		says = append(says, "ok")
	case isBool:
		says = append(says, "failed")
	}
	for _, more := range []string{text("code"), text("failure_class")} {
		if more != "" {
			says = append(says, more)
		}
	}
	if took, _ := facts["took_ms"].(float64); took > 0 {
		says = append(says, "in "+time.Duration(took*float64(time.Millisecond)).String())
	}
	return strings.Join(says, ", ")
}
