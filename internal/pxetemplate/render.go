// Package pxetemplate checks and renders the templates of install workflows: the kernel's command
// line and the installer's user-data. A template is a closed subset of text/template, so that it
// runs once through its text and a value cannot change the document around it.
package pxetemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// maxRendered is the most that a template may become, in bytes.
const maxRendered = 64 << 10

// Plain is a value that Slipway made of letters, digits and ._:/-[]; it can
// stand anywhere.
type Plain string

// Quoted is a value that came from outside. It has been cleaned, and prints as
// a double-quoted YAML scalar.
type Quoted string

// String is how templates print it. JSON's strings are YAML's.
func (q Quoted) String() string {
	b, err := json.Marshal(spec.CleanText(string(q), maxValue))
	if err != nil { // a string always has a JSON form
		return `""`
	}
	return string(b)
}

const maxValue = 256 // characters of a value

// AgentPath is the last part of the path of a machine's agent script, below its SeedURL.
const AgentPath = "install-agent"

// CommandData is what a kernel command line may name.
type CommandData struct {
	NodeID, Hostname, MAC, Token, SeedURL, ReportURL Plain
}

// UserData is what a user-data template may name.
type UserData struct {
	NodeID, Hostname, MAC, Token, SeedURL, ReportURL Plain
	Attempt                                          int
	Vendor, Model, SerialNumber, SystemUUID          Quoted
	IPAddress                                        Plain
	Labels                                           map[string]Quoted
}

// Check validates an install workflow, with a trial rendering of its templates. It returns a
// *spec.InvalidError that names all that is wrong.
func Check(w spec.InstallWorkflowSpec) error {
	var out spec.InvalidError
	if err := w.Validate(); err != nil {
		var invalid *spec.InvalidError
		if !errors.As(err, &invalid) {
			return err
		}
		out.Fields = append(out.Fields, invalid.Fields...)
	}
	if len(out.Fields) > 0 {
		return &out // a template beyond its bound is not parsed
	}
	token := Plain("pxe_" + strings.Repeat("x", 43))
	c := CommandData{"node_00000000-0000-7000-8000-000000000000", "pxe-525400123456", "52:54:00:12:34:56", token,
		"http://[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535/boot/" + token + "/", "http://[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535/a/path/of/the/report"}
	if _, err := c.Render(w.CommandLine); err != nil {
		out.Fields = append(out.Fields, spec.Invalid{Field: "command_line", Problem: err.Error()})
	}
	u := UserData{c.NodeID, c.Hostname, c.MAC, c.Token, c.SeedURL, c.ReportURL, 1, "Vendor", "Model", "S1", "U1", "192.0.2.1", nil}
	if _, err := u.render(w.UserData, true); err != nil {
		out.Fields = append(out.Fields, spec.Invalid{Field: "user_data", Problem: err.Error()})
	} else if w.Agent == nil && u.installsAgent(w.UserData) {
		out.Fields = append(out.Fields, spec.Invalid{Field: "user_data", Problem: "uses install_agent, and the workflow has no agent block that says which agent: add one, {} for the one that the image holds"})
	}
	if len(out.Fields) > 0 {
		return &out
	}
	return nil
}

// Render renders a kernel command line. It refuses what iPXE would not take as text.
func (d CommandData) Render(text string) (string, error) {
	t, err := parseClosed(text, template.FuncMap{})
	if err != nil {
		return "", err
	}
	line, err := execute(t, d)
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if len(line) > spec.MaxCommandLine {
		return "", fmt.Errorf("is %d bytes when rendered and may be %d", len(line), spec.MaxCommandLine)
	}
	if strings.Contains(line, "${") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", errors.New("must be one line of visible ASCII without ${, which iPXE would expand")
	}
	for word := range strings.FieldsSeq(line) {
		if word == "||" || word == "&&" || word == ";" || strings.HasPrefix(word, "#") {
			return "", errors.New("must not hold the words ||, && or ;, nor one that begins with #: iPXE takes them as its own")
		}
	}
	return line, nil
}

// Render renders the installer's answers.
func (d UserData) Render(text string) (string, error) { return d.render(text, false) }

// render renders user-data. With anyLabel the node has every label that the template names.
func (d UserData) render(text string, anyLabel bool) (string, error) {
	t, err := parseClosed(text, d.functions())
	if err != nil {
		return "", err
	}
	if anyLabel {
		d.Labels = map[string]Quoted{}
		for _, name := range labelsNamed(t.Root) {
			d.Labels[name] = "label"
		}
	}
	out, err := execute(t, d)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(out, "#cloud-config") {
		return out, nil
	}
	var doc yaml.Node // a node: aliases are not followed
	if err := yaml.Unmarshal([]byte(out), &doc); err != nil {
		return "", fmt.Errorf("is not YAML when rendered: %w", err)
	}
	return out, nil
}

// functions are those that a user-data template has beside the language's own.
func (d UserData) functions() template.FuncMap {
	return template.FuncMap{"quote": func(s string) Quoted { return Quoted(s) }, "report": d.report, "install_agent": d.installAgent}
}

// installsAgent says whether a template names install_agent anywhere, also where
// it is not called for this node.
func (d UserData) installsAgent(text string) bool {
	t, err := parseClosed(text, d.functions())
	return err == nil && t.Tree != nil && names(t.Root, "install_agent")
}

