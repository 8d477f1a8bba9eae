package portal_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

//go:generate go test . -run ^TestBounds_AreThoseOfTheAPI$ -update

var update = flag.Bool("update", false, "write the bounds of fields again")

// schema is what a form needs to know of a schema of the API.
type schema struct {
	Ref        string            `yaml:"$ref"`
	Type       any               `yaml:"type"`
	Properties map[string]schema `yaml:"properties"`
	Items      *schema           `yaml:"items"`
	MaxLength  int64             `yaml:"maxLength"`
	Minimum    *int64            `yaml:"minimum"`
	Maximum    *int64            `yaml:"maximum"`
	MaxItems   int64             `yaml:"maxItems"`
}

// bound is what a form knows of one field.
type bound struct {
	Type      string `json:"type"`
	MaxLength int64  `json:"maxLength,omitempty"`
	Min       *int64 `json:"min,omitempty"`
	Max       *int64 `json:"max,omitempty"`
	MaxItems  int64  `json:"maxItems,omitempty"`
}

// TestBounds_AreThoseOfTheAPI writes the bounds of the fields that the portal has forms for, so
// that a form refuses what the API would refuse.
func TestBounds_AreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	raw, err := newWorld(t).api.OpenAPI()
	require.NoError(t, err)
	var document struct {
		Components struct {
			Schemas map[string]schema `yaml:"schemas"`
		} `yaml:"components"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &document))
	var b strings.Builder
	b.WriteString("// Written by make generate. Do not edit.\n\n" +
		"/** Bound is what the API takes in a field. */\n" +
		"export interface Bound {\n  type: string;\n  maxLength?: number;\n  min?: number;\n  max?: number;\n  maxItems?: number;\n}\n\n" +
		"/** bounds are those of the fields of requests, by their path. An item of a list is named 0. */\n" +
		"export const bounds = {\n")
	for _, name := range []string{"InstallWorkflowRequest", "ProfileRequest", "SKURequest", "SiteRequest"} {
		fields := map[string]bound{}
		addBounds(fields, document.Components.Schemas, document.Components.Schemas[name], "")
		require.NotEmpty(t, fields, name)
		fmt.Fprintf(&b, "  %s: {\n", name)
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			line, err := json.Marshal(fields[path])
			require.NoError(t, err)
			fmt.Fprintf(&b, "    %q: %s,\n", path, line)
		}
		b.WriteString("  },\n")
	}
	b.WriteString("} satisfies Record<string, Record<string, Bound>>;\n")
	const path = "web/src/api/bounds.ts"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	committed, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(committed), "the API has changed: run make generate, then make portal")
}

// addBounds adds the fields of a schema below a path.
func addBounds(to map[string]bound, all map[string]schema, s schema, path string) {
	if s.Ref != "" {
		s = all[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	join := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	kind := fmt.Sprint(s.Type)
	if types, many := s.Type.([]any); many { // a list that may be null
		kind = fmt.Sprint(types[0])
	}
	switch {
	case len(s.Properties) > 0:
		for name, p := range s.Properties {
			addBounds(to, all, p, join(name))
		}
	case kind == "array" && s.Items != nil && s.Items.Ref != "":
		addBounds(to, all, *s.Items, join("0"))
	default:
		to[path] = bound{Type: kind, MaxLength: s.MaxLength, Min: s.Minimum, Max: s.Maximum, MaxItems: s.MaxItems}
	}
}
