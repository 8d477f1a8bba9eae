package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// driftAbout names the thing that it is about.
func driftAbout(d client.Drift) string {
	if d.Hostname != "" {
		return d.Hostname
	}
	return d.Subject
}

func (a *app) driftCommand() *cobra.Command {
	return group("drift", "What is not as it stands here: findings of the passes over sites",
		a.driftList(), a.driftShow(), a.driftPasses(),
		a.driftAct("adopt", "Record what was observed, and close the finding"),
		a.driftAct("quarantine", "Take the finding's node out of scheduling"),
		a.driftAct("ignore", "Keep the finding quiet until its evidence changes"),
	)
}

func (a *app) driftList() *cobra.Command {
	var status, detector, severity, site, node string
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List findings, newest first; without --status only open ones", Args: cobra.NoArgs}
	f := cmd.Flags()
	f.StringVar(&status, "status", "open", "open, ignored, closed, or all")
	f.StringVar(&detector, "detector", "", "only of this detector, such as machine_absent")
	f.StringVar(&severity, "severity", "", "critical, warning or info")
	f.StringVar(&site, "site", "", "only of this site, by name or id")
	f.StringVar(&node, "node", "", "only of this node, by hostname or id")
	f.IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if status == "all" {
			status = ""
		}
		var err error
		if site != "" {
			if site, err = a.siteOf(cmd.Context(), site); err != nil {
				return err
			}
		}
		if node != "" {
			if node, err = a.nodeOf(cmd.Context(), node); err != nil {
				return err
			}
		}
		r, err := listAll(cmd.Context(), list(a.api.ListDrift, &client.ListDriftParams{
			Status: optional[client.ListDriftParamsStatus](status), Severity: optional[client.ListDriftParamsSeverity](severity),
			Detector: optional[string](detector), SiteID: optional[string](site), NodeID: optional[string](node),
		}), limit)
		if err != nil {
			return err
		}
		return show(a, r, a.driftTable)
	})
	return cmd
}

func (a *app) driftTable(got client.ListDrift) error {
	if len(got.Data) == 0 {
		_, err := fmt.Fprintln(a.Out, "No such findings.")
		return err
	}
	t := a.table("ID", "SEVERITY", "DETECTOR", "WHAT", "STATUS", "SINCE", "SEEN", "MESSAGE")
	for _, i := range got.Data {
		t.row(i.ID, i.Severity, i.Detector, driftAbout(i), i.Status, a.when(i.FirstSeenAt), i.SeenCount, i.Message)
	}
	return t.flush()
}

func (a *app) driftShow() *cobra.Command {
	return &cobra.Command{Use: "show FINDING", Short: "Show a finding with its evidence and what can be done, by id, NODE or NODE/DETECTOR", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		id, err := a.findingOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.GetDrift(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.showDrift(r)
	})}
}

func (a *app) driftAct(action, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: action + " FINDING", Short: short, Args: cobra.ExactArgs(1),
		Example: "  slipway drift " + action + " drift_... --reason 'seen on the spot'",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return fail(ExitUsage, "say with --reason why")
		}
		id, err := a.findingOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.ActOnDrift(cmd.Context(), id, client.ActOnDriftParamsAction(action), client.ActOnDriftRequest{Reason: reason})
		if err != nil {
			return err
		}
		return a.showDrift(r)
	})
	return cmd
}

func (a *app) showDrift(r client.Answer[client.Drift]) error {
	return show(a, r, func(d client.Drift) error {
		evidence := bytes.Buffer{}
		if err := json.Indent(&evidence, d.Evidence, "", "  "); err != nil {
			return err
		}
		acted := ""
		if d.Action != "" {
			acted = strings.TrimSpace(fmt.Sprintf("%s by %s %s: %s", d.Action, d.ActedBy, a.when(d.ActedAt), d.ActedReason))
		}
		return a.fields("id", d.ID, "detector", d.Detector, "severity", d.Severity, "status", d.Status, "about", string(d.Scope)+" "+d.Subject, "node", d.NodeID,
			"hostname", d.Hostname, "machine", d.SystemID, "message", d.Message, "first seen", a.when(d.FirstSeenAt),
			"last seen", fmt.Sprintf("%s, by %d passes", a.when(d.LastSeenAt), d.SeenCount), "evidence", evidence.String(), "done", acted,
			"closed", a.when(d.ClosedAt), "outcome", d.Outcome, "what to do", d.NextAction, "allowed", strings.Join(d.AllowedActions, ", "), "adopt", d.Adopts)
	})
}

func (a *app) driftPasses() *cobra.Command {
	return &cobra.Command{Use: "passes", Short: "Show how the last pass over each site went", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListDriftPasses, nil), 0)
		if err != nil {
			return err
		}
		return show(a, r, a.passTable)
	})}
}

func (a *app) passTable(got client.ListDriftPass) error {
	t := a.table("SITE", "PASS", "LAST WHOLE", "NODES", "FINDINGS", "OPENED", "CLOSED", "NOTE")
	for _, i := range got.Data {
		report, _ := i.Report.(map[string]any)
		counted := func(what string) string { return cmp.Or(cell(report[what]), "0") }
		note := i.Problem
		if i.Late {
			note = strings.TrimSpace("LATE " + note)
		}
		t.row(cmp.Or(i.Site, "(none)"), i.Pass, orDash(a.when(i.FinishedAt)), counted("nodes"), counted("findings"), counted("opened"), counted("closed"), orDash(note))
	}
	return t.flush()
}
