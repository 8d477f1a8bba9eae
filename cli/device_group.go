package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) deviceGroupCommand() *cobra.Command {
	all := &cobra.Command{Use: "list", Short: "List device groups", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListDeviceGroups, nil), 0)
		if err != nil {
			return err
		}
		return show(a, r, func(groups client.ListDeviceGroup) error {
			named := a.workflowNames(cmd.Context())
			t := a.table("NAME", "AUTO PROMOTE", "ERASE WORKFLOW")
			for _, g := range groups.Data {
				t.row(g.Name, g.AutoPromote, orDash(named(g.EraseWorkflowID)))
			}
			return t.flush()
		})
	})}
	remove := &cobra.Command{Use: "delete NAME", Short: "Delete a device group", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		_, err := a.api.DeleteDeviceGroup(cmd.Context(), args[0])
		return err
	})}
	return group("device-group", "Device groups: policy for nodes with the label device-group", all, a.deviceGroupPut(), remove)
}

func (a *app) deviceGroupPut() *cobra.Command {
	var promote bool
	var eraser string
	cmd := &cobra.Command{
		Use: "put NAME", Short: "Write the policy of a device group", Args: cobra.ExactArgs(1),
		Long: "Creates the group if there is none. Fields that are not named keep their values.",
	}
	cmd.Flags().BoolVar(&promote, "auto-promote", false, "an installed node becomes active without an operator")
	cmd.Flags().StringVar(&eraser, "erase-workflow", "", `live system that its nodes are erased from, by name or id; "" for none`)
	_ = cmd.Flags().SetAnnotation("erase-workflow", mayBeEmpty, []string{})
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		groups, err := client.Value(listAll(cmd.Context(), list(a.api.ListDeviceGroups, nil), 0))
		if err != nil {
			return err
		}
		body := client.PutDeviceGroupRequest{AutoPromote: promote}
		for _, g := range groups.Data {
			if g.Name == args[0] && !cmd.Flags().Changed("auto-promote") {
				body.AutoPromote = g.AutoPromote
			}
			if g.Name == args[0] {
				body.EraseWorkflowID = g.EraseWorkflowID
			}
		}
		if cmd.Flags().Changed("erase-workflow") {
			body.EraseWorkflowID = ""
			if eraser != "" {
				if body.EraseWorkflowID, err = a.installWorkflowOf(cmd.Context(), eraser); err != nil {
					return err
				}
			}
		}
		r, err := a.api.PutDeviceGroup(cmd.Context(), args[0], body)
		if err != nil {
			return err
		}
		return show(a, r, func(g client.DeviceGroup) error {
			promoted := "by an operator"
			if g.AutoPromote {
				promoted = "by themselves"
			}
			_, err := fmt.Fprintf(a.Out, "installed nodes of %s become active %s; they are erased with %s\n",
				oneLine(g.Name), promoted, oneLine(cmp.Or(a.workflowNames(cmd.Context())(g.EraseWorkflowID), "their own erase workflow alone")))
			return err
		})
	})
	return cmd
}
