package secretscan

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// minPattern is the least length of a form that is searched for, in bytes. A shorter text could be
// there by chance.
const minPattern = 8

// patterns holds the forms of all secrets, by their first 8 bytes.
type patterns struct {
	byHead map[uint64][]pattern
	filter [1 << 13]byte // a bit for a hash of the first 4 bytes: most positions need no look-up in the map
	count  int
}

type pattern struct{ text, kind, form string }

func newPatterns(secrets []Secret) patterns {
	p := patterns{byHead: map[uint64][]pattern{}}
	known := map[string]struct{}{}
	for _, s := range secrets {
		if s.Value == "" {
			continue
		}
		for _, f := range forms(s.Value) {
			if _, twice := known[f.text]; twice || len(f.text) < minPattern {
				continue
			}
			known[f.text] = struct{}{}
			f.kind = s.Kind
			head := binary.LittleEndian.Uint64([]byte(f.text))
			p.byHead[head] = append(p.byHead[head], f)
			bit := filterBit(head)
			p.filter[bit>>3] |= 1 << (bit & 7)
			p.count++
		}
	}
	return p
}

func filterBit(head uint64) uint32 { return uint32(head) * 0x9E3779B1 >> 16 } //nolint:gosec // the low half is meant

// match calls found for each form that data contains.
func (p *patterns) match(data []byte, found func(kind, form string)) {
	for i := 0; i+minPattern <= len(data); i++ {
		head := binary.LittleEndian.Uint64(data[i:])
		if bit := filterBit(head); p.filter[bit>>3]&(1<<(bit&7)) == 0 {
			continue
		}
		for _, f := range p.byHead[head] {
			if len(f.text) <= len(data)-i && string(data[i:i+len(f.text)]) == f.text {
				found(f.kind, f.form)
			}
		}
	}
}

// forms returns the forms of v as text inside other text.
func forms(v string) []pattern {
	raw := []byte(v)
	out := []pattern{{text: v, form: "plain"}}
	if quoted, err := json.Marshal(v); err == nil {
		out = append(out, pattern{text: string(bytes.Trim(quoted, `"`)), form: "JSON"})
	}
	small := hex.EncodeToString(raw)
	out = append(out, pattern{text: small, form: "hex"}, pattern{text: strings.ToUpper(small), form: "hex"},
		pattern{text: url.QueryEscape(v), form: "URL"}, pattern{text: url.PathEscape(v), form: "URL"})
	for shift := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			out = append(out, pattern{text: base64At(alphabet, raw, shift), form: "base64"})
		}
	}
	return out
}

// base64At returns the characters of base64 that depend on raw alone when shift bytes, modulo 3,
// stand before it.
func base64At(alphabet *base64.Encoding, raw []byte, shift int) string {
	text := alphabet.EncodeToString(append(make([]byte, shift), raw...))
	return text[(shift*8+5)/6 : (shift+len(raw))*8/6]
}

const tokenLength, tokenPrefix = 43, "pxe_"

// searchTokens hashes every text of data that may be a token and looks for the hash.
func (s *Searcher) searchTokens(place string, data []byte) {
	if len(s.tokens) == 0 {
		return
	}
	for _, run := range runs(data, isURLSafe, tokenLength) {
		for _, length := range []int{tokenLength, tokenLength + len(tokenPrefix)} {
			for i := 0; i+length <= len(run); i++ {
				if kind, is := s.tokens[sha256.Sum256(run[i:i+length])]; is {
					s.record(Finding{place, kind, "plain"})
				}
			}
		}
	}
}
