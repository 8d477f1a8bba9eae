package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// oneSecret is a store with one secret, which may be sent to loopback addresses.
type oneSecret struct {
	providers.Secrets
	value string
}

func (s oneSecret) Resolve(_ context.Context, _ providers.SecretRef, use providers.Use) (providers.Secret, error) {
	return providers.NewSecret(s.value), providers.SimulatedAddresses().CheckURL(use.Address)
}

func (s oneSecret) AddressRule(_ context.Context, _ providers.SecretRef, use providers.Use) (spec.AddressRule, error) {
	if rule := providers.SimulatedAddresses(); rule.CheckURL(use.Address) == nil {
		return rule, nil
	}
	return spec.AddressRule{}, failure(providers.KindInvalid, "secrets.rule", nil, "the address is refused")
}

func caPEM(t *testing.T) (text string, signer ssh.Signer) {
	t.Helper()
	pemBytes, signer := newKey(t)
	return string(pemBytes), signer
}

func jsonText(t *testing.T, c credential) string {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	return string(text)
}

func TestResolveLogin_EachFormLogsIn(t *testing.T) {
	t.Parallel()
	text, ca := caPEM(t)
	n := startNodeTrusting(t, ca)
	key := n.PrivateKeyPEM.Reveal()
	bare := n.SSHTarget
	bare.PrivateKeyPEM, bare.Rule = providers.Secret{}, spec.AddressRule{}
	signedKey := signed(t, n, ca, n.User, time.Now().Add(-time.Minute), time.Now().Add(time.Minute)).SSH
	for name, value := range map[string]string{
		"a key":                   key,
		"a key in JSON":           jsonText(t, credential{PrivateKey: key}),
		"a key and certificate":   jsonText(t, credential{PrivateKey: signedKey.PrivateKeyPEM.Reveal(), Certificate: signedKey.CertificateAuthorized}),
		"a CA that signs a login": jsonText(t, credential{UserCAKey: text}),
	} {
		target, err := ResolveLogin(t.Context(), oneSecret{value: value}, "ssh/key", providers.Use{Kind: spec.SecretSSHKey}, bare, "run-17")
		require.NoError(t, err, name)
		_, err = n.runner().Exec(t.Context(), providers.MachineTarget{SSH: target}, remote("op-"+strings.ReplaceAll(name, " ", "-"), "true"), discard)
		require.NoError(t, err, name)
	}
	require.Contains(t, n.log(t), "ID run-17", "the machine's log names the run")
}

// A certificate is for one account, for minutes, and lets its holder forward nothing.
func TestResolveLogin_SignsLittle(t *testing.T) {
	t.Parallel()
	text, ca := caPEM(t)
	now := time.Now()
	target, err := signLogin(providers.SSHTarget{User: "slipway"}, text, "run-17", now)
	require.NoError(t, err)
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(target.CertificateAuthorized))
	require.NoError(t, err)
	cert, ok := key.(*ssh.Certificate)
	require.True(t, ok)
	require.Equal(t, ca.PublicKey().Marshal(), cert.SignatureKey.Marshal())
	require.Equal(t, []string{"slipway"}, cert.ValidPrincipals)
	require.Equal(t, 16*time.Minute, time.Duration(cert.ValidBefore-cert.ValidAfter)*time.Second)
	require.Empty(t, cert.Extensions)
	require.NotContains(t, fmt.Sprintf("%+v", target), "PRIVATE KEY")

	again, err := signLogin(providers.SSHTarget{User: "slipway"}, text, "run-17", now)
	require.NoError(t, err)
	require.NotEqual(t, target.PrivateKeyPEM.Reveal(), again.PrivateKeyPEM.Reveal(), "each login has its own key")
}

func TestResolveLogin_Refuses(t *testing.T) {
	t.Parallel()
	text, _ := caPEM(t)
	good := providers.SSHTarget{Address: "127.0.0.1:22", User: "slipway"}
	for name, tc := range map[string]struct {
		value  string
		target providers.SSHTarget
		keyID  string
	}{
		"no key":                     {"{}", good, "run-1"},
		"two kinds":                  {jsonText(t, credential{PrivateKey: text, UserCAKey: text}), good, "run-1"},
		"a CA with a certificate":    {jsonText(t, credential{UserCAKey: text, Certificate: "x"}), good, "run-1"},
		"broken JSON":                {`{"private_key": "` + strings.ReplaceAll(text, "\n", `\n`), good, "run-1"},
		"a CA key that is none":      {jsonText(t, credential{UserCAKey: "PRIVATE"}), good, "run-1"},
		"no account":                 {jsonText(t, credential{UserCAKey: text}), providers.SSHTarget{Address: good.Address}, "run-1"},
		"no run":                     {jsonText(t, credential{UserCAKey: text}), good, ""},
		"an address that is refused": {text, providers.SSHTarget{Address: "169.254.169.254:22", User: "slipway"}, "run-1"},
	} {
		_, err := ResolveLogin(t.Context(), oneSecret{value: tc.value}, "ssh/key", providers.Use{Kind: spec.SecretSSHKey}, tc.target, tc.keyID)
		require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), "PRIVATE", name)
	}
}
