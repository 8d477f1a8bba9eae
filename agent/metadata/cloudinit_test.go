package metadata

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// cloudInitVar names a directory with the Python package cloudinit and what it imports, such as one
// into which Debian's packages were unpacked. Nobody wants cloud-init installed on the machine of
// the tests: it would set that up again at its next boot.
const cloudInitVar = "SLIPWAY_TEST_CLOUD_INIT"

// TestHandler_IsReadByCloudInit reads the metadata with cloud-init's own code, both as EC2's and as
// that of NoCloud. TestHandler_ServesWhatCloudInitReads asks the same paths without it.
func TestHandler_IsReadByCloudInit(t *testing.T) {
	t.Parallel()
	path := os.Getenv(cloudInitVar)
	if path == "" {
		t.Skipf("%s names no cloud-init", cloudInitVar)
	}
	url := start(t, "127.0.0.1:0", write(t, document))
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/read_metadata.py", url)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &failed)
		require.NoError(t, err, string(failed.Stderr))
	}
	var got map[string]any
	require.NoError(t, json.Unmarshal(out, &got), string(out))
	keys := []any{document.PublicKeys[0], document.PublicKeys[1]}
	require.Equal(t, map[string]any{
		"version": "2021-03-23", "user-data": "", "account": "prj_1", "instance-id": "alc_1", "hostname": "gpu-07", "keys": keys, "zone": "lab-r1", "region": "lab", "group": "g1",
		"tags": map[string]any{"Team": "ml", "cost/center": "42"},
		"nocloud": map[string]any{
			"instance-id": "alc_1", "local-hostname": "gpu-07", "public-keys": keys, "region": "lab", "availability-zone": "lab-r1",
		},
		"nocloud-user-data": "#cloud-config\n{}\n",
	}, got)
}
