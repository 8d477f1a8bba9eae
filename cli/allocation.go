package cli

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// loginOf is where to log in; slipway ssh needs the id alone.
func loginOf(l client.Allocation) string {
	switch {
	case l.Connection == nil:
		return ""
	case l.Connection.Port == sshPort:
		return l.Connection.User + "@" + l.Connection.Host
	}
	return fmt.Sprintf("%s@%s, port %d", l.Connection.User, l.Connection.Host, l.Connection.Port)
}

// allocationMoves reports whether an allocation changes its status by itself.
func allocationMoves(l client.Allocation) bool {
	switch lifecycle.AllocationStatus(l.Status) {
	case lifecycle.AllocationRequested, lifecycle.AllocationProvisioning, lifecycle.AllocationReleasing:
		return true
	case lifecycle.AllocationActive, lifecycle.AllocationReleased, lifecycle.AllocationFailed, lifecycle.AllocationReleaseFailed:
	}
	return false
}

// allocationProgress is how far its job is, "" without one.
func allocationProgress(l client.Allocation) string {
	p := l.Progress
	if p == nil {
		return ""
	}
	if p.Stage == "" {
		return "not started"
	}
	return fmt.Sprintf("%d/%d %s %d%%", min(p.StagesDone+1, p.Stages), p.Stages, p.Stage, p.Percent) + allocationRemaining(l)
}

// allocationRemaining is how long the job will take, "" where that is not known.
func allocationRemaining(l client.Allocation) string {
	if l.Progress.Eta == nil || l.Progress.Eta.P50Seconds <= 0 {
		return ""
	}
	return ", " + seconds(l.Progress.Eta.P50Seconds) + " left"
}

// allocationLine is what a watched allocation prints.
func allocationLine(l client.Allocation) string {
	text := fmt.Sprintf("%s: %s", l.ID, l.Status)
	if p := allocationProgress(l); p != "" {
		text += ", " + p
	}
	return text
}

// projectFlag is the project of allocations.
type projectFlag string

func (p *projectFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(p), "project", "", "the project of the allocation, where it is given by name "+
		"(default: SLIPWAY_PROJECT, or that of slipway use, or all that you have a role in)")
}

// allocationOf returns the id of an allocation. A name is looked up in one project, where one is
// chosen; an operator has to choose one, since the names are those of the customer.
func (a *app) allocationOf(ctx context.Context, text string, project projectFlag, because client.Option) (string, error) {
	k := allocationKind()
	form, err := k.shapeOf(text)
	if err != nil || form == asWholeID {
		return text, err
	}
	flag := string(project)
	in := ""
	if form == asName {
		in, err = a.projectOr(ctx, flag)
	} else {
		in, err = a.optionalProject(ctx, flag)
	}
	if err != nil {
		return "", err
	}
	if form == asName && in == "" {
		operator, err := a.isOperator(ctx)
		if err != nil {
			return "", err
		}
		if operator {
			return "", fail(ExitUsage, "give the id of the allocation, or --project with its name %q: names of allocations belong to the customer", text)
		}
	}
	return a.resolve(ctx, k, inThe(in, because), text)
}

// operatorFlag is the reason of an operator who acts on a customer's project.
type operatorFlag string

func (o *operatorFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(o), "reason", "", "why; an operator who acts on a customer's project must say it, and its owners see it")
}

func (o *operatorFlag) because() client.Option { return client.Because(string(*o)) }

func (a *app) allocationCommand() *cobra.Command {
	listed := []string{"id", "project_id", "sku", "status", "hostname", "node_status", "access", "release_attempts", "failure_message"}
	columns := append(slices.Clone(listed), "job_id", "job_status")
	return group("allocation", "Allocations: nodes that projects have or have asked for",
		a.createAllocationCommand(), a.listAllocationsCommand(), a.listAllAllocationsCommand(listed), a.showAllocationCommand(), a.setKeysCommand(), a.releaseCommand(),
		operatorAction(a, "force-release", "Try a release that failed once more, for operators", columns,
			func(ctx context.Context, id string, body client.ReasonRequest) (client.Answer[client.AdminAllocation], error) {
				return a.api.ForceRelease(ctx, id, body, client.IfMatch("*"))
			}),
		operatorAction(a, "remove-assignment", "Take the node from an allocation that cannot be released, for operators; the node must be off or quarantined", columns,
			func(ctx context.Context, id string, body client.ReasonRequest) (client.Answer[client.AdminAllocation], error) {
				return a.api.RemoveAssignment(ctx, id, body, client.IfMatch("*"))
			}),
	)
}

