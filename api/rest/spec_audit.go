package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
)

// Bounds of the audit row of a change.
const (
	maxDiffs     = 100 // values
	maxDiffValue = 200 // characters of one value
	// maxDiffBytes bounds the JSON of all values. A row takes 64 KiB.
	maxDiffBytes = 48 << 10
)

// stated is what operators state of a resource, as its audit rows describe it.
type stated struct {
	Name string `json:"name"`
	Spec any    `json:"spec"`
}

// diff is a value that a change has set, added or removed. From is nil for one that was added, and
// To for one that was removed.
type diff struct {
	Path string `json:"path"`
	From any    `json:"from"`
	To   any    `json:"to"`
}

// auditSpec writes the audit row of a change of what operators state.
func auditSpec(ctx context.Context, tx *db.Tx, kind, id, name string, before, after *stated) error {
	meta, err := specAudit(before, after)
	if err != nil {
		return err
	}
	return op.Audit(ctx, tx, kind, id, nil, name, meta)
}

// specAudit returns the metadata of the audit row of a change: the SHA-256 of what is stated before
// and after as JSON, and each value that differs. before is nil for a new resource, and after for
// one that is deleted; their audit rows have no single values.
func specAudit(before, after *stated) (map[string]any, error) {
	meta := map[string]any{}
	values := [2]map[string]any{}
	for i, s := range []*stated{before, after} {
		if s == nil {
			continue
		}
		raw, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("audit of %s: %w", s.Name, err)
		}
		sum := sha256.Sum256(raw)
		meta[[]string{"sha256_before", "sha256"}[i]] = hex.EncodeToString(sum[:])
		var tree any
		if err := json.Unmarshal(raw, &tree); err != nil {
			return nil, fmt.Errorf("audit of %s: %w", s.Name, err)
		}
		values[i] = map[string]any{}
		flatten(values[i], "", tree)
	}
	if before == nil || after == nil {
		return meta, nil
	}
	diffs := compareValues(values[0], values[1])
	kept, err := fitting(diffs)
	if err != nil {
		return nil, err
	}
	if kept < len(diffs) {
		meta["diffs_left_out"] = len(diffs) - kept
	}
	meta["diff"] = diffs[:kept]
	return meta, nil
}

// flatten adds the values of a JSON document by their paths. Empty objects and lists are values.
func flatten(out map[string]any, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, below := range v {
			if path != "" {
				k = path + "." + k
			}
			flatten(out, k, below)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, below := range v {
			flatten(out, fmt.Sprintf("%s[%d]", path, i), below)
		}
		if len(v) > 0 {
			return
		}
	}
	out[path] = v
}

func compareValues(before, after map[string]any) []diff {
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	out := []diff{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if from, to := before[path], after[path]; !reflect.DeepEqual(from, to) {
			out = append(out, diff{path, shortened(from), shortened(to)})
		}
	}
	return out
}

// shortened cuts a long text, such as a script, and says so. The sum of the whole is in the audit
// row.
func shortened(v any) any {
	if text, ok := v.(string); ok && utf8.RuneCountInString(text) > maxDiffValue {
		return fmt.Sprintf("%s (cut: the value has %d bytes)", db.ClipText(text, maxDiffValue), len(text))
	}
	return v
}

// fitting returns how many of the first values fit into an audit row.
func fitting(diffs []diff) (int, error) {
	room := maxDiffBytes
	for i, d := range diffs {
		raw, err := json.Marshal(d)
		if err != nil {
			return 0, fmt.Errorf("audit of %s: %w", d.Path, err)
		}
		if room -= len(raw) + 1; room < 0 || i == maxDiffs {
			return i, nil
		}
	}
	return len(diffs), nil
}
