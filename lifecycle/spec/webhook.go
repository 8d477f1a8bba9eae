package spec

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxWebhookURL bounds the URL of a webhook.
const maxWebhookURL = 2000

// CheckWebhookURL returns an error that says what is wrong with the address of a tenant's webhook,
// nil when it may be stored. A host name is checked again at each connection, when its addresses
// are known.
func (r AddressRule) CheckWebhookURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxWebhookURL || strings.ContainsFunc(text, isNoVisibleASCII):
		return fmt.Errorf("must be a URL of at most %d visible ASCII characters; write a name of other letters as xn--", maxWebhookURL)
	case u.Scheme != "https" || u.Opaque != "":
		return fmt.Errorf("must begin with https://")
	case u.User != nil:
		return fmt.Errorf("must not hold a user or password; the signature proves who sends")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return fmt.Errorf("must not hold a fragment")
	}
	_, host, port := SplitAddress(text)
	if u.Port() == "" && strings.HasSuffix(u.Host, ":") || host == "" {
		return fmt.Errorf("must name a host, and a port only where it is not 443")
	}
	ip, err := netip.ParseAddr(host)
	if err == nil && slices.Contains(r.Also, netip.AddrPortFrom(ip, port)) {
		return nil
	}
	if len(r.Ports) > 0 && !slices.Contains(r.Ports, port) {
		return fmt.Errorf("must use one of the ports %v", r.Ports)
	}
	if err == nil {
		if r.Check(netip.AddrPortFrom(ip, port)) != nil {
			return fmt.Errorf("must name a host with a public address")
		}
		return nil
	}
	if !isHostName(host) {
		return fmt.Errorf("must name a host with a full domain name, such as hooks.example.com, or with a public IP address")
	}
	return nil
}

func isNoVisibleASCII(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }

// isHostName reports whether a name has two labels at least and ends in one that is no number, so
// that no resolver takes it for an address or adds a domain of its own.
func isHostName(host string) bool {
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || l[0] == '-' {
			return false
		}
	}
	last := labels[len(labels)-1]
	return len(labels) > 1 && len(host) <= 253 && last[0] >= 'a'
}
