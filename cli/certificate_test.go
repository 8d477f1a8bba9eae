package cli_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

func TestCertificatesAreVerifiedWithoutTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	node := dbtest.Node(t, w.store)
	ring := &signing.Ring{Store: w.store, Secrets: w.sealed}
	for _, run := range []string{"job_1", "job_2"} {
		_, err := ring.Certify(t.Context(), evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname},
			Run:     evidence.Run{ID: run, Kind: "decommission", Mode: "soft_reset"}, Simulated: run == "job_1",
			Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Serial: "S9", Method: lifecycle.SanitizePurge, Verified: true}},
		})
		require.NoError(t, err)
	}
	list := w.run("", "certificate", "list", node.Hostname)
	require.Equal(t, cli.ExitOK, list.code, list.err)
	require.Contains(t, list.out, "job_2")
	require.Contains(t, list.out, "simulated")

	exported := w.run("", "certificate", "export", node.Hostname)
	require.Equal(t, cli.ExitOK, exported.code, exported.err)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	whole := file("whole.json", exported.out)
	w.env = map[string]string{} // offline from here on
	own := w.run("", "certificate", "verify", whole)
	require.Equal(t, cli.ExitNotTrusted, own.code, "anybody could have made the keys of the file")
	require.Contains(t, own.err, "consistent, not authenticated: 2 certificates")
	require.NotContains(t, own.out+own.err, "genuine")
	key := regexp.MustCompile(`[0-9a-f]{64}`).FindString(own.out)
	said := w.run(exported.out, "certificate", "verify", "-", "--key", strings.ToUpper(key))
	require.Equal(t, cli.ExitOK, said.code, "from standard input, with the key named: %s", said.err)
	require.Contains(t, said.out, "genuine and whole: 2 certificates")

	other := w.run("", "certificate", "verify", whole, "--key", strings.Repeat("a", 64))
	require.Equal(t, cli.ExitError, other.code)
	require.Contains(t, other.err, "not trusted")
	touched := strings.Replace(exported.out, `"payload": "ey`, `"payload": "eX`, 1)
	require.NotEqual(t, exported.out, touched)
	bad := w.run("", "certificate", "verify", file("touched.json", touched))
	require.Equal(t, cli.ExitError, bad.code)
	require.Contains(t, bad.err, "NOT genuine")

	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", file("else.json", "{}")).code)
	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", filepath.Join(dir, "none")).code)
	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", whole, "--key", "short").code)
	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", whole, "--key", "").code, "an unset variable trusts nobody, and not everybody")
}

