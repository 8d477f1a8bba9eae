package secretscan

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// PrivateKeyMark is in every private key in PEM form. It must be found nowhere.
const PrivateKeyMark = "PRIVATE KEY"

var (
	tokenText  = regexp.MustCompile(`^[A-Za-z0-9_-]{43}\n?$`)
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----([^-]+)-----END`)
)

// minKeyLine is the least length of a line of a private key that is searched for by itself.
const minKeyLine = 16

// Expand returns a secret and its parts, each of which must be found nowhere by itself: the lines
// of private keys, the tokens of 43 characters that fill a whole file of a user-data document, the
// password of a login in JSON, and the parts of an API key that colons separate. Private keys and
// tokens are taken out of every layer of encoding.
func Expand(s Secret) []Secret {
	out := []Secret{s}
	add := func(kind, value string) { out = append(out, Secret{kind, value}) }
	var login struct{ Password string }
	if json.Unmarshal([]byte(s.Value), &login) == nil && login.Password != "" {
		add(s.Kind, login.Password)
	}
	if parts := strings.Split(s.Value, ":"); len(parts) == 3 && !strings.ContainsAny(s.Value, " \n{") {
		for _, p := range parts {
			add(s.Kind, p)
		}
	}
	for _, token := range Tokens([]byte(s.Value)) {
		add("token in "+s.Kind, token)
	}
	Layers([]byte(s.Value), func(layer []byte) {
		for _, key := range privateKey.FindAllSubmatch(layer, -1) {
			for line := range strings.FieldsSeq(string(key[1])) {
				if len(line) >= minKeyLine {
					add("private key in "+s.Kind, line)
				}
			}
		}
	})
	return out
}

// Tokens returns the tokens of 256 random bits that fill a whole layer of data, as the file that an
// agent reads its enrolment token from does in a user-data document.
func Tokens(data []byte) (out []string) {
	seen := map[string]bool{}
	Layers(data, func(layer []byte) {
		if token := string(bytes.TrimSpace(layer)); tokenText.Match(layer) && !seen[token] {
			seen[token] = true
			out = append(out, token)
		}
	})
	return out
}
