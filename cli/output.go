package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/client"
)

// show prints an answer as the user asked: printText prints the table.
func (a *app) show(raw []byte, printText func() error) error {
	switch a.output {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return err
		}
		b.WriteByte('\n')
		_, err := io.WriteString(a.Out, escapeJSON(b.String()))
		return err
	case "yaml":
		return writeYAML(a.Out, raw)
	}
	return printText()
}

// show prints an answer as the user asked: printText prints what it is.
func show[T any](a *app, r client.Answer[T], printText func(T) error) error {
	return a.show(r.Raw, func() error {
		v, err := r.Decode()
		if err != nil {
			return err
		}
		return printText(v)
	})
}

// writeYAML keeps the order of the JSON's keys.
func writeYAML(w io.Writer, raw []byte) error {
	var doc yaml.Node
	// JSON is YAML, where control characters are escaped.
	if err := yaml.Unmarshal([]byte(escapeYAML(string(raw))), &doc); err != nil {
		return err
	}
	plain(&doc)
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeYAML(b.String()))
	return err
}

func plain(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		switch {
		case strings.ContainsFunc(n.Value, isUnsafe):
			n.Style = yaml.DoubleQuotedStyle // escapeYAML relies on it
		case strings.Contains(n.Value, "\n"):
			n.Style = yaml.LiteralStyle
		}
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// table prints aligned columns when it is flushed.
type table struct {
	w     *tabwriter.Writer
	rows  *[][]string
	short bool // print the beginning of ids
}

func (a *app) table(header ...string) table {
	t := table{w: tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0), rows: new([][]string), short: !a.wide && (len(header) == 0 || header[0] != "FIELD")}
	t.row(toAny(header)...)
	return t
}

func toAny(l []string) []any {
	out := make([]any, len(l))
	for i, s := range l {
		out[i] = s
	}
	return out
}

func (t table) row(cells ...any) {
	parts := make([]string, len(cells))
	for i, c := range cells {
		parts[i] = oneLine(fmt.Sprint(c))
	}
	*t.rows = append(*t.rows, parts)
}

func (t table) flush() error {
	if t.short {
		shortenIDs(*t.rows)
	}
	for _, parts := range *t.rows {
		fmt.Fprintln(t.w, strings.TrimRight(strings.Join(parts, "\t"), "\t"))
	}
	*t.rows = nil
	return t.w.Flush()
}

// fields prints name and value a line, without those that are empty.
func (a *app) fields(pairs ...any) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if v := oneLine(fmt.Sprint(pairs[i+1])); v != "" {
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], v)
		}
	}
	return w.Flush()
}

// when says how far a time is from now, or with --utc the time itself.
func (a *app) when(t time.Time) string {
	if a.utc || t.IsZero() {
		return moment(t)
	}
	d := t.Sub(time.Now().Add(a.skew))
	if d > 0 {
		return "in " + distance(d)
	}
	return distance(-d) + " ago"
}

// moment is a time in UTC.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

const day = 24 * time.Hour

// distance rounds a duration to what an operator compares.
func distance(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/day)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
