package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
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

// kind is how sites, profiles and SKUs are spoken to: they differ in where they
// stand and in how a name is found.
type kind struct {
	use, what string
	example   string
	// base is the collection; site is the flag's value, "" for kinds of no site.
	base   func(ctx context.Context, site string) (string, error)
	find   func(ctx context.Context, base, name string) (string, error)
	ofSite bool
	// columns of a list beside id, name and version: fields of the spec.
	columns []string
}

func (a *app) siteCommand() *cobra.Command {
	k := kind{
		use: "site", what: "site", example: "ssh_user=ubuntu", columns: []string{"maas_url", "region", "simulated"},
		base: func(context.Context, string) (string, error) { return "/admin/maas-sites", nil },
		find: func(ctx context.Context, _, name string) (string, error) { return a.siteOf(ctx, name) },
	}
	cmd := a.kindCommand(k, "Sites: a MAAS region and the network around it")
	cmd.AddCommand(&cobra.Command{
		Use: "probe SITE", Short: "Prove that the site's MAAS can be used", Args: cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			id, err := a.siteOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := a.ask(cmd.Context(), "POST", "/admin/maas-sites/"+id+"/probe", nil, nil)
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
		use: "profile", what: "profile", example: "stage_deadlines.deploy_via_maas=20m", columns: []string{"distro_series", "storage_layout", "batch_max_parallel"}, ofSite: true,
		base: func(ctx context.Context, site string) (string, error) {
			id, err := a.siteOf(ctx, site)
			return "/admin/maas-sites/" + id + "/profiles", err
		},
		find: func(ctx context.Context, base, name string) (string, error) {
			return a.byName(ctx, "prof_", "profile", base, name)
		},
	}, "Profiles: the policy of a site for one kind of node")
}

func (a *app) skuCommand() *cobra.Command {
	return a.kindCommand(kind{
		use: "sku", what: "SKU", example: "gpus=8", columns: []string{"gpus", "gpu_model_contains", "nics_up", "data_disks"},
		base: func(context.Context, string) (string, error) { return "/admin/skus", nil },
		find: func(ctx context.Context, _, name string) (string, error) { return a.skuOf(ctx, name) },
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
		base, err := k.base(cmd.Context(), site)
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
		r, err := a.ask(cmd.Context(), "POST", base, request, nil)
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
		base, err := k.base(cmd.Context(), site)
		if err != nil {
			return err
		}
		raw, err := a.listAll(cmd.Context(), base, url.Values{}, 0)
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

// listAll follows the pages of a list, to limit rows; 0 is all.
func (a *app) listAll(ctx context.Context, path string, q url.Values, limit int) ([]byte, error) {
	return a.listAllWith(ctx, path, q, limit, nil)
}

// listAllWith is listAll with headers.
func (a *app) listAllWith(ctx context.Context, path string, q url.Values, limit int, headers map[string]string) ([]byte, error) {
	all := []json.RawMessage{}
	for {
		page := 200
		if limit > 0 {
			page = min(page, limit-len(all))
		}
		q.Set("limit", strconv.Itoa(page))
		var got struct {
			Data       []json.RawMessage
			NextCursor string `json:"next_cursor"`
		}
		r, err := a.ask(ctx, "GET", path+"?"+q.Encode(), nil, headers)
		if err == nil {
			err = r.into(&got)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, got.Data...)
		if got.NextCursor == "" || limit > 0 && len(all) >= limit {
			return json.Marshal(map[string]any{"data": all})
		}
		q.Set("cursor", got.NextCursor)
	}
}

// one finds the path of one resource.
func (k kind) one(ctx context.Context, site, name string) (string, error) {
	base, err := k.base(ctx, site)
	if err != nil {
		return "", err
	}
	id, err := k.find(ctx, base, name)
	return base + "/" + id, err
}

func (a *app) showKind(k kind) *cobra.Command {
	var site string
	cmd := &cobra.Command{Use: "show " + strings.ToUpper(k.use), Short: "Show a " + k.what, Args: cobra.ExactArgs(1)}
	k.siteFlag(cmd, &site)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		path, err := k.one(cmd.Context(), site, args[0])
		if err != nil {
			return err
		}
		r, err := a.ask(cmd.Context(), "GET", path, nil, nil)
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
		path, err := k.one(cmd.Context(), site, args[0])
		if err != nil {
			return err
		}
		r, err := a.ask(cmd.Context(), "GET", path, nil, nil)
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
		if r, err = a.ask(cmd.Context(), "PUT", path, body, map[string]string{"If-Match": r.etag}); err != nil {
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
		path, err := k.one(cmd.Context(), site, args[0])
		if err != nil {
			return err
		}
		_, err = a.ask(cmd.Context(), "DELETE", path, nil, map[string]string{"If-Match": "*"})
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
			f, err := os.Open(file)
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
		r, err := a.ask(cmd.Context(), "PUT", "/admin/secrets", map[string]any{"name": args[0], "value": value, "use": body}, nil)
		if err != nil {
			return err
		}
		return a.showSecret(r)
	})
	show := &cobra.Command{Use: "show NAME", Short: "Show the newest version of a secret, never its value", Args: cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			r, err := a.ask(cmd.Context(), "GET", "/admin/secrets?name="+url.QueryEscape(args[0]), nil, nil)
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
		q := url.Values{}
		if prefix != "" {
			q.Set("prefix", prefix)
		}
		raw, err := a.listAll(cmd.Context(), "/admin/secret-names", q, 0)
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
