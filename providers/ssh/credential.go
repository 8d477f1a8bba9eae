package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
)

const opCredential = "ssh.credential"

const (
	// certificateLife is how long a certificate that is signed for one login is valid. It bounds
	// the login, not what runs in it.
	certificateLife = 15 * time.Minute
	// clockSkew is how far the machine's clock may be behind.
	clockSkew = time.Minute
)

// credential is a secret of the kind ssh_key in its JSON form. Without braces the secret is a
// private key in PEM form.
type credential struct {
	// PrivateKey in PEM form, and optionally its user certificate in authorized_keys form.
	PrivateKey  string `json:"private_key"`
	Certificate string `json:"certificate"`
	// UserCAKey is the private key of a CA whose user certificates the machines accept. A key is
	// made and signed for each login; it is instead of the other two.
	UserCAKey string `json:"user_ca_key"`
}

// ResolveLogin returns the target with the address rule and the credential that ref names, for a
// login to t.Address as t.User. keyID appears in the machine's log where a certificate is signed:
// it names the run. The caller audits the login.
func ResolveLogin(ctx context.Context, s providers.Secrets, ref providers.SecretRef, use providers.Use, t providers.SSHTarget, keyID string) (providers.SSHTarget, error) {
	use.Address = t.Address
	rule, err := s.AddressRule(ctx, ref, use)
	if err != nil {
		return providers.SSHTarget{}, err
	}
	secret, err := s.Resolve(ctx, ref, use)
	if err != nil {
		return providers.SSHTarget{}, err
	}
	t.Rule = rule
	value := strings.TrimSpace(secret.Reveal())
	if !strings.HasPrefix(value, "{") {
		t.PrivateKeyPEM, t.CertificateAuthorized = secret, ""
		return t, nil
	}
	var c credential
	// The cause is dropped: a parser's words could repeat the key.
	if json.Unmarshal([]byte(value), &c) != nil || (c.UserCAKey == "") == (c.PrivateKey == "") || c.UserCAKey != "" && c.Certificate != "" {
		return providers.SSHTarget{}, failure(providers.KindInvalid, opCredential, nil,
			`secret %s is no SSH credential; store a private key, {"private_key": "...", "certificate": "..."} or {"user_ca_key": "..."}`, ref)
	}
	if c.UserCAKey != "" {
		return signLogin(t, c.UserCAKey, keyID, time.Now())
	}
	t.PrivateKeyPEM, t.CertificateAuthorized = providers.NewSecret(c.PrivateKey), c.Certificate
	return t, nil
}

// signLogin returns the target with a new key and a certificate for t.User alone.
func signLogin(t providers.SSHTarget, caPEM, keyID string, now time.Time) (providers.SSHTarget, error) {
	ca, err := ssh.ParsePrivateKey([]byte(caPEM))
	if err != nil {
		return providers.SSHTarget{}, failure(providers.KindInvalid, opCredential, nil,
			"the key of the CA cannot be read; it must be an unencrypted private key in PEM form")
	}
	if t.User == "" || keyID == "" {
		return providers.SSHTarget{}, failure(providers.KindInvalid, opCredential, nil, "a certificate needs an account and a name for the log")
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return providers.SSHTarget{}, failure(providers.KindUnavailable, opCredential, err, "no key could be made for the login")
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return providers.SSHTarget{}, failure(providers.KindUnavailable, opCredential, err, "no key could be made for the login")
	}
	// Without extensions: no terminal, no forwarding of ports or of an agent.
	cert := &ssh.Certificate{
		Key: signer.PublicKey(), CertType: ssh.UserCert, KeyId: keyID, ValidPrincipals: []string{t.User},
		ValidAfter: uint64(now.Add(-clockSkew).Unix()), ValidBefore: uint64(now.Add(certificateLife).Unix()),
	}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		return providers.SSHTarget{}, failure(providers.KindUnavailable, opCredential, err, "the certificate for the login could not be signed")
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return providers.SSHTarget{}, failure(providers.KindUnavailable, opCredential, err, "no key could be made for the login")
	}
	t.PrivateKeyPEM = providers.NewSecret(string(pem.EncodeToMemory(block)))
	t.CertificateAuthorized = string(ssh.MarshalAuthorizedKey(cert))
	return t, nil
}
