package cli

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// completionLimit bounds the question that a shell asks while the user waits at the prompt.
const completionLimit = 3 * time.Second

// maxCompletions bounds what a shell offers.
const maxCompletions = 200

// completions are the lists whose names a shell completes, by the word that stands for one in the
// usage of a command, and the flag that takes one.
var completions = []struct {
	word, flag string
	list       func(*app) lister[names]
	// query narrows the list down to what begins with the text, "" where the API cannot.
	query string
}{
	{"NODE", "node", func(a *app) lister[names] { return named(list(a.api.ListNodes, nil)) }, "q"},
	{"BMC", "", func(a *app) lister[names] { return named(list(a.api.ListNodes, nil)) }, "q"}, // a BMC is named by its node
	{"JOB", "", func(a *app) lister[names] { return named(list(a.api.ListJobs, nil)) }, ""},
	{"SITE", "site", func(a *app) lister[names] { return named(list(a.api.ListSites, nil)) }, ""},
	{"SKU", "sku", func(a *app) lister[names] { return named(list(a.api.ListSkus, nil)) }, ""},
	{"BATCH", "batch", func(a *app) lister[names] { return named(list(a.api.ListOnboardingBatches, nil)) }, ""},
	{"FINDING", "", func(a *app) lister[names] { return named(list(a.api.ListDrift, nil)) }, ""},
}

var usageWord = regexp.MustCompile(`^[a-z-]+ \[?([A-Z]+)`)

// completeNames lets shells complete names from the server's lists: the first argument of every
// command that takes one, and the flags.
func (a *app) completeNames(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		a.completeNames(cmd)
	}
	word := ""
	if m := usageWord.FindStringSubmatch(root.Use); m != nil {
		word = m[1]
	}
	if root.Flags().Lookup("site") != nil {
		a.completeProfiles(root, word)
	}
	for _, c := range completions {
		names := func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return namesIn(cmd.Context(), c.list(a), c.query, begun), cobra.ShellCompDirectiveNoFileComp
		}
		if c.word == word && root.ValidArgsFunction == nil {
			root.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return names(cmd, args, begun)
			}
		}
		if c.flag != "" && root.Flags().Lookup(c.flag) != nil {
			// It fails only for a flag that is not there or has a completion already.
			_ = root.RegisterFlagCompletionFunc(c.flag, names)
		}
	}
}

// completeProfiles completes the profiles of the site that --site names; each site has its own.
func (a *app) completeProfiles(cmd *cobra.Command, word string) {
	names := func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		site, err := cmd.Flags().GetString("site")
		if err != nil || site == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		id, err := a.siteOf(ctx, site)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return namesIn(ctx, named(listBelow(a.api.ListProfiles, id, nil)), "", begun), cobra.ShellCompDirectiveNoFileComp
	}
	if word == "PROFILE" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(cmd, args, begun)
		}
	}
	if cmd.Flags().Lookup("profile") != nil {
		// It fails only for a flag that is not there or has a completion already.
		_ = cmd.RegisterFlagCompletionFunc("profile", names)
	}
}

// namesIn lists the names of what a list holds that begin with a text. A server that cannot be
// asked offers nothing: a shell must not print errors into the command line.
func namesIn(ctx context.Context, of lister[names], query, begun string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	narrowed := of
	if query != "" && begun != "" {
		narrowed = func(ctx context.Context, options ...client.Option) (client.Answer[names], error) {
			return of(ctx, append(options, client.Query(query, begun))...)
		}
	}
	got, err := client.Value(listAll(ctx, narrowed, maxCompletions))
	if err != nil {
		return nil
	}
	var out []string
	seen := map[string]bool{}
	for _, d := range got.Data {
		name := d.Name
		if name == "" {
			name = d.Hostname
		}
		if name == "" {
			name = d.ID
		}
		// A shell takes what it is given: nothing that is not a name goes there.
		if nameShape.MatchString(name) && strings.HasPrefix(name, begun) && !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}
