package cli

import (
	"context"
	"encoding/json"
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

// node is what the tables show of one.
type node struct {
	ID             string            `json:"id"`
	Hostname       string            `json:"hostname"`
	Status         string            `json:"status"`
	SiteID         string            `json:"site_id"`
	ProfileID      string            `json:"profile_id"`
	SKUID          string            `json:"sku_id"`
	Serial         string            `json:"serial"`
	MAASSystemID   string            `json:"maas_system_id"`
	IPAddresses    []string          `json:"ip_addresses"`
	Simulated      bool              `json:"simulated"`
	Labels         map[string]string `json:"labels"`
	StateChangedAt *time.Time        `json:"state_changed_at"`
	AllowedActions []string          `json:"allowed_actions"`
	ActionNeeds    map[string]string `json:"action_needs"`
	AllowedModes   []string          `json:"allowed_decommissions"`
	LiveJobID      string            `json:"live_job_id"`
	BMCID          string            `json:"bmc_id"`

	InstallAttempts  int    `json:"install_attempts"`
	LastInstallError string `json:"last_install_error"`
	PXE              *pxe   `json:"pxe"`

	Agent *struct {
		LastHeartbeatAt *time.Time `json:"last_heartbeat_at"`
		Version         string     `json:"version"`
		Unhealthy       []string   `json:"unhealthy"`
	} `json:"agent"`
}

func (n node) simulated() string {
	if n.Simulated {
		return "simulated"
	}
	return ""
}

// allowed lists the actions that the node's state allows, with what they need
// besides.
func (n node) allowed() string {
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
		raw, err := a.listAll(cmd.Context(), list(a.api.ListNodes, &filter), limit)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct{ Data []node }
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("HOSTNAME", "STATUS", "ID", "SERIAL", "SINCE", "")
			for _, n := range got.Data {
				t.row(n.Hostname, n.Status, n.ID, orDash(n.Serial), a.when(n.StateChangedAt), n.simulated())
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
		r, err := untyped(a.api.GetNode(cmd.Context(), id))
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error {
			var n node
			if err := r.into(&n); err != nil {
				return err
			}
			siteName, profileName, skuName := a.namesOf(cmd.Context(), n)
			pairs := []any{
				"hostname", n.Hostname, "id", n.ID, "status", n.Status + ", " + a.when(n.StateChangedAt), "simulated", n.simulated(), "site", siteName,
				"profile", profileName, "sku", skuName, "serial", n.Serial, "maas system", n.MAASSystemID, "addresses", strings.Join(n.IPAddresses, ", "),
				"labels", n.labels(), "bmc", n.BMCID, "live job", n.LiveJobID,
				"allowed now", n.allowed(), "decommission modes", strings.Join(n.AllowedModes, ", "),
			}
			if n.PXE != nil {
				pairs = append(pairs, n.pxeFields(a.workflowNames(cmd.Context()), a.when)...)
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

// namesOf returns the names and ids of what a node belongs to.
func (a *app) namesOf(ctx context.Context, n node) (site, profile, sku string) {
	site = nameOf(ctx, func(ctx context.Context, id string) (answer, error) { return untyped(a.api.GetSite(ctx, id)) }, n.SiteID)
	profile = nameOf(ctx, func(ctx context.Context, id string) (answer, error) {
		return untyped(a.api.GetProfile(ctx, n.SiteID, id))
	}, n.ProfileID)
	sku = nameOf(ctx, func(ctx context.Context, id string) (answer, error) { return untyped(a.api.GetSku(ctx, id)) }, n.SKUID)
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
		r, err := untyped(a.api.NodeHistory(cmd.Context(), id, &client.NodeHistoryParams{Limit: new(int64(limit)), Offset: new(int64(offset))}))
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error {
			var got struct {
				Data []struct {
					FromState   string     `json:"from_state"`
					ToState     string     `json:"to_state"`
					TriggeredBy string     `json:"triggered_by"`
					UserID      string     `json:"user_id"`
					Comment     string     `json:"comment"`
					CreatedAt   *time.Time `json:"created_at"`
				}
				Total int
			}
			if err := r.into(&got); err != nil {
				return err
			}
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
		raw, err := a.listAll(cmd.Context(), listBelow(a.api.NodeTimeline, id, nil), limit)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct {
				Data []struct {
					At           *time.Time
					ResourceKind string `json:"resource_kind"`
					Kind, Name   string
					FromState    string `json:"from_state"`
					ToState      string `json:"to_state"`
					Owner, Actor string
					Comment      string
					Metadata     timelineFacts
				}
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("AT", "OF", "KIND", "NAME", "CHANGE", "OUTCOME", "BY", "COMMENT")
			for _, e := range got.Data {
				change := "-"
				switch {
				case e.Kind == "call" && e.FromState == "" && e.Metadata.Outcome == "":
					e.Metadata.Outcome = e.ToState // of a login: its outcome
				case e.ToState != "":
					change = orDash(e.FromState) + " -> " + e.ToState
				}
				if e.Comment == "" {
					e.Comment = e.Metadata.Note
				}
				outcome := orDash(e.Metadata.outcome())
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
			r, err := untyped(a.api.UpdateNode(cmd.Context(), id, client.NodePatch{Labels: &labels}, client.IfMatch("*")))
			if err != nil {
				return err
			}
			return a.sayNode(r, func(n node) string { return "labels of " + n.Hostname + ": " + orDash(n.labels()) })
		}),
	}
}

// sayNode says in a sentence what an answer that is a node means.
func (a *app) sayNode(r answer, say func(node) string) error {
	return a.show(r.raw, func() error {
		var n node
		if err := r.into(&n); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.Out, oneLine(say(n)))
		return err
	})
}

// labels lists a node's labels in one order.
func (n node) labels() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		out = append(out, k+"="+n.Labels[k])
	}
	return strings.Join(out, ", ")
}

// bundle is what an operator puts on a node.
type bundle struct {
	Node           node
	JobID          string     `json:"job_id"`
	Token          string     `json:"token"`
	TokenPath      string     `json:"token_path"`
	TokenExpiresAt *time.Time `json:"token_expires_at"`
	AgentConfig    string     `json:"agent_config"`
	ConfigPath     string     `json:"config_path"`
	Next           string     `json:"next"`
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
		if err != nil {
			return err
		}
		var b bundle
		if err := r.into(&b); err != nil {
			return err
		}
		if dir != "" {
			if err := b.write(dir); err != nil {
				return err
			}
			b.Token = "written to " + filepath.Join(dir, "token")
		}
		return a.show(r.raw, func() error {
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
func (a *app) bootstrap(ctx context.Context, t target, again string) (answer, error) {
	if again != "" {
		id, err := a.nodeOf(ctx, again)
		if err != nil {
			return answer{}, err
		}
		return untyped(a.api.ReissueBootstrap(ctx, id))
	}
	body, err := t.resolve(ctx, a)
	if err != nil {
		return answer{}, err
	}
	return untyped(a.api.CreateNode(ctx, body))
}

func orShownOnce(token string) string {
	if token == "" {
		return "was shown once; issue a new one with --reissue"
	}
	return token
}

func (b bundle) write(dir string) error {
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

// timelineFacts is what a row of the timeline says of how it ended.
type timelineFacts struct {
	OK           *bool   `json:"ok"`
	Code         string  `json:"code"`
	Outcome      string  `json:"outcome"`
	Refused      string  `json:"refused"`
	FailureClass string  `json:"failure_class"`
	Note         string  `json:"note"`
	TookMS       float64 `json:"took_ms"`
}

// UnmarshalJSON takes what it knows: the metadata of other rows has other fields, and may have these
// with other types.
func (f *timelineFacts) UnmarshalJSON(raw []byte) error {
	var known map[string]json.RawMessage
	if json.Unmarshal(raw, &known) != nil {
		return nil
	}
	for name, into := range map[string]any{
		"ok": &f.OK, "code": &f.Code, "outcome": &f.Outcome, "refused": &f.Refused, "failure_class": &f.FailureClass, "note": &f.Note, "took_ms": &f.TookMS,
	} {
		if value, ok := known[name]; ok {
			_ = json.Unmarshal(value, into) // a field of another type is none of these facts
		}
	}
	return nil
}

// outcome says in a few words how it ended, "" where the row does not say.
func (f timelineFacts) outcome() string {
	var says []string
	switch {
	case f.Refused != "":
		says = append(says, "refused: "+f.Refused)
	case f.Outcome != "":
		says = append(says, f.Outcome)
	case f.OK != nil && *f.OK:
		says = append(says, "ok")
	case f.OK != nil:
		says = append(says, "failed")
	}
	for _, more := range []string{f.Code, f.FailureClass} {
		if more != "" {
			says = append(says, more)
		}
	}
	if f.TookMS > 0 {
		says = append(says, "in "+time.Duration(f.TookMS*float64(time.Millisecond)).String())
	}
	return strings.Join(says, ", ")
}
