package maassim

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxSkew is the OAuth library's threshold in seconds, on the wall clock: the
// client's clock is not virtual.
const maxSkew = 300

// authenticate checks the OAuth PLAINTEXT header. It returns nil when the
// request is signed by the region's user, and errAnonymous when it carries no
// credentials at all.
func (s *Server) authenticate(r *http.Request) (anonymous bool, bad *reply) {
	h := r.Header.Get("Authorization")
	if h == "" {
		return true, nil
	}
	scheme, rest, _ := strings.Cut(h, " ")
	if !strings.EqualFold(scheme, "OAuth") {
		return true, nil
	}
	p := oauthParams(rest)
	key := strings.Split(s.opt.APIKey, ":")
	for _, need := range []string{"oauth_consumer_key", "oauth_token", "oauth_signature", "oauth_signature_method", "oauth_timestamp", "oauth_nonce"} {
		if p[need] == "" {
			return false, unauthorized("Missing parameter: " + need + ".")
		}
	}
	stamp, err := strconv.ParseInt(p["oauth_timestamp"], 10, 64)
	if err != nil {
		return false, text(400, "Invalid timestamp: the oauth_timestamp parameter must be an integer.")
	}
	if p["oauth_consumer_key"] != key[0] {
		return false, text(401, "Authorization Error: Invalid API key.").with("WWW-Authenticate", challenge)
	}
	s.mu.Lock()
	revoked := s.revoked
	s.mu.Unlock()
	if revoked || p["oauth_token"] != key[1] {
		return false, unauthorized("Invalid access token: " + p["oauth_token"])
	}
	if p["oauth_signature_method"] != "PLAINTEXT" {
		return false, unauthorized("Signature method " + p["oauth_signature_method"] + " not supported, try one of the following: PLAINTEXT")
	}
	now := time.Now().Unix()
	if now-stamp > maxSkew || stamp-now > maxSkew {
		return false, expired(stamp, now)
	}
	if subtle.ConstantTimeCompare([]byte(p["oauth_signature"]), []byte("&"+key[2])) != 1 {
		return false, unauthorized("Invalid signature.")
	}
	return false, nil
}

const challenge = `OAuth realm="OAuth"`

func unauthorized(msg string) *reply {
	return text(401, "Authorization Error: '%s'", msg).with("WWW-Authenticate", challenge)
}

func expired(stamp, now int64) *reply {
	return unauthorized("Expired timestamp: given " + strconv.FormatInt(stamp, 10) + " and now " + strconv.FormatInt(now, 10) +
		" has a greater difference than threshold " + strconv.Itoa(maxSkew))
}

func oauthParams(s string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		k, v, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			continue
		}
		if un, err := url.QueryUnescape(strings.Trim(v, `"`)); err == nil {
			out[k] = un
		}
	}
	return out
}
