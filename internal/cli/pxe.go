package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const installWorkflows = "/admin/install-workflows"

func (a *app) installWorkflowCommand() *cobra.Command {
	return a.kindCommand(kind{
		use: "install-workflow", what: "PXE install workflow", example: "deadline_minutes=45", columns: []string{"deadline_minutes", "command_line"},
		base: func(context.Context, string) (string, error) { return installWorkflows, nil },
		find: func(ctx context.Context, _, name string) (string, error) { return a.installWorkflowOf(ctx, name) },
	}, "Install workflows: what a PXE node loads and how its installer is answered")
}

func (a *app) installWorkflowOf(ctx context.Context, name string) (string, error) {
	return a.byName(ctx, "wf_", "install-workflow", installWorkflows, name)
}

// pxeNodeCommands are what an admin does with PXE nodes.
func (a *app) pxeNodeCommands() []*cobra.Command {
	return []*cobra.Command{a.nodeApprove(), a.nodeState(), a.nodeWorkflow(), a.nodeHardware(), a.nodePurge()}
}

func (a *app) nodeApprove() *cobra.Command {
	var workflow, comment string
	cmd := &cobra.Command{Use: "approve NODE --workflow WORKFLOW", Short: "Let a discovered PXE node install itself at its next boot", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&workflow, "workflow", "", "install workflow, by name or id")
	cmd.Flags().StringVar(&comment, "comment", "", "why, for the node's history")
	_ = cmd.MarkFlagRequired("workflow")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		etag, id, err := a.assign(cmd.Context(), args[0], workflow)
		if err != nil {
			return err
		}
		return a.setState(cmd.Context(), id, "pending", comment, false, etag)
	})
	return cmd
}

func (a *app) nodeWorkflow() *cobra.Command {
	return &cobra.Command{
		Use: "assign-workflow NODE WORKFLOW", Short: "Assign an install workflow to a PXE node", Args: cobra.ExactArgs(2),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			_, _, err := a.assign(cmd.Context(), args[0], args[1])
			return err
		}),
	}
}

// assign gives a node an install workflow and returns its new version.
func (a *app) assign(ctx context.Context, node, workflow string) (etag, id string, err error) {
	if id, err = a.nodeOf(ctx, node); err != nil {
		return "", "", err
	}
	wf, err := a.installWorkflowOf(ctx, workflow)
	if err != nil {
		return "", "", err
	}
	r, err := a.ask(ctx, "PATCH", "/nodes/"+url.PathEscape(id), map[string]any{"install_workflow_id": wf}, map[string]string{"If-Match": "*"})
	return r.etag, id, err
}

func (a *app) nodeState() *cobra.Command {
	var comment string
	var force bool
	cmd := &cobra.Command{
		Use: "state NODE STATE", Short: "Set the state of a PXE node", Args: cobra.ExactArgs(2),
		Long: "slipway node show names the states that may be set now. --force lets a node whose installation failed three times begin anew.",
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why, for the node's history")
	cmd.Flags().BoolVar(&force, "force", false, "pass by the retry limit and set the counters back")
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
	body := map[string]any{"state": state, "force": force}
	if comment != "" {
		body["comment"] = comment
	}
	r, err := a.ask(ctx, "POST", "/nodes/"+url.PathEscape(id)+"/state", body, map[string]string{"If-Match": etag})
	if err != nil {
		return err
	}
	return a.show(r.raw, func() error {
		var n node
		if err := r.into(&n); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.Out, "%s is %s\n", n.Hostname, n.Status)
		return err
	})
}

