package scaleway

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	instance "github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	marketplace "github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"golang.org/x/time/rate"

	"github.com/slipway-cloud/slipway/providers"
)

// DefaultURL is Scaleway's API.
const DefaultURL = "https://api.scaleway.com"

const (
	callTimeout = 30 * time.Second
	maxBody     = 8 << 20 // bytes of one answer
	perSecond   = 5       // requests
)

// client implements providers.Cloud. The SDK stores what it has learned of the API without a lock,
// so that one call is made at a time.
type client struct {
	mu           sync.Mutex
	sdk          *scw.Client
	servers      *instance.API
	volumes      *block.API
	images       *marketplace.API
	wire         *wire
	project      string
	installation string
	redaction    providers.Redaction
}

var _ providers.Cloud = (*client)(nil)

// Open checks the settings of an account and returns a client for it. It sends nothing.
// installation tells the servers of this installation from those of another one in the same
// project. A wrong setting is KindInvalid.
func Open(account providers.CloudAccount, installation string) (providers.Cloud, error) {
	invalid := func(message string) error {
		return &providers.Error{Kind: providers.KindInvalid, Op: "cloud.open", Message: message}
	}
	if account.URL == "" {
		account.URL = DefaultURL
	}
	base, err := url.Parse(account.URL)
	if err != nil || base.Host == "" || base.User != nil || base.Path != "" || base.Scheme != "https" && (base.Scheme != "http" || !account.Rule.PlainHTTP) {
		return nil, invalid("the URL of Scaleway must be https://host, without a login or a path")
	}
	if installation == "" {
		return nil, invalid("the installation has no id")
	}
	w := &wire{host: base.Host, limit: rate.NewLimiter(perSecond, perSecond), next: &http.Transport{
		Proxy: nil, DialContext: providers.NewDialer(account.Rule, 10*time.Second).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 256 << 10,
	}}
	sdk, err := scw.NewClient(
		scw.WithAPIURL(account.URL), scw.WithAuth(account.AccessKey, account.SecretKey.Reveal()), scw.WithDefaultProjectID(account.ProjectID),
		scw.WithUserAgent("Slipway/1"), scw.WithHTTPClient(&http.Client{
			Transport: w, Timeout: callTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))
	if err != nil {
		known := providers.NewRedaction(account.SecretKey)
		return nil, invalid("the key or the project of Scaleway has another form than Scaleway's: " + known.Clean(err.Error()))
	}
	return &client{
		sdk: sdk, servers: instance.NewAPI(sdk), volumes: block.NewAPI(sdk), images: marketplace.NewAPI(sdk), wire: w, project: account.ProjectID,
		installation: installation, redaction: providers.NewRedaction(account.SecretKey),
	}, nil
}

var (
	errForeign  = errors.New("the request is for another host")
	errRedirect = errors.New("the answer redirects to another address")
)

// wire is the transport below the SDK. It records what became of the last request: the SDK's own
// errors do not say it.
type wire struct {
	next  http.RoundTripper
	host  string
	limit *rate.Limiter

	sent   bool
	status int
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent, w.status = false, 0
	if req.URL.Host != w.host {
		return nil, errForeign
	}
	if err := w.limit.Wait(req.Context()); err != nil {
		return nil, err
	}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: func() { w.sent = true }})
	resp, err := w.next.RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // the SDK closes it
	if err != nil {
		return nil, err
	}
	w.status = resp.StatusCode
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		return nil, errRedirect
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxBody)
	return resp, nil
}

// call makes one call of the SDK.
func call[T any](ctx context.Context, c *client, op string, mutates bool, f func(opts ...scw.RequestOption) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c.wire.sent, c.wire.status = false, 0
	out, err := f(scw.WithContext(ctx))
	return out, c.verdict(op, mutates, err)
}

// none adapts a call without a result.
func none(f func(opts ...scw.RequestOption) error) func(opts ...scw.RequestOption) (struct{}, error) {
	return func(opts ...scw.RequestOption) (struct{}, error) { return struct{}{}, f(opts...) }
}