// operatorAction is a command that sends an operator's reason to an action of an allocation.
func operatorAction[T any](a *app, name, short string, columns []string, act func(ctx context.Context, id string, body client.ReasonRequest) (client.Answer[T], error)) *cobra.Command {
	cmd := &cobra.Command{Use: name + " ALLOCATION", Short: short, Args: cobra.ExactArgs(1)}
	reason := cmd.Flags().String("reason", "", "why; the owners of the project see it")
	_ = cmd.MarkFlagRequired("reason")
	var project projectFlag
	project.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.allocationOf(cmd.Context(), args[0], project, client.Because(*reason))
		if err != nil {
			return err
		}
		r, err := act(cmd.Context(), id, client.ReasonRequest{Reason: *reason})
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, columns)
	})
	return cmd
}

const projectHelp = "the project, by name or id (default: SLIPWAY_PROJECT, or that of slipway use, of the token, or the only one that you are a member of)"

func (a *app) createAllocationCommand() *cobra.Command {
	var project, site, name string
	var tags, keys []string
	var wait, expires time.Duration
	var maxSpend string
	var dry bool
	var watch watchFlags
	var reason operatorFlag
	cmd := &cobra.Command{Use: "create SKU", Short: "Ask for a node", Args: cobra.ExactArgs(1)}
	f := cmd.Flags()
	f.StringVar(&project, "project", "", projectHelp)
	f.StringVar(&site, "site", "", "only a node of this site, by id")
	f.StringVar(&name, "name", "", "a name for it")
	f.StringArrayVar(&tags, "tag", nil, "KEY=VALUE; may be repeated")
	f.StringSliceVar(&keys, "key", nil, "an SSH key of the project that may log in, by name or id; may be repeated (default: all of them, with --project or a token of the project)")
	f.DurationVar(&wait, "wait", 0, "how long it may wait for a node, up to 24h (default: not at all)")
	f.StringVar(&maxSpend, "max-spend", "", "release it when it has cost this, as 50.00 in the currency of the billing account")
	f.BoolVar(&dry, "dry-run", false, "show what it would cost and hold back, and why it would be refused (exit code 4), and request nothing")
	f.DurationVar(&expires, "expires-in", 0, "release it by itself after so long")
	watch.add(cmd)
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if err := checkDurations(cmd, wait, expires); err != nil {
			return err
		}
		if dry && watch.on {
			return fail(ExitUsage, "--dry-run requests nothing that could be watched; leave --watch out")
		}
		sku, err := a.resolve(cmd.Context(), offerKind(), lookup{}, args[0])
		if err != nil {
			return err
		}
		body := client.AllocationRequest{
			SkuID: sku, WaitSeconds: new(int64(math.Ceil(wait.Seconds()))), SiteID: optional[string](site), Name: optional[string](name),
		}
		project, err := a.projectOr(cmd.Context(), project)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			ids, err := a.keysOf(cmd.Context(), keys, reason.because(), func() (string, error) { return a.projectOrOwn(cmd.Context(), project) })
			if err != nil {
				return err
			}
			body.SSHKeyIds = &ids
		}
		if expires > 0 {
			body.ExpiresAt = new(time.Now().Add(expires).UTC().Truncate(time.Second))
		}
		if len(tags) > 0 {
			pairs, err := tagsOf(tags)
			if err != nil {
				return err
			}
			body.Tags = &pairs
		}
		plan := client.PlanOwnAllocationParams{ProjectID: optional[string](project)}
		if cmd.Flags().Changed("max-spend") { // the server says in which currency
			p, err := client.Value(a.api.PlanOwnAllocation(cmd.Context(), &plan, body, reason.because()))
			if err != nil {
				return err
			}
			limit, err := currency{p.Currency, int(p.Exponent)}.parseAmount("--max-spend", maxSpend)
			if err != nil {
				return err
			}
			body.MaxSpendMinor = &limit
		}
		if dry {
			r, err := a.api.PlanOwnAllocation(cmd.Context(), &plan, body, reason.because())
			if err != nil {
				return err
			}
			return a.showAllocationPlan(r)
		}
		in := client.CreateOwnAllocationParams{ProjectID: optional[string](project)}
		r, err := a.api.CreateOwnAllocation(cmd.Context(), &in, body, reason.because())
		if err != nil {
			return err
		}
		return a.showOrWatch(cmd.Context(), r, watch, reason, lifecycle.AllocationActive)
	})
	return cmd
}

