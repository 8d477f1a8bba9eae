package cli

import (
	"maps"
	"slices"
	"strings"
)

// shortenIDs replaces the ids in the cells of a table by their beginning: eight characters behind
// the prefix, and more where another id of the table begins with the same. Only ids of kinds whose
// resources are found by a short id are shortened.
func shortenIDs(rows [][]string) {
	kinds := resourceKinds()
	ids := map[string]bool{}
	for _, row := range rows {
		for _, cell := range row {
			if isShortenable(kinds, cell) {
				ids[cell] = true
			}
		}
	}
	short := shortestOf(ids)
	for _, row := range rows {
		for i, cell := range row {
			if ids[cell] {
				row[i] = short[cell]
			}
		}
	}
}

func isShortenable(kinds []resourceKind, cell string) bool {
	if !wholeID.MatchString(cell) {
		return false
	}
	for _, k := range kinds {
		if strings.HasPrefix(cell, k.prefix) {
			return true
		}
	}
	return false
}

// shortestOf returns the shortest beginning of each id that no other id has.
func shortestOf(ids map[string]bool) map[string]string {
	sorted := slices.Sorted(maps.Keys(ids))
	out := make(map[string]string, len(ids))
	for i, id := range sorted {
		n := strings.IndexByte(id, '_') + 1 + minShortID
		if i > 0 {
			n = max(n, sharedLength(id, sorted[i-1])+1)
		}
		if i+1 < len(sorted) {
			n = max(n, sharedLength(id, sorted[i+1])+1)
		}
		if n < len(id) && id[n-1] == '-' {
			n++
		}
		out[id] = id[:min(n, len(id))]
	}
	return out
}

// sharedLength returns how many bytes two ids have in common at their beginning.
func sharedLength(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
