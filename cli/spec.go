package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
)

const maxFile = 1 << 20 // bytes

// specFlags are how the spec of a site, profile or SKU is written: a file, and
// single fields on top of it.
type specFlags struct {
	file string
	set  []string
}

func (s *specFlags) add(cmd *cobra.Command, example string) {
	cmd.Flags().StringVarP(&s.file, "file", "f", "", "YAML or JSON file with the spec's fields; - is standard input")
	cmd.Flags().StringArrayVar(&s.set, "set", nil, "one field of the spec, such as "+example+"; may be repeated, a dot goes deeper, null removes")
}

// onto writes what the flags say over base, which may be nil.
func (s *specFlags) onto(a *app, base map[string]any) (map[string]any, error) {
	if base == nil {
		base = map[string]any{}
	}
	if s.file != "" {
		var from map[string]any
		if err := a.readDocument(s.file, &from); err != nil {
			return nil, err
		}
		for k, v := range from {
			base[k] = v
		}
	}
	for _, pair := range s.set {
		path, text, ok := strings.Cut(pair, "=")
		if !ok || path == "" {
			return nil, fail(ExitUsage, "--set %q must be field=value", pair)
		}
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			v = text
		}
		if err := put(base, strings.Split(path, "."), v); err != nil {
			return nil, err
		}
	}
	return base, nil
}

func put(into map[string]any, path []string, v any) error {
	if len(path) == 1 {
		if v == nil {
			delete(into, path[0])
		} else {
			into[path[0]] = v
		}
		return nil
	}
	next, ok := into[path[0]].(map[string]any)
	if !ok {
		if into[path[0]] != nil {
			return fail(ExitUsage, "%s is no object, so it has no field %s", path[0], path[1])
		}
		next = map[string]any{}
		into[path[0]] = next
	}
	return put(next, path[1:], v)
}

// readDocument reads YAML or JSON. It goes through JSON so that what is sent is
// what JSON can say.
func (a *app) readDocument(file string, into any) error {
	in := a.In
	if file != "-" {
		f, err := openNamed(file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return fail(ExitUsage, "%w", err)
	}
	if len(raw) > maxFile {
		return fail(ExitUsage, "%s is over %d bytes", file, maxFile)
	}
	var doc any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fail(ExitUsage, "%s is neither YAML nor JSON: %w", file, err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return fail(ExitUsage, "%s holds what JSON cannot say, such as keys that are no text", file)
	}
	var wrong *json.UnmarshalTypeError
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // what is misspelt must not be left out
	switch err := d.Decode(into); {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fail(ExitUsage, "%s: %s must not be a %s", file, wrong.Field, wrong.Value)
	case err != nil && strings.Contains(err.Error(), "unknown field"):
		return fail(ExitUsage, "%s: %s", file, strings.TrimPrefix(err.Error(), "json: "))
	case err != nil:
		return fail(ExitUsage, "%s must hold fields with their values, as NAME: VALUE", file)
	}
	return nil
}
