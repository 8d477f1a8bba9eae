package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// resource is a site, profile or SKU, whose spec is changed without knowing all its fields.
type resource struct {
	ID, Name string
	Spec     map[string]any
	Version  int64
	// TenantRoot and Reserves are of a SKU; nil otherwise.
	TenantRoot *bool `json:"tenant_root"`
	Reserves   []client.SKUReserve
}

// resources is a list of any of them.
type resources struct{ Data []resource }

// kind is how sites, profiles and SKUs are spoken to: they differ in their operations. site is the
// id of the site, "" for kinds of no site.
type kind[T, L any] struct {
	use, what string
	example   string
	named     resourceKind
	list      func(site string) lister[L]
	create    func(ctx context.Context, site string, body client.Option) (client.Answer[T], error)
	get       func(ctx context.Context, site, id string) (client.Answer[T], error)
	update    func(ctx context.Context, site, id, etag string, body client.Option) (client.Answer[T], error)
	remove    func(ctx context.Context, site, id string) (client.Answer[client.Nothing], error)
	ofSite    bool
	// columns of a list beside id, name and version: fields of the spec.
	columns []string
}

func (a *app) siteCommand() *cobra.Command {
	k := kind[client.Site, client.ListSite]{
		use: "site", what: "site", named: siteKind(), example: "ssh_user=ubuntu", columns: []string{"maas_url", "region", "simulated"},
		list: func(string) lister[client.ListSite] { return list(a.api.ListSites, nil) },
		create: func(ctx context.Context, _ string, body client.Option) (client.Answer[client.Site], error) {
			return a.api.CreateSite(ctx, client.SiteRequest{}, body)
		},
		get: func(ctx context.Context, _, id string) (client.Answer[client.Site], error) {
			return a.api.GetSite(ctx, id)
		},
		update: func(ctx context.Context, _, id, etag string, body client.Option) (client.Answer[client.Site], error) {
			return a.api.UpdateSite(ctx, id, client.SiteRequest{}, body, client.IfMatch(etag))
		},
		remove: func(ctx context.Context, _, id string) (client.Answer[client.Nothing], error) {
			return a.api.DeleteSite(ctx, id, client.IfMatch("*"))
		},
	}
	cmd := kindCommand(a, k, "Sites: a MAAS region and the network around it")
	cmd.AddCommand(&cobra.Command{
		Use: "probe SITE", Short: "Prove that the site's MAAS can be used", Args: cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			id, err := a.siteOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := a.api.ProbeSite(cmd.Context(), id)
			if err != nil {
				return err
			}
			return show(a, r, func(got client.Probed) error {
				fmt.Fprintln(a.Out, "MAAS answers and can be used:")
				return writeYAML(a.Out, got.Result)
			})
		}),
	})
	return cmd
}

func (a *app) profileCommand() *cobra.Command {
	return kindCommand(a, kind[client.Profile, client.ListProfile]{
		use: "profile", what: "profile", named: profileKind(), example: "stage_deadlines.deploy_via_maas=20m",
		columns: []string{"distro_series", "storage_layout", "batch_max_parallel"}, ofSite: true,
		list: func(site string) lister[client.ListProfile] { return listBelow(a.api.ListProfiles, site, nil) },
		create: func(ctx context.Context, site string, body client.Option) (client.Answer[client.Profile], error) {
			return a.api.CreateProfile(ctx, site, client.ProfileRequest{}, body)
		},
		get: func(ctx context.Context, site, id string) (client.Answer[client.Profile], error) {
			return a.api.GetProfile(ctx, site, id)
		},
		update: func(ctx context.Context, site, id, etag string, body client.Option) (client.Answer[client.Profile], error) {
			return a.api.UpdateProfile(ctx, site, id, client.ProfileRequest{}, body, client.IfMatch(etag))
		},
		remove: func(ctx context.Context, site, id string) (client.Answer[client.Nothing], error) {
			return a.api.DeleteProfile(ctx, site, id, client.IfMatch("*"))
		},
	}, "Profiles: the policy of a site for one kind of node")
}

func (a *app) skuCommand() *cobra.Command {
	return kindCommand(a, kind[client.SKU, client.ListSKU]{
		use: "sku", what: "SKU", named: skuKind(), example: "gpus=8", columns: []string{"gpus", "gpu_model_contains", "nics_up", "data_disks"},
		list: func(string) lister[client.ListSKU] { return list(a.api.ListSkus, nil) },
		create: func(ctx context.Context, _ string, body client.Option) (client.Answer[client.SKU], error) {
			return a.api.CreateSku(ctx, client.SKURequest{}, body)
		},
		get: func(ctx context.Context, _, id string) (client.Answer[client.SKU], error) {
			return a.api.GetSku(ctx, id)
		},
		update: func(ctx context.Context, _, id, etag string, body client.Option) (client.Answer[client.SKU], error) {
			return a.api.UpdateSku(ctx, id, client.SKURequest{}, body, client.IfMatch(etag))
		},
		remove: func(ctx context.Context, _, id string) (client.Answer[client.Nothing], error) {
			return a.api.DeleteSku(ctx, id, client.IfMatch("*"))
		},
	}, "SKUs: what a node of one product must show before it may be active")
}