// TestAForgedCertificateIsNotGenuine: files that read well, with one thing
// changed, are refused by the command, with the certificate that is meant.
func TestAForgedCertificateIsNotGenuine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	node := dbtest.Node(t, w.store)
	ring := &signing.Ring{Store: w.store, Secrets: w.sealed}
	for _, run := range []string{"job_1", "job_2", "job_3"} {
		_, err := ring.Certify(t.Context(), evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname},
			Run:     evidence.Run{ID: run, Kind: "decommission", Mode: "full_decommission"},
			Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Serial: "SERIAL-9", Method: lifecycle.SanitizePurge, Verified: true}},
		})
		require.NoError(t, err)
	}
	exported := w.run("", "certificate", "export", node.Hostname)
	require.Equal(t, cli.ExitOK, exported.code, exported.err)
	w.env = map[string]string{} // offline from here on
	require.Contains(t, w.run(exported.out, "certificate", "verify", "-", "--key", keyOf(t, exported.out)).out, "genuine and whole: 3 certificates")

	const changed, missing, exchanged = "the signature does not fit", "one is missing, doubled or out of order", "one was removed or exchanged"
	for name, c := range map[string]struct {
		touch func(*testing.T, *evidence.Bundle)
		says  []string
	}{
		"another serial in a payload": {func(t *testing.T, b *evidence.Bundle) {
			b.Certificates[1].Payload = edited(t, b.Certificates[1].Payload, "SERIAL-9", "SERIAL-8")
		}, []string{"certificate 2: " + changed, "certificate 3: it does not follow"}},
		"another node's name in a payload": {func(t *testing.T, b *evidence.Bundle) {
			b.Certificates[2].Payload = edited(t, b.Certificates[2].Payload, node.Hostname, "gpu-elsewhere")
		}, []string{"certificate 3: " + changed, "the whole: the head names"}},
		"another count in the head": {func(t *testing.T, b *evidence.Bundle) {
			b.Head.Payload = edited(t, b.Head.Payload, `"count":3`, `"count":2`)
			b.Certificates = b.Certificates[:2]
		}, []string{"the whole: " + changed}},
		"the first dropped": {func(_ *testing.T, b *evidence.Bundle) { b.Certificates = b.Certificates[1:] },
			[]string{"certificate 1: it has number 2: " + missing, exchanged, "the whole: the head names 3"}},
		"one in the middle dropped": {func(_ *testing.T, b *evidence.Bundle) { b.Certificates = slices.Delete(b.Certificates, 1, 2) },
			[]string{"certificate 2: it has number 3: " + missing, "certificate 2: it does not follow the one before it: " + exchanged, "the whole: the head names 3"}},
		"the last dropped": {func(_ *testing.T, b *evidence.Bundle) { b.Certificates = b.Certificates[:2] },
			[]string{"the whole: the head names 3 certificates and another end than the 2 that are here: some were removed"}},
		"all dropped": {func(_ *testing.T, b *evidence.Bundle) { b.Certificates = nil }, []string{"the whole: the head names 3"}},
		"two swapped": {func(_ *testing.T, b *evidence.Bundle) { swap(b.Certificates, 0, 1) },
			[]string{"certificate 1: it has number 2: " + missing, "certificate 2: it has number 1: " + missing, exchanged}},
		"the last two swapped": {func(_ *testing.T, b *evidence.Bundle) { swap(b.Certificates, 1, 2) },
			[]string{"certificate 2: it has number 3: " + missing, "certificate 3: it has number 2: " + missing, "the whole: the head names 3"}},
		"two signatures swapped": {func(_ *testing.T, b *evidence.Bundle) {
			b.Certificates[0].Signature, b.Certificates[1].Signature = b.Certificates[1].Signature, b.Certificates[0].Signature
		}, []string{"certificate 1: " + changed, "certificate 2: " + changed}},
	} {
		t.Run(name, func(t *testing.T) {
			var b evidence.Bundle
			require.NoError(t, json.Unmarshal([]byte(exported.out), &b))
			require.Len(t, b.Certificates, 3)
			c.touch(t, &b)
			forged, err := json.Marshal(b)
			require.NoError(t, err)
			got := w.run(string(forged), "certificate", "verify", "-")
			require.Equal(t, cli.ExitError, got.code, got.out)
			require.NotContains(t, got.out, "genuine and whole")
			require.Contains(t, got.err, "NOT genuine or not whole")
			for _, text := range c.says {
				require.Contains(t, got.err, text)
			}
			require.NotContains(t, got.err, "cannot be read", "it is the signature and the links that tell, not the form")
		})
	}
}

// edited replaces a text that is there once, and leaves valid JSON.
func edited(t *testing.T, payload []byte, old, fresh string) []byte {
	t.Helper()
	require.Equal(t, 1, bytes.Count(payload, []byte(old)), "%s in %s", old, payload)
	out := bytes.Replace(payload, []byte(old), []byte(fresh), 1)
	require.True(t, json.Valid(out))
	return out
}

// keyOf returns the fingerprint of the key of an export.
func keyOf(t *testing.T, exported string) string {
	t.Helper()
	var b evidence.Bundle
	require.NoError(t, json.Unmarshal([]byte(exported), &b))
	require.Len(t, b.Keys, 1)
	sum := sha256.Sum256(b.Keys[0].Public)
	return hex.EncodeToString(sum[:])
}

func swap(links []evidence.Envelope, i, k int) { links[i], links[k] = links[k], links[i] }

// TestCertificateVerify_ExitStatus: a script that asks whether a node is proven clean is not told
// yes by a chain that is only genuine.
func TestCertificateVerify_ExitStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	node := dbtest.Node(t, w.store)
	ring := &signing.Ring{Store: w.store, Secrets: w.sealed}
	verify := func(code int) string {
		exported := w.run("", "certificate", "export", node.Hostname).exits(cli.ExitOK).out
		return w.run(exported, "certificate", "verify", "-", "--key", keyOf(t, exported)).exits(code).err
	}
	exported := w.run("", "certificate", "export", node.Hostname).exits(cli.ExitOK).out
	require.Contains(t, w.run(exported, "certificate", "verify", "-").exits(cli.ExitNotTrusted).err, "consistent, not authenticated: 0 certificates")
	require.Contains(t, w.run(exported, "certificate", "verify", "-", "--key", strings.Repeat("a", 64)).exits(cli.ExitError).err, "which is not trusted")
	require.Contains(t, verify(cli.ExitNotClean), "nothing was ever certified")
	for i, code := range []int{cli.ExitOK, cli.ExitNotClean, cli.ExitOK} {
		_, err := ring.Certify(t.Context(), evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID}, Run: evidence.Run{ID: "job_" + strings.Repeat("1", i+1), Kind: "decommission", Mode: "reimage"},
			Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "sda", Serial: "S", Method: lifecycle.SanitizeClear, Verified: code == cli.ExitOK}},
		})
		require.NoError(t, err)
		verify(code)
	}
}
