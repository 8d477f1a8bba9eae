package simnode

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseBootReadsAllForms(t *testing.T) {
	t.Parallel()
	b, err := parseBoot([]byte("#cloud-config\nhostname: h\nssh_authorized_keys: [k0]\nusers: [default, {name: ops, ssh_authorized_keys: [k1]}]\n" +
		"ssh_keys: {ed25519_private: PEM}\nwrite_files: [{path: /a, content: x, permissions: '0600', append: true}]\nruncmd: [[a, b], 'c d']\n"))
	require.NoError(t, err)
	require.Equal(t, "h", b.hostname)
	require.Equal(t, []string{"k0"}, b.keysOf("ubuntu"))
	require.Equal(t, []string{"k1"}, b.keysOf("ops"))
	require.Empty(t, b.keysOf("default"))
	require.Empty(t, b.keysOf("root"))
	require.Equal(t, []bootFile{{"/a", []byte("x"), 0o600, true}}, b.files)
	require.Equal(t, [][]string{{"a", "b"}, {"c", "d"}}, b.commands)
	b.defaultUser = "maas"
	require.Equal(t, []string{"k0"}, b.keysOf("maas"))

	mime := "Content-Type: multipart/mixed; boundary=\"B\"\nMIME-Version: 1.0\n\n--B\nContent-Type: text/x-shellscript\n" +
		"Content-Disposition: attachment; filename=\"s.sh\"\n\n#!/bin/sh\n--B\nContent-Type: text/plain\n\n#cloud-config\nhostname: m\n--B--\n"
	b, err = parseBoot([]byte(mime))
	require.NoError(t, err)
	require.Equal(t, "m", b.hostname)
	require.Equal(t, "s.sh", b.scripts[0].name)

	b, err = parseBoot([]byte("#!/bin/sh\necho\n"))
	require.NoError(t, err)
	require.Len(t, b.scripts, 1)
	_, err = parseBoot(nil)
	require.NoError(t, err)
	for _, bad := range []string{"hello", "#cloud-config\n- a", "Content-Type: text/plain\n\nx", "#cloud-config\nusers: [{gecos: x}]",
		"#cloud-config\nwrite_files: [{path: /a, encoding: gz}]", "#cloud-config\nwrite_files: [{path: /a, encoding: b64, content: '*'}]",
		"#cloud-config\nwrite_files: [{path: /a, permissions: 'rw'}]"} {
		_, err := parseBoot([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestFilesStayBelowTheRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	tr, err := openTree(root)
	require.NoError(t, err)
	defer tr.close()
	require.NoError(t, tr.put("/../../escaped", []byte("x"), 0o600, false))
	require.NoFileExists(t, filepath.Join(dir, "escaped"))
	require.FileExists(t, filepath.Join(root, "escaped"))
	require.NoError(t, os.Symlink(dir, filepath.Join(root, "link")))
	require.Error(t, tr.put("/link/out", []byte("x"), 0o600, false), "no way out by a link")
	require.NoError(t, tr.put("/d/f", []byte("a"), 0o600, false))
	require.NoError(t, tr.put("/d/f", []byte("b"), 0o640, true))
	raw, err := os.ReadFile(filepath.Join(root, "d/f"))
	require.NoError(t, err)
	require.Equal(t, "ab", string(raw))
}

func TestCommandsAreLedBelowTheRoot(t *testing.T) {
	t.Parallel()
	n := &Node{root: "/r"}
	for in, want := range map[string]string{
		"cat /etc/slipway/agent.yaml":         "cat /r/etc/slipway/agent.yaml",
		"sh -c x '/var/lib/slipway/ops' 'id'": "sh -c x '/r/var/lib/slipway/ops' 'id'",
		"x=/etc/maas/a":                       "x=/r/etc/maas/a",
		"$SLIPWAY_ROOT/etc/slipway/x":         "$SLIPWAY_ROOT/etc/slipway/x",
		"/usr/lib/systemd/system/a":           "/r/usr/lib/systemd/system/a",
		"/etc/slipwayx":                       "/etc/slipwayx",
		"ls /usr/bin":                         "ls /usr/bin",
	} {
		require.Equal(t, want, n.localise(in))
	}
}
