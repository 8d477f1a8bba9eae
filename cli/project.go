package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// projectAction is one command on a project. It has send or list.
type projectAction[T any] struct {
	use, short string
	args       int // after the project
	// send asks for one thing; because is the reason of an operator.
	send    func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[T], error)
	list    func(project string, because client.Option) lister[T]
	columns []string // of a list, or of what is shown
	named   bool     // the project has to be an argument: the default project is never meant
	flags   func(*cobra.Command)
}

// projectCommandOf makes the command of an action. Its first argument is the project, and may be
// left out where there is a default project. Arguments that name resources of the project are ids
// in the request.
func projectCommandOf[T any](a *app, p projectAction[T]) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: strings.Replace(p.use, "PROJECT", "[PROJECT]", 1), Short: p.short, Args: cobra.RangeArgs(p.args, p.args+1)}
	if p.named {
		cmd.Use, cmd.Args = p.use, cobra.ExactArgs(p.args+1)
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why you act on a customer's project, for operators; its owners see it")
	if p.flags != nil {
		p.flags(cmd)
	}
	cmd.RunE = a.withProject(cmd, p.args, func(cmd *cobra.Command, project string, args []string) error {
		because := client.Because(reason)
		args, err := a.resolveArgs(cmd.Context(), usageWords(p.use)[1:], args, inThe(project, because))
		if err != nil {
			return err
		}
		if p.list != nil {
			r, err := listAll(cmd.Context(), p.list(project, because), 0)
			if err != nil {
				return err
			}
			return a.showMoney(cmd.Context(), r.Raw, p.columns)
		}
		r, err := p.send(cmd.Context(), project, args, because)
		if err != nil || len(r.Raw) == 0 {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, p.columns)
	})
	return cmd
}

// showRows prints an answer as the user asked, by the names of its JSON fields.
func (a *app) showRows(raw []byte, columns []string) error {
	return a.show(raw, func() error { return a.printRows(raw, columns) })
}

// printRows prints a list as a table, or one thing as fields, by the names of its JSON fields.
func (a *app) printRows(raw []byte, columns []string) error {
	var list struct{ Data []map[string]any }
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if list.Data == nil {
		var one map[string]any
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		var pairs []any
		for _, c := range columns {
			name, value := column(one, c)
			pairs = append(pairs, name, value)
		}
		return a.fields(pairs...)
	}
	header := make([]string, 0, len(columns))
	for _, c := range columns {
		c, _ = column(nil, c)
		header = append(header, strings.ToUpper(strings.ReplaceAll(c, "_", " ")))
	}
	t := a.table(header...)
	for _, row := range list.Data {
		cells := make([]any, 0, len(columns))
		for _, c := range columns {
			_, value := column(row, c)
			cells = append(cells, orDash(value))
		}
		t.row(cells...)
	}
	return t.flush()
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64: // all numbers of JSON: an amount of a million has no exponent
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// listOf is a command without a project that prints a list.
func listOf[T any](a *app, use, short string, of lister[T], columns ...string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), of, 0)
		if err != nil {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, columns)
	})}
}

// projectRequest sends a request about a project.
type projectRequest[T any] = func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[T], error)

// ofProject returns what reads or changes the project itself.
func ofProject[T any](call func(context.Context, string, ...client.Option) (client.Answer[T], error), always ...client.Option) projectRequest[T] {
	return func(ctx context.Context, project string, _ []string, because client.Option) (client.Answer[T], error) {
		return call(ctx, project, append(always, because)...)
	}
}

// inProject returns what reads or removes one thing of a project, which the first argument names.
func inProject[T any](call func(context.Context, string, string, ...client.Option) (client.Answer[T], error), always ...client.Option) projectRequest[T] {
	return func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[T], error) {
		return call(ctx, project, args[0], append(always, because)...)
	}
}

// allOf returns what lists the things of a project.
func allOf[T, P any](call func(context.Context, string, *P, ...client.Option) (client.Answer[T], error)) func(string, client.Option) lister[T] {
	return func(project string, because client.Option) lister[T] {
		return listBelow(call, project, nil, because)
	}
}

func projectColumns() []string { return []string{"id", "name", "status", "billing_account_id"} }

