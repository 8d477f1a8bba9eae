// Package kube speaks to Kubernetes clusters over client-go: bootstrap tokens, nodes, heartbeats
// and pods. It is linked by the programs alone, so that what runs under the race detector does
// without client-go.
package kube

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	callTimeout = 30 * time.Second
	dialTimeout = 10 * time.Second
	maxAnswer   = 32 << 20
	maxObject   = 2 << 20 // Kubernetes stores no larger one
	maxMessage  = 300
	pageSize    = 500
	maxPages    = 20  // of one list: 10,000 objects; Kubernetes is made for 5,000 nodes
	maxText     = 300 // bytes of what a cluster says of a node
	maxTaints   = 50
)

// Provider implements providers.ClusterJoin. It holds no connection between calls.
type Provider struct{}

var _ providers.ClusterJoin = Provider{}

// client is one cluster for one call.
type client struct {
	rest  *rest.RESTClient
	known providers.Redaction
}

// open returns a client that trusts the pinned CAs alone, follows no redirect and takes no proxy
// from the environment.
func open(c providers.Cluster, secrets ...providers.Secret) (*client, error) {
	login, err := readKubeconfig(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cas, err := pinned(login.ca, c.CAPins)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cas)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if len(login.cert) > 0 {
		pair, err := tls.X509KeyPair(login.cert, login.key)
		if err != nil {
			return nil, failure(providers.KindInvalid, "open", 0, "the client certificate of the kubeconfig and its key do not fit")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	// The transport is ours: that of client-go takes a proxy from the environment and keeps
	// connections.
	hc := &http.Client{
		Timeout:       callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: bounded{login.token, &http.Transport{
			DialContext: providers.NewDialer(c.Rule, dialTimeout).DialContext, TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout, DisableKeepAlives: true,
		}},
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	rc, err := rest.UnversionedRESTClientForConfigAndClient(&rest.Config{
		Host: c.URL, UserAgent: "slipway", QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()},
	}, hc)
	if err != nil {
		return nil, failure(providers.KindInvalid, "open", 0, "the URL of the cluster is not usable")
	}
	known := append([]providers.Secret{c.Kubeconfig, providers.NewSecret(login.token), providers.NewSecret(string(login.key))}, secrets...)
	return &client{rc, providers.NewRedaction(slices.DeleteFunc(known, providers.Secret.IsZero)...)}, nil
}

// pinned returns the certificates of a bundle whose public key is pinned.
func pinned(bundle []byte, pins []string) ([]byte, error) {
	var out []byte
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		if slices.Contains(pins, "sha256:"+hex.EncodeToString(sum[:])) {
			out = append(out, pem.EncodeToMemory(block)...)
		}
	}
	if out == nil {
		return nil, failure(providers.KindPinMismatch, "open", 0, "the kubeconfig has no CA whose public key is one of the cluster's ca_pins")
	}
	return out, nil
}

// bounded logs in by a token, "" for none, and cuts answers that are too long.
type bounded struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	r.Header.Set("User-Agent", "slipway")
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = &cutBody{res.Body, maxAnswer}
	}
	return res, err
}

type cutBody struct {
	io.ReadCloser
	left int64
}

var errTooBig = errors.New("the answer is too long")

// Read implements io.Reader.
func (c *cutBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooBig
	}
	return n, err
}

func failure(kind providers.Kind, op string, status int, format string, args ...any) *providers.Error {
	return &providers.Error{Kind: kind, Op: "kube." + op, Status: status, Message: fmt.Sprintf(format, args...)}
}

// failed types an error of a call. The message of the cluster is bounded, and repeats none of our
// secrets.
func (c *client) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	var verify *tls.CertificateVerificationError
	var refused *providers.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &status):
		return c.answered(op, status, err)
	case errors.As(err, &verify):
		return failure(providers.KindPinMismatch, op, 0, "the API server shows a certificate that no pinned CA has signed, or that is not for its address")
	case errors.Is(err, errTooBig):
		return failure(providers.KindTooBig, op, 0, "the API server sends more than %d bytes", maxAnswer)
	}
	e := failure(providers.KindUnreachable, op, 0, "the API server of the cluster does not answer")
	e.Err = errors.New(c.known.Clean(err.Error()))
	return e
}

func (c *client) answered(op string, status apierrors.APIStatus, err error) error {
	s := status.Status()
	kind := providers.KindInvalid
	switch {
	case apierrors.IsUnauthorized(err):
		kind = providers.KindUnauthorized
	case apierrors.IsForbidden(err):
		kind = providers.KindForbidden
	case apierrors.IsNotFound(err):
		kind = providers.KindNotFound
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		kind = providers.KindStateConflict
	case s.Code == http.StatusTooManyRequests, s.Code >= http.StatusInternalServerError:
		kind = providers.KindUnavailable
	case s.Code >= 300 && s.Code < 400:
		kind = providers.KindForeign
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(c.known.Clean(s.Message), "?"))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	e := failure(kind, op, int(s.Code), "the cluster says: %s", text)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// call bounds one call.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}
