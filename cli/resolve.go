package cli

import (
	"context"
	"strings"

	"github.com/slipway-cloud/slipway/client"
)

// names is what is read of a list of things that have ids and names.
type names struct {
	Data []struct{ ID, Name, Hostname string }
}

// named returns a lister that reads the names alone.
func named[T any](of lister[T]) lister[names] {
	return func(ctx context.Context, options ...client.Option) (client.Answer[names], error) {
		r, err := of(ctx, options...)
		return client.Answer[names](r), err
	}
}

// byName finds the id of the one resource of a list with this name. A name with the prefix is an id
// already.
func byName[T any](ctx context.Context, prefix, kind string, of lister[T], name string) (string, error) {
	if id, err := isID(prefix, kind, name); id || err != nil {
		return name, err
	}
	got, err := client.Value(named(of)(ctx, client.Query("name", name)))
	if err != nil {
		return "", err
	}
	if len(got.Data) == 0 {
		where := ""
		if kind == "profile" {
			where = " --site SITE"
		}
		return "", fail(ExitNotFound, "there is no %s %q; slipway %s list%s shows what there is", kind, name, strings.ToLower(kind), where)
	}
	if len(got.Data) > 1 || got.Data[0].Name != name {
		return "", fail(ExitError, "the server's list of %ss by the name %q holds others; nothing was done", kind, name)
	}
	return got.Data[0].ID, nil
}

func (a *app) siteOf(ctx context.Context, name string) (string, error) {
	return byName(ctx, "site_", "site", list(a.api.ListSites, nil), name)
}

func (a *app) profileOf(ctx context.Context, siteID, name string) (string, error) {
	return byName(ctx, "prof_", "profile", listBelow(a.api.ListProfiles, siteID, nil), name)
}

func (a *app) skuOf(ctx context.Context, name string) (string, error) {
	return byName(ctx, "sku_", "SKU", list(a.api.ListSkus, nil), name)
}

// nodeOf finds a node by hostname. Deleted nodes are ignored while another has the name.
func (a *app) nodeOf(ctx context.Context, name string) (string, error) {
	if id, err := isID("node_", "node", name); id || err != nil {
		return name, err
	}
	got, err := client.Value(a.api.ListNodes(ctx, &client.ListNodesParams{Limit: new(int64(maxPage)), Hostname: &name}))
	if err != nil {
		return "", err
	}
	var live []client.Node
	for _, n := range got.Data {
		if n.Hostname != name {
			return "", fail(ExitError, "the server's list of nodes by the hostname %q holds others; nothing was done", name)
		}
		if n.Status != "deleted" {
			live = append(live, n)
		}
	}
	switch {
	case len(live) == 1:
		return live[0].ID, nil
	case len(live) > 1:
		return "", fail(ExitRefused, "%d sites have a node %q; give its id, which slipway node list --hostname %s shows", len(live), name, name)
	case len(got.Data) > 0:
		return got.Data[len(got.Data)-1].ID, nil
	}
	return "", fail(ExitNotFound, "there is no node %q; slipway node list shows what there is", name)
}

// jobOf finds a job by its id, or the newest one of a node.
func (a *app) jobOf(ctx context.Context, name string) (string, error) {
	return a.newestOf(ctx, name, list(a.api.ListJobs, nil), "job")
}

// newestOf finds a job of a list by its id, or the newest one of a node.
func (a *app) newestOf(ctx context.Context, name string, of lister[client.ListJob], what string) (string, error) {
	if strings.HasPrefix(name, "job_") {
		_, err := isID("job_", what, name)
		return name, err
	}
	id, err := a.nodeOf(ctx, name)
	if err != nil {
		return "", err
	}
	got, err := client.Value(of(ctx, client.Query("limit", "1"), client.Query("node_id", id)))
	if err != nil {
		return "", err
	}
	if len(got.Data) == 0 {
		if _, err := a.api.GetNode(ctx, id); err != nil { // an id is not looked up before
			return "", err
		}
		return "", fail(ExitNotFound, "node %s has had no %s", name, what)
	}
	return got.Data[0].ID, nil
}

// batchOf finds a batch by its id or its name.
func (a *app) batchOf(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "batch_") {
		_, err := isID("batch_", "batch", name)
		return name, err
	}
	got, err := client.Value(listAll(ctx, list(a.api.ListOnboardingBatches, nil), 0))
	if err != nil {
		return "", err
	}
	var ids []string
	for _, b := range got.Data {
		if b.Name == name {
			ids = append(ids, b.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", fail(ExitNotFound, "there is no batch %q; slipway batch list shows what there is", name)
	case 1:
		return ids[0], nil
	}
	return "", fail(ExitRefused, "%d batches have the name %q; give an id: %s", len(ids), name, strings.Join(ids, ", "))
}

// findingOf finds a finding of drift by its id, or the one that is not closed of a node, which a
// detector may narrow down: NODE/DETECTOR.
func (a *app) findingOf(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "drift_") {
		_, err := isID("drift_", "finding", name)
		return name, err
	}
	hostname, detector, _ := strings.Cut(name, "/")
	node, err := a.nodeOf(ctx, hostname)
	if err != nil {
		return "", err
	}
	got, err := client.Value(listAll(ctx, list(a.api.ListDrift, &client.ListDriftParams{NodeID: &node, Detector: optional[string](detector)}), 0))
	if err != nil {
		return "", err
	}
	var found []string
	id := ""
	for _, d := range got.Data {
		if d.Status != "closed" {
			id, found = d.ID, append(found, d.Detector)
		}
	}
	switch len(found) {
	case 0:
		return "", fail(ExitNotFound, "%s has no such finding that is not closed; slipway drift list --status all shows the others", name)
	case 1:
		return id, nil
	}
	return "", fail(ExitRefused, "%s has %d findings (%s); name one as %s/DETECTOR", name, len(found), strings.Join(found, ", "), hostname)
}

// nameOf returns "NAME (ID)" of what read reads, or the id alone where the name cannot be read.
func nameOf[T any](id string, read func() (client.Answer[T], error)) string {
	if id == "" {
		return id
	}
	r, err := read()
	got, err := client.Value(client.Answer[resource](r), err)
	if err != nil || got.Name == "" {
		return id
	}
	return got.Name + " (" + id + ")"
}
