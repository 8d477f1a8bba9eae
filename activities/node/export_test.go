package node

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/cloudinit"
)

// HashToken is hashToken.
func HashToken(token string) []byte { return hashToken(token) }

// RunWriteToken runs writeToken below dir, and returns where the token is.
func RunWriteToken(t *testing.T, dir, token string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(writeToken, cloudinit.StateDir, dir))
	c.Stdin = strings.NewReader(token)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return filepath.Join(dir, filepath.Base(cloudinit.TokenPath))
}

// RunWriteCA runs writeCA on the configuration at path.
func RunWriteCA(t *testing.T, path, ca string) error {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(writeCA, cloudinit.AgentConfigPath, path))
	c.Stdin = strings.NewReader(ca)
	return c.Run()
}
