package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// completionLimit bounds the question that a shell asks while the user waits at the prompt.
const completionLimit = 3 * time.Second

// maxCompletions bounds what a shell offers.
const maxCompletions = 200

// completedKinds are the kinds of resourceKinds, and words that are completed although no resource
// is found by them alone: a BMC is named by its node, and so are a job and a finding.
func completedKinds() []resourceKind {
	bmc := nodeKind()
	bmc.word, bmc.flag = "BMC", ""
	hostname := func(e entry) string { return e.Hostname }
	return append(resourceKinds(), bmc,
		resourceKind{word: "JOB", name: hostname, rows: listed(func(a *app, _ lookup) lister[client.ListJob] { return list(a.api.ListJobs, nil) })},
		resourceKind{word: "FINDING", name: hostname, rows: listed(func(a *app, _ lookup) lister[client.ListDrift] { return list(a.api.ListDrift, nil) })},
	)
}

// completeNames lets shells complete names from the server's lists: the arguments and flags of
// every command below root that take one.
func (a *app) completeNames(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		a.completeNames(cmd)
	}
	if root.ValidArgsFunction == nil && len(strings.Fields(root.Use)) > 1 && !root.HasSubCommands() {
		root.ValidArgsFunction = a.completeArgs
	}
	for _, k := range completedKinds() {
		if k.flag != "" && root.Flags().Lookup(k.flag) != nil {
			// It fails only for a flag that is not there or has a completion already.
			_ = root.RegisterFlagCompletionFunc(k.flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				return a.completionsOf(cmd.Context(), k, lookup{}, begun), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
	if root.Flags().Lookup("profile") != nil {
		_ = root.RegisterFlagCompletionFunc("profile", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return a.namesAt(cmd, profileKind(), nil, begun), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// completeArgs completes the argument of a command after args. Arguments that name no resource may
// be files.
func (a *app) completeArgs(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	words := usageWords(cmd.Use)
	if len(args) >= len(words) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ofProject := len(args) > 0 && words[0] == "PROJECT"
	for _, k := range completedKinds() {
		if k.word == words[len(args)] && k.ofProject == ofProject {
			return a.namesAt(cmd, k, args, begun), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// namesAt offers names of a kind, of the site of --site or of the project that is the first
// argument.
func (a *app) namesAt(cmd *cobra.Command, k resourceKind, args []string, begun string) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	var l lookup
	var err error
	switch {
	case k.word == "PROFILE":
		site := cmd.Flags().Lookup("site")
		if site == nil || site.Value.String() == "" { // each site has its own
			return nil
		}
		l.site, err = a.siteOf(ctx, site.Value.String())
	case k.ofProject:
		l.project, err = a.projectOf(ctx, args[0])
	}
	if err != nil {
		return nil
	}
	return a.completionsOf(ctx, k, l, begun)
}

// completionsOf lists the names that begin with a text. A server that cannot be asked offers
// nothing: a shell must not print errors into the command line.
func (a *app) completionsOf(ctx context.Context, k resourceKind, l lookup, begun string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	l.limit = maxCompletions
	if k.beginQuery != "" && begun != "" {
		l.query, l.value = k.beginQuery, begun
	}
	rows, err := k.rows(ctx, a, l)
	if err != nil {
		return nil
	}
	var out []string
	seen := map[string]bool{}
	for _, e := range rows {
		name := k.nameOf(e)
		if name == "" {
			name = e.ID
		}
		// A shell takes what it is given: nothing that is not a name goes there.
		if nameShape.MatchString(name) && strings.HasPrefix(name, begun) && !seen[name] && !k.hasEnded(e) {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}
