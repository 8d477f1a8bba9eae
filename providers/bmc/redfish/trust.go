package redfish

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// trust is how the certificate of a BMC is checked.
type trust struct {
	pin   []byte // SHA-256 of the leaf's SubjectPublicKeyInfo, nil = none
	roots *x509.CertPool
	host  string
	plain bool // plain HTTP was asked for
}

func newTrust(base origin, t providers.BMCTarget) (trust, error) {
	tr := trust{host: base.host, plain: base.scheme == "http"}
	bad := func(message string) (trust, error) {
		return trust{}, &providers.Error{Kind: providers.KindInvalid, Op: "redfish.open", Message: message}
	}
	if t.PinSHA256 != "" {
		pin, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(t.PinSHA256), ":", ""))
		if err != nil || len(pin) != sha256.Size {
			return bad("the certificate pin is not a SHA-256 in hex (64 digits)")
		}
		tr.pin = pin
	}
	if t.CAPEM != "" {
		tr.roots = x509.NewCertPool()
		if !tr.roots.AppendCertsFromPEM([]byte(t.CAPEM)) {
			return bad("the CA bundle holds no readable certificate")
		}
	}
	return tr, nil
}

// settled reports whether a login may be sent to this BMC at all.
func (t trust) settled() bool { return t.plain || t.pin != nil || t.roots != nil }

// config is the TLS configuration for calls with a login. With a pin the chain
// is not looked at (BMC certificates are self-signed) and the key of the leaf
// decides. VerifyConnection runs on resumed sessions too, and an error aborts
// the handshake before any byte of HTTP leaves.
func (t trust) config() *tls.Config {
	if t.pin == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.host, RootCAs: t.roots}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.host,
		InsecureSkipVerify: true, //nolint:gosec // the pin below is the stricter check
		VerifyConnection: func(cs tls.ConnectionState) error {
			got, ok := leafPin(cs)
			if !ok || subtle.ConstantTimeCompare(got, t.pin) != 1 {
				return &providers.Error{Kind: providers.KindPinMismatch, Op: "redfish.tls",
					Message: "the BMC shows a certificate key that differs from the approved one " +
						"(now " + hex.EncodeToString(got) + "); compare it and approve the new pin"}
			}
			return nil
		},
	}
}

// probeConfig accepts any certificate: a probe sends no login and only tells
// what the BMC shows.
func (t trust) probeConfig(seen func(pin string)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.host,
		InsecureSkipVerify: true, //nolint:gosec // no credential travels on this connection
		VerifyConnection: func(cs tls.ConnectionState) error {
			if got, ok := leafPin(cs); ok {
				seen(hex.EncodeToString(got))
			}
			return nil
		},
	}
}

func leafPin(cs tls.ConnectionState) ([]byte, bool) {
	if len(cs.PeerCertificates) == 0 {
		return nil, false
	}
	sum := sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo)
	return sum[:], true
}
