package redfish

import (
	"net"
	"net/url"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// origin is the only scheme, host and port to which a BMC value may connect.
type origin struct{ scheme, host, port string }

func (o origin) String() string { return o.scheme + "://" + net.JoinHostPort(o.host, o.port) }

// parseAddress reads "host", "host:port", "https://host[:port]" or an explicit
// "http://host[:port]". The address never carries a login or a path.
func parseAddress(address string) (origin, error) {
	bad := func(why string) (origin, error) {
		return origin{}, &providers.Error{Kind: providers.KindInvalid, Op: "redfish.open",
			Message: "the BMC address " + why + "; give host:port or https://host:port"}
	}
	text := strings.TrimSpace(address)
	if text == "" {
		return bad("is empty")
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("cannot be read")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("has a scheme other than https or http")
	case u.User != nil:
		return bad("carries a login")
	case u.Hostname() == "":
		return bad("names no host")
	case (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "":
		return bad("carries a path")
	}
	return originOf(u), nil
}

func originOf(u *url.URL) origin {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return origin{scheme: strings.ToLower(u.Scheme), host: strings.ToLower(u.Hostname()), port: port}
}

// path turns a link from the BMC into a path on this BMC, without its fragment. The link is a path,
// or the absolute form that a Location may have. A link to another place is an error of
// KindForeign.
func (o origin) path(link string) (string, error) {
	foreign := &providers.Error{Kind: providers.KindForeign, Op: "redfish.link",
		Message: "the BMC answered with a link that is not a path on itself"}
	u, err := url.Parse(link)
	if err != nil || u.User != nil || u.Opaque != "" {
		return "", foreign
	}
	if u.Host != "" {
		if u.Scheme == "" {
			u.Scheme = o.scheme
		}
		if originOf(u) != o {
			return "", foreign
		}
	} else if u.Scheme != "" {
		return "", foreign
	}
	if !strings.HasPrefix(u.Path, "/") {
		return "", foreign
	}
	return u.RequestURI(), nil
}
