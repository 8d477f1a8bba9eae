package cli

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func (a *app) installWorkflowCommand() *cobra.Command {
	return kindCommand(a, kind[client.InstallWorkflow, client.ListInstallWorkflow]{
		use: "install-workflow", what: "PXE install workflow", named: workflowKind(), example: "deadline_minutes=45", columns: []string{"deadline_minutes", "command_line"},
		list: func(string) lister[client.ListInstallWorkflow] { return list(a.api.ListInstallWorkflows, nil) },
		create: func(ctx context.Context, _ string, body client.Option) (client.Answer[client.InstallWorkflow], error) {
			return a.api.CreateInstallWorkflow(ctx, client.InstallWorkflowRequest{}, body)
		},
		get: func(ctx context.Context, _, id string) (client.Answer[client.InstallWorkflow], error) {
			return a.api.GetInstallWorkflow(ctx, id)
		},
		update: func(ctx context.Context, _, id, etag string, body client.Option) (client.Answer[client.InstallWorkflow], error) {
			return a.api.UpdateInstallWorkflow(ctx, id, client.InstallWorkflowRequest{}, body, client.IfMatch(etag))
		},
		remove: func(ctx context.Context, _, id string) (client.Answer[client.Nothing], error) {
			return a.api.DeleteInstallWorkflow(ctx, id, client.IfMatch("*"))
		},
	}, "Install workflows: what a PXE node loads and how its installer is answered")
}

func (a *app) installWorkflowOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, workflowKind(), lookup{}, name)
}

// workflowNames makes the ids of install workflows readable; one that cannot be
// looked up stays an id.
func (a *app) workflowNames(ctx context.Context) func(id string) string {
	names := map[string]string{}
	if got, err := client.Value(listAll(ctx, list(a.api.ListInstallWorkflows, nil), 0)); err == nil {
		for _, w := range got.Data {
			names[w.ID] = w.Name
		}
	}
	return func(id string) string {
		if name, ok := names[id]; ok {
			return name
		}
		return id
	}
}

// pxeNodeCommands are what an admin does with PXE nodes.
func (a *app) pxeNodeCommands() []*cobra.Command {
	return []*cobra.Command{a.nodeApprove(), a.nodeState(), a.nodeWorkflow(), a.nodeSKU(), a.nodeDeprovision(), a.nodeMigrate(), a.nodeHardware(), a.nodeSetBMC(), a.nodePurge()}
}

func (a *app) nodeApprove() *cobra.Command {
	var workflow, comment string
	cmd := &cobra.Command{Use: "approve NODE --workflow WORKFLOW", Short: "Let a discovered PXE node install itself at its next boot", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&workflow, "workflow", "", "install workflow, by name or id")
	cmd.Flags().StringVar(&comment, "comment", "", "why, for the node's history")
	_ = cmd.MarkFlagRequired("workflow")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, etag, err := a.discovered(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.assignTo(cmd.Context(), id, workflow, false, etag)
		if err != nil {
			return err
		}
		return a.setState(cmd.Context(), id, "pending", comment, false, r.ETag)
	})
	return cmd
}

// discovered finds a node that may be approved, in the version of its etag. One
// in another state is refused before anything of it changes.
func (a *app) discovered(ctx context.Context, name string) (id, etag string, err error) {
	if id, err = a.nodeOf(ctx, name); err != nil {
		return "", "", err
	}
	r, err := a.api.GetNode(ctx, id)
	n, err := client.Value(r, err)
	if err != nil {
		return "", "", err
	}
	switch {
	case n.Pxe == nil:
		return "", "", fail(ExitRefused, "node %s is provisioned by MAAS, which no PXE workflow installs; onboard it with slipway node onboard", n.Hostname)
	case n.Status != string(lifecycle.NodeDiscovered):
		return "", "", fail(ExitRefused, "node %s is %s, and approve is for a discovered node; nothing was changed. Assign a workflow with slipway node assign-workflow %s WORKFLOW, "+
			"and let it install again with slipway node state %s pending, which erases it", n.Hostname, n.Status, n.Hostname, n.Hostname)
	}
	return id, r.ETag, nil
}

func (a *app) nodeWorkflow() *cobra.Command {
	var erase, inherit bool
	cmd := &cobra.Command{
		Use: "assign-workflow NODE (WORKFLOW | --erase --inherit)", Short: "Assign an install workflow to a PXE node", Args: cobra.RangeArgs(1, 2),
		Long: "With --erase it is the live system that the node is erased from, by slipway node deprovision; --inherit takes that of the node's device group.",
	}
	cmd.Flags().BoolVar(&inherit, "inherit", false, "with --erase and without WORKFLOW: the erase workflow of the node's device group")
	cmd.Flags().BoolVar(&erase, "erase", false, "the workflow that it is erased with, not the one that it is installed with")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		workflow := ""
		switch {
		case len(args) == 2 && !inherit:
			workflow = args[1]
		case len(args) == 2 || !inherit || !erase:
			return fail(ExitUsage, "name an install workflow, or take that of the device group with --erase --inherit; slipway install-workflow list shows what there is")
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.assignTo(cmd.Context(), id, workflow, erase, "*")
		if err != nil {
			return err
		}
		return a.sayNode(r, func(n client.Node) string { return assigned(n.Hostname, workflow, erase) })
	})
	return cmd
}

