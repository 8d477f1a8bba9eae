package secretscan

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

const (
	// maxLayers bounds how often an encoding may be inside another one.
	maxLayers = 6
	// minEncoded is the least length of base64 that is decoded. The forms of a secret find a
	// shorter one.
	minEncoded = 16
	// minWrapped is the least length of a line of base64 that goes on in the next line.
	minWrapped = 40
)

// Layers calls visit with data and with all that is encoded in it, at any alignment: JSON and Go
// strings, base64 with its lines joined, hex and URL escapes, up to maxLayers deep. Text that only
// looks like base64 is decoded too, to bytes without meaning.
func Layers(data []byte, visit func(layer []byte)) { layers(data, 1, visit) }

func layers(data []byte, depth int, visit func([]byte)) {
	visit(data)
	if depth == maxLayers {
		return
	}
	next := func(inner []byte) { layers(inner, depth+1, visit) }
	unquote(data, next)
	unescape(data, next)
	for _, run := range runs(data, isHex, 2*minEncoded) {
		for shift := range 2 {
			inner := make([]byte, (len(run)-shift)/2)
			_, _ = hex.Decode(inner, run[shift:shift+2*len(inner)]) // all are digits
			next(inner)
		}
	}
	for _, run := range base64Runs(data) {
		for shift := range 4 {
			text := run[shift:]
			if len(text)%4 == 1 {
				text = text[:len(text)-1]
			}
			inner := make([]byte, base64.RawStdEncoding.DecodedLen(len(text)))
			if n, err := base64.RawStdEncoding.Decode(inner, text); err == nil {
				next(inner[:n])
			}
		}
	}
}

// unquote calls next with the value of every quoted text that holds an escape. One without escapes
// stands in data as it is.
func unquote(data []byte, next func([]byte)) {
	for from := 0; ; {
		open := bytes.IndexByte(data[from:], '"')
		if open < 0 {
			return
		}
		start, end, escaped := from+open, from+open+1, false
		for end < len(data) && data[end] != '"' {
			if data[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		if end >= len(data) {
			return
		}
		if escaped {
			literal := data[start : end+1]
			var text string
			if json.Unmarshal(literal, &text) != nil {
				text, _ = strconv.Unquote(string(literal))
			}
			if text != "" {
				next([]byte(text))
			}
		}
		from = end + 1
	}
}

// unescape calls next with data after its URL escapes are replaced, if there are any.
func unescape(data []byte, next func([]byte)) {
	if bytes.IndexByte(data, '%') < 0 {
		return
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] == '%' && i+2 < len(data) && isHex(data[i+1]) && isHex(data[i+2]) {
			var b [1]byte
			_, _ = hex.Decode(b[:], data[i+1:i+3])
			out = append(out, b[0])
			i += 2
			continue
		}
		out = append(out, data[i])
	}
	if len(out) < len(data) {
		next(out)
	}
}

// base64Runs returns the texts of data that may be base64, in the standard alphabet, and with the
// lines of a wrapped text joined.
func base64Runs(data []byte) (out [][]byte) {
	for i := 0; i < len(data); {
		end := i + prefix(data[i:], isBase64)
		if end-i < minEncoded {
			i = max(end, i+1)
			continue
		}
		run := bytes.Clone(data[i:end])
		for line := end - i; line >= minWrapped; {
			start := end + prefix(data[end:], isSpace)
			if start == end || bytes.IndexByte(data[end:start], '\n') < 0 {
				break
			}
			line = prefix(data[start:], isBase64)
			run = append(run, data[start:start+line]...)
			end = start + line
		}
		for j, c := range run {
			switch c {
			case '-':
				run[j] = '+'
			case '_':
				run[j] = '/'
			default:
			}
		}
		out = append(out, run)
		i = end
	}
	return out
}

// runs returns the longest texts of data whose every byte is in a class, from a length on.
func runs(data []byte, class func(byte) bool, least int) (out [][]byte) {
	for i := 0; i < len(data); {
		n := prefix(data[i:], class)
		if n >= least {
			out = append(out, data[i:i+n])
		}
		i += n + 1
	}
	return out
}

// prefix returns how many bytes at the beginning of data are in a class.
func prefix(data []byte, class func(byte) bool) int {
	for i, c := range data {
		if !class(c) {
			return i
		}
	}
	return len(data)
}

func isURLSafe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
func isBase64(c byte) bool { return isURLSafe(c) || c == '+' || c == '/' }
func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
