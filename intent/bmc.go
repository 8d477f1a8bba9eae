package intent

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
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

// BMC is the address of a server's BMC and the login to use.
type BMC struct {
	Address       string
	CredentialRef string
	SystemID      string
	Protocol      string
	CipherSuite   int // 0 uses the usual one
	// Site is the site of the BMC's node; nil for a node without one. NodeID is "" for a new node.
	Site   *db.Site
	NodeID string
}

// CheckBMC returns the fields of a BMC that are wrong.
func CheckBMC(ctx context.Context, store secrets, b BMC) ([]Field, error) {
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
	if err != nil || len(bad)+len(ref) > 0 {
		return append(bad, ref...), err
	}
	return checkTarget(ctx, store, b)
}

// checkTarget returns the fields that are wrong because the BMC's address is not allowed, or the
// login may not be sent there. It resolves no name: a name is checked when the login is sent.
func checkTarget(ctx context.Context, store secrets, b BMC) ([]Field, error) {
	name, _, _ := strings.Cut(b.CredentialRef, "@")
	use, _, err := store.SecretUse(ctx, name)
	if err != nil {
		return nil, err
	}
	siteID, rule := "", use.RuleWithoutSite()
	networks := rule.Networks
	rule.Anywhere = true // an address outside the networks is refused below, with the login
	if b.Site != nil {
		siteID, rule = b.Site.ID, b.Site.Spec.AddressRule(spec.SecretBMCLogin, b.Site.Name)
	}
	if err := rule.CheckURL(b.Address); err != nil {
		return []Field{{Name: "address", Message: err.Error()}}, nil
	}
	_, host, _ := spec.SplitAddress(b.Address)
	ip, err := netip.ParseAddr(host)
	inside := err != nil && len(networks) > 0 || slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
	if !inside && (b.Site == nil || !use.Allows(siteID, b.NodeID)) {
		return []Field{{Name: "credential_ref", Message: "may not be used for this BMC: its use names other sites, nodes or networks", Reason: ReasonSecretUse}}, nil
	}
	return nil, nil
}

// CheckCredential returns a wrong field when ref does not name a stored login of BMCs. It does not
// open the secret.
func CheckCredential(ctx context.Context, store secrets, ref string) ([]Field, error) {
	return CheckSecret(ctx, store, "credential_ref", ref, spec.SecretBMCLogin)
}

// secrets is a *db.Store or a *db.Tx.
type secrets interface {
	SecretVersion(ctx context.Context, name string, version int) (got int, keeperURL string, ciphertext []byte, found bool, err error)
	SecretUse(ctx context.Context, name string) (use spec.SecretUse, found bool, err error)
}

// CheckSecret returns the field as wrong when ref does not name a stored secret of the kind. It
// does not open the secret.
func CheckSecret(ctx context.Context, store secrets, field, ref string, kind spec.SecretKind) ([]Field, error) {
	wrong := func(message string) []Field {
		return []Field{{Name: field, Message: message, Reason: ReasonSecretMissing}}
	}
	if !spec.ValidRef(ref) {
		return wrong("is not a secret reference (name or name@version)"), nil
	}
	name, number, versioned := strings.Cut(ref, "@")
	version := 0
	if versioned {
		var err error
		if version, err = strconv.Atoi(number); err != nil || version < 1 {
			return wrong("there is no secret " + ref), nil //nolint:nilerr // a version that is no number does not exist
		}
	}
	_, _, _, found, err := store.SecretVersion(ctx, name, version)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return wrong("there is no secret " + ref), nil
	}
	use, found, err := store.SecretUse(ctx, name)
	refused := func(message string) []Field {
		return []Field{{Name: field, Message: message, Reason: ReasonSecretUse}}
	}
	switch {
	case err != nil:
		return nil, err
	case !found:
		return refused("nobody has stated what this secret may be used for"), nil
	case use.Kind != kind:
		return refused("is a " + string(use.Kind) + " and not a " + string(kind)), nil
	}
	return nil, nil
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

// ipmiPort is the port of IPMI, and of nothing else.
const ipmiPort = 623

// ProtocolOfBMC returns the protocol of a BMC of which only the address is stated.
func ProtocolOfBMC(address string) string {
	if scheme, _, port := spec.SplitAddress(address); scheme == "" && port == ipmiPort {
		return ProtocolIPMI
	}
	return ProtocolRedfish
}
