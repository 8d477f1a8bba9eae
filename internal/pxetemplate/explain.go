package pxetemplate

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

// The messages of text/template are for programmers: they name types and calls. The messages for an
// admin name the line and the value.
var (
	placed     = regexp.MustCompile(`^template: template:(\d+)(?::\d+)?: (?s:(.*))$`)
	executing  = regexp.MustCompile(`^executing "template" at <((?s:.*?))>: (?s:(.*))$`)
	noField    = regexp.MustCompile(`^can't evaluate field (\w+) in type (\S+)$`)
	noKey      = regexp.MustCompile(`^map has no entry for key ("[^"]*")$`)
	noFunction = regexp.MustCompile(`^function "(\w+)" not defined$`)
	badCall    = regexp.MustCompile(`^error calling \w+: (?s:(.*))$`)
	wrongCount = regexp.MustCompile(`^wrong number of args for (\w+)`)
	ofPrograms = regexp.MustCompile(`\b(type|interface|reflect|untyped|non-function|pxetemplate\.\w+|template\.\w+|u?int\d*|map\[)`)
)

// plainly says what is wrong with a template, given the data that it may name;
// nil for one that was not executed.
func plainly(err error, data any) string {
	text := err.Error()
	at := ""
	if m := placed.FindStringSubmatch(text); m != nil {
		at, text = "line "+m[1]+": ", m[2]
	}
	if m := noFunction.FindStringSubmatch(text); m != nil {
		return at + "there is no function " + m[1] + " here"
	}
	m := executing.FindStringSubmatch(text)
	if m == nil {
		return at + text
	}
	return at + wrongAt(m[1], m[2], data)
}

// wrongAt is what is wrong with one expression.
func wrongAt(expr, reason string, data any) string {
	if m := noField.FindStringSubmatch(reason); m != nil {
		if strings.TrimPrefix(m[2], "*") != reflect.TypeOf(data).String() {
			return fmt.Sprintf("there is no %s: nothing lies within the value", expr)
		}
		return fmt.Sprintf("there is no .%s; the values are %s", m[1], strings.Join(valuesOf(data), ", "))
	}
	if m := noKey.FindStringSubmatch(reason); m != nil {
		return fmt.Sprintf("the node has no label %s; give it one, or ask with if index .Labels %s", m[1], m[1])
	}
	if m := wrongCount.FindStringSubmatch(reason); m != nil {
		return fmt.Sprintf("%s has too few arguments or too many", m[1])
	}
	if m := badCall.FindStringSubmatch(reason); m != nil {
		reason = m[1]
	}
	if ofPrograms.MatchString(reason) {
		return expr + " cannot be used like that"
	}
	return reason
}

// valuesOf lists what a template may name.
func valuesOf(data any) []string {
	var out []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(data)) {
		name := "." + f.Name
		if f.Type.Kind() == reflect.Map {
			name += ".NAME"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// lineOf is the line of a template in which a node begins, from 1.
func lineOf(text string, n parse.Node) int {
	return 1 + strings.Count(text[:min(int(n.Position()), len(text))], "\n")
}
