// Package generated tells whether committed code is what its generator wrote. `make generate` runs
// each generator that is an external tool and records in generated.sum which inputs, version of the
// tool and outputs belong together. A test compares the record with the tree, without the tool.
//
// Pages that a test writes and compares itself, as docs/states, need no record.
package generated

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
)

// Path is where the records are, relative to the checkout.
const Path = "test/generated/generated.sum"

// Generator is an external tool that writes committed files.
type Generator struct {
	Tool    string   // its name in toolcache
	Args    []string // the tool runs in the checkout with these
	Plugins []string // other tools that it starts from bin/
	Module  string   // that go.mod of the tool pins
	Inputs  []string // files and folders that the outputs depend on
	Outputs []string // files and folders that hold nothing else than outputs
}

// Generators returns all generators of the checkout at root.
func Generators(root string) ([]Generator, error) {
	settings, err := os.ReadFile(filepath.Join(root, "sqlc.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read which packages sqlc generates: %w", err)
	}
	g := Generator{
		Tool:   "sqlc",
		Args:   []string{"generate"},
		Module: "github.com/sqlc-dev/sqlc",
		Inputs: []string{"sqlc.yaml", "db/functions", "db/migrations", "db/views"},
	}
	for _, match := range regexp.MustCompile(`\b(queries|out): ([\w/]+)`).FindAllSubmatch(settings, -1) {
		if path := string(match[2]); string(match[1]) == "out" {
			g.Outputs = append(g.Outputs, path)
		} else {
			g.Inputs = append(g.Inputs, path)
		}
	}
	api := Generator{
		Tool:    "oapi-codegen",
		Args:    []string{"-config", "client/oapi-codegen.yaml", "docs/api/openapi.yaml"},
		Module:  "github.com/oapi-codegen/oapi-codegen/v2",
		Inputs:  []string{"client/oapi-codegen.yaml", "client/overlay.yaml", "client/client.tmpl", "docs/api/openapi.yaml"},
		Outputs: []string{"client/client.gen.go"},
	}
	proto := Generator{
		Tool:    "buf",
		Args:    []string{"generate"},
		Plugins: []string{"protoc-gen-go", "protoc-gen-connect-go"},
		Module:  "github.com/bufbuild/buf",
		Inputs:  []string{"buf.yaml", "buf.gen.yaml", "proto/slipway", "tools/proto/go.mod"},
		Outputs: []string{"proto/gen"},
	}
	return []Generator{g, api, proto}, nil
}

// Record returns the line of generated.sum that holds for the checkout as it is.
func (g Generator) Record(root string) (string, error) {
	version, err := g.version(root)
	if err != nil {
		return "", err
	}
	inputs, err := toolcache.Hash(root, strings.Join(g.Args, " "), g.Inputs...)
	if err != nil {
		return "", err
	}
	outputs, err := toolcache.Hash(root, "", g.Outputs...)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s inputs:%s outputs:%s", g.Tool, version, inputs, outputs), nil
}

// version returns the version of the tool that its go.mod pins.
func (g Generator) version(root string) (string, error) {
	tool, err := toolcache.Find(g.Tool)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, tool.Module, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", g.Tool, err)
	}
	match := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(g.Module) + ` (\S+)`).FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("%s does not require %s", path, g.Module)
	}
	return string(match[1]), nil
}

// Check returns what differs between the checkout and the records, or nil. The error says how to
// repair it.
func Check(root string) error {
	text, err := os.ReadFile(filepath.Join(root, Path))
	if err != nil {
		return fmt.Errorf("read the records of generated code: %w", err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	generators, err := Generators(root)
	if err != nil {
		return err
	}
	if len(want) != len(generators) {
		return fmt.Errorf("%s has %d records for %d generators: run make generate", Path, len(want), len(generators))
	}
	for i, g := range generators {
		got, err := g.Record(root)
		if err != nil {
			return err
		}
		if changed := difference(want[i], got); changed != "" {
			return fmt.Errorf("the %s of %s changed since it ran last: run make generate", changed, g.Tool)
		}
	}
	return nil
}

// difference names the first part of a record that is not the same.
func difference(want, got string) string {
	old, current := strings.Fields(want), strings.Fields(got)
	for i, part := range []string{"name", "version", "inputs", "outputs"} {
		if i >= len(old) || old[i] != current[i] {
			return part
		}
	}
	return ""
}

// Write records the checkout as it is. Only a program that has just run the generators calls it.
func Write(root string) error {
	text := "# Written by `make generate`. Do not edit.\n"
	generators, err := Generators(root)
	if err != nil {
		return err
	}
	for _, g := range generators {
		record, err := g.Record(root)
		if err != nil {
			return err
		}
		text += record + "\n"
	}
	if err := os.WriteFile(filepath.Join(root, Path), []byte(text), 0o644); err != nil {
		return fmt.Errorf("record what was generated: %w", err)
	}
	return nil
}