func (a *app) projectCommand() *cobra.Command {
	var account, name, email, subject string
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a project", Args: cobra.ExactArgs(1),
		Long: "With --owner-email or --owner-subject an operator creates it for a customer, who is invited as its owner.\n" +
			"Without them you become its owner, in a billing account of which you own a project.",
	}
	create.Flags().StringVar(&account, "billing-account", "", "the billing account, by name or id")
	_ = create.MarkFlagRequired("billing-account")
	create.Flags().StringVar(&email, "owner-email", "", "verified e-mail address of the first owner")
	create.Flags().StringVar(&subject, "owner-subject", "", "oidc:SUBJECT of the first owner")
	create.RunE = does(func(cmd *cobra.Command, args []string) error {
		var r client.Answer[client.Project]
		account, err := a.accountOf(cmd.Context(), account)
		if err != nil {
			return err
		}
		if email != "" || subject != "" {
			body := client.AdminProjectRequest{BillingAccountID: account, Name: args[0], OwnerEmail: email, OwnerSubject: subject}
			r, err = a.api.CreateProjectFor(cmd.Context(), body)
		} else {
			r, err = a.api.CreateProject(cmd.Context(), client.ProjectRequest{BillingAccountID: account, Name: args[0]})
			err = asFailure(err)
			var f *failure
			if errors.As(err, &f) && f.code == ExitUnauthorised {
				err = fail(f.code, "%w\n  an operator names the customer with --owner-email or --owner-subject", f.err)
			}
		}
		if err != nil {
			return err
		}
		return a.show(r.Raw, func() error { return a.printRows(r.Raw, projectColumns()) })
	})
	rename := projectAction[client.Project]{
		use: "rename PROJECT", short: "Change the name of a project", columns: projectColumns(),
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&name, "name", "", "the new name")
			_ = c.MarkFlagRequired("name")
		},
		send: func(ctx context.Context, project string, _ []string, because client.Option) (client.Answer[client.Project], error) {
			return a.api.UpdateProject(ctx, project, client.ProjectPatch{Name: &name}, client.IfMatch("*"), because)
		},
	}
	return group("project", "Projects: what owns nodes, with its members",
		listOf(a, "list", "List the projects that you have a role in", list(a.api.ListProjects, nil), projectColumns()...),
		listOf(a, "list-all", "List the projects of all customers, for operators", list(a.api.ListAllProjects, nil), projectColumns()...),
		create, projectCommandOf(a, rename),
		projectCommandOf(a, projectAction[client.Project]{use: "show PROJECT", short: "Show a project", send: ofProject(a.api.GetProject), columns: projectColumns()}),
		projectCommandOf(a, projectAction[client.Project]{use: "close PROJECT", named: true, short: "End everything of a project and keep its data", send: ofProject(a.api.CloseProject, client.IfMatch("*")), columns: projectColumns()}),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT", named: true, short: "Delete a project that is empty", send: ofProject(a.api.DeleteProject, client.IfMatch("*"))}),
		projectCommandOf(a, projectAction[client.ProjectAccount]{use: "billing-account PROJECT", short: "Show the billing account that pays for a project", send: ofProject(a.api.GetProjectBillingAccount), columns: []string{"id", "name", "created_at"}}),
		a.projectExportCommand(),
		projectCommandOf(a, projectAction[client.ListAuditEntry]{use: "audit-log PROJECT", short: "Who did what in a project, newest first", list: allOf(a.api.ListProjectAudit), columns: []string{"at", "name", "triggered_by", "actor_id", "comment"}}),
		a.projectEventsCommand(),
	)
}

func (a *app) memberCommand() *cobra.Command {
	columns := []string{"id", "subject", "name", "role"}
	return group("member", "Members of a project",
		projectCommandOf(a, projectAction[client.ListMember]{use: "list PROJECT", short: "List members", list: allOf(a.api.ListMembers), columns: columns}),
		projectCommandOf(a, projectAction[client.Member]{use: "show PROJECT MEMBER", short: "Show a member", args: 1, send: inProject(a.api.GetMember), columns: columns}),
		projectCommandOf(a, projectAction[client.Member]{
			use: "set-role PROJECT MEMBER ROLE", short: "Change the role of a member", args: 2, columns: columns,
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Member], error) {
				return a.api.UpdateMember(ctx, project, args[0], client.RoleRequest{Role: args[1]}, client.IfMatch("*"), because)
			},
		}),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT MEMBER", short: "Remove a member with its keys and tokens", args: 1, send: inProject(a.api.RemoveMember, client.IfMatch("*"))}),
	)
}

