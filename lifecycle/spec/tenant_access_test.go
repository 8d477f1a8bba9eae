package spec

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// line returns a public key as it stands in an authorized_keys file.
func line(t *testing.T, key any) string {
	t.Helper()
	public, err := ssh.NewPublicKey(key)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
}

func ed25519Line(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return line(t, public)
}

// rsaLine returns an RSA key of exactly this size, which nobody has the private half of.
func rsaLine(t *testing.T, size uint) string {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), size-1)
	return line(t, &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537})
}

func TestCheckTenantKey(t *testing.T) {
	t.Parallel()
	ec := func(c elliptic.Curve) string {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		require.NoError(t, err)
		return line(t, &key.PublicKey)
	}
	ed := ed25519Line(t)
	for _, good := range []string{ed, ec(elliptic.P256()), ec(elliptic.P384()), ec(elliptic.P521()), rsaLine(t, 3072), rsaLine(t, 4096), rsaLine(t, 16384)} {
		require.NoError(t, CheckTenantKey(good), good[:40])
	}
	_, blob, _ := strings.Cut(ed, " ")
	for name, bad := range map[string]string{
		"empty": "", "options": `command="id" ` + ed, "no-pty": "no-pty " + ed, "a comment": ed + " me@here", "a blank behind": ed + " ", "a tab": "ssh-ed25519\t" + blob,
		"two lines": ed + "\n" + ed, "a line break in the base64": ed[:40] + "\n" + ed[40:], "a carriage return": ed[:40] + "\r" + ed[40:], "a zero byte": ed + "\x00",
		"another type than it says": "ecdsa-sha2-nistp256 " + blob, "an old type": "ssh-dss " + blob, "a certificate": "ssh-ed25519-cert-v01@openssh.com " + blob,
		"broken off": ed[:len(ed)-8], "no base64": "ssh-ed25519 !!!!", "weak RSA": rsaLine(t, 3071), "weaker RSA": rsaLine(t, 1024), "huge RSA": rsaLine(t, 16385),
		"a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
	} {
		require.Error(t, CheckTenantKey(bad), name)
	}
}

// FuzzCheckTenantKey: what passes is a single key for sshd too, and the same text.
func FuzzCheckTenantKey(f *testing.F) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(f, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(f, err)
	f.Add(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))))
	f.Add("ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB")
	f.Fuzz(func(t *testing.T, text string) {
		if CheckTenantKey(text) != nil {
			return
		}
		require.Len(t, strings.Fields(text), 2)
		require.NotContains(t, text, "\n")
		if parsed, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text)); err == nil {
			require.Empty(t, options)
			require.Empty(t, rest)
			require.Equal(t, text, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(parsed))))
		}
	})
}

func TestDecodeArgs_TenantAccess(t *testing.T) {
	t.Parallel()
	decode := func(into any, format string, args ...any) error {
		return DecodeArgs(fmt.Appendf(nil, format, args...), into)
	}
	require.NoError(t, decode(&CreateUserArgs{}, `{"allocation_id":"alc_1","user":"t-alc1","root":true}`))
	for _, user := range []string{"", "root", "-rf", "../x", "t 1", "T1", "t;id", "t\n", strings.Repeat("a", 33)} {
		text, err := json.Marshal(user)
		require.NoError(t, err)
		for _, into := range []any{&CreateUserArgs{}, &SetKeysArgs{}} {
			require.ErrorContains(t, decode(into, `{"allocation_id":"alc_1","user":%s}`, text), "not the name of a tenant's account")
		}
	}
	for _, id := range []string{"", "a/b", "..", "a b", strings.Repeat("a", 129)} {
		require.ErrorContains(t, decode(&CreateUserArgs{}, `{"allocation_id":%q,"user":"t-1"}`, id), "not the id of an allocation", id)
		require.ErrorContains(t, decode(&SetMetadataArgs{}, `{"allocation_id":%q}`, id), "not the id of an allocation", id)
	}
	keys := func(all ...string) string {
		raw, err := json.Marshal(SetKeysArgs{AllocationID: "alc_1", User: "t-1", Keys: all})
		require.NoError(t, err)
		return string(raw)
	}
	require.NoError(t, decode(&SetKeysArgs{}, "%s", keys()))
	var twenty []string
	for range MaxTenantKeys {
		twenty = append(twenty, ed25519Line(t))
	}
	require.NoError(t, decode(&SetKeysArgs{}, "%s", keys(twenty...)))
	require.ErrorContains(t, decode(&SetKeysArgs{}, "%s", keys(append(twenty, ed25519Line(t))...)), "at most 20")
	require.ErrorContains(t, decode(&SetKeysArgs{}, "%s", keys(twenty[0], twenty[0])), "there twice")
	require.ErrorContains(t, decode(&SetKeysArgs{}, "%s", keys("no-pty "+twenty[0])), "keys[0]")

	require.NoError(t, decode(&SetMetadataArgs{}, `{"allocation_id":"alc_1"}`))
	require.NoError(t, decode(&SetMetadataArgs{}, `{"allocation_id":"alc_1","document":{"instance_id":"alc_1","tags":{"Team":"ml","a/b":"ü"},"public_keys":[%q]}}`, twenty[0]))
	for says, document := range map[string]string{
		"is not the allocation's id":    `{"instance_id":"alc_2"}`,
		"document.hostname":             `{"instance_id":"alc_1","hostname":"a\nb"}`,
		"document.tags":                 `{"instance_id":"alc_1","tags":{"a/":"b"}}`,
		"document.public_keys[0]":       `{"instance_id":"alc_1","public_keys":["no-pty ssh-ed25519 AAAA"]}`,
		"unknown field \"user_data\"":   `{"instance_id":"alc_1","user_data":"secret"}`,
		"document.zone is not one line": `{"instance_id":"alc_1","zone":"` + strings.Repeat("z", 513) + `"}`,
	} {
		require.ErrorContains(t, decode(&SetMetadataArgs{}, `{"allocation_id":"alc_1","document":%s}`, document), says)
	}
}
