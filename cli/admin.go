package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) tokenCommand() *cobra.Command {
	var roles []string
	var ttl time.Duration
	create := &cobra.Command{Use: "create NAME", Short: "Create an API token and print it once", Args: cobra.ExactArgs(1)}
	create.Flags().StringSliceVar(&roles, "roles", []string{"viewer"}, "admin, operator, viewer")
	create.Flags().DurationVar(&ttl, "ttl", 90*24*time.Hour, "how long it is valid, at most 8760h")
	create.RunE = does(func(cmd *cobra.Command, args []string) error {
		r, err := a.api.CreateAPIToken(cmd.Context(), client.TokenRequest{Name: args[0], Roles: roles, TTL: new(ttl.String())})
		if err != nil {
			return err
		}
		return show(a, r, func(t client.APIToken) error {
			return a.fields("id", t.ID, "name", t.Name, "roles", strings.Join(t.Roles, ", "), "expires", a.when(t.ExpiresAt), "token", t.Token)
		})
	})
	all := &cobra.Command{Use: "list", Short: "List API tokens", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListAPITokens, nil), 0)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListAPIToken) error {
			t := a.table("ID", "NAME", "ROLES", "EXPIRES", "LAST USED", "REVOKED")
			for _, tok := range got.Data {
				t.row(tok.ID, tok.Name, strings.Join(tok.Roles, ","), orDash(a.when(tok.ExpiresAt)), orDash(a.when(tok.LastUsedAt)), orDash(a.when(tok.RevokedAt)))
			}
			return t.flush()
		})
	})}
	revoke := &cobra.Command{Use: "revoke TOKEN", Short: "Revoke an API token, by name or id", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), tokenKind(), lookup{}, args[0])
		if err != nil {
			return err
		}
		if _, err := a.api.RevokeAPIToken(cmd.Context(), id); err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Out, "revoked %s\n", id)
		return err
	})}
	return group("token", "API tokens", create, all, revoke)
}
