package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// reasonHeader says why an operator acts on a customer's project.
const reasonHeader = "Slipway-Reason"

// projectAction is one command on a project: its route and what it sends.
type projectAction struct {
	use, short, method string
	args               int // after the project
	path               func(args []string) string
	body               func(args []string) (map[string]any, error)
	columns            []string // of a list, or of what is shown
	flags              func(*cobra.Command)
	ifMatch            bool // of a POST that changes a version
	list               bool // follows all pages
}

// projectCommandOf makes the command of an action. Its first argument is the project's id.
func (a *app) projectCommandOf(p projectAction) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: p.use, Short: p.short, Args: cobra.ExactArgs(p.args + 1)}
	cmd.Flags().StringVar(&reason, "reason", "", "why you act on a customer's project, for operators; its owners see it")
	if p.flags != nil {
		p.flags(cmd)
	}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		headers := map[string]string{}
		if reason != "" {
			headers[reasonHeader] = reason
		}
		if p.method == "PATCH" || p.method == "DELETE" || p.ifMatch {
			headers["If-Match"] = "*"
		}
		var body any
		if p.body != nil {
			b, err := p.body(args[1:])
			if err != nil {
				return err
			}
			body = b
		}
		path := "/projects/" + url.PathEscape(args[0]) + p.path(args[1:])
		if p.list {
			raw, err := a.listAllWith(cmd.Context(), path, url.Values{}, 0, headers)
			if err != nil {
				return err
			}
			return a.show(raw, func() error { return a.printRows(raw, p.columns) })
		}
		r, err := a.ask(cmd.Context(), p.method, path, body, headers)
		if err != nil || p.method == "DELETE" {
			return err
		}
		return a.show(r.raw, func() error { return a.printRows(r.raw, p.columns) })
	})
	return cmd
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
			pairs = append(pairs, c, cell(one[c]))
		}
		return a.fields(pairs...)
	}
	header := make([]string, 0, len(columns))
	for _, c := range columns {
		header = append(header, strings.ToUpper(strings.ReplaceAll(c, "_", " ")))
	}
	t := a.table(header...)
	for _, row := range list.Data {
		cells := make([]any, 0, len(columns))
		for _, c := range columns {
			cells = append(cells, orDash(cell(row[c])))
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
func (a *app) listOf(use, short, path string, columns ...string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		raw, err := a.listAll(cmd.Context(), path, url.Values{}, 0)
		if err != nil {
			return err
		}
		return a.show(raw, func() error { return a.printRows(raw, columns) })
	})}
}

func at(path string) func([]string) string { return func([]string) string { return path } }

// below names one thing of a project by its id, the last argument that a path takes.
func below(path string) func([]string) string {
	return func(args []string) string { return path + "/" + url.PathEscape(args[0]) }
}

func projectColumns() []string { return []string{"id", "name", "status", "billing_account_id"} }

func (a *app) projectCommand() *cobra.Command {
	var account, name, email, subject string
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a project", Args: cobra.ExactArgs(1),
		Long: "With --owner-email or --owner-subject an operator creates it for a customer, who is invited as its owner.\n" +
			"Without them you become its owner, in a billing account of which you own a project.",
	}
	create.Flags().StringVar(&account, "billing-account", "", "the billing account, by id")
	_ = create.MarkFlagRequired("billing-account")
	create.Flags().StringVar(&email, "owner-email", "", "verified e-mail address of the first owner")
	create.Flags().StringVar(&subject, "owner-subject", "", "oidc:SUBJECT of the first owner")
	create.RunE = does(func(cmd *cobra.Command, args []string) error {
		path, body := "/projects", map[string]any{"billing_account_id": account, "name": args[0]}
		if email != "" || subject != "" {
			path = "/admin/projects"
			set(body, "owner_email", email)
			set(body, "owner_subject", subject)
		}
		r, err := a.ask(cmd.Context(), "POST", path, body, nil)
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error { return a.printRows(r.raw, projectColumns()) })
	})
	rename := projectAction{
		use: "rename PROJECT", short: "Change the name of a project", method: "PATCH", path: at(""), columns: projectColumns(),
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&name, "name", "", "the new name")
			_ = c.MarkFlagRequired("name")
		},
		body: func([]string) (map[string]any, error) { return map[string]any{"name": name}, nil },
	}
	return group("project", "Projects: what owns nodes, with its members",
		a.listOf("list", "List the projects that you have a role in", "/projects", projectColumns()...),
		a.listOf("list-all", "List the projects of all customers, for operators", "/admin/projects", projectColumns()...),
		create, a.projectCommandOf(rename),
		a.projectCommandOf(projectAction{use: "show PROJECT", short: "Show a project", method: "GET", path: at(""), columns: projectColumns()}),
		a.projectCommandOf(projectAction{use: "close PROJECT", short: "End everything of a project and keep its data", method: "POST", path: at("/close"), ifMatch: true, columns: projectColumns()}),
		a.projectCommandOf(projectAction{use: "delete PROJECT", short: "Delete a project that is empty", method: "DELETE", path: at("")}),
		a.projectCommandOf(projectAction{use: "billing-account PROJECT", short: "Show the billing account that pays for a project", method: "GET", path: at("/billing-account"), columns: []string{"id", "name", "created_at"}}),
		a.projectExportCommand(),
		a.projectCommandOf(projectAction{use: "audit-log PROJECT", short: "Who did what in a project, newest first", method: "GET", path: at("/audit-log"), list: true, columns: []string{"at", "name", "triggered_by", "actor_id", "comment"}}),
		a.projectEventsCommand(),
	)
}