// maxWait is how long a request may wait for a node.
const maxWait = 24 * time.Hour

// checkDurations refuses what the server would not be told.
func checkDurations(cmd *cobra.Command, wait, expires time.Duration) error {
	switch {
	case wait < 0:
		return fail(ExitUsage, "--wait must not be negative, such as 30m; without it nothing waits")
	case wait > maxWait:
		return fail(ExitUsage, "--wait must be at most 24h, such as 30m")
	case cmd.Flags().Changed("expires-in") && expires <= 0:
		return fail(ExitUsage, "--expires-in must be more than 0, such as 8h; without it nothing expires")
	}
	return nil
}

// tagsOf reads KEY=VALUE pairs.
func tagsOf(tags []string) (map[string]string, error) {
	out := map[string]string{}
	for _, tag := range tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, fail(ExitUsage, "--tag must be KEY=VALUE, not %q", tag)
		}
		if _, twice := out[key]; twice {
			return nil, fail(ExitUsage, "--tag names the key %q twice", key)
		}
		out[key] = value
	}
	return out, nil
}

// showOrWatch shows an allocation, and follows it to its end when that is wished. wanted is the
// status in which it has ended well; "" is every one in which it stays.
func (a *app) showOrWatch(ctx context.Context, r client.Answer[client.Allocation], w watchFlags, reason operatorFlag, wanted lifecycle.AllocationStatus) error {
	if !w.on {
		return a.showAllocation(r)
	}
	first, err := r.Decode()
	if err != nil {
		return err
	}
	screen := screen{a: a}
	read := func(ctx context.Context) (client.Answer[client.Allocation], error) {
		return a.api.GetOwnAllocation(ctx, first.ID, reason.because())
	}
	return follow(ctx, read, w, func(r client.Answer[client.Allocation], l client.Allocation) (bool, error) {
		status := lifecycle.AllocationStatus(l.Status)
		if a.output == "table" {
			screen.line(allocationLine(l))
		}
		switch {
		case status == wanted, wanted == "" && status == lifecycle.AllocationActive, wanted == "" && status == lifecycle.AllocationReleased:
			return true, a.showAllocation(r)
		case wanted != "" && status == lifecycle.AllocationReleaseFailed && l.Version == first.Version:
			return false, nil // its job was asked for another try, and has not begun it yet
		case lifecycle.Allocation.Terminal(status), status == lifecycle.AllocationReleaseFailed:
			return true, fail(ExitJobFailed, "allocation %s is %s: %s", l.ID, l.Status, orDash(oneLine(l.FailureMessage)))
		}
		return false, nil
	})
}

