package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// allocation is an allocation as the tables show it.
type allocation struct {
	ID             string                     `json:"id"`
	Name           string                     `json:"name"`
	SKU            string                     `json:"sku"`
	Status         lifecycle.AllocationStatus `json:"status"`
	Condition      string                     `json:"condition"`
	State          string                     `json:"state"`
	Connection     *connection                `json:"connection"`
	Topology       struct{ Site, Rack, Group string }
	Image          *struct{ Name, Version string }
	Network        struct{ Kind, CIDR string }
	Tags           map[string]string `json:"tags"`
	FailureMessage string            `json:"failure_message"`
	Access         string            `json:"access"`
	CertificateID  string            `json:"certificate_id"`
	ExpiresAt      *time.Time        `json:"expires_at"`
	StartTime      *time.Time        `json:"start_time"`
	ReleasedAt     *time.Time        `json:"released_at"`
	Progress       *struct {
		Stage      string              `json:"stage"`
		StagesDone int                 `json:"stages_done"`
		Stages     int                 `json:"stages"`
		Percent    int                 `json:"percent"`
		ETA        *lifecycle.Estimate `json:"eta"`
	} `json:"progress"`
}

// login is where to log in, as ssh takes it.
func (l allocation) login() string {
	if l.Connection == nil {
		return ""
	}
	return l.Connection.User + "@" + l.Connection.Host
}

// line is what a watched allocation prints.
func (l allocation) line() string {
	text := fmt.Sprintf("%s: %s", l.ID, l.Status)
	if p := l.Progress; p != nil {
		text += fmt.Sprintf(", stage %d/%d %s, reached %d%%", min(p.StagesDone+1, p.Stages), p.Stages, orDash(p.Stage), p.Percent)
		if p.ETA != nil && p.ETA.P50 > 0 {
			text += ", about " + seconds(p.ETA.P50) + " to go"
		}
	}
	return text
}

// operatorFlag is the reason of an operator who acts on a customer's project.
type operatorFlag string

func (o *operatorFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(o), "reason", "", "why; an operator who acts on a customer's project must say it, and its owners see it")
}

func (o *operatorFlag) headers() map[string]string {
	if *o == "" {
		return nil
	}
	return map[string]string{reasonHeader: string(*o)}
}

func (a *app) allocationCommand() *cobra.Command {
	columns := []string{"id", "project_id", "sku", "status", "node_status", "hostname", "access", "release_attempts", "failure_message"}
	return group("allocation", "Allocations: nodes that projects have or have asked for",
		a.createAllocationCommand(), a.listAllocationsCommand(), a.listAllAllocationsCommand(columns), a.showAllocationCommand(), a.releaseCommand(),
		a.operatorAction("force-release", "Try a release that failed once more, for operators", columns),
		a.operatorAction("remove-assignment", "Take the node from an allocation that cannot be released, for operators; the node must be off or quarantined", columns),
	)
}

// operatorAction is a command that sends an operator's reason to an action of an allocation.
func (a *app) operatorAction(name, short string, columns []string) *cobra.Command {
	cmd := &cobra.Command{Use: name + " ALLOCATION", Short: short, Args: cobra.ExactArgs(1)}
	reason := cmd.Flags().String("reason", "", "why; the owners of the project see it")
	_ = cmd.MarkFlagRequired("reason")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		r, err := a.ask(cmd.Context(), "POST", "/admin/allocations/"+url.PathEscape(args[0])+"/"+name, map[string]any{"reason": *reason}, map[string]string{"If-Match": "*"})
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error { return a.printRows(r.raw, columns) })
	})
	return cmd
}

