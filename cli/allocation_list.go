package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// allocationFilter are the flags of a list of a project's allocations.
type allocationFilter struct {
	project      string
	status, tags []string
}

func (f *allocationFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.project, "project", "", projectHelp)
	cmd.Flags().StringSliceVar(&f.status, "status", nil, "only those in this status; may be repeated")
	cmd.Flags().StringArrayVar(&f.tags, "tag", nil, "only those with this tag, KEY=VALUE; may be repeated")
}

func (f *allocationFilter) query() client.ListOwnAllocationsParams {
	return client.ListOwnAllocationsParams{Status: f.status, Tag: f.tags, ProjectID: optional[string](f.project)}
}

func (a *app) listAllocationsCommand() *cobra.Command {
	var filter allocationFilter
	var reason operatorFlag
	var watch watchFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List the allocations of a project, newest first", Args: cobra.NoArgs,
		Long: "Lists the allocations of a project, newest first. With --watch it follows the newest " + strconv.Itoa(watchedRows) +
			" until none of them changes by itself any more.",
	}
	filter.add(cmd)
	watch.add(cmd)
	cmd.Flags().Lookup("watch").Usage = "follow the newest until none of them changes by itself"
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if _, err := tagsOf(filter.tags); err != nil {
			return err
		}
		project, err := a.projectOr(cmd.Context(), filter.project)
		if err != nil {
			return err
		}
		filter.project = project
		if watch.on {
			return a.watchAllocations(cmd.Context(), filter.query(), watch, reason)
		}
		query := filter.query()
		r, err := listAll(cmd.Context(), list(a.api.ListOwnAllocations, &query, reason.because()), 0)
		if err != nil {
			return err
		}
		return show(a, r, a.printAllocations)
	})
	return cmd
}

// nameWidth keeps a list of allocations within 120 columns.
const nameWidth = 12

func (a *app) printAllocations(rows client.ListAllocation) error {
	t := a.table("ID", "NAME", "SKU", "STATUS", "SITE", "PROGRESS")
	for _, l := range rows.Data {
		name := []rune(orDash(l.Name))
		if len(name) > nameWidth {
			name = append(name[:nameWidth-1], '…')
		}
		status := l.Status
		if lifecycle.AllocationStatus(status) == lifecycle.AllocationActive && l.Condition != "" && l.Condition != string(lifecycle.ConditionOK) {
			status += ", " + l.Condition
		}
		progress := ""
		if p := l.Progress; p != nil && p.Stage != "" {
			progress = fmt.Sprintf("%d/%d %d%%", min(p.StagesDone+1, p.Stages), p.Stages, p.Percent) + allocationRemaining(l)
		}
		t.row(l.ID, string(name), l.Sku, status, orDash(l.Topology.Site), progress)
	}
	return t.flush()
}

// watchedRows are the allocations that a watched list follows.
const watchedRows = 50

// watchAllocations prints a line for each change of the newest allocations until none of them
// changes by itself, and then the list.
func (a *app) watchAllocations(ctx context.Context, query client.ListOwnAllocationsParams, w watchFlags, reason operatorFlag) error {
	query.Limit = new(int64(watchedRows))
	shown := map[string]string{}
	read := func(ctx context.Context) (client.Answer[client.ListAllocation], error) {
		return a.api.ListOwnAllocations(ctx, &query, reason.because())
	}
	return follow(ctx, read, w, func(r client.Answer[client.ListAllocation], rows client.ListAllocation) (bool, error) {
		over := true
		for _, l := range rows.Data {
			over = over && !allocationMoves(l)
			if line := allocationLine(l); a.output == "table" && allocationMoves(l) && shown[l.ID] != line {
				fmt.Fprintln(a.Out, oneLine(line))
				shown[l.ID] = line
			}
		}
		if !over {
			return false, nil
		}
		return true, show(a, r, a.printAllocations)
	})
}

func (a *app) listAllAllocationsCommand(columns []string) *cobra.Command {
	var status []string
	cmd := &cobra.Command{Use: "list-all", Short: "List the allocations of all customers, for operators", Args: cobra.NoArgs}
	cmd.Flags().StringSliceVar(&status, "status", nil, "only those in this status, such as release_failed; may be repeated")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListAllAllocations, &client.ListAllAllocationsParams{Status: status}), 0)
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, columns)
	})
	return cmd
}
