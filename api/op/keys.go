package op

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// keysEvery is the minimum time between two requests to an issuer for its keys, caused by any
	// callers. It bounds the requests that forged tokens with unknown keys can cause.
	keysEvery = 30 * time.Second
	// keysMaxAge is how long a key is accepted before the keys of the issuer are read again.
	keysMaxAge   = 5 * time.Minute
	maxKeysBytes = 1 << 20
)

// keyTransport reads the keys of an issuer for its key set. Between two reads it returns the keys,
// or the failure, of the last read.
type keyTransport struct {
	client *http.Client
	now    func() time.Time

	mu     sync.Mutex
	readAt time.Time
	header http.Header
	body   []byte
	failed error
}

// RoundTrip implements http.RoundTripper.
func (k *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.now(); k.readAt.IsZero() || now.Sub(k.readAt) >= keysEvery {
		k.readAt = now
		k.header, k.body, k.failed = k.read(r)
	}
	if k.failed != nil {
		return nil, k.failed
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: k.header.Clone(), Body: io.NopCloser(bytes.NewReader(k.body)), ContentLength: int64(len(k.body)), Request: r,
	}, nil
}

func (k *keyTransport) read(r *http.Request) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), oidcTimeout)
	defer cancel()
	res, err := k.client.Do(r.Clone(ctx))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the identity provider answers %s to the request for its keys", res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeysBytes+1))
	if err == nil && len(body) > maxKeysBytes {
		err = errors.New("the keys of the identity provider are longer than 1 MiB")
	}
	return res.Header, body, err
}

// failure returns the error of the last read, or nil if it succeeded.
func (k *keyTransport) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}
