package cli

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// modes are the names of the modes that a decommission is started with.
func modes() []string {
	var out []string
	for _, m := range lifecycle.DecommissionModes() {
		if !m.Operation {
			out = append(out, string(m.Mode))
		}
	}
	return out
}

// decommissionFlags are how a decommission is asked for.
type decommissionFlags struct {
	mode, reason string
	grace        int
	planOnly     bool
	yes          bool
	watch        watchFlags
}

func (f decommissionFlags) check() error {
	switch {
	case !slices.Contains(modes(), f.mode):
		return fail(ExitUsage, "--mode must be one of %s", strings.Join(modes(), ", "))
	case f.planOnly && (f.yes || f.watch.on):
		return fail(ExitUsage, "--plan starts nothing; leave --yes and --watch out")
	}
	return nil
}

// graceSeconds is nil where nothing was said of it.
func graceSeconds(grace int) *int64 {
	if grace == 0 {
		return nil
	}
	return new(int64(grace))
}

func (a *app) nodeDecommission() *cobra.Command {
	var f decommissionFlags
	var about strings.Builder
	for _, m := range lifecycle.DecommissionModes() {
		if !m.Operation {
			fmt.Fprintf(&about, "  %s: %s\n", m.Mode, m.Doc)
		}
	}
	cmd := &cobra.Command{
		Use: "decommission NODE", Short: "Clean a node, deploy it again, or take it out of service for good", Args: cobra.ExactArgs(1),
		Long: "Shows what would be done, stage by stage, asks, and starts exactly that: should the plan no longer be true by then, nothing is started.\n\n" +
			"Modes:\n" + about.String(),
		Example: "  slipway node decommission gpu-1 --mode soft_reset --plan\n  slipway node decommission gpu-1 --mode full_decommission --reason 'end of lease' --yes --watch",
	}
	fl := cmd.Flags()
	fl.StringVar(&f.mode, "mode", "", strings.Join(modes(), ", "))
	fl.StringVar(&f.reason, "reason", "", "why; it stands in the node's history")
	fl.IntVar(&f.grace, "grace", 0, "how many seconds what runs on the node may take to end")
	fl.BoolVar(&f.planOnly, "plan", false, "show the plan and start nothing")
	fl.BoolVarP(&f.yes, "yes", "y", false, "start without asking")
	f.watch.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.decommission(cmd.Context(), id, args[0], f)
	})
	return cmd
}

// decommission shows the plan, asks, and starts with its hash.
func (a *app) decommission(ctx context.Context, node, name string, f decommissionFlags) error {
	key := a.key
	a.key = "" // it is the start's; the plan is another request
	r, err := a.api.PlanNewDecommission(ctx, client.DecommissionPlanRequest{
		NodeID: node, Mode: client.DecommissionPlanRequestMode(f.mode), GraceSeconds: graceSeconds(f.grace),
	})
	a.key = key
	if err != nil {
		return err
	}
	if f.planOnly {
		return a.showPlan(r)
	}
	p, err := r.Decode()
	if err != nil {
		return err
	}
	if !f.yes {
		if a.output != "table" {
			return fail(ExitUsage, "with --output %s nobody can be asked: read the plan with --plan, then start with --yes", a.output)
		}
		if err := a.showPlan(r); err != nil {
			return err
		}
		if err := a.confirm(fmt.Sprintf("Start %s of %s? Type its name to go on: ", f.mode, name), name, "--yes"); err != nil {
			return err
		}
	}
	started, err := a.api.CreateDecommission(ctx, client.DecommissionRequest{
		NodeID: node, Mode: client.DecommissionRequestMode(f.mode), GraceSeconds: graceSeconds(f.grace),
		PlanHash: &p.PlanHash, Reason: optional[string](f.reason),
	})
	return a.followJob(ctx, started, err, f.watch)
}

// confirm asks for a word; anything else stops. flag is the one with which nothing is asked.
func (a *app) confirm(question, word, flag string) error {
	if _, err := fmt.Fprint(a.Err, question); err != nil {
		return err
	}
	if a.answers == nil { // one reader for all questions: it reads ahead
		a.answers = bufio.NewReader(a.In)
	}
	line, err := a.answers.ReadString('\n')
	if strings.TrimSpace(line) == word {
		return nil
	}
	if err != nil && line == "" {
		return fail(ExitUsage, "nobody answered; nothing was done; %s does it without asking", flag)
	}
	return fail(ExitRefused, "that is not it; nothing was done")
}

func (a *app) decommissionCommand() *cobra.Command {
	return group("decommission", "Decommissions; slipway node decommission starts one", a.decommissionList(), a.decommissionShow())
}

func (a *app) decommissionList() *cobra.Command {
	return a.listJobs(jobListing{
		list: func(q jobFilter) lister[client.ListJob] {
			return list(a.api.ListDecommissions, q.decommissions(), q.editors()...)
		}, short: "List decommissions, newest first", what: "MODE", of: func(j client.Job) string { return j.Mode },
	})
}

func (a *app) decommissionShow() *cobra.Command {
	return a.showJobOf("decommission", list(a.api.ListDecommissions, nil), a.api.GetDecommission)
}
