package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeEmpty marks a flag for which an empty value has a documented meaning.
const mayBeEmpty = "slipway_may_be_empty"

// refuseBlanks makes every command below root refuse blank arguments before it sends a request. A
// script whose variable is not set must not act on whatever a list returns first.
func refuseBlanks(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		refuseBlanks(cmd)
	}
	check := root.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return explainArguments(cmd, args, err)
		}
		for i, arg := range args {
			if strings.TrimSpace(arg) == "" {
				return fmt.Errorf("argument %d of %s is empty; usage: %s", i+1, cmd.CommandPath(), cmd.UseLine())
			}
		}
		return nil
	}
}

// explainArguments adds to a refusal of arguments what the command takes: the names of its
// arguments, or the commands below it that were perhaps meant.
func explainArguments(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasSubCommands() {
		return fmt.Errorf("%w; usage: %s", err, cmd.UseLine())
	}
	if len(args) == 0 {
		return err
	}
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, " or "))
	}
	return err
}

var parseError = regexp.MustCompile(`strconv\.Parse[A-Za-z]+: parsing "[^"]*": `)

var numberError = regexp.MustCompile(`^unknown shorthand flag: '\d' in (-\d+)`)

// plainFlagError takes the name of the function that could not read a flag's value out of an error,
// and says how a number below zero is told from a flag.
func plainFlagError(err error) error {
	if number := numberError.FindStringSubmatch(err.Error()); number != nil {
		return fmt.Errorf("%s is read as a flag; where a number below zero is meant, put all flags first, then --, then the arguments", number[1])
	}
	if text := err.Error(); parseError.MatchString(text) {
		return errors.New(parseError.ReplaceAllString(text, ""))
	}
	return err
}

// checkFlags refuses flags that were given without a value, and durations that are negative.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Value.Type() == "string" && strings.TrimSpace(f.Value.String()) == "" && f.Annotations[mayBeEmpty] == nil:
			err = fmt.Errorf("--%s is empty; give it a value or leave it out", f.Name)
		case f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-"):
			err = fmt.Errorf("--%s must not be negative", f.Name)
		case f.Name == "limit" && strings.HasPrefix(f.Value.String(), "-"):
			err = fmt.Errorf("--limit must not be negative")
		}
	})
	return err
}

// The shapes of names and ids. Both are safe as one segment of a path.
var (
	nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)
	idShape   = regexp.MustCompile(`^[a-z]+_[A-Za-z0-9-]{1,64}$`)
)

// checkID refuses a text that begins like an id of a kind and is none.
func checkID(prefix, noun, text string) error {
	if !strings.HasPrefix(text, prefix) || !idShape.MatchString(text) {
		return fail(ExitUsage, "%q is not the id of a %s", text, noun)
	}
	return nil
}

// openNamed opens a file that the command line names.
func openNamed(file string) (*os.File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fail(ExitUsage, "%w", err)
	}
	return f, nil
}

// readNamed reads a file that the command line names.
func readNamed(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fail(ExitUsage, "%w", err)
	}
	return raw, nil
}
