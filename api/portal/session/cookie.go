package session

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// The cookies. Those with the prefix __Host- are only taken over TLS and from this host alone. The
// plain names are for a server on this machine without TLS.
const (
	sessionCookie      = "__Host-slipway_session"
	sessionCookiePlain = "slipway_session"
	signInCookie       = "__Host-slipway_sign_in"
	signInCookiePlain  = "slipway_sign_in"
)

const cookieBytes = 32

// newCookieText makes 256 random bits as text.
func newCookieText() (string, error) {
	b := make([]byte, cookieBytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a session: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// hashOf is what is stored of a cookie.
func hashOf(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

// isPlain reports whether cookies go without Secure: the request came without TLS, to an address of
// this machine, and the server is not reached over https through a proxy.
func (m *Manager) isPlain(r *http.Request) bool {
	return r.TLS == nil && isLoopback(r.Host) && !strings.HasPrefix(m.cfg.PublicURL, "https://")
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func (m *Manager) sessionName(r *http.Request) string {
	if m.isPlain(r) {
		return sessionCookiePlain
	}
	return sessionCookie
}

func (m *Manager) signInName(r *http.Request) string {
	if m.isPlain(r) {
		return signInCookiePlain
	}
	return signInCookie
}

// cookieText returns the text of a cookie of ours, "" when there is none that could be.
func cookieText(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil || base64.RawURLEncoding.DecodedLen(len(c.Value)) != cookieBytes {
		return ""
	}
	return c.Value
}

func (m *Manager) setSession(w http.ResponseWriter, r *http.Request, text string) {
	http.SetCookie(w, &http.Cookie{
		Name: m.sessionName(r), Value: text, Path: "/", HttpOnly: true, Secure: !m.isPlain(r), SameSite: http.SameSiteStrictMode,
		MaxAge: int(m.cfg.Max / time.Second),
	})
}

// setSignIn sets the cookie of a sign-in at the provider. The provider's answer is a navigation
// from another site, which a strict cookie would not come with.
func (m *Manager) setSignIn(w http.ResponseWriter, r *http.Request, text string, age time.Duration) {
	seconds := int(age / time.Second)
	if seconds == 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: m.signInName(r), Value: text, Path: "/", HttpOnly: true, Secure: !m.isPlain(r), SameSite: http.SameSiteLaxMode, MaxAge: seconds,
	})
}

func (m *Manager) clearSession(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{
		Name: m.sessionName(r), Path: "/", HttpOnly: true, Secure: !m.isPlain(r), SameSite: http.SameSiteStrictMode, MaxAge: -1,
	})
}
