// Package tenancy decides what happens to billing accounts, projects and their members: it checks
// keys, tags and identities, and accepts, closes and deletes within the transaction that it is
// given.
package tenancy

import (
	"crypto/rsa"
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"
)

// The limits of a project.
const (
	MaxSSHKeys     = 20
	MaxTokens      = 50
	MaxInvitations = 50
	MaxTags        = 50

	maxKeyText = 16 << 10
	minRSABits = 3072
	maxRSABits = 16384
	maxEmail   = 254
	maxSubject = 290
)

// SSHKey is a public key as it is stored: one line without options and without a comment.
type SSHKey struct{ Type, PublicKey, Fingerprint string }

var keyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoRSA,
}

// ParseSSHKey reads one line of an authorized_keys file and writes the key again, without its
// comment. It returns an error that says what to do when the line has options, or a key that is not
// accepted.
func ParseSSHKey(text string) (SSHKey, error) {
	text = strings.TrimSpace(text)
	if len(text) > maxKeyText || strings.ContainsAny(text, "\r\n\x00") {
		return SSHKey{}, fmt.Errorf("must be one line of at most %d bytes, as in a .pub file", maxKeyText)
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(rest) > 0 {
		return SSHKey{}, fmt.Errorf("is not an SSH public key; send the one line of a .pub file, never the private key")
	}
	if len(options) > 0 {
		return SSHKey{}, fmt.Errorf("has options before the key, which are not kept; send the key without them")
	}
	if !slices.Contains(keyTypes, key.Type()) {
		return SSHKey{}, fmt.Errorf("has a type that is not accepted; use ed25519, ecdsa, a security key (sk), or RSA of at least %d bits", minRSABits)
	}
	if crypto, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := crypto.CryptoPublicKey().(*rsa.PublicKey); ok && (public.N.BitLen() < minRSABits || public.N.BitLen() > maxRSABits) {
			return SSHKey{}, fmt.Errorf("is an RSA key of %d bits; use one of %d to %d bits, or ed25519", public.N.BitLen(), minRSABits, maxRSABits)
		}
	}
	return SSHKey{key.Type(), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), ssh.FingerprintSHA256(key)}, nil
}

var (
	tagKey   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)
	tagValue = regexp.MustCompile(`^[\p{L}\p{N} ._:/@+=-]{0,200}$`)
)

// CheckTags returns what is wrong with tags, "" when they are accepted. Tags hold no character that
// a shell or a YAML document would read.
func CheckTags(tags map[string]string) string {
	if len(tags) > MaxTags {
		return fmt.Sprintf("must be at most %d tags", MaxTags)
	}
	for k, v := range tags {
		if !tagKey.MatchString(k) {
			return "must have keys of 1 to 63 letters, digits, dots, dashes, underscores or slashes"
		}
		if !utf8.ValidString(v) || !tagValue.MatchString(v) {
			return "must have values of at most 200 letters, digits, spaces and . _ : / @ + = -"
		}
	}
	return ""
}

// ParseEmail returns an address in the form that invitations and sign-ins are compared in.
func ParseEmail(text string) (string, error) {
	a, err := mail.ParseAddress(text)
	if err != nil || a.Address != text || len(text) > maxEmail || strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII || unicode.IsSpace(r) }) {
		return "", fmt.Errorf("must be one plain e-mail address of ASCII characters, such as ada@example.com")
	}
	return strings.ToLower(text), nil
}

// SubjectPrefix begins the identity of a sign-in.
const SubjectPrefix = "oidc:"

// CheckSubject returns what is wrong with the identity of a sign-in, "" when it is accepted.
func CheckSubject(subject string) string {
	rest, ok := strings.CutPrefix(subject, SubjectPrefix)
	if !ok || rest == "" || len(rest) > maxSubject || !utf8.ValidString(rest) || strings.ContainsFunc(rest, unicode.IsControl) {
		return "must be oidc: and the subject of the sign-in, as whoami shows it"
	}
	return ""
}
