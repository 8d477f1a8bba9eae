package boot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/internal/sender"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// The limits of the transfer of an image that is checked.
const (
	maxImage      = 4 << 30 // bytes
	maxTransfers  = 32      // at once, for each process
	maxOfSource   = 24      // of these for one address
	sourcesOfNode = 4       // addresses that may each load as many images of a node as its machine
	transferLimit = 15 * time.Minute
	heldBack      = 64 << 10 // bytes that are sent once the whole is known to be right
	maxRedirects  = 3
)

// imageRule returns to which addresses this server connects for an image. Loopback is one of them
// only where the image's URL itself names a loopback address.
func imageRule(address string, own []netip.AddrPort) spec.AddressRule {
	_, host, _ := spec.SplitAddress(address)
	ip, err := netip.ParseAddr(host)
	return spec.AddressRule{Anywhere: true, PlainHTTP: true, Loopback: err == nil && ip.Unmap().IsLoopback(), Own: own}
}

// imageClient returns a client for one image. Its rule holds for each connection: those of
// redirects and of names too. It uses no proxy, which would connect in its place.
func imageClient(rule spec.AddressRule) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one, by its documentation
	t.Proxy = nil
	t.DialContext = providers.NewDialer(rule, 10*time.Second).DialContext
	t.ResponseHeaderTimeout = 20 * time.Second
	t.DisableKeepAlives = true
	return &http.Client{Transport: t, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		return nil
	}}
}

var errNoImage = errors.New("no image that is checked")

// image forwards an image while its bytes are hashed, and keeps the last of them back until the
// hash is known to be right. Firmware knows the length and refuses what ended short: wrong bytes
// are never booted.
func (s *Server) image(w http.ResponseWriter, r *http.Request) {
	var img spec.BootImage
	var id string
	_, ok := s.atPlace(w, r, func() (string, error) {
		a, err := s.attemptOf(r.Context(), chi.URLParam(r, "token"))
		if err != nil {
			return "", err
		}
		found := false
		if img, found = imageOf(a.workflow.Spec, chi.URLParam(r, "number")); !found {
			return "", errNoImage
		}
		id = a.node.ID
		return "", nil
	})
	if !ok {
		return
	}
	leave, err := s.transferPlace(id, sender.NetworkText(ratelimit.RemoteAddress(r)))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), transferLimit)
	defer cancel()
	if err := s.pass(ctx, w, r, img, id); err != nil {
		s.cfg.Log.ErrorContext(r.Context(), "a boot image was not passed on", "node", id, "image", img.URL, "error", err)
		panic(http.ErrAbortHandler) // the one way to end a response short
	}
}

// transferPlace takes a place of a node for an address, and one of all. So whoever fetched the
// script of a machine does not keep the machine itself from its images. It returns *busyError where
// none is free now.
func (s *Server) transferPlace(node, source string) (leave func(), err error) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	var left []func()
	leave = func() {
		for _, l := range left {
			l()
		}
	}
	for _, p := range []struct {
		places *ratelimit.Places
		name   string
	}{{s.ofBoth, node + " " + source}, {s.ofNode, node}, {s.ofSource, source}} {
		one, ok := p.places.Enter(now, p.name)
		if !ok {
			leave()
			return nil, &busyError{"this machine or its address loads too many images at once", retryWaiting * time.Second}
		}
		left = append(left, one)
	}
	select {
	case s.images <- struct{}{}:
		left = append(left, func() { <-s.images })
		return leave, nil
	default:
		leave()
		return nil, &busyError{"too many images are loaded at once", retryWaiting * time.Second}
	}
}

// isTransfer reports whether a path is that of a transfer, which may take longer
// than a server gives other requests.
func isTransfer(path string) bool {
	return strings.HasPrefix(path, Prefix+"/"+tokenPrefix) && strings.Contains(path, "/image/")
}

func imageOf(w spec.InstallWorkflowSpec, number string) (spec.BootImage, bool) {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > len(w.Initrds) {
		return spec.BootImage{}, false
	}
	img := w.Kernel
	if n > 0 {
		img = w.Initrds[n-1]
	}
	return img, img.SHA256 != ""
}

// pass fetches an image and forwards it. When the image cannot be fetched, it answers so and the
// log says why; an error is of a transfer that has begun.
func (s *Server) pass(ctx context.Context, w http.ResponseWriter, r *http.Request, img spec.BootImage, node string) error {
	req, err := http.NewRequestWithContext(ctx, r.Method, img.URL, nil)
	if err != nil {
		return err
	}
	res, err := imageClient(imageRule(img.URL, s.cfg.Own(ctx))).Do(req)
	if err != nil {
		s.cfg.Log.ErrorContext(r.Context(), "a boot image cannot be fetched", "node", node, "image", img.URL, "error", err)
		http.Error(w, "The image cannot be fetched; the log of the server says why.", http.StatusBadGateway)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK || res.ContentLength < 0 || res.ContentLength > maxImage {
		s.cfg.Log.ErrorContext(r.Context(), "a boot image cannot be fetched", "node", node, "image", img.URL, "status", res.StatusCode, "length", res.ContentLength)
		http.Error(w, fmt.Sprintf("The image's server answered %d with a length of %d; it must be 200 with at most %d bytes.", res.StatusCode, res.ContentLength, int64(maxImage)),
			http.StatusBadGateway)
		return nil
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	paced := &pacedWriter{Writer: w, control: http.NewResponseController(w), left: s.cfg.Limits.TransferGrace, rate: s.cfg.Limits.TransferRate}
	return copyChecked(paced, res.Body, res.ContentLength, img.SHA256)
}

// pacedWriter ends a transfer whose reader is too slow. Only the time of writes counts, not that of
// the image's server.
type pacedWriter struct {
	io.Writer

	control *http.ResponseController
	left    time.Duration // that writes may still take
	rate    int64         // bytes a second that add to it
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (int, error) {
	began := time.Now()
	_ = p.control.SetWriteDeadline(began.Add(p.left)) // a server without deadlines has none to move
	n, err := p.Writer.Write(b)
	p.left += time.Duration(float64(n)/float64(p.rate)*float64(time.Second)) - time.Since(began)
	return n, err
}

// copyChecked copies length bytes; the last of them only if the whole has the
// sum.
func copyChecked(w io.Writer, body io.Reader, length int64, sum string) error {
	hash := sha256.New()
	early := max(0, length-heldBack)
	if _, err := io.CopyN(io.MultiWriter(w, hash), body, early); err != nil {
		return err
	}
	rest, err := io.ReadAll(io.LimitReader(body, length-early))
	if err != nil {
		return err
	}
	hash.Write(rest)
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum || int64(len(rest)) != length-early {
		return fmt.Errorf("its sha256 is %s and must be %s", got, sum)
	}
	_, err = w.Write(rest)
	return err
}
