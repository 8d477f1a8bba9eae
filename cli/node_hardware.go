package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) nodeHealth() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "health NODE", Short: "Show how well the parts of a node are, as its agent, its BMC and the reconciler tell", Args: cobra.ExactArgs(1),
		Long: "The worst come first. What was not read is unknown. Parts that are ok are counted; --all lists them too.",
	}
	cmd.Flags().BoolVar(&all, "all", false, "list the parts that are ok too")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.GetNodeHealth(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.showNodeHealth(r, all)
	})
	return cmd
}

func (a *app) showNodeHealth(r client.Answer[client.NodeHealth], all bool) error {
	return show(a, r, func(h client.NodeHealth) error {
		fine := 0
		t := a.table("CLASS", "CATEGORY", "SOURCE", "TARGET", "NOTE", "OBSERVED")
		for _, p := range h.Probes {
			if p.Class == "ok" {
				fine++
				if !all {
					continue
				}
			}
			t.row(p.Class, p.Category, p.Source, p.Target, p.Note, a.when(p.ObservedAt))
		}
		if err := a.fields("node", h.Hostname, "health", h.Class, "agent heard", a.when(h.AgentAt), "BMC read", a.when(h.BmcAt), "ok", fine); err != nil {
			return err
		}
		return t.flush()
	})
}

func (a *app) nodeInventory() *cobra.Command {
	var kind string
	var changes bool
	cmd := &cobra.Command{
		Use: "inventory NODE", Short: "List the parts of a node's machine, or how they have changed", Args: cobra.ExactArgs(1),
		Long: "As its BMC and its agent told them last. An id in parentheses stands for the place of a part that tells no serial number.",
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only parts of this kind, such as gpu, dpu or drive")
	cmd.Flags().BoolVar(&changes, "changes", false, "list the changes instead, newest first")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.GetNodeInventory(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.showNodeInventory(r, kind, changes)
	})
	return cmd
}

func (a *app) showNodeInventory(r client.Answer[client.NodeInventory], kind string, changes bool) error {
	return show(a, r, func(l client.NodeInventory) error {
		if changes {
			t := a.table("AT", "SOURCE", "KIND", "ID", "CHANGE", "FROM", "TO")
			for _, c := range l.Changes {
				if kind == "" || kind == c.Kind {
					t.row(a.when(c.At), c.Source, c.Kind, c.ID, c.What, c.From, c.To)
				}
			}
			return t.flush()
		}
		if err := a.fields("BMC read", a.when(l.BmcAt), "agent read", a.when(l.AgentAt), "not told", len(l.Partial), "left out", l.LeftOut); err != nil {
			return err
		}
		t := a.table("KIND", "ID", "MODEL", "PART NUMBER", "FIRMWARE", "SLOT", "MODE", "SOURCE", "FIRST SEEN", "LAST SEEN")
		for _, p := range l.Parts {
			if kind != "" && kind != string(p.Kind) {
				continue
			}
			id, model, seen := p.ID, p.Model, a.when(p.LastSeen)
			if p.Derived {
				id = "(" + id + ")"
			}
			if model == "" {
				model = p.Name
			}
			if p.Gone {
				seen += " (gone)"
			}
			t.row(p.Kind, id, model, p.PartNumber, p.Firmware, p.Slot, p.Mode, p.Source, a.when(p.FirstSeen), seen)
		}
		return t.flush()
	})
}

func (a *app) nodeBMCLog() *cobra.Command {
	var since, until, severity, cursor string
	var limit int
	cmd := &cobra.Command{
		Use: "bmc-log NODE", Short: "List the entries of the logs of a node's BMC, as they were copied", Args: cobra.ExactArgs(1),
		Long: "One page, in the order in which they were copied. The cursor that stands last continues it, also later: then it lists what is new.\n" +
			"Clearing the log of the BMC deletes none of them.",
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "entries made then or later, such as 2026-11-28T10:00:00Z")
	f.StringVar(&until, "until", "", "entries made before")
	f.StringVar(&severity, "severity", "", "only OK, Warning, Critical or Unknown")
	f.StringVar(&cursor, "cursor", "", "continue after a page")
	f.IntVar(&limit, "limit", 100, "at most so many, 200 at most")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		params := client.ListNodeBmcLogParams{Cursor: optional[string](cursor), Severity: optional[client.ListNodeBmcLogParamsSeverity](severity), Limit: new(int64(limit))}
		if params.Since, err = instant(since); err != nil {
			return err
		}
		if params.Until, err = instant(until); err != nil {
			return err
		}
		r, err := a.api.ListNodeBmcLog(cmd.Context(), id, &params)
		if err != nil {
			return err
		}
		return a.showBMCLog(r)
	})
	return cmd
}

// instant reads a time, nil for none.
func instant(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fail(ExitUsage, "a time looks like 2026-11-28T10:00:00Z, not %q", text)
	}
	return &at, nil
}

func (a *app) showBMCLog(r client.Answer[client.BMCLogPage]) error {
	return show(a, r, func(l client.BMCLogPage) error {
		t := a.table("AT", "SEVERITY", "LOG", "ENTRY", "MESSAGE")
		for _, e := range l.Data {
			t.row(a.when(e.At), e.Severity, e.Service, e.EntryID, e.Message)
		}
		if err := t.flush(); err != nil {
			return err
		}
		return a.fields("cursor", l.NextCursor, "more", yesNo(l.More), "not read to the end", len(l.Partial), "gave way", l.Dropped)
	})
}