// report is the command that reports a status, as a double-quoted YAML scalar.
// A failure names the error; progress takes its percent.
func (d UserData) report(status string, percent ...int) (quotedCommand, error) {
	body := map[string]any{"mac_address": string(d.MAC), "installation_status": status}
	if !slices.Contains(lifecycle.InstallStatuses(), lifecycle.InstallStatus(status)) {
		return "", fmt.Errorf("report %q: must be started, progress, complete or failed", status)
	}
	switch {
	case status == string(lifecycle.InstallFailure):
		body["installation_error"] = "the installer stopped; its log on the machine says why"
	case status == string(lifecycle.InstallProgress) && (len(percent) != 1 || percent[0] < 0 || percent[0] > 100):
		return "", errors.New(`report "progress" needs a percent of 0 to 100`)
	case status == string(lifecycle.InstallProgress):
		body["installation_progress"] = percent[0]
	}
	b, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	return quotedCommand(fmt.Sprintf("curl -fsS --retry 20 --retry-connrefused --retry-delay 3 --max-time 30 -X POST -H 'Content-Type: application/json' "+
		"-H 'Authorization: Bearer %s' -d '%s' '%s' || true", d.Token, b, d.ReportURL)), nil
}

// installAgent is the command that installs the node's agent, as a double-quoted YAML scalar. It
// asks until it gets an answer, for minutes, and fails when the agent is not installed. The script
// that it fetches holds a token and lies in a file that root alone may read, until the script has
// run. wget tries once, since what it adds to half an answer is no script, and has its time from
// outside: the busybox of Debian's installer breaks at -T.
func (d UserData) installAgent() quotedCommand {
	const script = `umask 077; f=$(mktemp) || exit 1; n=0; ` +
		`until if command -v curl >/dev/null; then curl -fsS --max-time 30 -o "$f" "$1"; else timeout 60 wget -q -t 1 -O "$f" "$1"; fi; ` +
		`do n=$((n+1)); [ $n -lt 40 ] || { rm -f "$f"; exit 1; }; sleep 5; done; sh "$f"; r=$?; rm -f "$f"; exit $r`
	return quotedCommand(fmt.Sprintf("sh -c '%s' %s '%s%s'", script, AgentPath, d.SeedURL, AgentPath))
}

// quotedCommand prints as a double-quoted YAML scalar, as it is.
type quotedCommand string

func (q quotedCommand) String() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(q)); err != nil { // a string always has a JSON form
		return `""`
	}
	return strings.TrimSpace(b.String())
}

// allowed are the functions of a template; the others of text/template can
// call, loop or fill memory.
var allowed = []string{"quote", "report", "install_agent", "eq", "ne", "and", "or", "not", "index"}

func parseClosed(text string, funcs template.FuncMap) (*template.Template, error) {
	t, err := template.New("template").Option("missingkey=error").Funcs(funcs).Parse(text)
	if err != nil {
		return nil, errors.New("is not a template: " + plainly(err, nil))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("must not define templates of its own")
	}
	if t.Tree == nil {
		return template.New("template").Parse("")
	}
	return t, closed(t.Root, text)
}

// closed walks the parse tree: only text, values, conditions and the allowed functions. Such a
// template runs once through the text.
func closed(n parse.Node, text string) error {
	inner, known := inside(n)
	if !known {
		return fmt.Errorf("line %d uses %s; a template may hold values, if, else and with only", lineOf(text, n), strings.SplitN(n.String(), "\n", 2)[0])
	}
	if id, ok := n.(*parse.IdentifierNode); ok && !slices.Contains(allowed, id.Ident) {
		return fmt.Errorf("line %d uses %s; a template may use %s", lineOf(text, n), id.Ident, strings.Join(allowed, ", "))
	}
	for _, i := range inner {
		if err := closed(i, text); err != nil {
			return err
		}
	}
	return nil
}

// names says whether a template names a function, also where it would not be
// called.
func names(n parse.Node, function string) bool {
	if id, ok := n.(*parse.IdentifierNode); ok && id.Ident == function {
		return true
	}
	inner, _ := inside(n)
	return slices.ContainsFunc(inner, func(i parse.Node) bool { return names(i, function) })
}

// inside is what a node of the parse tree holds; false for one that a template
// may not have.
func inside(n parse.Node) (inner []parse.Node, known bool) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			inner = n.Nodes
		}
	case *parse.ActionNode:
		inner = []parse.Node{n.Pipe}
	case *parse.IfNode:
		inner = []parse.Node{n.Pipe, n.List, n.ElseList}
	case *parse.WithNode:
		inner = []parse.Node{n.Pipe, n.List, n.ElseList}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			inner = append(inner, c)
		}
	case *parse.CommandNode:
		inner = n.Args
	case *parse.IdentifierNode, *parse.TextNode, *parse.FieldNode, *parse.VariableNode, *parse.DotNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode,
		*parse.CommentNode:
	default:
		return nil, false
	}
	return inner, true
}

// labelsNamed lists the labels that a template names as .Labels.x.
func labelsNamed(n parse.Node) []string {
	if f, ok := n.(*parse.FieldNode); ok && len(f.Ident) > 1 && f.Ident[0] == "Labels" {
		return []string{f.Ident[1]}
	}
	var out []string
	inner, _ := inside(n)
	for _, i := range inner {
		out = append(out, labelsNamed(i)...)
	}
	return out
}

func execute(t *template.Template, d any) (string, error) {
	w := &bounded{left: maxRendered}
	if err := t.Execute(w, d); err != nil {
		if errors.Is(err, errTooLong) {
			return "", errTooLong
		}
		return "", errors.New("cannot be rendered: " + plainly(err, d))
	}
	return w.text.String(), nil
}

var errTooLong = fmt.Errorf("is over %d bytes when rendered", maxRendered)

// bounded stops a template that grows beyond what is left.
type bounded struct {
	text strings.Builder
	left int
}

var _ io.Writer = (*bounded)(nil)

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errTooLong
	}
	return b.text.Write(p)
}
