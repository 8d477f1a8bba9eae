package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// resource is a site, profile or SKU.
type resource struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	Spec    map[string]any `json:"spec"`
	Version int64          `json:"version"`
	// TenantRoot and Reserves are of a SKU; nil otherwise.
	TenantRoot *bool     `json:"tenant_root"`
	Reserves   []reserve `json:"reserves"`
}

// kind is how sites, profiles and SKUs are spoken to: they differ in their operations. site is the
// id of the site, "" for kinds of no site.
type kind struct {
	use, what string
	example   string
	prefix    string // of its ids
	list      func(site string) lister
	create    func(ctx context.Context, site string, body client.Option) (answer, error)
	get       func(ctx context.Context, site, id string) (answer, error)
	update    func(ctx context.Context, site, id, etag string, body client.Option) (answer, error)
	remove    func(ctx context.Context, site, id string) (answer, error)
	ofSite    bool
	// columns of a list beside id, name and version: fields of the spec.
	columns []string
}

func (a *app) siteCommand() *cobra.Command {
	k := kind{
		use: "site", what: "site", prefix: "site_", example: "ssh_user=ubuntu", columns: []string{"maas_url", "region", "simulated"},
		list: func(string) lister { return list(a.api.ListSites, nil) },
		create: func(ctx context.Context, _ string, body client.Option) (answer, error) {
			return untyped(a.api.CreateSite(ctx, client.SiteRequest{}, body))
		},
		get: func(ctx context.Context, _, id string) (answer, error) { return untyped(a.api.GetSite(ctx, id)) },
		update: func(ctx context.Context, _, id, etag string, body client.Option) (answer, error) {
			return untyped(a.api.UpdateSite(ctx, id, client.SiteRequest{}, body, client.IfMatch(etag)))
		},
		remove: func(ctx context.Context, _, id string) (answer, error) {
			return untyped(a.api.DeleteSite(ctx, id, client.IfMatch("*")))
		},
	}
	cmd := a.kindCommand(k, "Sites: a MAAS region and the network around it")
	cmd.AddCommand(&cobra.Command{
		Use: "probe SITE", Short: "Prove that the site's MAAS can be used", Args: cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			id, err := a.siteOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := untyped(a.api.ProbeSite(cmd.Context(), id))
			if err != nil {
				return err
			}
			return a.show(r.raw, func() error {
				var got struct{ Result json.RawMessage }
				if err := r.into(&got); err != nil {
					return err
				}
				fmt.Fprintln(a.Out, "MAAS answers and can be used:")
				return writeYAML(a.Out, got.Result)
			})
		}),
	})
	return cmd
}

func (a *app) profileCommand() *cobra.Command {
	return a.kindCommand(kind{
		use: "profile", what: "profile", prefix: "prof_", example: "stage_deadlines.deploy_via_maas=20m",
		columns: []string{"distro_series", "storage_layout", "batch_max_parallel"}, ofSite: true,
		list: func(site string) lister { return listBelow(a.api.ListProfiles, site, nil) },
		create: func(ctx context.Context, site string, body client.Option) (answer, error) {
			return untyped(a.api.CreateProfile(ctx, site, client.ProfileRequest{}, body))
		},
		get: func(ctx context.Context, site, id string) (answer, error) {
			return untyped(a.api.GetProfile(ctx, site, id))
		},
		update: func(ctx context.Context, site, id, etag string, body client.Option) (answer, error) {
			return untyped(a.api.UpdateProfile(ctx, site, id, client.ProfileRequest{}, body, client.IfMatch(etag)))
		},
		remove: func(ctx context.Context, site, id string) (answer, error) {
			return untyped(a.api.DeleteProfile(ctx, site, id, client.IfMatch("*")))
		},
	}, "Profiles: the policy of a site for one kind of node")
}

func (a *app) skuCommand() *cobra.Command {
	return a.kindCommand(kind{
		use: "sku", what: "SKU", prefix: "sku_", example: "gpus=8", columns: []string{"gpus", "gpu_model_contains", "nics_up", "data_disks"},
		list: func(string) lister { return list(a.api.ListSkus, nil) },
		create: func(ctx context.Context, _ string, body client.Option) (answer, error) {
			return untyped(a.api.CreateSku(ctx, client.SKURequest{}, body))
		},
		get: func(ctx context.Context, _, id string) (answer, error) { return untyped(a.api.GetSku(ctx, id)) },
		update: func(ctx context.Context, _, id, etag string, body client.Option) (answer, error) {
			return untyped(a.api.UpdateSku(ctx, id, client.SKURequest{}, body, client.IfMatch(etag)))
		},
		remove: func(ctx context.Context, _, id string) (answer, error) {
			return untyped(a.api.DeleteSku(ctx, id, client.IfMatch("*")))
		},
	}, "SKUs: what a node of one product must show before it may be active")
}

func (a *app) kindCommand(k kind, short string) *cobra.Command {
	return group(k.use, short, a.createKind(k), a.listKind(k), a.showKind(k), a.updateKind(k), a.deleteKind(k))
}