func (a *app) showAllocation(r client.Answer[client.Allocation]) error {
	return show(a, r, func(l client.Allocation) error {
		image := ""
		if l.Image != nil {
			image = l.Image.Name + " " + l.Image.Version
		}
		var tags, keys, withdrawn []string
		for _, k := range slices.Sorted(maps.Keys(l.Tags)) {
			tags = append(tags, k+"="+l.Tags[k])
		}
		for _, k := range l.SSHKeys {
			switch {
			case k.WithdrawnAt.IsZero():
				keys = append(keys, k.Fingerprint)
			case k.RefusedAt.IsZero():
				withdrawn = append(withdrawn, k.Fingerprint)
			}
		}
		condition := l.Condition
		if lifecycle.AllocationStatus(l.Status) != lifecycle.AllocationActive {
			condition = ""
		}
		waits := ""
		if lifecycle.AllocationStatus(l.Status) == lifecycle.AllocationRequested {
			waits = a.when(l.QueueDeadlineAt)
		}
		rate, soFar := costText(l)
		return a.fields("id", l.ID, "name", l.Name, "sku", l.Sku, "status", l.Status, "condition", condition, "state", l.State, "progress", allocationProgress(l),
			"price", rate, "cost so far", soFar, "login", loginOf(l), "keys", strings.Join(keys, ", "), "withdrawn, not proven", strings.Join(withdrawn, ", "), "image", image, "network", strings.TrimSpace(l.Network.Kind+" "+l.Network.Cidr),
			"site", l.Topology.Site, "rack", l.Topology.Rack, "group", l.Topology.Group, "tags", strings.Join(tags, ", "), "failure", l.FailureMessage,
			"waits until", waits, "active since", a.when(l.StartTime), "expires", a.when(l.ExpiresAt), "released", a.when(l.ReleasedAt), "outcome", l.Outcome,
			"access", l.Access, "certificate", l.CertificateID)
	})
}

func (a *app) showAllocationCommand() *cobra.Command {
	var reason operatorFlag
	var project projectFlag
	var watch watchFlags
	cmd := &cobra.Command{Use: "show ALLOCATION", Short: "Show an allocation", Args: cobra.ExactArgs(1)}
	watch.add(cmd)
	reason.add(cmd)
	project.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.allocationOf(cmd.Context(), args[0], project, reason.because())
		if err != nil {
			return err
		}
		r, err := a.api.GetOwnAllocation(cmd.Context(), id, reason.because())
		if err != nil {
			return err
		}
		return a.showOrWatch(cmd.Context(), r, watch, reason, "")
	})
	return cmd
}

func (a *app) setKeysCommand() *cobra.Command {
	var keys []string
	var reason operatorFlag
	var project projectFlag
	cmd := &cobra.Command{Use: "set-keys ALLOCATION", Short: "Replace the keys that may log in; all others are withdrawn", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringSliceVar(&keys, "key", nil, "an SSH key of the project that may log in, by name or id; may be repeated")
	_ = cmd.MarkFlagRequired("key")
	reason.add(cmd)
	project.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.allocationOf(cmd.Context(), args[0], project, reason.because())
		if err != nil {
			return err
		}
		ids, err := a.keysOf(cmd.Context(), keys, reason.because(), func() (string, error) {
			l, err := client.Value(a.api.GetOwnAllocation(cmd.Context(), id, reason.because()))
			return l.ProjectID, err
		})
		if err != nil {
			return err
		}
		r, err := a.api.SetOwnAllocationKeys(cmd.Context(), id, client.AllocationKeysRequest{SSHKeyIds: ids}, reason.because())
		if err != nil {
			return err
		}
		return a.showAllocation(r)
	})
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	var reason operatorFlag
	var project projectFlag
	var watch watchFlags
	cmd := &cobra.Command{Use: "release ALLOCATION", Short: "Give a node back; everything on it is erased", Args: cobra.ExactArgs(1)}
	watch.add(cmd)
	reason.add(cmd)
	project.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.allocationOf(cmd.Context(), args[0], project, reason.because())
		if err != nil {
			return err
		}
		r, err := a.api.ReleaseOwnAllocation(cmd.Context(), id, client.ReleaseRequest{Reason: string(reason)}, reason.because())
		if err != nil {
			return err
		}
		return a.showOrWatch(cmd.Context(), r, watch, reason, lifecycle.AllocationReleased)
	})
	return cmd
}
