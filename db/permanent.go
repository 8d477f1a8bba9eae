package db

import (
	"errors"
	"strings"
)

// Permanent reports whether err is an answer that no repetition changes: a row
// that is missing, a value or an edge that the schema refuses. A lost
// connection, a full disk or a restarting server is none.
func Permanent(err error) bool {
	var conflict *ConflictError
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) || errors.As(err, &conflict) {
		return true
	}
	state := sqlState(err)
	for _, class := range []string{"22", "23", "42", "SW"} {
		if strings.HasPrefix(state, class) {
			return true
		}
	}
	return false
}