func kindCommand[T, L any](a *app, k kind[T, L], short string) *cobra.Command {
	return group(k.use, short, k.createCommand(a), k.listCommand(a), k.showCommand(a), k.updateCommand(a), k.deleteCommand(a))
}

// siteFlag adds --site where the kind belongs to one.
func (k kind[T, L]) siteFlag(cmd *cobra.Command, site *string) {
	if k.ofSite {
		cmd.Flags().StringVar(site, "site", "", "the site, by name or id")
		_ = cmd.MarkFlagRequired("site")
	}
}

func (k kind[T, L]) createCommand(a *app) *cobra.Command {
	var spec specFlags
	var site, maasURL, keyRef string
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a " + k.what, Args: cobra.ExactArgs(1)}
	k.siteFlag(cmd, &site)
	spec.add(cmd, k.example)
	tenancy := k.skuFlags(cmd)
	if k.use == "site" {
		cmd.Flags().StringVar(&maasURL, "maas-url", "", "URL of the region, such as https://maas.example:5240/MAAS")
		cmd.Flags().StringVar(&keyRef, "maas-api-key-ref", "", "secret that holds the MAAS API key")
	}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		siteID, err := k.siteOf(cmd.Context(), a, site)
		if err != nil {
			return err
		}
		body, err := spec.onto(a, nil)
		if err != nil {
			return err
		}
		for field, v := range map[string]string{"maas_url": maasURL, "maas_api_key_ref": keyRef} {
			if v != "" {
				body[field] = v
			}
		}
		request := map[string]any{"name": args[0], "spec": body}
		if err := tenancy.onto(cmd.Context(), a, request); err != nil {
			return err
		}
		r, err := k.create(cmd.Context(), siteID, client.Body(request))
		if err != nil {
			return err
		}
		return a.showResource(client.Answer[resource](r))
	})
	return cmd
}

func (a *app) showResource(r client.Answer[resource]) error {
	return show(a, r, func(got resource) error {
		if err := a.fields(append([]any{"id", got.ID, "name", got.Name, "version", got.Version}, got.tenancy()...)...); err != nil {
			return err
		}
		b, err := json.Marshal(map[string]any{"spec": got.Spec})
		if err != nil {
			return err
		}
		return writeYAML(a.Out, b)
	})
}

func (k kind[T, L]) listCommand(a *app) *cobra.Command {
	var site string
	cmd := &cobra.Command{Use: "list", Short: "List " + k.what + "s", Args: cobra.NoArgs}
	k.siteFlag(cmd, &site)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		siteID, err := k.siteOf(cmd.Context(), a, site)
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), k.list(siteID), 0)
		if err != nil {
			return err
		}
		return show(a, client.Answer[resources](r), func(got resources) error {
			head := []string{"NAME", "ID"}
			for _, c := range k.columns {
				head = append(head, strings.ToUpper(strings.ReplaceAll(c, "_", " ")))
			}
			t := a.table(head...)
			for _, r := range got.Data {
				row := []any{r.Name, r.ID}
				for _, c := range k.columns {
					if v := r.Spec[c]; v != nil {
						row = append(row, v)
					} else {
						row = append(row, "-")
					}
				}
				t.row(row...)
			}
			return t.flush()
		})
	})
	return cmd
}

// siteOf finds the id of the site of a kind that belongs to one.
func (k kind[T, L]) siteOf(ctx context.Context, a *app, site string) (string, error) {
	if !k.ofSite {
		return "", nil
	}
	return a.siteOf(ctx, site)
}

// one finds the ids of the site and of one resource.
func (k kind[T, L]) one(ctx context.Context, a *app, site, name string) (siteID, id string, err error) {
	if siteID, err = k.siteOf(ctx, a, site); err != nil {
		return "", "", err
	}
	id, err = a.resolve(ctx, k.named, lookup{site: siteID}, name)
	return siteID, id, err
}

func (k kind[T, L]) showCommand(a *app) *cobra.Command {
	var site string
	cmd := &cobra.Command{Use: "show " + strings.ToUpper(k.use), Short: "Show a " + k.what, Args: cobra.ExactArgs(1)}
	k.siteFlag(cmd, &site)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		siteID, id, err := k.one(cmd.Context(), a, site, args[0])
		if err != nil {
			return err
		}
		r, err := k.get(cmd.Context(), siteID, id)
		if err != nil {
			return err
		}
		return a.showResource(client.Answer[resource](r))
	})
	return cmd
}

