package grpc

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxPageToken    = 1024
	maxUnpaged      = 10_000   // rows of an answer without pages
	maxUnpagedBytes = 64 << 20 // of an answer without pages
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

// paged is a request for a list whose pages the caller may leave out.
type paged interface {
	GetPageSize() int32
	GetPageToken() string
}

// listPageOrAll returns one page of a list with the token of the next one. A request without page
// fields, as a client has that knows none, gets the whole list, or is refused when the list is too
// long: such a client would not see that rows are missing. read returns at most limit rows after
// one, and whether there are more.
func listPageOrAll[M proto.Message](r paged, list []byte, read func(after string, limit int) ([]M, bool, error), id func(M) string) ([]M, string, error) {
	if r.GetPageSize() == 0 && r.GetPageToken() == "" {
		all, err := listAll(read, id)
		return all, "", err
	}
	after, limit, err := readPage(r.GetPageSize(), r.GetPageToken(), list)
	if err != nil {
		return nil, "", err
	}
	rows, more, err := read(after, limit)
	if err != nil || !more {
		return rows, "", err
	}
	token, err := writeToken(id(rows[len(rows)-1]), list)
	return rows, token, err
}

// listAll returns all rows of a list, within the bounds of an answer without pages.
func listAll[M proto.Message](read func(after string, limit int) ([]M, bool, error), id func(M) string) ([]M, error) {
	var all []M
	after, size := "", 0
	for {
		rows, more, err := read(after, maxPageSize)
		if err != nil {
			return nil, err
		}
		for _, m := range rows {
			size += proto.Size(m)
		}
		all = append(all, rows...)
		if len(all) > maxUnpaged || size > maxUnpagedBytes || more && len(all) == maxUnpaged {
			return nil, invalid("page_size", fmt.Sprintf(
				"is missing, and the list is longer than an answer without pages may be (%d rows, %d MiB): state a page_size and follow next_page_token, or narrow the list with a filter",
				maxUnpaged, maxUnpagedBytes>>20))
		}
		if !more {
			return all, nil
		}
		after = id(all[len(all)-1])
	}
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
