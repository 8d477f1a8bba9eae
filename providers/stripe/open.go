package stripe

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// DefaultURL is Stripe's API.
const DefaultURL = stripego.APIURL

// Limits that hold unless Options say otherwise.
const (
	// DefaultTimeout bounds a call with its repetitions when its context has no deadline.
	DefaultTimeout = 60 * time.Second
	// DefaultTryTimeout bounds one request. Stripe answers slow calls within 30 seconds.
	DefaultTryTimeout = 30 * time.Second
	// DefaultTries is how often a call is sent at most.
	DefaultTries = 3
	// DefaultMaxBody bounds one answer, in bytes: a page has at most 100 items.
	DefaultMaxBody = 8 << 20
)

// Options tune a client; the zero value is right for production.
type Options struct {
	Timeout    time.Duration // 0 = DefaultTimeout
	TryTimeout time.Duration // 0 = DefaultTryTimeout
	Tries      int           // 0 = DefaultTries
	Wait       time.Duration // before the second try, doubled for each further one; 0 = half a second
	MaxBody    int64         // bytes, 0 = DefaultMaxBody
}

func (o *Options) fill() {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.TryTimeout <= 0 {
		o.TryTimeout = DefaultTryTimeout
	}
	if o.Tries <= 0 {
		o.Tries = DefaultTries
	}
	if o.Wait <= 0 {
		o.Wait = 500 * time.Millisecond
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
}

// Opener implements providers.PaymentsOpener over the real protocol.
type Opener struct {
	Options Options
}

var _ providers.PaymentsOpener = Opener{}

// OpenPayments checks the account's settings and returns a client for it. It sends nothing. A wrong
// setting is KindInvalid.
func (o Opener) OpenPayments(account providers.PaymentsAccount) (providers.Payments, error) {
	base, err := parseBase(account)
	if err != nil {
		return nil, err
	}
	if err := checkKey(account.Key, account.Live); err != nil {
		return nil, err
	}
	o.Options.fill()
	transport := &http.Transport{
		Proxy: nil, DialContext: providers.NewDialer(account.Rule, 10*time.Second).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 256 << 10,
	}
	none, noTelemetry := int64(0), false
	backends := stripego.NewBackendsWithConfig(&stripego.BackendConfig{
		HTTPClient: &http.Client{
			Transport:     &guard{next: transport, host: base.Host, maxBody: o.Options.MaxBody},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		URL: stripego.String(strings.TrimRight(base.String(), "/")), MaxNetworkRetries: &none, EnableTelemetry: &noTelemetry,
		LeveledLogger: &stripego.LeveledLogger{Level: stripego.LevelNull},
	})
	return &client{
		api: stripego.NewClient(account.Key.Reveal(), stripego.WithBackends(backends)), live: account.Live, opt: o.Options,
		redaction: providers.NewRedaction(account.Key),
	}, nil
}

// Settings say where the account is; they hold no secret.
type Settings struct {
	URL    string // "" is DefaultURL
	KeyRef string // names the secret that holds the key
	Live   bool
}

// Connect resolves the key and opens a client. The secret's use has to allow the address of the
// URL.
func (o Opener) Connect(ctx context.Context, secrets providers.Secrets, s Settings) (providers.Payments, error) {
	if s.URL == "" {
		s.URL = DefaultURL
	}
	use := providers.Use{Kind: spec.SecretStripeKey, Address: s.URL}
	rule, err := secrets.AddressRule(ctx, providers.SecretRef(s.KeyRef), use)
	if err != nil {
		return nil, err
	}
	key, err := secrets.Resolve(ctx, providers.SecretRef(s.KeyRef), use)
	if err != nil {
		return nil, err
	}
	return o.OpenPayments(providers.PaymentsAccount{Rule: rule, URL: s.URL, Key: key, Live: s.Live})
}

func parseBase(account providers.PaymentsAccount) (*url.URL, error) {
	const op = "stripe.open"
	u, err := url.Parse(account.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid(op, "the URL of Stripe's API must be one such as "+DefaultURL)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, invalid(op, "the URL of Stripe's API must be a plain base such as "+DefaultURL)
	}
	if err := account.Rule.CheckURL(account.URL); err != nil {
		return nil, invalid(op, err.Error())
	}
	return u, nil
}

var keyForm = regexp.MustCompile(`^(sk|rk)_(test|live)_[A-Za-z0-9_]{4,250}$`)

// checkKey refuses what is no secret or restricted key of the mode, before it is sent anywhere.
func checkKey(key providers.Secret, live bool) error {
	m := keyForm.FindStringSubmatch(key.Reveal())
	switch {
	case m == nil:
		return invalid("stripe.open", "the key of Stripe's API must begin with sk_test_, sk_live_, rk_test_ or rk_live_")
	case live && m[2] != "live":
		return invalid("stripe.open", "the key is one of Stripe's test mode, and the account is configured as live; store a live key, or configure test mode")
	case !live && m[2] == "live":
		return invalid("stripe.open", "the key moves real money, and the account is configured as test mode; store a test key, or configure live mode")
	}
	return nil
}
