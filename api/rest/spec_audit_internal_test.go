package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecAudit_SaysWhatIsCut: a long value of a change is cut and says so with its size, a short
// one is whole, and values that do not fit into an audit row are counted.
func TestSpecAudit_SaysWhatIsCut(t *testing.T) {
	t.Parallel()
	values := func(of string, n int) *stated {
		spec := map[string]string{}
		for i := range n {
			spec[fmt.Sprintf("v%03d", i)] = of
		}
		return &stated{Name: "base", Spec: spec}
	}
	one, err := specAudit(values("short...", 1), values(strings.Repeat("x", 5000), 1))
	require.NoError(t, err)
	require.Equal(t, []diff{{"spec.v000", "short...", strings.Repeat("x", 200) + "… (cut: the value has 5000 bytes)"}}, one["diff"])
	require.NotContains(t, one, "diffs_left_out")

	for _, c := range []struct {
		values int
		of     string
	}{{150, "b"}, {100, strings.Repeat("<", 5000)}} { // each < is six bytes of JSON
		meta, err := specAudit(values("a"+c.of, c.values), values("b"+c.of, c.values))
		require.NoError(t, err)
		raw, err := json.Marshal(meta)
		require.NoError(t, err)
		require.Less(t, len(raw), 64<<10, "an audit row takes no more")
		require.NotEmpty(t, meta["diff"])
		require.Equal(t, c.values, len(meta["diff"].([]diff))+meta["diffs_left_out"].(int))
	}
}
