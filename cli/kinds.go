package cli

import (
	"context"
	"strings"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// entry is one row of a list: the fields by which a resource is found and shown in a refusal.
type entry struct {
	ID, Name, Hostname, Status, Email, Subject, Sku string

	ProjectID        string `json:"project_id"`
	ProjectName      string `json:"project_name"`
	BillingAccountID string `json:"billing_account_id"`
	SiteID           string `json:"site_id"`
	SkuID            string `json:"sku_id"`
	RevokedAt        string `json:"revoked_at"`
}

// entries is a list of any resources.
type entries struct{ Data []entry }

// asEntries returns a lister that reads no more of each row than an entry has.
func asEntries[T any](of lister[T]) lister[entries] {
	return func(ctx context.Context, options ...client.Option) (client.Answer[entries], error) {
		r, err := of(ctx, options...)
		return client.Answer[entries](r), err
	}
}

// lookup says where a resource is looked up.
type lookup struct {
	site    string // of a profile; "" for every site
	project string // of a resource of a project
	because client.Option
	as      asProject // of the gRPC API
	// query and value narrow the list down on the server.
	query, value string
	// limit is the maximum number of rows to read. 0 is maxLookup, and more rows are an error.
	limit int
}

func (l lookup) options() []client.Option {
	var out []client.Option
	if l.because != nil {
		out = append(out, l.because)
	}
	if l.query != "" {
		out = append(out, client.Query(l.query, l.value))
	}
	return out
}

// inThe returns the lookup of resources of a project.
func inThe(project string, because client.Option) lookup {
	return lookup{project: project, because: because}
}

// resourceKind says how resources of one kind are found by an id, the beginning of an id, or a
// name. Every command that takes such a resource uses it, and so does the completion of a shell.
type resourceKind struct {
	noun   string // in sentences
	word   string // in the usage of commands, such as PROJECT; "" for none
	flag   string // that takes one by name, for completion; "" for none
	prefix string // of ids
	list   string // the command that lists them; PROJECT stands for the id of the project
	// listForOperators is list where the caller sees all customers; "" is list.
	listForOperators string
	// ofProject says that the resources belong to a project, which the command names first.
	ofProject bool
	// freeName says that a name may have any characters, and not only those of hostnames.
	freeName bool
	// freeID says that an id needs no prefix: its creator may choose it.
	freeID bool
	// nameQuery is the query parameter with which the server selects a name exactly; "" for none.
	nameQuery string
	// beginQuery is the query parameter for names that begin with a text; "" for none.
	beginQuery string
	// rows lists the resources that the caller may see, at most l.limit.
	rows func(ctx context.Context, a *app, l lookup) ([]entry, error)
	// name returns the name of a row; nil is its Name.
	name func(entry) string
	// owner returns the id of whose the resource is. owned is how it is called. Both are nil where
	// no customer owns it.
	owner func(entry) string
	owned func(ctx context.Context, a *app, id string) string
	// ended reports that a resource is closed, released or deleted; nil is never.
	ended func(entry) bool
	// deletable says that an irreversible command may be about a resource that has ended.
	deletable bool
}

func (k resourceKind) nameOf(e entry) string {
	if k.name != nil {
		return k.name(e)
	}
	return e.Name
}

func (k resourceKind) ownerOf(e entry) string {
	if k.owner == nil {
		return ""
	}
	return k.owner(e)
}

func (k resourceKind) hasEnded(e entry) bool { return k.ended != nil && k.ended(e) }

// withArticle returns the noun with its article.
func (k resourceKind) withArticle() string {
	if strings.ContainsRune("aeiou", rune(k.noun[0])) || strings.HasPrefix(k.noun, "SSH") || strings.HasPrefix(k.noun, "API") {
		return "an " + k.noun
	}
	return "a " + k.noun
}

func (k resourceKind) plural() string {
	if strings.HasSuffix(k.noun, "ch") {
		return k.noun + "es"
	}
	return k.noun + "s"
}

// listCommand is the command that lists the resources of a lookup.
func (k resourceKind) listCommand(a *app, l lookup) string {
	switch {
	case l.project != "":
		return strings.Replace(k.list, "PROJECT", l.project, 1)
	case k.listForOperators != "" && a.principal != nil && len(a.principal.Roles) > 0:
		return k.listForOperators
	}
	return k.list
}

// resourceKinds are all kinds that are found by name.
func resourceKinds() []resourceKind {
	return []resourceKind{
		siteKind(), profileKind(), skuKind(), offerKind(), workflowKind(), nodeKind(), batchKind(), tokenKind(),
		accountKind(), projectKind(), ownInvitationKind(), allocationKind(), instanceKind(), planKind(), campaignKind(),
		memberKind(), invitationKind(), keyKind(), projectTokenKind(), webhookKind(), projectInstanceKind(),
	}
}

// kindOfWord returns the kind of a word of a usage. ofProject says that a project stands before it.
func kindOfWord(word string, ofProject bool) (resourceKind, bool) {
	for _, k := range resourceKinds() {
		if k.word == word && k.word != "" && k.ofProject == ofProject {
			return k, true
		}
	}
	return resourceKind{}, false
}

// listed returns the rows of an operation that lists.
func listed[T any](of func(a *app, l lookup) lister[T]) func(context.Context, *app, lookup) ([]entry, error) {
	return func(ctx context.Context, a *app, l lookup) ([]entry, error) { return readEntries(ctx, of(a, l), l) }
}

// listedBelow returns the rows of an operation that lists what a project has.
func listedBelow[T, P any](call func(*app) func(context.Context, string, *P, ...client.Option) (client.Answer[T], error)) func(context.Context, *app, lookup) ([]entry, error) {
	return listed(func(a *app, l lookup) lister[T] { return listBelow(call(a), l.project, new(P)) })
}

// maxLookup is the maximum number of rows that a lookup by name reads.
const maxLookup = 10_000

func readEntries[T any](ctx context.Context, of lister[T], l lookup) ([]entry, error) {
	limit := l.limit
	if limit == 0 {
		limit = maxLookup + 1
	}
	narrowed := func(ctx context.Context, options ...client.Option) (client.Answer[entries], error) {
		return asEntries(of)(ctx, append(options, l.options()...)...)
	}
	got, err := client.Value(listAll(ctx, narrowed, limit))
	return got.Data, err
}

func siteKind() resourceKind {
	return resourceKind{
		noun: "site", word: "SITE", flag: "site", prefix: "site_", list: "slipway site list", nameQuery: "name",
		rows: listed(func(a *app, _ lookup) lister[client.ListSite] { return list(a.api.ListSites, nil) }),
	}
}

// profileKind finds profiles of one site, or of all sites.
func profileKind() resourceKind {
	return resourceKind{
		noun: "profile", word: "PROFILE", prefix: "prof_", list: "slipway profile list --site SITE", nameQuery: "name",
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			sites := []entry{{ID: l.site}}
			if l.site == "" {
				var err error
				if sites, err = siteKind().rows(ctx, a, lookup{}); err != nil {
					return nil, err
				}
			}
			var out []entry
			for _, site := range sites {
				rows, err := readEntries(ctx, listBelow(a.api.ListProfiles, site.ID, nil), l)
				if err != nil {
					return nil, err
				}
				out = append(out, rows...)
			}
			return out, nil
		},
		owner: func(e entry) string { return e.SiteID },
		owned: func(ctx context.Context, a *app, id string) string {
			return "site " + nameOf(id, func() (client.Answer[client.Site], error) { return a.api.GetSite(ctx, id) })
		},
	}
}

