// Package docs holds the pages of this folder, so that the API serves the ones of its own version.
package docs

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

//go:embed *.md api/*.md automate/*.md customers/*.md develop/*.md run/*.md try/*.md adr/*.md runbooks/*.md states/*.md
var pages embed.FS

//go:embed images/*.png images/icon.svg
var images embed.FS

// Image returns the picture of a path such as "images/portal-plan.png", which the pages link to. It
// returns fs.ErrNotExist when there is none.
func Image(name string) ([]byte, error) {
	return keep(&keptImages, name, func() ([]byte, error) { return images.ReadFile(name) })
}

// keptPages and keptImages are what is sent, by its path. It is made once: anybody may ask for it,
// at any rate, and read it slowly.
var keptPages, keptImages sync.Map

// keep returns what produce returned when a path was first asked for. A failure is not kept.
func keep(kept *sync.Map, name string, produce func() ([]byte, error)) ([]byte, error) {
	if data, ok := kept.Load(name); ok {
		return data.([]byte), nil //nolint:errcheck // it holds nothing else
	}
	data, err := produce()
	if err != nil {
		return nil, err
	}
	first, _ := kept.LoadOrStore(name, data)
	return first.([]byte), nil //nolint:errcheck // it holds nothing else
}

// frame is the HTML around a page. It needs no script and nothing from outside.
var frame = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}} - Slipway</title>
<link rel="icon" href="/docs/images/icon.svg" type="image/svg+xml">
<style>body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 0 auto; padding: 1.5rem; }
code, pre { font: 14px/1.45 ui-monospace, monospace; } pre { overflow: auto; padding: .7rem; background: #8881; }
table { border-collapse: collapse; display: block; overflow: auto; } td, th { border: 1px solid #8884; padding: .25rem .5rem; text-align: left; vertical-align: top; }</style>
</head><body>{{.Body}}</body></html>
`))

// Page returns the page of a path such as "runbooks/bmc_unreachable" or "pxe", with or without
// ".md", as HTML. It returns fs.ErrNotExist when there is none. Links between pages work as they
// stand, below the path where the pages are served.
func Page(name string) ([]byte, error) {
	name = path.Clean(strings.TrimSuffix(name, ".md")) + ".md"
	return keep(&keptPages, name, func() ([]byte, error) { return render(name) })
}

func render(name string) ([]byte, error) {
	source, err := pages.ReadFile(name)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var body, out bytes.Buffer
	if err := markdown.Convert(source, &body, parser.WithContext(parser.NewContext(parser.WithIDs(anchors{})))); err != nil {
		return nil, fmt.Errorf("render the page %s: %w", name, err)
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(string(source), "# "), "\n")
	//nolint:gosec // the page is part of this program
	err = frame.Execute(&out, struct {
		Title string
		Body  template.HTML
	}{title, template.HTML(body.String())})
	if err != nil {
		return nil, fmt.Errorf("render the page %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// anchors names headings as the links between the pages do: "machine_absent" stays, "The agent"
// becomes "the-agent". A page has no two headings of one name.
type anchors struct{}

// Generate implements parser.IDs.
func (anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	return bytes.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, bytes.TrimSpace(heading))
}

// Put implements parser.IDs.
func (anchors) Put([]byte) {}

// URL returns where the page of a file in this folder is served: "docs/pxe.md#migrating" becomes
// base + "/docs/pxe#migrating". base is the API's public URL; "" gives the path alone.
func URL(base, file string) string {
	file, anchor, found := strings.Cut(file, "#")
	out := strings.TrimSuffix(base, "/") + "/" + strings.TrimSuffix(file, ".md")
	if found {
		out += "#" + anchor
	}
	return out
}
