// Package pagecommands finds the command lines that pages name, so that a test can compare them
// with the program: a command that was renamed must not stay in a page that an operator follows.
package pagecommands

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Line is one command line of a page, without the name of its program.
type Line struct {
	Page string
	Args []string
}

// Find returns the lines by which the pages of a checkout call a program: README.md, AGENTS.md and
// all pages below docs, in code blocks and in code between backquotes.
func Find(checkout, program string) ([]Line, error) {
	var lines []Line
	add := func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, args := range linesOf(string(text), program) {
			lines = append(lines, Line{path, args})
		}
		return nil
	}
	for _, page := range []string{"README.md", "AGENTS.md"} {
		if err := add(filepath.Join(checkout, page)); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(filepath.Join(checkout, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		return add(path)
	})
	return lines, err
}

var (
	block = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	span  = regexp.MustCompile("`([^`]+)`")
	// ends is where a shell ends a command.
	ends = regexp.MustCompile(`\s(?:\||&&|\|\||>|<|2>|#)(?:\s|$)|;|\)`)
)

// linesOf returns the arguments of each call of the program in a page.
func linesOf(page, program string) [][]string {
	var code []string
	for _, found := range block.FindAllStringSubmatch(page, -1) {
		code = append(code, strings.Split(strings.ReplaceAll(found[1], "\\\n", " "), "\n")...)
	}
	for _, found := range span.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
		code = append(code, strings.ReplaceAll(found[1], "\n", " "))
	}
	call := regexp.MustCompile(`(?:^|[\s(/])` + regexp.QuoteMeta(program) + ` +(\S.*)$`)
	var out [][]string
	for _, text := range code {
		for rest := text; ; {
			found := call.FindStringSubmatchIndex(rest)
			if found == nil {
				break
			}
			before, line := strings.Fields(rest[:found[0]]), rest[found[2]:]
			rest = ""
			if end := ends.FindStringIndex(line); end != nil {
				line, rest = line[:end[0]], line[end[0]:]
			}
			if len(before) > 0 && strings.HasPrefix(before[len(before)-1], "--") {
				continue // the value of another program's flag
			}
			if args := strings.Fields(quoted.ReplaceAllString(line, "TEXT")); len(args) > 0 {
				out = append(out, choices(args)...)
			}
		}
	}
	return out
}

// choices returns a line for each word that stands in a choice such as "start|stop".
func choices(args []string) [][]string {
	i := slices.IndexFunc(args, func(arg string) bool { return choice.MatchString(arg) })
	if i < 0 {
		return [][]string{args}
	}
	var out [][]string
	for _, word := range strings.Split(args[i], "|") {
		out = append(out, choices(slices.Concat(args[:i], []string{word}, args[i+1:]))...)
	}
	return out
}

var (
	choice = regexp.MustCompile(`^[a-z][a-z-]*(\|[a-z][a-z-]*)+$`)
	quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	name   = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flag   = regexp.MustCompile(`^--([a-z][a-z0-9-]*)`)
)

// Check returns what is wrong with a line: a command or a flag that the program does not have.
func Check(root *cobra.Command, l Line) error {
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	command, rest := root, l.Args
	for len(rest) > 0 && command.HasSubCommands() {
		if strings.HasPrefix(rest[0], "-") {
			break
		}
		i := slices.IndexFunc(command.Commands(), func(c *cobra.Command) bool { return c.Name() == rest[0] || c.HasAlias(rest[0]) })
		if i < 0 {
			if !name.MatchString(rest[0]) {
				break // "...", a placeholder, or a choice
			}
			return fmt.Errorf("%s: %q has no command %q", l.Page, command.CommandPath(), rest[0])
		}
		command, rest = command.Commands()[i], rest[1:]
	}
	command.InitDefaultHelpFlag()
	for _, arg := range rest {
		if arg == "--" {
			break // the rest belongs to another program
		}
		if found := flag.FindStringSubmatch(strings.TrimLeft(arg, "[(")); found != nil && command.Flag(found[1]) == nil && command.InheritedFlags().Lookup(found[1]) == nil {
			return fmt.Errorf("%s: %q has no flag --%s", l.Page, command.CommandPath(), found[1])
		}
	}
	return nil
}