// siteFlag adds --site where the kind belongs to one.
func (k kind) siteFlag(cmd *cobra.Command, site *string) {
	if k.ofSite {
		cmd.Flags().StringVar(site, "site", "", "the site, by name or id")
		_ = cmd.MarkFlagRequired("site")
	}
}

func (a *app) createKind(k kind) *cobra.Command {
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
		return a.showResource(r)
	})
	return cmd
}

func (a *app) showResource(r answer) error {
	return a.show(r.raw, func() error {
		var got resource
		if err := r.into(&got); err != nil {
			return err
		}
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

func (a *app) listKind(k kind) *cobra.Command {
	var site string
	cmd := &cobra.Command{Use: "list", Short: "List " + k.what + "s", Args: cobra.NoArgs}
	k.siteFlag(cmd, &site)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		siteID, err := k.siteOf(cmd.Context(), a, site)
		if err != nil {
			return err
		}
		raw, err := a.listAll(cmd.Context(), k.list(siteID), 0)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct{ Data []resource }
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
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

// maxPage is the longest page that the API gives.
const maxPage = 200

// listAll follows the pages of a list, to limit rows; 0 is all.
func (a *app) listAll(ctx context.Context, of lister, limit int) ([]byte, error) {
	all := []json.RawMessage{}
	cursor := ""
	for {
		page := maxPage
		if limit > 0 {
			page = min(page, limit-len(all))
		}
		editors := []client.Option{client.Query("limit", strconv.Itoa(page))}
		if cursor != "" {
			editors = append(editors, client.Query("cursor", cursor))
		}
		var got struct {
			Data       []json.RawMessage
			NextCursor string `json:"next_cursor"`
		}
		if err := into(&got)(of(ctx, editors...)); err != nil {
			return nil, err
		}
		all = append(all, got.Data...)
		if got.NextCursor == "" || limit > 0 && len(all) >= limit {
			return json.Marshal(map[string]any{"data": all})
		}
		cursor = got.NextCursor
	}
}

// siteOf finds the id of the site of a kind that belongs to one.
func (k kind) siteOf(ctx context.Context, a *app, site string) (string, error) {
	if !k.ofSite {
		return "", nil
	}
	return a.siteOf(ctx, site)
}

// one finds the ids of the site and of one resource.
func (k kind) one(ctx context.Context, a *app, site, name string) (siteID, id string, err error) {
	if siteID, err = k.siteOf(ctx, a, site); err != nil {
		return "", "", err
	}
	what := k.use
	if k.use == "sku" {
		what = k.what
	}
	id, err = a.byName(ctx, k.prefix, what, k.list(siteID), name)
	return siteID, id, err
}

func (a *app) showKind(k kind) *cobra.Command {
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
		return a.showResource(r)
	})
	return cmd
}

func (a *app) updateKind(k kind) *cobra.Command {
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
		var now resource
		if err := r.into(&now); err != nil {
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
		if r, err = k.update(cmd.Context(), siteID, id, r.etag, client.Body(body)); err != nil {
			return err
		}
		return a.showResource(r)
	})
	return cmd
}

func (a *app) deleteKind(k kind) *cobra.Command {
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
		r, err := untyped(a.api.PutSecret(cmd.Context(), client.SecretRequest{Name: args[0], Value: value, Use: body}))
		if err != nil {
			return err
		}
		return a.showSecret(r)
	})
	show := &cobra.Command{Use: "show NAME", Short: "Show the newest version of a secret, never its value", Args: cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			r, err := untyped(a.api.GetSecret(cmd.Context(), &client.GetSecretParams{Name: args[0]}))
			if err != nil {
				return err
			}
			return a.showSecret(r)
		})}
	return group("secret", "Secrets: stored sealed, referred to by name", put, show, a.secretList(), a.secretSetUse())
}

func (a *app) secretList() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use: "list", Short: "List secrets by name, never their values", Args: cobra.NoArgs,
		Long: "Those that Slipway made itself, such as logins of rotated BMCs, are among them.",
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only names that begin with this, such as bmc/")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		raw, err := a.listAll(cmd.Context(), list(a.api.ListSecrets, &client.ListSecretsParams{Prefix: optional[string](prefix)}), 0)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct {
				Data []struct {
					Name          string
					Version       int
					Versions      int
					FirstStoredAt *time.Time `json:"first_stored_at"`
					StoredAt      *time.Time `json:"stored_at"`
				}
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("NAME", "VERSION", "KEPT", "STORED", "FIRST STORED")
			for _, s := range got.Data {
				t.row(s.Name, s.Version, s.Versions, a.when(s.StoredAt), a.when(s.FirstStoredAt))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) showSecret(r answer) error {
	return a.show(r.raw, func() error {
		var got struct{ Reference string }
		if err := r.into(&got); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.Out, oneLine(got.Reference))
		return err
	})
}
