package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// projectFlagHelp is the help of --project where a default project can stand in for it.
const projectFlagHelp = "the project, by name or id (default: SLIPWAY_PROJECT, or that of slipway use)"

// defaultProject returns the project of SLIPWAY_PROJECT or of slipway use; "" for none.
func (a *app) defaultProject(ctx context.Context) (string, error) {
	if chosen := a.Getenv("SLIPWAY_PROJECT"); chosen != "" {
		id, err := a.projectOf(ctx, chosen)
		a.sayProject(id, chosen, "SLIPWAY_PROJECT")
		return id, err
	}
	acc, err := a.account(ctx)
	a.sayProject(acc.Project, acc.ProjectName, "slipway use")
	return acc.Project, err
}

// sayProject prints the project that an irreversible command acts in although it names none.
func (a *app) sayProject(id, name, from string) {
	if !a.irreversible || id == "" {
		return
	}
	if name == id {
		name = ""
	}
	fmt.Fprintf(a.Err, "slipway: in project %s, by %s\n", oneLine(withID(name, id)), from)
}

// projectOr returns the project of --project, or the default project; "" for none.
func (a *app) projectOr(ctx context.Context, flag string) (string, error) {
	if flag != "" {
		return a.projectOf(ctx, flag)
	}
	return a.defaultProject(ctx)
}

// projectOrOwn is projectOr, or the project of the token.
func (a *app) projectOrOwn(ctx context.Context, flag string) (string, error) {
	id, err := a.projectOr(ctx, flag)
	if id != "" || err != nil {
		return id, err
	}
	who, err := a.caller(ctx)
	a.sayProject(who.Project, "", "the token")
	return who.Project, err
}

// splitProject takes the project off the arguments of a command: the first one where there is one
// more than rest, else --project, else the default project.
func (a *app) splitProject(ctx context.Context, cmd *cobra.Command, args []string, rest int) (project string, others []string, err error) {
	flag := ""
	if f := cmd.Flags().Lookup("project"); f != nil {
		flag = f.Value.String()
	}
	switch {
	case len(args) > rest && flag != "":
		return "", nil, fail(ExitUsage, "the project is given twice, as %q and with --project %s; usage: %s", args[0], flag, cmd.UseLine())
	case len(args) > rest:
		project, err = a.projectOf(ctx, args[0])
		return project, args[1:], err
	case len(args) > 0 && strings.HasPrefix(args[0], "prj_"):
		return "", nil, fail(ExitUsage, "%s names a project, and an argument behind it is missing; usage: %s", args[0], cmd.UseLine())
	}
	if project, err = a.projectOrOwn(ctx, flag); err != nil {
		return "", nil, err
	}
	if project == "" {
		return "", nil, fail(ExitUsage, "say which project: as the first argument, with --project, or for all commands with slipway use PROJECT; slipway project list shows yours")
	}
	return project, args, nil
}

// actIn returns the project that a call of the gRPC API acts in. The default project is for
// customers alone: an operator acts for the platform unless --project says otherwise.
func (a *app) actIn(ctx context.Context, flag string) (string, error) {
	if flag != "" {
		return a.projectOf(ctx, flag)
	}
	acc, err := a.account(ctx)
	if err != nil || acc.Project == "" && a.Getenv("SLIPWAY_PROJECT") == "" {
		return "", err
	}
	operator, err := a.isOperator(ctx)
	if err != nil || operator {
		return "", err
	}
	return a.defaultProject(ctx)
}

