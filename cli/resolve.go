package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/client"
)

// minShortID is the least number of characters of an id behind its prefix that stand for the whole.
const minShortID = 8

var (
	// wholeID matches ids as the server makes them.
	wholeID = regexp.MustCompile(`^[a-z]+_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	// begunID matches the beginning of an id that no name of another kind is likely to have.
	begunID = regexp.MustCompile(`^[a-z]+_[0-9a-f]{8}(-[0-9a-f-]*)?$`)
)

// shape says what a text may be.
type shape int

const (
	asName shape = iota
	asShortID
	asWholeID
)

// shapeOf returns what a text may be to this kind. It fails for a text that is no id and no name,
// so that no such text selects a resource. A text that begins like an id is never a name: a
// resource that is named like the id of another must not be found in its place.
func (k resourceKind) shapeOf(text string) (shape, error) {
	rest, isID := strings.CutPrefix(text, k.prefix)
	switch {
	case isID && idShape.MatchString(text) && (wholeID.MatchString(text) || len(rest) < minShortID):
		return asWholeID, nil // the server finds no resource by a part of an id
	case isID && idShape.MatchString(text):
		return asShortID, nil
	case isID || !k.mayName(text):
		return 0, fail(ExitUsage, "%q is neither the id nor the name of %s; %s", text, k.withArticle(), k.nameRule())
	case begunID.MatchString(text):
		for _, other := range resourceKinds() {
			if strings.HasPrefix(text, other.prefix) {
				return 0, fail(ExitUsage, "%q is the id of %s, and the command takes %s", text, other.withArticle(), k.withArticle())
			}
		}
	}
	return asName, nil
}

func (k resourceKind) mayName(text string) bool {
	if k.freeName {
		return !strings.ContainsFunc(text, isUnsafe) && strings.TrimSpace(text) == text
	}
	return nameShape.MatchString(text)
}

func (k resourceKind) nameRule() string {
	if k.freeName {
		return "a name has no control characters and no blanks around it"
	}
	return "a name has letters, digits, dots, dashes and underscores"
}

// resolve returns the id of the one resource that a text means: its id, the beginning of its id, or
// its name. It decides by all resources that the caller may see. When several match, it refuses and
// names them.
func (a *app) resolve(ctx context.Context, k resourceKind, l lookup, text string) (string, error) {
	form, err := k.shapeOf(text)
	if err != nil || form == asWholeID {
		return text, err
	}
	if form == asName && k.nameQuery != "" {
		l.query, l.value = k.nameQuery, text
	}
	rows, err := k.readAll(ctx, a, l)
	if err != nil {
		return "", err
	}
	if form == asShortID {
		return a.resolveShortID(ctx, k, l, rows, text)
	}
	if i := slices.IndexFunc(rows, func(e entry) bool { return k.freeID && e.ID == text }); i >= 0 {
		return text, nil
	}
	named := slices.DeleteFunc(rows, func(e entry) bool { return k.nameOf(e) != text })
	if len(named) == 0 {
		return "", fail(ExitNotFound, "%s %q was not found; %s shows them", k.noun, text, k.listCommand(a, l))
	}
	one, ok := a.pickNamed(k, named)
	if !ok {
		return "", fail(ExitRefused, "%d %s have the name %q; give the id of one:%s", len(named), k.plural(), text, k.candidates(ctx, a, named))
	}
	return one.ID, nil
}

// readAll returns each resource of a lookup once. It fails when there are more than it reads.
func (k resourceKind) readAll(ctx context.Context, a *app, l lookup) ([]entry, error) {
	rows, err := k.rows(ctx, a, l)
	if err != nil {
		return nil, err
	}
	if len(rows) > maxLookup {
		return nil, fail(ExitRefused, "there are more than %d %s, too many to find one by its name or a short id; give the whole id", maxLookup, k.plural())
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(rows, func(e entry) bool { // a row that moves between two pages comes twice
		twice := seen[e.ID]
		seen[e.ID] = true
		return twice
	}), nil
}

// pickNamed returns the resource that is meant of those with the same name. An ended resource gives
// way to a live one, but only where both have the same owner: an operator who means the closed
// project of a customer must not get the project of another.
func (a *app) pickNamed(k resourceKind, named []entry) (entry, bool) {
	if len(named) == 1 {
		return named[0], true
	}
	for _, e := range named {
		if k.ownerOf(e) != k.ownerOf(named[0]) {
			return entry{}, false
		}
	}
	if a.irreversible && k.deletable {
		return entry{}, false
	}
	live := slices.DeleteFunc(slices.Clone(named), k.hasEnded)
	if len(live) != 1 {
		return entry{}, false
	}
	return live[0], true
}

func (a *app) resolveShortID(ctx context.Context, k resourceKind, l lookup, rows []entry, text string) (string, error) {
	var begun, named []entry
	for _, e := range rows {
		switch {
		case e.ID == text:
			return text, nil
		case strings.HasPrefix(e.ID, text):
			begun = append(begun, e)
		case k.nameOf(e) == text:
			named = append(named, e)
		}
	}
	switch {
	case len(begun) == 0 && len(named) > 0:
		return "", fail(ExitNotFound, "no id of %s begins with %s, and a name that looks like an id is not looked up; give the id:%s",
			k.withArticle(), text, k.candidates(ctx, a, named))
	case len(begun) == 0:
		return "", fail(ExitNotFound, "%s %s was not found; %s shows them", k.noun, text, k.listCommand(a, l))
	case len(begun)+len(named) > 1:
		return "", fail(ExitRefused, "%s may mean %d %s; give more of the id:%s", text, len(begun)+len(named), k.plural(), k.candidates(ctx, a, append(begun, named...)))
	}
	return begun[0].ID, a.confirmShortID(ctx, k, begun[0])
}

// maxCandidates is the maximum number of resources that a refusal names.
const maxCandidates = 20

// candidates returns a line for each resource, with its owner.
func (k resourceKind) candidates(ctx context.Context, a *app, rows []entry) string {
	var b strings.Builder
	owners := map[string]string{}
	for i, e := range rows {
		if i == maxCandidates {
			fmt.Fprintf(&b, "\n  and %d more", len(rows)-i)
			break
		}
		b.WriteString("\n  " + e.ID)
		for _, text := range []string{k.nameOf(e), e.Status, k.ownerText(ctx, a, e, owners)} {
			if text != "" {
				b.WriteString("  " + oneLine(text))
			}
		}
	}
	return b.String()
}

// ownerText says whose a resource is; known keeps what was read.
func (k resourceKind) ownerText(ctx context.Context, a *app, e entry, known map[string]string) string {
	id := k.ownerOf(e)
	if id == "" {
		return ""
	}
	if known[id] == "" {
		known[id] = k.owned(ctx, a, id)
	}
	return known[id]
}

// resolveArgs replaces each argument by the id of what it means. words are those of the usage that
// stand for the arguments.
func (a *app) resolveArgs(ctx context.Context, words, args []string, l lookup) ([]string, error) {
	out := slices.Clone(args)
	for i := range min(len(words), len(args)) {
		k, ok := kindOfWord(words[i], l.project != "")
		if !ok {
			continue
		}
		var err error
		if out[i], err = a.resolve(ctx, k, l, args[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// usageWords returns the words of a usage that stand for arguments, without brackets.
func usageWords(use string) []string {
	words := strings.Fields(use)[1:]
	for i := range words {
		words[i] = strings.Trim(words[i], "[]")
	}
	return words
}

// isOperator reports that the caller has a role of the platform, and so sees all customers.
func (a *app) isOperator(ctx context.Context) (bool, error) {
	who, err := a.caller(ctx)
	return len(who.Roles) > 0, err
}

// caller returns who the server says that we are.
func (a *app) caller(ctx context.Context) (client.Principal, error) {
	if a.principal == nil {
		who, err := client.Value(a.api.Whoami(ctx))
		if err != nil {
			return who, err
		}
		a.principal = &who
	}
	return *a.principal, nil
}

func (a *app) siteOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, siteKind(), lookup{}, name)
}

func (a *app) profileOf(ctx context.Context, siteID, name string) (string, error) {
	return a.resolve(ctx, profileKind(), lookup{site: siteID}, name)
}

func (a *app) skuOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, skuKind(), lookup{}, name)
}

func (a *app) nodeOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, nodeKind(), lookup{}, name)
}

func (a *app) batchOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, batchKind(), lookup{}, name)
}

func (a *app) accountOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, accountKind(), lookup{}, name)
}

func (a *app) projectOf(ctx context.Context, name string) (string, error) {
	return a.resolve(ctx, projectKind(), lookup{}, name)
}

// jobOf finds a job by its id, or the newest one of a node.
func (a *app) jobOf(ctx context.Context, name string) (string, error) {
	return a.newestOf(ctx, name, list(a.api.ListJobs, nil), "job")
}

// newestOf finds a job of a list by its id, or the newest one of a node.
func (a *app) newestOf(ctx context.Context, name string, of lister[client.ListJob], what string) (string, error) {
	if strings.HasPrefix(name, "job_") {
		return name, checkID("job_", what, name)
	}
	id, err := a.nodeOf(ctx, name)
	var absent *failure
	if errors.As(err, &absent) && absent.code == ExitNotFound {
		return "", fail(ExitNotFound, "%q is neither the id of a %s nor the hostname of a node; slipway %s list shows them", name, what, what)
	}
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

// findingOf finds a finding of drift by its id, or the one that is not closed of a node, which a
// detector may narrow down: NODE/DETECTOR.
func (a *app) findingOf(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "drift_") {
		return name, checkID("drift_", "finding", name)
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
	if err != nil {
		return id
	}
	return withID(got.Name, id)
}

// withID returns "NAME (ID)", or the id alone where there is no name.
func withID(name, id string) string {
	if name == "" {
		return id
	}
	return name + " (" + id + ")"
}
