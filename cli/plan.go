package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// showDrives shows the drives that a job expects, where it erases any.
func (a *app) showDrives(p client.Plan) error {
	if len(p.Drives) == 0 {
		return nil
	}
	if err := a.fields("drives from", p.DrivesFrom, "protected", strings.Join(p.ProtectSerials, ", ")); err != nil {
		return err
	}
	t := a.table("DRIVE", "MODEL", "BYTES", "ERASED")
	for _, d := range p.Drives {
		erased := "yes, unless the system that runs is on it"
		if d.Protected {
			erased = "no, protected"
		}
		t.row(d.Serial, d.Model, d.Bytes, erased)
	}
	return t.flush()
}

// planLines say what a stage would do, one thing a line.
func planLines(r client.PlanRow) []string {
	out := append([]string(nil), r.Steps...)
	if f := r.Failure; f != nil {
		out = append(out, f.Class+": "+f.Message)
		if f.Tries > 1 {
			out = append(out, fmt.Sprintf("would be tried %d times, then park as %s", f.Tries, f.ParksAs))
		} else {
			out = append(out, "would park as "+f.ParksAs)
		}
	}
	if r.Why != "" {
		out = append(out, r.Why)
	}
	if r.Seen != "" {
		out = append(out, "now: "+r.Seen)
	}
	return out
}

func (a *app) showPlan(r client.Answer[client.Plan]) error {
	return show(a, r, func(p client.Plan) error {
		var observed string
		if o := p.Observed; o != nil {
			observed = fmt.Sprintf("MAAS %s, power %s, agent %s", orDash(o.Maas), orDash(o.Power), orDash(o.Agent))
		}
		job := p.JobID
		if job == "" {
			job = "none: this is a dry run, and nothing was started"
		}
		err := a.fields("plan of", p.Kind, "job", job, "node", strings.TrimSpace(p.Hostname+" "+p.NodeID), "status", p.Status, "observed", observed,
			"at", a.when(p.ObservedAt), "plan hash", p.PlanHash, "summary", p.Summary)
		if err != nil {
			return err
		}
		if err := a.showDrives(p); err != nil {
			return err
		}
		t := a.table("#", "STAGE", "WOULD", "WHAT")
		for _, row := range p.Rows {
			lines := planLines(row)
			if len(lines) == 0 {
				lines = []string{""}
			}
			t.row(row.Ordinal, row.Stage, row.Would, lines[0])
			for _, l := range lines[1:] {
				t.row("", "", "", l)
			}
		}
		return t.flush()
	})
}

const loginUsage = "log in to the BMC once, which tells serial and MAC addresses; a login that is rejected stops further logins"

func (a *app) jobPlan() *cobra.Command {
	var login bool
	cmd := &cobra.Command{
		Use: "plan JOB", Short: "Say what a job would do now, stage by stage, and change nothing", Args: cobra.ExactArgs(1),
		Long: "Looks at MAAS, BMC and agent as the job's stages would, and says what each would do. Nothing is changed.\n" +
			"Before there is a job: slipway node onboard ... --dry-run, or slipway node decommission ... --plan",
	}
	cmd.Flags().BoolVar(&login, "login", false, loginUsage)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.jobOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.PlanJob(cmd.Context(), id, &client.PlanJobParams{Login: &login})
		if err != nil {
			return err
		}
		return a.showPlan(r)
	})
	return cmd
}

// dryRun is how onboard is asked for a plan instead.
type dryRun struct{ on, login bool }

func (d *dryRun) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.on, "dry-run", false, "say what would be done, stage by stage, and start nothing")
	cmd.Flags().BoolVar(&d.login, "login", false, "with --dry-run: "+loginUsage)
}

// check refuses what does not go together.
func (d dryRun) check(file string, w watchFlags) error {
	switch {
	case d.login && !d.on:
		return fail(ExitUsage, "--login goes with --dry-run; an onboarding itself always logs in to the BMC")
	case d.on && file != "":
		return fail(ExitUsage, "--dry-run takes one node, not a file; run it for each")
	case d.on && w.on:
		return fail(ExitUsage, "--dry-run starts nothing that could be watched; leave --watch out")
	}
	return nil
}

func (a *app) planOnboarding(cmd *cobra.Command, body client.OnboardingRequest, d dryRun) error {
	r, err := a.api.PlanNewOnboarding(cmd.Context(), &client.PlanNewOnboardingParams{Login: &d.login}, body)
	if err != nil {
		return err
	}
	return a.showPlan(r)
}
