package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/test/pagecommands"
)

// Each command line that a page shows must be one of the program's.
func TestCommands_OfPagesExist(t *testing.T) {
	t.Parallel()
	lines, err := pagecommands.Find("..", "slipway")
	require.NoError(t, err)
	require.Greater(t, len(lines), 100, "the search saw the pages")
	for _, l := range lines {
		if err := pagecommands.Check(cli.Commands(), l); err != nil {
			t.Error(err)
		}
	}
}
