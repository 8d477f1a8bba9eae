package maas

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Limits that hold unless Options say otherwise.
const (
	// DefaultTimeout bounds a call whose context has no deadline. MAAS itself
	// retries a database conflict for up to 90 s and asks a BMC for up to 60 s.
	DefaultTimeout = 3 * time.Minute
	// DefaultMaxBody bounds one answer, and one machine of the list, in bytes.
	DefaultMaxBody = 16 << 20
	// DefaultMaxList bounds the unfiltered machine list, which MAAS does not
	// page and which is read one machine at a time, in bytes.
	DefaultMaxList = 512 << 20
)

// Options tune a client; the zero value is right for production.
type Options struct {
	Timeout time.Duration // 0 = DefaultTimeout
	MaxBody int64         // bytes, 0 = DefaultMaxBody
	MaxList int64         // bytes, 0 = DefaultMaxList
	Log     *slog.Logger  // one debug line a request, with MAAS-trace-id; nil = none
}

// Opener implements providers.MAASOpener over the real protocol.
type Opener struct {
	Options Options
}

var _ providers.MAASOpener = Opener{}

// OpenMAAS checks the site's settings and returns a client for it. It sends
// nothing. A wrong setting is KindInvalid.
func (o Opener) OpenMAAS(site providers.MAASSite) (providers.MAAS, error) {
	base, err := parseBase(site.URL)
	if err != nil {
		return nil, err
	}
	if err := site.Rule.CheckURL(base.String()); err != nil {
		return nil, invalid("maas.open", err.Error())
	}
	key, err := parseKey(site.APIKey)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(site.CAPEM, site.Rule)
	if err != nil {
		return nil, err
	}
	opt := o.Options
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.MaxBody <= 0 {
		opt.MaxBody = DefaultMaxBody
	}
	if opt.MaxList <= 0 {
		opt.MaxList = DefaultMaxList
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &client{base: base, key: key, transport: transport, opt: opt, answered: site.Answered}, nil
}

// parseBase accepts the base URL with or without a trailing slash or the
// /api/2.0 suffix that people copy along.
func parseBase(raw string) (*url.URL, error) {
	const op = "maas.open"
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, invalid(op, "the MAAS URL cannot be parsed; give it like https://maas.example:5240/MAAS")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid(op, "the MAAS URL must start with https:// or http://")
	case u.Hostname() == "":
		return nil, invalid(op, "the MAAS URL names no host")
	case u.User != nil:
		return nil, invalid(op, "the MAAS URL must not hold a user or password; the API key goes into its own field")
	case u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" || strings.Contains(u.Path, ".."):
		return nil, invalid(op, "the MAAS URL must be a plain base such as https://maas.example:5240/MAAS")
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/api/2.0")
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}, nil
}

// parseKey checks the three-part form before gomaasclient would print a
// malformed key in its error.
func parseKey(key providers.Secret) (providers.Secret, error) {
	value := strings.TrimSpace(key.Reveal())
	parts := strings.Split(value, ":")
	ok := len(parts) == 3
	for _, p := range parts {
		if p == "" || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' }) {
			ok = false
		}
	}
	if !ok {
		return providers.Secret{}, invalid("maas.open", "the MAAS API key must have the form consumer:token:secret")
	}
	return providers.NewSecret(value), nil
}

// newTransport speaks HTTP/1.1 on one connection a request (gomaasapi closes
// each), straight to the host: a proxy from the environment would see the API
// key, which OAuth PLAINTEXT sends as it is.
func newTransport(caPEM string, rule spec.AddressRule) (*http.Transport, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if strings.TrimSpace(caPEM) != "" {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM([]byte(caPEM)) {
			return nil, invalid("maas.open", "the CA bundle of the MAAS site holds no PEM certificate")
		}
	}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            providers.NewDialer(rule, 10*time.Second).DialContext,
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    10 * time.Second,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
	}, nil
}