func (a *app) nodeSKU() *cobra.Command {
	return &cobra.Command{
		Use: "assign-sku NODE SKU", Short: "Set the SKU that a PXE node must match", Args: cobra.ExactArgs(2),
		Long: "Its health and the end of its jobs are compared with the SKU from now on. A node that MAAS provisions has the SKU of its onboarding.",
		RunE: does(func(cmd *cobra.Command, args []string) error {
			id, err := a.nodeOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			sku, err := a.skuOf(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			r, err := a.api.UpdateNode(cmd.Context(), id, client.NodePatch{SkuID: &sku}, client.IfMatch("*"))
			if err != nil {
				return err
			}
			return a.sayNode(r, func(n client.Node) string { return n.Hostname + " is held against " + args[1] + " from now on" })
		}),
	}
}

// assigned says what a node's workflow is from now on.
func assigned(hostname, workflow string, erase bool) string {
	switch {
	case !erase:
		return fmt.Sprintf("%s is installed with %s from now on; one that is installed already stays as it is", hostname, workflow)
	case workflow == "":
		return hostname + " is erased with the workflow of its device group from now on"
	}
	return fmt.Sprintf("%s is erased with %s from now on", hostname, workflow)
}

// assignTo gives a node a workflow that it is installed or erased with; the answer is the node.
func (a *app) assignTo(ctx context.Context, id, workflow string, erase bool, etag string) (r client.Answer[client.Node], err error) {
	wf := ""
	if workflow != "" {
		if wf, err = a.installWorkflowOf(ctx, workflow); err != nil {
			return r, err
		}
	}
	patch := client.NodePatch{InstallWorkflowID: &wf}
	if erase {
		patch = client.NodePatch{EraseWorkflowID: &wf}
	}
	return a.api.UpdateNode(ctx, id, patch, client.IfMatch(etag))
}

func (a *app) nodeState() *cobra.Command {
	var comment string
	var force bool
	cmd := &cobra.Command{
		Use: "state NODE STATE", Short: "Set the state of a PXE node", Args: cobra.ExactArgs(2),
		Long: "slipway node show names the states that may be set now. --force lets a node whose installation failed three times begin again, and sets retired or active over a live job.\n" +
			"deprovisioning and migrating create a job: slipway node deprovision and slipway node migrate do the same with more to say.",
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why, for the node's history")
	cmd.Flags().BoolVar(&force, "force", false, "pass by the retry limit and set the counters back; pass by a live job")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.setState(cmd.Context(), id, args[1], comment, force, "*")
	})
	return cmd
}

func (a *app) setState(ctx context.Context, id, state, comment string, force bool, etag string) error {
	body := client.StateTransition{State: state, Force: &force, Comment: optional[string](comment)}
	r, err := a.api.SetNodeState(ctx, id, body, client.IfMatch(etag))
	if err != nil {
		return err
	}
	return a.showState(r)
}

func (a *app) nodePurge() *cobra.Command {
	var source string
	var unseen time.Duration
	cmd := &cobra.Command{
		Use: "purge-discovered", Short: "Delete nodes that were only ever discovered", Args: cobra.NoArgs,
		Long: "Anybody on the boot network can make such nodes. A machine that is real is discovered again at its next boot.",
	}
	cmd.Flags().StringVar(&source, "source", "", "only what was last seen from this address")
	cmd.Flags().DurationVar(&unseen, "unseen", 0, "only what was not seen for so long, such as 24h")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if _, err := netip.ParseAddr(source); source != "" && err != nil {
			return fail(ExitUsage, "--source takes an IP address, as slipway node show names it after \"seen\", not %q", source)
		}
		if unseen != unseen.Truncate(time.Minute) {
			return fail(ExitUsage, "--unseen takes whole minutes, such as 90m, not %s", unseen)
		}
		body := client.PurgeRequest{Source: &source, UnseenMinutes: new(int64(unseen.Minutes()))}
		r, err := a.api.PurgeDiscoveredNodes(cmd.Context(), body)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.PurgeAnswer) error {
			_, err := fmt.Fprintf(a.Out, "%d nodes purged\n", got.Purged)
			return err
		})
	})
	return cmd
}

// pxeFields are the rows of a PXE node; named says what an install workflow is
// called.
func pxeFields(n client.Node, named func(id string) string, when func(time.Time) string) []any {
	f := n.Pxe.Reported
	var said []string
	for _, fact := range [][2]string{
		{"vendor", f.Vendor}, {"model", f.Model}, {"serial_number", f.SerialNumber}, {"system_uuid", f.SystemUUID}, {"ip_address", f.IPAddress}, {"hostname", f.Hostname},
	} {
		if fact[1] != "" {
			said = append(said, fact[0]+" "+fact[1])
		}
	}
	return []any{
		"install workflow", named(n.Pxe.InstallWorkflowID), "erase workflow", named(n.Pxe.EraseWorkflowID), "installed", fmt.Sprintf("%d%%, %d failed attempts", n.Pxe.InstallationProgress, n.InstallAttempts),
		"last error", n.LastInstallError, "seen", when(n.Pxe.LastSeenAt) + " from " + n.Pxe.LastSeenFrom, "says of itself", strings.Join(said, ", "),
		"boots", netbootText(n.Pxe.Netboot, named), "planned hardware", plannedText(n.Pxe), "may be set to", strings.Join(n.Pxe.AdminStates, ", "),
	}
}
