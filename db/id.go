package db

import (
	"github.com/google/uuid"
)

// NewID makes a primary key: the kind, an underscore and a UUIDv7, so that ids
// say what they name and sort by the time they were made. The schema checks the
// kind of each table.
func NewID(kind string) string {
	return kind + "_" + uuid.Must(uuid.NewV7()).String()
}

func orNewID(id, kind string) string {
	if id == "" {
		return NewID(kind)
	}
	return id
}

// optional is nil for the empty text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// The longest list of one call, and what an unset limit means.
const (
	maxPage     = 1000
	defaultPage = 50
)

// PageLimit returns how many rows a query may return when the caller asks for limit: 50 when it
// asks for none, at most 1000.
func PageLimit(limit int) int32 {
	switch {
	case limit <= 0:
		return defaultPage
	case limit > maxPage:
		return maxPage
	}
	return int32(limit)
}

// EmptyIfNil returns list, or an empty list for nil, which would become NULL in SQL and in JSON.
func EmptyIfNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// OrNil returns a pointer to s, or nil for "", which becomes NULL in SQL.
func OrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