func (k kind[T, L]) updateCommand(a *app) *cobra.Command {
	var spec specFlags
	var site, name string
	cmd := &cobra.Command{Use: "update " + strings.ToUpper(k.use), Short: "Change fields of a " + k.what + "; the others stay", Args: cobra.ExactArgs(1)}
	k.siteFlag(cmd, &site)
	spec.add(cmd, k.example)
	cmd.Flags().StringVar(&name, "name", "", "a new name")
	tenancy := k.skuFlags(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		siteID, id, err := k.one(cmd.Context(), a, site, args[0])
		if err != nil {
			return err
		}
		r, err := k.get(cmd.Context(), siteID, id)
		if err != nil {
			return err
		}
		now, err := client.Answer[resource](r).Decode()
		if err != nil {
			return err
		}
		if name != "" {
			now.Name = name
		}
		if now.Spec, err = spec.onto(a, now.Spec); err != nil {
			return err
		}
		body := map[string]any{"name": now.Name, "spec": now.Spec}
		if err := tenancy.onto(cmd.Context(), a, body); err != nil {
			return err
		}
		if r, err = k.update(cmd.Context(), siteID, id, r.ETag, client.Body(body)); err != nil {
			return err
		}
		return a.showResource(client.Answer[resource](r))
	})
	return cmd
}

func (k kind[T, L]) deleteCommand(a *app) *cobra.Command {
	var site string
	cmd := &cobra.Command{Use: "delete " + strings.ToUpper(k.use), Short: "Delete a " + k.what + " that nothing refers to", Args: cobra.ExactArgs(1)}
	k.siteFlag(cmd, &site)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		siteID, id, err := k.one(cmd.Context(), a, site, args[0])
		if err != nil {
			return err
		}
		_, err = k.remove(cmd.Context(), siteID, id)
		return err
	})
	return cmd
}

const maxSecret = 64 << 10 // bytes

func (a *app) secretCommand() *cobra.Command {
	var file string
	var stdin bool
	put := &cobra.Command{
		Use: "put NAME --kind KIND (--site SITE | --node NODE | --network CIDR | --installation) (--from-file FILE | --stdin)", Short: "Store a new version of a secret", Args: cobra.ExactArgs(1),
		Long: "A BMC login is {\"username\": \"...\", \"password\": \"...\"}. One newline at the end is taken off. The value is never shown again.\n" +
			secretUseHelp,
	}
	var use secretUse
	use.flags(put.Flags())
	put.Flags().StringVar(&file, "from-file", "", "file that holds the value")
	put.Flags().BoolVar(&stdin, "stdin", false, "read the value from standard input")
	put.MarkFlagsMutuallyExclusive("from-file", "stdin")
	put.MarkFlagsOneRequired("from-file", "stdin")
	put.RunE = does(func(cmd *cobra.Command, args []string) error {
		body, err := use.body(cmd.Context(), a)
		if err != nil {
			return err
		}
		in := a.In
		if file != "" {
			f, err := openNamed(file)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		raw, err := io.ReadAll(io.LimitReader(in, maxSecret+2))
		if err != nil {
			return err
		}
		value := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
		if value == "" || len(value) > maxSecret {
			return fail(ExitUsage, "the value must have 1 to %d bytes", maxSecret)
		}
		r, err := a.api.PutSecret(cmd.Context(), client.SecretRequest{Name: args[0], Value: value, Use: body})
		if err != nil {
			return err
		}
		return a.showSecret(r)
	})
	one := &cobra.Command{Use: "show NAME", Short: "Show the newest version of a secret, never its value", Args: cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			r, err := a.api.GetSecret(cmd.Context(), &client.GetSecretParams{Name: args[0]})
			if err != nil {
				return err
			}
			return a.showSecret(r)
		})}
	return group("secret", "Secrets: stored sealed, referred to by name", put, one, a.secretList(), a.secretSetUse())
}

func (a *app) secretList() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use: "list", Short: "List secrets by name, never their values", Args: cobra.NoArgs,
		Long: "Those that Slipway made itself, such as logins of rotated BMCs, are among them.",
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only names that begin with this, such as bmc/")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListSecrets, &client.ListSecretsParams{Prefix: optional[string](prefix)}), 0)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListStoredSecret) error {
			t := a.table("NAME", "VERSION", "KEPT", "STORED", "FIRST STORED")
			for _, s := range got.Data {
				t.row(s.Name, s.Version, s.Versions, a.when(s.StoredAt), a.when(s.FirstStoredAt))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) showSecret(r client.Answer[client.Secret]) error {
	return show(a, r, func(got client.Secret) error {
		_, err := fmt.Fprintln(a.Out, oneLine(got.Reference))
		return err
	})
}
