package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client calls the HTTP API as an operator's program would.
type client struct {
	base, token string
	http        http.Client
}

const callTimeout = 20 * time.Second

// call sends one request; a refusal is an error with the problem's own words.
func (c *client) call(ctx context.Context, method, path string, in, out any, headers ...[2]string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/api/v1"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		req.Header.Set(h[0], h[1])
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", rand.Text())
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read to the end below
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return &refusal{status: res.StatusCode, body: raw, what: method + " " + path}
	}
	if out == nil || len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// refusal is a problem document.
type refusal struct {
	status int
	body   []byte
	what   string
}

func (r *refusal) Error() string {
	var p struct{ Title, Detail string }
	if json.Unmarshal(r.body, &p) == nil && p.Detail != "" {
		return fmt.Sprintf("%s: %s (%d)", r.what, p.Detail, r.status)
	}
	return fmt.Sprintf("%s: status %d", r.what, r.status)
}