func set(body map[string]any, field, value string) {
	if value != "" {
		body[field] = value
	}
}

func (a *app) memberCommand() *cobra.Command {
	columns := []string{"id", "subject", "name", "role"}
	return group("member", "Members of a project",
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List members", method: "GET", path: at("/members"), list: true, columns: columns}),
		a.projectCommandOf(projectAction{use: "show PROJECT MEMBER", short: "Show a member", method: "GET", args: 1, path: below("/members"), columns: columns}),
		a.projectCommandOf(projectAction{
			use: "set-role PROJECT MEMBER ROLE", short: "Change the role of a member", method: "PATCH", args: 2, path: below("/members"), columns: columns,
			body: func(args []string) (map[string]any, error) { return map[string]any{"role": args[1]}, nil },
		}),
		a.projectCommandOf(projectAction{use: "delete PROJECT MEMBER", short: "Remove a member with its keys and tokens", method: "DELETE", args: 1, path: below("/members")}),
	)
}

func (a *app) invitationCommand() *cobra.Command {
	var email, subject, role string
	columns := []string{"id", "project_id", "project_name", "email", "subject", "role", "status", "expires_at"}
	accept := &cobra.Command{Use: "accept INVITATION", Short: "Accept an invitation", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		r, err := a.ask(cmd.Context(), "POST", "/invitations/"+url.PathEscape(args[0])+"/accept", nil, nil)
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error { return a.printRows(r.raw, []string{"id", "subject", "role"}) })
	})}
	mine := &cobra.Command{Use: "mine", Short: "List the invitations that you can accept", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := a.ask(cmd.Context(), "GET", "/invitations", nil, nil) // the route has no pages
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error { return a.printRows(r.raw, columns) })
	})}
	return group("invitation", "Invitations to projects",
		mine, accept,
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List the invitations to a project", method: "GET", path: at("/invitations"), list: true, columns: columns}),
		a.projectCommandOf(projectAction{
			use: "create PROJECT", short: "Invite an identity to a project", method: "POST", path: at("/invitations"), columns: columns,
			flags: func(c *cobra.Command) {
				c.Flags().StringVar(&email, "email", "", "e-mail address, which the identity provider must have verified")
				c.Flags().StringVar(&subject, "subject", "", "or oidc:SUBJECT of the sign-in")
				c.Flags().StringVar(&role, "role", "member", "owner, member, billing or viewer")
			},
			body: func([]string) (map[string]any, error) {
				body := map[string]any{"role": role}
				set(body, "email", email)
				set(body, "subject", subject)
				return body, nil
			},
		}),
		a.projectCommandOf(projectAction{use: "delete PROJECT INVITATION", short: "Take an invitation back", method: "DELETE", args: 1, path: below("/invitations")}),
	)
}

func (a *app) keyCommand() *cobra.Command {
	columns := []string{"id", "name", "type", "fingerprint", "member_id"}
	return group("key", "SSH keys of a project",
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List SSH keys", method: "GET", path: at("/ssh-keys"), list: true, columns: columns}),
		a.projectCommandOf(projectAction{use: "show PROJECT KEY", short: "Show an SSH key", method: "GET", args: 1, path: below("/ssh-keys"), columns: append(columns, "public_key")}),
		a.projectCommandOf(projectAction{
			use: "create PROJECT NAME FILE", short: "Add an SSH public key from a .pub file", method: "POST", args: 2, path: at("/ssh-keys"), columns: columns,
			body: func(args []string) (map[string]any, error) {
				text, err := os.ReadFile(args[1])
				if err == nil && strings.Contains(string(text), "PRIVATE KEY") {
					err = fail(ExitUsage, "%s holds a private key, which was not sent; give the .pub file beside it", args[1])
				}
				return map[string]any{"name": args[0], "public_key": strings.TrimSpace(string(text))}, err
			},
		}),
		a.projectCommandOf(projectAction{use: "delete PROJECT KEY", short: "Delete an SSH key", method: "DELETE", args: 1, path: below("/ssh-keys")}),
	)
}

func (a *app) projectTokenCommand() *cobra.Command {
	columns := []string{"id", "name", "role", "member_id", "expires_at"}
	var role string
	var days int
	return group("project-token", "Tokens of a project, for programs",
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List tokens", method: "GET", path: at("/tokens"), list: true, columns: columns}),
		a.projectCommandOf(projectAction{
			use: "create PROJECT NAME", short: "Create a token; it is shown once", method: "POST", args: 1, path: at("/tokens"), columns: append(columns, "token"),
			flags: func(c *cobra.Command) {
				c.Flags().StringVar(&role, "role", "member", "owner, member, billing or viewer, at most your own")
				c.Flags().IntVar(&days, "days", 90, "for how many days it is valid")
			},
			body: func(args []string) (map[string]any, error) {
				return map[string]any{"name": args[0], "role": role, "days": days}, nil
			},
		}),
		a.projectCommandOf(projectAction{use: "delete PROJECT TOKEN", short: "Delete a token", method: "DELETE", args: 1, path: below("/tokens")}),
	)
}