func (a *app) nodeHardware() *cobra.Command {
	var macs []string
	var serial, uuid, bmc, credential string
	cmd := &cobra.Command{
		Use: "replace-hardware NODE --mac MAC", Short: "Put a migrating PXE node on other hardware", Args: cobra.ExactArgs(1),
		Long: "Its id, history and labels stay. Set the state migrating before, and active afterwards.",
	}
	f := cmd.Flags()
	f.StringArrayVar(&macs, "mac", nil, "address of the new hardware, first the one that it boots with; may be repeated")
	f.StringVar(&serial, "serial", "", "its serial number")
	f.StringVar(&uuid, "uuid", "", "its system UUID")
	f.StringVar(&bmc, "bmc-address", "", "its BMC; without it the node keeps the one it has")
	f.StringVar(&credential, "bmc-credential", "", "secret that holds the BMC's login")
	_ = cmd.MarkFlagRequired("mac")
	cmd.MarkFlagsRequiredTogether("bmc-address", "bmc-credential")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		body := map[string]any{"mac_addresses": macs, "serial_number": serial, "system_uuid": uuid}
		if bmc != "" {
			body["bmc"] = map[string]any{"address": bmc, "credential_ref": credential}
		}
		_, err = a.ask(cmd.Context(), "PUT", "/nodes/"+url.PathEscape(id)+"/hardware", body, map[string]string{"If-Match": "*"})
		return err
	})
	return cmd
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
		body := map[string]any{"source": source, "unseen_minutes": int(unseen.Minutes())}
		r, err := a.ask(cmd.Context(), "POST", "/admin/discovered-nodes/purge", body, nil)
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error {
			var got struct{ Purged int }
			if err := r.into(&got); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.Out, "%d nodes purged\n", got.Purged)
			return err
		})
	})
	return cmd
}

// pxe is what the tables show of a PXE node.
type pxe struct {
	InstallWorkflowID    string            `json:"install_workflow_id"`
	InstallationProgress int               `json:"installation_progress"`
	LastSeenAt           *time.Time        `json:"last_seen_at"`
	LastSeenFrom         string            `json:"last_seen_from"`
	Reported             map[string]string `json:"reported"`
	AdminStates          []string          `json:"admin_states"`
}

func (n node) pxeFields() []any {
	if n.PXE == nil {
		return nil
	}
	var said []string
	for _, k := range []string{"vendor", "model", "serial_number", "system_uuid", "ip_address", "hostname"} {
		if v := n.PXE.Reported[k]; v != "" {
			said = append(said, k+" "+v)
		}
	}
	return []any{
		"install workflow", n.PXE.InstallWorkflowID, "installed", fmt.Sprintf("%d%%, %d failed attempts", n.PXE.InstallationProgress, n.InstallAttempts),
		"last error", n.LastInstallError, "seen", when(n.PXE.LastSeenAt) + " from " + n.PXE.LastSeenFrom, "says of itself", strings.Join(said, ", "),
		"may be set to", strings.Join(n.PXE.AdminStates, ", "),
	}
}

func (a *app) deviceGroupCommand() *cobra.Command {
	const base = "/admin/device-groups"
	list := &cobra.Command{Use: "list", Short: "List device groups", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		raw, err := a.listAll(cmd.Context(), base, url.Values{}, 0)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct {
				Data []struct {
					Name        string
					AutoPromote bool `json:"auto_promote"`
				}
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("NAME", "AUTO PROMOTE")
			for _, g := range got.Data {
				t.row(g.Name, g.AutoPromote)
			}
			return t.flush()
		})
	})}
	var promote bool
	put := &cobra.Command{Use: "put NAME", Short: "Write the policy of a device group", Args: cobra.ExactArgs(1)}
	put.Flags().BoolVar(&promote, "auto-promote", false, "an installed node becomes active without a person")
	put.RunE = does(func(cmd *cobra.Command, args []string) error {
		_, err := a.ask(cmd.Context(), "PUT", base+"/"+url.PathEscape(args[0]), map[string]any{"auto_promote": promote}, nil)
		return err
	})
	remove := &cobra.Command{Use: "delete NAME", Short: "Delete a device group", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		_, err := a.ask(cmd.Context(), "DELETE", base+"/"+url.PathEscape(args[0]), nil, nil)
		return err
	})}
	return group("device-group", "Device groups: policy for nodes with the label device-group", list, put, remove)
}
