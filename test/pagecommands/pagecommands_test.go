package pagecommands

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestLinesOf(t *testing.T) {
	t.Parallel()
	page := "Use `ship sail fast` and `ship\nsail --knots 3`, not `shipyard open`.\n" +
		"`port --of ship sail` `ship sail|moor here`\n```\n$ ship sail \\\n  --knots 4 \"two words\" | jq .x\nship moor && ship sail # later\n```\n"
	require.ElementsMatch(t, [][]string{
		{"sail", "fast"}, {"sail", "--knots", "3"}, {"sail", "--knots", "4", "TEXT"}, {"moor"}, {"sail"}, {"sail", "here"}, {"moor", "here"},
	}, linesOf(page, "ship"))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	root, sail := &cobra.Command{Use: "ship"}, &cobra.Command{Use: "sail"}
	sail.Flags().Int("knots", 0, "")
	root.PersistentFlags().Bool("quiet", false, "")
	root.AddCommand(sail)
	for _, args := range [][]string{{"sail", "WHERE", "--knots=3", "--quiet", "--help"}, {"..."}, {"--quiet"}, {"sail", "--", "--any"}} {
		require.NoError(t, Check(root, Line{"page", args}), args)
	}
	require.ErrorContains(t, Check(root, Line{"page", []string{"row"}}), `"ship" has no command "row"`)
	require.ErrorContains(t, Check(root, Line{"page", []string{"sail", "[--speed", "3]"}}), `"ship sail" has no flag --speed`)
}