// inProject adds the project of a command to a path; "" leaves it to the server.
func inProject(path, project string, query url.Values) string {
	if project != "" {
		query.Set("project_id", project)
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

const projectHelp = "the project, by id (default: that of the token, or the only one that you have a role in)"

func (a *app) createAllocationCommand() *cobra.Command {
	var project, site, name string
	var tags, keys []string
	var wait, expires time.Duration
	var watch watchFlags
	var reason operatorFlag
	cmd := &cobra.Command{Use: "create SKU", Short: "Ask for a node", Args: cobra.ExactArgs(1)}
	f := cmd.Flags()
	f.StringVar(&project, "project", "", projectHelp)
	f.StringVar(&site, "site", "", "only a node of this site, by id")
	f.StringVar(&name, "name", "", "a name for it")
	f.StringArrayVar(&tags, "tag", nil, "KEY=VALUE; may be repeated")
	f.StringSliceVar(&keys, "key", nil, "an SSH key of the project that may log in, by id; may be repeated (default: all of them)")
	f.DurationVar(&wait, "wait", 0, "how long it may wait for a node, up to 24h (default: not at all)")
	f.DurationVar(&expires, "expires-in", 0, "release it by itself after so long")
	watch.add(cmd)
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		sku, err := a.offered(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		body := map[string]any{"sku_id": sku, "wait_seconds": int(wait.Seconds())}
		set(body, "site_id", site)
		set(body, "name", name)
		if len(keys) > 0 {
			body["ssh_key_ids"] = keys
		}
		if expires > 0 {
			body["expires_at"] = time.Now().Add(expires).UTC().Format(time.RFC3339)
		}
		if len(tags) > 0 {
			byKey := map[string]string{}
			for _, tag := range tags {
				key, value, ok := strings.Cut(tag, "=")
				if !ok {
					return fail(ExitUsage, "--tag must be KEY=VALUE, not %q", tag)
				}
				byKey[key] = value
			}
			body["tags"] = byKey
		}
		r, err := a.ask(cmd.Context(), "POST", inProject("/allocations", project, url.Values{}), body, reason.headers())
		if err != nil {
			return err
		}
		return a.showOrWatch(cmd.Context(), r, watch, reason, lifecycle.AllocationActive)
	})
	return cmd
}

// offered returns the id of a SKU of the catalogue, which may be given by name.
func (a *app) offered(ctx context.Context, sku string) (string, error) {
	if id, err := isID("sku_", "SKU", sku); id || err != nil {
		return sku, err
	}
	raw, err := a.listAll(ctx, "/catalogue", url.Values{}, 0)
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID  string `json:"sku_id"`
			SKU string `json:"sku"`
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", err
	}
	for _, item := range list.Data {
		if item.SKU == sku {
			return item.ID, nil
		}
	}
	return "", fail(ExitNotFound, "the catalogue has no SKU %q; slipway catalogue list shows what there is", sku)
}

// showOrWatch shows an allocation, and follows it to its end when that is wished. wanted is the
// status in which it has ended well.
func (a *app) showOrWatch(ctx context.Context, r answer, w watchFlags, reason operatorFlag, wanted lifecycle.AllocationStatus) error {
	if !w.on {
		return a.showAllocation(r)
	}
	var first allocation
	if err := r.into(&first); err != nil {
		return err
	}
	screen := screen{a: a}
	return a.followWith(ctx, "/allocations/"+url.PathEscape(first.ID), reason.headers(), w, func(r answer) (bool, error) {
		var l allocation
		if err := r.into(&l); err != nil {
			return true, err
		}
		if a.output == "table" {
			screen.line(l.line())
		}
		switch {
		case l.Status == wanted:
			return true, a.showAllocation(r)
		case lifecycle.Allocation.Terminal(l.Status), l.Status == lifecycle.AllocationReleaseFailed:
			return true, fail(ExitJobFailed, "allocation %s is %s: %s", l.ID, l.Status, orDash(oneLine(l.FailureMessage)))
		}
		return false, nil
	})
}

