package cli

import "strings"

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
	for _, row := range rows {
		for i, cell := range row {
			if ids[cell] {
				row[i] = shortestOf(cell, ids)
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

// shortestOf returns the shortest beginning of an id that no other id has.
func shortestOf(id string, ids map[string]bool) string {
	for n := strings.IndexByte(id, '_') + 1 + minShortID; n < len(id); n++ {
		if id[n-1] == '-' {
			continue
		}
		unique := true
		for other := range ids {
			unique = unique && (other == id || !strings.HasPrefix(other, id[:n]))
		}
		if unique {
			return id[:n]
		}
	}
	return id
}
