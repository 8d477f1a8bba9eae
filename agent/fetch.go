package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
)

const fetchTime = 10 * time.Minute

// errSum says that what was fetched is not what was asked for.
var errSum = errors.New("what was fetched does not have the expected sha256 and size")

var sumForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// fetch downloads a file into the staging directory, which holds one file, and
// checks it. From the control plane it goes over its own CA and with the node's
// certificate, from elsewhere over the system's CAs and without. A file that is
// there and right is not fetched again.
func (a *Agent) fetch(ctx context.Context, f task.File) (string, error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http") || !sumForm.MatchString(f.SHA256) || f.Size <= 0 {
		return "", errors.New("what is to be fetched needs an http or https URL, a sha256 and a size")
	}
	dir := a.cfg.Path(filepath.Join(a.cfg.StateDir, stagingDir))
	path := filepath.Join(dir, f.SHA256)
	if right(path, f) {
		return path, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("empty the staging directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the staging directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
	if err != nil {
		return "", fmt.Errorf("make a request: %w", err)
	}
	resp, err := a.fetcher(u).Do(req)
	if err != nil {
		return "", fmt.Errorf("the file could not be fetched: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the file could not be fetched: %s answered %d", u.Host, resp.StatusCode)
	}
	if err := stage(path, resp.Body, f); err != nil {
		return "", err
	}
	return path, nil
}

func (a *Agent) fetcher(u *url.URL) *http.Client {
	if own, err := url.Parse(a.cfg.ServerURL); err == nil && strings.EqualFold(own.Host, u.Host) && u.Scheme == "https" {
		if _, c := a.session.get(); c != nil {
			return &http.Client{Transport: c.tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		}
	}
	return &http.Client{Transport: &http.Transport{TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: requestTimeout,
		DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}}
}

// stage writes a body to path and checks it on the way.
func stage(path string, body io.Reader, f task.File) error {
	out, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write what is fetched: %w", err)
	}
	defer func() { _ = os.Remove(path + ".new") }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(body, f.Size+1))
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("the file could not be fetched whole: %w", err)
	}
	if n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return errSum
	}
	return os.Rename(path+".new", path)
}

func right(path string, f task.File) bool {
	in, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = in.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(in, f.Size+1))
	return err == nil && n == f.Size && hex.EncodeToString(sum.Sum(nil)) == f.SHA256
}
