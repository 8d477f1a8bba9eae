package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// irreversible marks a command whose effect cannot be undone.
const irreversible = "slipway_irreversible"

// irreversibleNames are the names of commands whose effect cannot be undone.
func irreversibleNames() []string {
	return []string{
		"delete", "close", "release", "force-release", "remove-assignment", "terminate", "revoke", "remove", "retire", "decommission", "deprovision",
		"cancel", "refund",
	}
}

// guardIrreversible marks the irreversible commands below root that find a resource by name, and
// gives them --yes. They take a whole id or a name as it is; after the beginning of an id they ask.
func guardIrreversible(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		guardIrreversible(cmd)
	}
	adjusts := root.Name() == "create" && root.HasParent() && root.Parent().Name() == "adjustment"
	if !adjusts && !slices.Contains(irreversibleNames(), root.Name()) || !findsByName(root) {
		return
	}
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[irreversible] = ""
	if root.Flags().Lookup("yes") == nil {
		root.Flags().BoolP("yes", "y", false, "do not ask when only the beginning of an id is given; it is printed what the id means")
	}
}

// findsByName reports that an argument of a command is a resource of a kind that has names.
func findsByName(cmd *cobra.Command) bool {
	return slices.ContainsFunc(usageWords(cmd.Use), func(word string) bool {
		_, platform := kindOfWord(word, false)
		_, ofProject := kindOfWord(word, true)
		return platform || ofProject
	})
}

// readIrreversible notes whether the command that runs is irreversible, and whether it may ask.
func (a *app) readIrreversible(cmd *cobra.Command) {
	_, a.irreversible = cmd.Annotations[irreversible]
	if flag := cmd.Flags().Lookup("yes"); flag != nil {
		a.yes = flag.Value.String() == "true"
	}
	a.command = cmd.CommandPath()
}

// confirmShortID asks before an irreversible command acts on what the beginning of an id means.
// With --yes it says what that is.
func (a *app) confirmShortID(ctx context.Context, k resourceKind, e entry) error {
	if !a.irreversible {
		return nil
	}
	meant := k.noun + " " + withID(k.nameOf(e), e.ID)
	if owner := k.ownerText(ctx, a, e, map[string]string{}); owner != "" {
		meant += " of " + owner
	}
	meant = oneLine(meant)
	if a.yes {
		_, err := fmt.Fprintf(a.Err, "slipway: %s\n", meant)
		return err
	}
	return a.confirm(fmt.Sprintf("%s: %s? Type yes to go on: ", a.command, meant), "yes", "--yes")
}
