package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/pagecommands"
)

// Each command line that a page shows must be one of the program's.
func TestCommands_OfPagesExist(t *testing.T) {
	t.Parallel()
	lines, err := pagecommands.Find("../..", "slipwayd")
	require.NoError(t, err)
	require.Greater(t, len(lines), 10, "the search saw the pages")
	for _, l := range lines {
		if err := pagecommands.Check(root(), l); err != nil {
			t.Error(err)
		}
	}
}
