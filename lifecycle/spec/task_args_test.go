package spec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecodeArgs_ExpectedDrives(t *testing.T) {
	t.Parallel()
	const ok = `{"run_id":"r","expected_drives":[{"serial":"S1","model":"M","bytes":512},{"serial":"S2"}]}`
	var scrub ScrubArgs
	require.NoError(t, DecodeArgs([]byte(ok), &scrub))
	require.Equal(t, []ExpectedDrive{{"S1", "M", 512}, {Serial: "S2"}}, scrub.ExpectedDrives)
	for _, bad := range []string{`[{"serial":" "}]`, `[{"model":"M"}]`, `[{"serial":"S","bytes":-1}]`} {
		raw := []byte(`{"run_id":"r","expected_drives":` + bad + `}`)
		require.ErrorContains(t, DecodeArgs(raw, &ScrubArgs{}), "expected_drives[0]", bad)
		require.ErrorContains(t, DecodeArgs(raw, &ValidateArgs{}), "expected_drives[0]", bad)
	}
}