func skuKind() resourceKind {
	return resourceKind{
		noun: "SKU", word: "SKU", flag: "sku", prefix: "sku_", list: "slipway sku list", nameQuery: "name",
		rows: listed(func(a *app, _ lookup) lister[client.ListSKU] { return list(a.api.ListSkus, nil) }),
	}
}

// offerKind finds the SKUs that customers may order: they cannot list the others.
func offerKind() resourceKind {
	return resourceKind{
		noun: "SKU", prefix: "sku_", list: "slipway catalogue list",
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			rows, err := readEntries(ctx, list(a.api.ListCatalogue, nil), l)
			for i := range rows {
				rows[i].ID, rows[i].Name = rows[i].SkuID, rows[i].Sku
			}
			return rows, err
		},
	}
}

func workflowKind() resourceKind {
	return resourceKind{
		noun: "install workflow", word: "INSTALL-WORKFLOW", prefix: "wf_", list: "slipway install-workflow list", nameQuery: "name",
		rows: listed(func(a *app, _ lookup) lister[client.ListInstallWorkflow] {
			return list(a.api.ListInstallWorkflows, nil)
		}),
	}
}

func nodeKind() resourceKind {
	return resourceKind{
		noun: "node", word: "NODE", flag: "node", prefix: "node_", list: "slipway node list", nameQuery: "hostname", beginQuery: "q",
		rows:  listed(func(a *app, _ lookup) lister[client.ListNode] { return list(a.api.ListNodes, nil) }),
		name:  func(e entry) string { return e.Hostname },
		ended: func(e entry) bool { return e.Status == string(lifecycle.NodeDeleted) },
	}
}

func batchKind() resourceKind {
	return resourceKind{
		noun: "batch", word: "BATCH", flag: "batch", prefix: "batch_", list: "slipway batch list", freeName: true,
		rows: listed(func(a *app, _ lookup) lister[client.ListBatch] { return list(a.api.ListOnboardingBatches, nil) }),
	}
}

func tokenKind() resourceKind {
	return resourceKind{
		noun: "API token", word: "TOKEN", prefix: "tok_", list: "slipway token list", freeName: true,
		rows:  listed(func(a *app, _ lookup) lister[client.ListAPIToken] { return list(a.api.ListAPITokens, nil) }),
		ended: func(e entry) bool { return e.RevokedAt != "" },
	}
}