func (a *app) useCommand() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "use [PROJECT]", Short: "Set the default project of the context, or show it", Args: cobra.MaximumNArgs(1),
		Long: "Commands that name no project then mean this one. --project and SLIPWAY_PROJECT win over it. " +
			"Commands that close or delete a project always need its name.",
		Example: "  slipway use training\n  slipway key list\n  slipway use --none",
	}
	cmd.Flags().BoolVar(&none, "none", false, "have no default project any more")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if none && len(args) > 0 {
			return fail(ExitUsage, "give a project or --none, not both")
		}
		if a.Getenv("SLIPWAY_TOKEN") != "" && a.context == "" {
			return fail(ExitUsage, "SLIPWAY_TOKEN is used in place of a context; set SLIPWAY_PROJECT for its default project")
		}
		acc, err := a.account(cmd.Context())
		if err != nil {
			return err
		}
		if len(args) == 0 && !none {
			if acc.Project == "" {
				return fail(ExitNotFound, "there is no default project; slipway use PROJECT sets one, and slipway project list shows yours")
			}
			_, err := fmt.Fprintf(a.Out, "%s (%s)\n", oneLine(acc.ProjectName), acc.Project)
			return err
		}
		chosen := entry{}
		if !none {
			if chosen, err = a.findProject(cmd.Context(), args[0]); err != nil {
				return err
			}
		}
		return a.setDefaultProject(cmd.Context(), chosen)
	})
	return cmd
}

// findProject returns the row of a project that the caller may see.
func (a *app) findProject(ctx context.Context, text string) (entry, error) {
	k := projectKind()
	id, err := a.resolve(ctx, k, lookup{}, text)
	if err != nil {
		return entry{}, err
	}
	rows, err := k.readAll(ctx, a, lookup{})
	if err != nil {
		return entry{}, err
	}
	for _, e := range rows {
		if e.ID == id {
			return e, nil
		}
	}
	return entry{}, fail(ExitNotFound, "project %s was not found; %s shows them", id, k.listCommand(a, lookup{}))
}

func (a *app) setDefaultProject(ctx context.Context, p entry) error {
	name := a.context
	err := a.changeContexts(ctx, func(c *contexts) error {
		name = cmp.Or(name, c.Current)
		acc, ok := c.Contexts[name]
		if !ok {
			return noContext(ExitNotFound, name)
		}
		acc.Project, acc.ProjectName = p.ID, p.Name
		c.Contexts[name] = acc
		return nil
	})
	switch {
	case err != nil:
		return err
	case p.ID == "":
		_, err = fmt.Fprintf(a.Out, "context %s has no default project\n", name)
	default:
		_, err = fmt.Fprintf(a.Out, "context %s: the default project is %s (%s)\n", name, oneLine(p.Name), p.ID)
	}
	return err
}

// keysOf returns the ids of SSH keys of a project. project is asked for only where a key is not a
// whole id.
func (a *app) keysOf(ctx context.Context, keys []string, because client.Option, project func() (string, error)) ([]string, error) {
	k := keyKind()
	out := make([]string, 0, len(keys))
	in := ""
	for _, key := range keys {
		form, err := k.shapeOf(key)
		if err != nil {
			return nil, err
		}
		if form != asWholeID && in == "" {
			if in, err = project(); err != nil {
				return nil, err
			}
			if in == "" {
				return nil, fail(ExitUsage, "--key %q is no whole id, and a name belongs to a project: say which with --project", key)
			}
		}
		id, err := a.resolve(ctx, k, inThe(in, because), key)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// withProject adds --project to a command and returns what it runs: do gets the project and the
// rest arguments behind it.
func (a *app) withProject(cmd *cobra.Command, rest int, do func(cmd *cobra.Command, project string, args []string) error) func(*cobra.Command, []string) error {
	if strings.Contains(cmd.Use, "[PROJECT]") {
		cmd.Flags().String("project", "", projectFlagHelp)
	}
	return does(func(cmd *cobra.Command, args []string) error {
		project, args, err := a.splitProject(cmd.Context(), cmd, args, rest)
		if err != nil {
			return err
		}
		return do(cmd, project, args)
	})
}

// optionalProject returns the id of a project that a flag names, or "" without one.
func (a *app) optionalProject(ctx context.Context, flag string) (string, error) {
	if flag == "" {
		return "", nil
	}
	return a.projectOf(ctx, flag)
}