func (a *app) showAllocation(r answer) error {
	return a.show(r.raw, func() error {
		var l allocation
		if err := r.into(&l); err != nil {
			return err
		}
		image := ""
		if l.Image != nil {
			image = l.Image.Name + " " + l.Image.Version
		}
		progress := ""
		if l.Progress != nil {
			progress = l.line()
		}
		var tags []string
		for _, k := range slices.Sorted(maps.Keys(l.Tags)) {
			tags = append(tags, k+"="+l.Tags[k])
		}
		return a.fields("id", l.ID, "name", l.Name, "sku", l.SKU, "status", l.Status, "condition", l.Condition, "state", l.State, "login", l.login(),
			"image", image, "network", strings.TrimSpace(l.Network.Kind+" "+l.Network.CIDR), "site", l.Topology.Site, "rack", l.Topology.Rack,
			"group", l.Topology.Group, "tags", strings.Join(tags, ", "), "progress", progress, "failure", l.FailureMessage, "access", l.Access,
			"active since", when(l.StartTime), "expires", when(l.ExpiresAt), "released", when(l.ReleasedAt), "certificate", l.CertificateID)
	})
}

func (a *app) listAllocationsCommand() *cobra.Command {
	var project string
	var status, tags []string
	var reason operatorFlag
	cmd := &cobra.Command{Use: "list", Short: "List the allocations of a project, newest first", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&project, "project", "", projectHelp)
	cmd.Flags().StringSliceVar(&status, "status", nil, "only those in this status; may be repeated")
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "only those with this tag, KEY=VALUE; may be repeated")
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		query := url.Values{}
		if len(status) > 0 {
			query["status"] = status
		}
		if len(tags) > 0 {
			query["tag"] = tags
		}
		if project != "" {
			query.Set("project_id", project)
		}
		raw, err := a.listAllWith(cmd.Context(), "/allocations", query, 0, reason.headers())
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var list struct{ Data []allocation }
			if err := json.Unmarshal(raw, &list); err != nil {
				return err
			}
			t := a.table("ID", "NAME", "SKU", "STATUS", "STATE", "LOGIN", "SITE")
			for _, l := range list.Data {
				t.row(l.ID, orDash(l.Name), l.SKU, l.Status, l.State, orDash(l.login()), orDash(l.Topology.Site))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) listAllAllocationsCommand(columns []string) *cobra.Command {
	var status []string
	cmd := &cobra.Command{Use: "list-all", Short: "List the allocations of all customers, for operators", Args: cobra.NoArgs}
	cmd.Flags().StringSliceVar(&status, "status", nil, "only those in this status, such as release_failed; may be repeated")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		query := url.Values{}
		if len(status) > 0 {
			query["status"] = status
		}
		raw, err := a.listAll(cmd.Context(), "/admin/allocations", query, 0)
		if err != nil {
			return err
		}
		return a.show(raw, func() error { return a.printRows(raw, columns) })
	})
	return cmd
}

func (a *app) showAllocationCommand() *cobra.Command {
	var reason operatorFlag
	cmd := &cobra.Command{Use: "show ALLOCATION", Short: "Show an allocation", Args: cobra.ExactArgs(1)}
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		r, err := a.ask(cmd.Context(), "GET", "/allocations/"+url.PathEscape(args[0]), nil, reason.headers())
		if err != nil {
			return err
		}
		return a.showAllocation(r)
	})
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	var reason operatorFlag
	var watch watchFlags
	cmd := &cobra.Command{Use: "release ALLOCATION", Short: "Give a node back; everything on it is erased", Args: cobra.ExactArgs(1)}
	watch.add(cmd)
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		body := map[string]any{}
		set(body, "reason", string(reason))
		r, err := a.ask(cmd.Context(), "POST", "/allocations/"+url.PathEscape(args[0])+"/release", body, reason.headers())
		if err != nil {
			return err
		}
		return a.showOrWatch(cmd.Context(), r, watch, reason, lifecycle.AllocationReleased)
	})
	return cmd
}
