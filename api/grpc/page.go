package grpc

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxPageToken    = 1024
)

// pageToken is the start of the next page of a list. It is valid for one filter and one project.
type pageToken struct {
	After  string `json:"a"`
	Filter []byte `json:"f"`
}

// listOf returns the identity of a list, for which its tokens are valid.
func listOf(kind, project string, filter listfilter.Filter) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", kind, project, filter))
	return sum[:8]
}

// readPage returns the row after which a page begins, and the maximum number of its rows.
func readPage(size int32, token string, list []byte) (after string, limit int, err error) {
	if size < 0 || size > maxPageSize {
		return "", 0, invalid("page_size", fmt.Sprintf("must be 1 to %d, or 0 for %d", maxPageSize, defaultPageSize))
	}
	if limit = int(size); limit == 0 {
		limit = defaultPageSize
	}
	if token == "" {
		return "", limit, nil
	}
	var t pageToken
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(token) > maxPageToken || json.Unmarshal(raw, &t) != nil || t.After == "" {
		return "", 0, invalid("page_token", "is no token of this list; leave it out to begin at the first page")
	}
	if string(t.Filter) != string(list) {
		return "", 0, invalid("page_token", "was given for another list or another filter; leave it out to begin at the first page")
	}
	return t.After, limit, nil
}

// writePage returns a page of rows, and the token of the next page. The caller has read one row
// more than the limit, which shows whether there is a next page.
func writePage[R any](rows []R, limit int, list []byte, id func(R) string) ([]R, string, error) {
	if len(rows) <= limit {
		return rows, "", nil
	}
	rows = rows[:limit]
	token, err := writeToken(id(rows[limit-1]), list)
	return rows, token, err
}

// writeToken returns the token of the page after a row.
func writeToken(after string, list []byte) (string, error) {
	raw, err := json.Marshal(pageToken{After: after, Filter: list})
	return base64.RawURLEncoding.EncodeToString(raw), err
}

func invalid(field, message string) error {
	return problem.NewInvalid(problem.Field{Location: field, Message: message})
}
