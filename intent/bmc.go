package intent

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Protocols of a BMC. IPMI has no certificate and no URL.
const (
	ProtocolRedfish = "redfish"
	ProtocolIPMI    = "ipmi"
)

// BMC is where a server's BMC is and whose login to use.
type BMC struct {
	Address       string
	CredentialRef string
	SystemID      string
	Protocol      string
	CipherSuite   int // 0 takes the usual one
}

// CheckBMC returns the fields of a BMC that are wrong.
func CheckBMC(ctx context.Context, store *db.Store, b BMC) ([]Field, error) {
	var bad []Field
	switch {
	case b.Protocol == ProtocolIPMI && (!validBMCAddress(b.Address) || strings.Contains(b.Address, "/")):
		bad = append(bad, Field{Name: "address", Message: "must be host or host:port for IPMI, without https://, a login or a path"})
	case !validBMCAddress(b.Address):
		bad = append(bad, Field{Name: "address", Message: "must be host, host:port or https://host:port, without a login or a path"})
	}
	if b.CipherSuite != 0 && b.Protocol != ProtocolIPMI {
		bad = append(bad, Field{Name: "ipmi_cipher_suite", Message: "is for the protocol ipmi only"})
	}
	ref, err := CheckCredential(ctx, store, b.CredentialRef)
	return append(bad, ref...), err
}

// CheckCredential returns a field when ref does not name a stored secret. It does not open the
// secret.
func CheckCredential(ctx context.Context, store *db.Store, ref string) ([]Field, error) {
	wrong := func(message string) []Field {
		return []Field{{Name: "credential_ref", Message: message, Reason: ReasonSecretMissing}}
	}
	if !spec.ValidRef(ref) {
		return wrong("is not a secret reference (name or name@version)"), nil
	}
	name, number, versioned := strings.Cut(ref, "@")
	version := 0
	if versioned {
		var err error
		if version, err = strconv.Atoi(number); err != nil || version < 1 {
			return wrong("there is no such secret"), nil //nolint:nilerr // a version that is no number does not exist
		}
	}
	_, _, _, found, err := store.SecretVersion(ctx, name, version)
	if err != nil || found {
		return nil, err
	}
	return wrong("there is no such secret"), nil
}

func validBMCAddress(address string) bool {
	if len(address) > 255 || strings.ContainsAny(address, " \t\r\n") {
		return false
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && u.Hostname() != "" &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
}