func (a *app) invitationCommand() *cobra.Command {
	var email, subject, role string
	columns := []string{"id", "project_id", "project_name", "email", "subject", "role", "status", "expires_at"}
	accept := &cobra.Command{Use: "accept INVITATION", Short: "Accept an invitation, by its id or the name of the project", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), ownInvitationKind(), lookup{}, args[0])
		if err != nil {
			return err
		}
		r, err := a.api.AcceptInvitation(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.show(r.Raw, func() error { return a.printRows(r.Raw, []string{"id", "subject", "role"}) })
	})}
	mine := &cobra.Command{Use: "mine", Short: "List the invitations that you can accept", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := a.api.ListOwnInvitations(cmd.Context()) // the route has no pages
		if err != nil {
			return err
		}
		return a.show(r.Raw, func() error { return a.printRows(r.Raw, columns) })
	})}
	return group("invitation", "Invitations to projects",
		mine, accept,
		projectCommandOf(a, projectAction[client.ListInvitation]{use: "list PROJECT", short: "List the invitations to a project", list: allOf(a.api.ListInvitations), columns: columns}),
		projectCommandOf(a, projectAction[client.Invitation]{
			use: "create PROJECT", short: "Invite an identity to a project", columns: columns,
			flags: func(c *cobra.Command) {
				c.Flags().StringVar(&email, "email", "", "e-mail address, which the identity provider must have verified")
				c.Flags().StringVar(&subject, "subject", "", "or oidc:SUBJECT of the sign-in")
				c.Flags().StringVar(&role, "role", "member", "owner, member, billing or viewer")
			},
			send: func(ctx context.Context, project string, _ []string, because client.Option) (client.Answer[client.Invitation], error) {
				body := client.InvitationRequest{Role: role, Email: optional[string](email), Subject: optional[string](subject)}
				return a.api.CreateInvitation(ctx, project, body, because)
			},
		}),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT INVITATION", short: "Take an invitation back", args: 1, send: inProject(a.api.RevokeInvitation, client.IfMatch("*"))}),
	)
}

func (a *app) keyCommand() *cobra.Command {
	columns := []string{"id", "name", "type", "fingerprint", "member_id"}
	return group("key", "SSH keys of a project",
		projectCommandOf(a, projectAction[client.ListSSHKey]{use: "list PROJECT", short: "List SSH keys", list: allOf(a.api.ListSSHKeys), columns: columns}),
		projectCommandOf(a, projectAction[client.SSHKey]{use: "show PROJECT KEY", short: "Show an SSH key", args: 1, send: inProject(a.api.GetSSHKey), columns: append(columns, "public_key")}),
		projectCommandOf(a, projectAction[client.SSHKey]{
			use: "create PROJECT NAME FILE", short: "Add an SSH public key from a .pub file", args: 2, columns: columns,
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.SSHKey], error) {
				text, err := readNamed(args[1])
				if err == nil && strings.Contains(string(text), "PRIVATE KEY") {
					err = fail(ExitUsage, "%s holds a private key, which was not sent; give the .pub file beside it", args[1])
				}
				if err != nil {
					return client.Answer[client.SSHKey]{}, err
				}
				body := client.SSHKeyRequest{Name: args[0], PublicKey: strings.TrimSpace(string(text))}
				return a.api.CreateSSHKey(ctx, project, body, because)
			},
		}),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT KEY", short: "Delete an SSH key", args: 1, send: inProject(a.api.DeleteSSHKey, client.IfMatch("*"))}),
	)
}

func (a *app) projectTokenCommand() *cobra.Command {
	columns := []string{"id", "name", "role", "member_id", "expires_at", "last_used_at"}
	var role string
	var days int
	return group("project-token", "Tokens of a project, for programs",
		projectCommandOf(a, projectAction[client.ListProjectToken]{use: "list PROJECT", short: "List tokens", list: allOf(a.api.ListProjectTokens), columns: columns}),
		projectCommandOf(a, projectAction[client.ProjectToken]{
			use: "create PROJECT NAME", short: "Create a token; it is shown once", args: 1, columns: append(columns, "token"),
			flags: func(c *cobra.Command) {
				c.Flags().StringVar(&role, "role", "member", "owner, member, billing or viewer, at most your own")
				c.Flags().IntVar(&days, "days", 90, "for how many days it is valid")
			},
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.ProjectToken], error) {
				body := client.ProjectTokenRequest{Name: args[0], Role: role, Days: new(int64(days))}
				return a.api.CreateProjectToken(ctx, project, body, because)
			},
		}),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT TOKEN", short: "Delete a token", args: 1, send: inProject(a.api.DeleteProjectToken, client.IfMatch("*"))}),
	)
}
