package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-cloud/slipway/client"
)

// secretUse are the flags that say what a secret may be used for.
type secretUse struct {
	kind                   string
	sites, nodes, networks []string
	installation           bool
}

const secretUseHelp = "A secret is used for one kind of thing, and only by the sites, nodes or networks that are named."

func (u *secretUse) flags(f *pflag.FlagSet) {
	f.StringVar(&u.kind, "kind", "", "what it is: bmc_login, maas_key, ssh_key, bootstrap_bundle, smtp_password, stripe_key, stripe_webhook, cloud_key or kubeconfig")
	f.StringSliceVar(&u.sites, "site", nil, "sites whose targets may receive it, by name or id")
	f.StringSliceVar(&u.nodes, "node", nil, "nodes that may receive it, by hostname or id")
	f.StringSliceVar(&u.networks, "network", nil, "networks whose addresses may receive it, such as 10.4.0.0/16")
	f.BoolVar(&u.installation, "installation", false, "everything may receive it")
}

// body returns the use as the API takes it.
func (u *secretUse) body(ctx context.Context, a *app) (use client.SecretUse, err error) {
	if u.kind == "" || len(u.sites)+len(u.nodes)+len(u.networks) == 0 && !u.installation {
		return use, fail(ExitUsage, "say what the secret may be used for: --kind, and --site, --node, --network or --installation")
	}
	use = client.SecretUse{Kind: client.SecretUseKind(u.kind), Networks: u.networks, Installation: u.installation}
	if use.Sites, err = each(ctx, u.sites, a.siteOf); err != nil {
		return use, err
	}
	use.Nodes, err = each(ctx, u.nodes, a.nodeOf)
	return use, err
}

// each finds the ids of all names.
func each(ctx context.Context, names []string, find func(context.Context, string) (string, error)) (ids []string, err error) {
	for _, name := range names {
		id, err := find(ctx, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (a *app) secretSetUse() *cobra.Command {
	var use secretUse
	cmd := &cobra.Command{
		Use: "set-use NAME --kind KIND (--site SITE | --node NODE | --network CIDR | --installation)", Args: cobra.ExactArgs(1),
		Short: "State what a stored secret may be used for", Long: secretUseHelp + " The value stays as it is.",
	}
	use.flags(cmd.Flags())
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		body, err := use.body(cmd.Context(), a)
		if err != nil {
			return err
		}
		r, err := a.api.PutSecretUse(cmd.Context(), client.SecretUseRequest{Name: args[0], Use: body})
		if err != nil {
			return err
		}
		return a.show(r.Raw, func() error {
			_, err := fmt.Fprintln(a.Out, args[0]+" may be used as stated")
			return err
		})
	})
	return cmd
}
