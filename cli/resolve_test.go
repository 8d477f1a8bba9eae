package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
)

const (
	admins   = "/api/v1/admin/projects"
	owned    = "/api/v1/projects"
	orders   = "/api/v1/allocations"
	acme     = "acc_01a20864-0000-7000-8000-00000000000a"
	globex   = "acc_01a20864-0000-7000-8000-00000000000b"
	training = "prj_01a20864-0000-7000-8000-000000000001"
	research = "prj_01b30000-0000-7000-8000-000000000002"
	old      = "prj_01b40000-0000-7000-8000-000000000003"
	train1   = "alc_01a20864-0000-7000-8000-000000000001"
	train2   = "alc_01b30000-0000-7000-8000-000000000002"
)

func projectRow(id, name, status, account string) row {
	return row{"id": id, "name": name, "status": status, "billing_account_id": account}
}

func allocationRow(id, name, status, project string) row {
	return row{"id": id, "name": name, "status": status, "project_id": project}
}

// operators is a server for an operator, with projects of two customers.
func operators(projects ...row) *directory {
	return &directory{roles: []string{"admin"}, lists: map[string][]row{admins: projects, owned: {}}}
}

// TestNames_NeverHijackShortIDs gives a project the name that the short id of another has.
func TestNames_NeverHijackShortIDs(t *testing.T) {
	t.Parallel()
	d := operators(projectRow(training, "training", "active", acme), projectRow(research, "prj_01a20864", "active", globex), projectRow(old, "prj_01c50000", "active", globex))
	w := newDirectory(t, d)
	for _, args := range [][]string{{"project", "delete", "prj_01a20864", "--yes"}, {"project", "rename", "prj_01a20864", "--name", "x"}} {
		refused := w.run("", append(args, "--reason", "ticket")...).exits(cli.ExitRefused).err
		require.Contains(t, refused, "prj_01a20864 may mean 2 projects; give more of the id:")
		require.Contains(t, refused, training+"  training  active  billing account "+acme)
		require.Contains(t, refused, research+"  prj_01a20864  active  billing account "+globex)
		refused = w.run("", append([]string{args[0], args[1], "prj_01c50000"}, args[3:]...)...).exits(cli.ExitNotFound).err
		require.Contains(t, refused, "a name that looks like an id is not looked up")
	}
	require.Contains(t, w.run("", "project", "delete", "alc_01a20864").exits(cli.ExitUsage).err, `"alc_01a20864" is the id of an allocation, and the command takes a project`)
	require.Empty(t, d.changes)
	w.run("", "project", "rename", "prj_01a20864-0000-7000-8000-000000000001", "--name", "x").exits(0)
	require.Equal(t, []string{"PATCH /api/v1/projects/" + training}, d.changes, "a whole id is what it says")
}

// TestNames_EndedGiveWayWithinOneOwner checks when a closed or released resource is left out.
func TestNames_EndedGiveWayWithinOneOwner(t *testing.T) {
	t.Parallel()
	d := operators(projectRow(old, "training", "closed", acme), projectRow(training, "training", "active", globex),
		projectRow(research, "research", "closed", acme), projectRow("prj_01b50000-0000-7000-8000-000000000004", "research", "active", acme))
	w := newDirectory(t, d)
	for _, args := range [][]string{{"project", "close", "training"}, {"project", "delete", "training", "--yes"}, {"project", "show", "training"}, {"quota", "set", "training", "total", "1"}} {
		refused := w.run("", append(args, "--reason", "ticket")...).exits(cli.ExitRefused).err
		require.Contains(t, refused, `2 projects have the name "training"; give the id of one:`, args)
		require.Contains(t, refused, old+"  training  closed  billing account "+acme, args)
		require.Contains(t, refused, training+"  training  active  billing account "+globex, args)
	}
	require.Contains(t, w.run("", "project", "delete", "research", "--reason", "x").exits(cli.ExitRefused).err, "2 projects", "the closed one may be meant")
	require.Empty(t, d.changes)
	w.run("", "project", "rename", "research", "--name", "x").exits(0)
	require.Equal(t, []string{"PATCH /api/v1/projects/prj_01b50000-0000-7000-8000-000000000004"}, d.changes)

	d = &directory{lists: map[string][]row{owned: {projectRow(training, "training", "active", acme), projectRow(research, "research", "active", acme)}}}
	d.lists[orders] = []row{allocationRow(train1, "train 1", "released", training), allocationRow(train2, "train 1", "active", training)}
	w = newDirectory(t, d)
	w.run("", "allocation", "release", "train 1", "--project", "training").exits(0)
	require.Equal(t, []string{"POST /api/v1/allocations/" + train2 + "/release"}, d.changes)
	d.changes, d.lists[orders][1]["project_id"] = nil, research
	require.Contains(t, w.run("", "allocation", "release", "train 1").exits(cli.ExitRefused).err, train1+"  train 1  released  project training ("+training+")")
	require.Empty(t, d.changes)
}

// TestNames_DecidedByAllPages puts the second resource of a name on the last page.
func TestNames_DecidedByAllPages(t *testing.T) {
	t.Parallel()
	var projects []row
	for i := range 450 {
		projects = append(projects, projectRow(fmt.Sprintf("prj_%08x-0000-7000-8000-000000000000", i), fmt.Sprint("p", i), "active", acme))
	}
	projects[449]["name"] = "p0"
	d := operators(projects...)
	w := newDirectory(t, d)
	require.Contains(t, w.run("", "balance", "p0").exits(cli.ExitRefused).err, "2 projects")
	require.Equal(t, []string{admins, admins, admins}, d.asked[:3], "all pages were read")
	for i := range 10_000 {
		projects = append(projects, projectRow(fmt.Sprintf("prj_%08x-0000-7000-8000-000000000000", 1000+i), "more", "active", acme))
	}
	d.lists[admins] = projects
	require.Contains(t, w.run("", "balance", "p1").exits(cli.ExitRefused).err, "more than 10000 projects")
	w.run("", "balance", projects[1]["id"].(string)).exits(cli.ExitNotFound)
}

// TestNames_ShowOnlyWhatTheCallerSees checks that a customer's lookup reads only his own lists.
func TestNames_ShowOnlyWhatTheCallerSees(t *testing.T) {
	t.Parallel()
	d := operators(projectRow(training, "training", "active", globex), projectRow(old, "training", "active", acme))
	d.roles, d.lists[owned] = nil, []row{projectRow(old, "training", "active", acme), projectRow(research, "research", "active", acme)}
	d.lists[orders] = []row{allocationRow(train1, "train", "active", old)}
	d.refuses = map[string]bool{owned + "/" + old + "/billing-account": true, owned + "/" + research + "/billing-account": true}
	w := newDirectory(t, d)
	w.run("", "project", "rename", "training", "--name", "x").exits(0)
	require.Equal(t, []string{"PATCH /api/v1/projects/" + old}, d.changes)
	require.Contains(t, w.run("", "allocation", "show", "alc_01a20864").exits(cli.ExitNotFound).err, "It was not found")
	require.Contains(t, w.run("", "project", "create", "x", "--billing-account", "globex").exits(cli.ExitNotFound).err, `billing account "globex" was not found`)
	for _, path := range d.asked {
		require.NotContains(t, path, "/admin/", "a customer's lookup asks for nothing of others")
	}
	require.Contains(t, w.run("", "allocation", "show", "other").exits(cli.ExitNotFound).err, `allocation "other" was not found`)
}

// TestNames_OfOperatorsAllocations checks that an operator names the project first.
func TestNames_OfOperatorsAllocations(t *testing.T) {
	t.Parallel()
	d := operators(projectRow(training, "training", "active", acme))
	d.lists["/api/v1/admin/allocations"] = []row{{"id": train1, "status": "active", "project_id": training}}
	d.lists[orders] = []row{allocationRow(train1, "train", "active", training)}
	w := newDirectory(t, d)
	require.Contains(t, w.run("", "allocation", "release", "train", "--reason", "ticket").exits(cli.ExitUsage).err, "--project")
	w.run("", "allocation", "release", "train", "--project", "training", "--reason", "ticket").exits(0)
	said := w.run("", "allocation", "force-release", "alc_01a20864", "--yes", "--reason", "ticket").exits(0).err
	require.Contains(t, said, "allocation "+train1+" of project training ("+training+")")
	require.Len(t, d.changes, 2)
}

// TestIrreversible_AsksAfterAShortID releases an allocation by the beginning of its id.
func TestIrreversible_AsksAfterAShortID(t *testing.T) {
	t.Parallel()
	d := &directory{lists: map[string][]row{owned: {projectRow(training, "training", "active", acme)}, orders: {allocationRow(train1, "train", "active", training)}}}
	w := newDirectory(t, d)
	release := []string{"allocation", "release", "alc_01a20864"}
	asked := w.run("no\n", release...).exits(cli.ExitRefused).err
	require.Contains(t, asked, "slipway allocation release: allocation train ("+train1+") of project training ("+training+")? Type yes to go on:")
	require.Contains(t, w.run("", release...).exits(cli.ExitUsage).err, "nobody answered; nothing was done")
	require.Empty(t, d.changes)
	w.run("yes\n", release...).exits(0)
	require.Contains(t, w.run("", append(release, "--yes")...).exits(0).err, "slipway: allocation train ("+train1+") of project training")
	for _, exact := range []string{"train", train1} {
		require.Empty(t, w.run("", "allocation", "release", exact).exits(0).err, "nothing is asked")
	}
	require.Equal(t, slices.Repeat([]string{"POST /api/v1/allocations/" + train1 + "/release"}, 4), d.changes)

	d.lists["/api/v1/projects/"+training+"/webhooks"] = []row{{"id": "whk_01a20864-0000-7000-8000-000000000001", "name": "mine"}}
	require.Contains(t, w.run("yes\nno\n", "webhook", "delete", "prj_01a20864", "whk_01a20864").exits(cli.ExitRefused).err, "webhook mine (whk_")
	w.run("yes\nyes\n", "webhook", "delete", "prj_01a20864", "whk_01a20864").exits(0)
	require.Equal(t, "DELETE /api/v1/projects/"+training+"/webhooks/whk_01a20864-0000-7000-8000-000000000001", d.changes[4])
}

// TestIrreversible_CommandsAreGuarded walks over all commands whose name says that they end
// something.
func TestIrreversible_CommandsAreGuarded(t *testing.T) {
	t.Parallel()
	guarded := map[string]bool{}
	walkCommands(cli.Commands(), func(path []string, c *cobra.Command) {
		_, marked := c.Annotations[cli.Irreversible]
		guarded[strings.Join(path, " ")] = marked && c.Flags().Lookup("yes") != nil
	})
	for _, path := range []string{
		"project close", "project delete", "member delete", "key delete", "project-token delete", "webhook delete", "invitation delete", "billing-account delete",
		"billing-account group remove", "allocation release", "allocation force-release", "allocation remove-assignment", "instance terminate",
		"instance own terminate", "token revoke", "node retire", "node remove", "node decommission", "site delete", "profile delete", "sku delete",
		"install-workflow delete", "catalogue delete", "adjustment create", "campaign cancel", "quota delete",
	} {
		require.True(t, guarded[path], "%s does not ask: %v", path, guarded)
	}
}

// TestDefaultProject_IsUsedUnlessNamed sets, overrides and removes the default project of a
// context.
func TestDefaultProject_IsUsedUnlessNamed(t *testing.T) {
	t.Parallel()
	d := &directory{lists: map[string][]row{owned: {projectRow(training, "training", "active", acme), projectRow(research, "research", "active", acme)}}}
	for _, id := range []string{training, research} {
		d.lists["/api/v1/projects/"+id+"/ssh-keys"] = []row{{"id": "key_01a20864-0000-7000-8000-000000000001", "name": "laptop"}}
	}
	w := newDirectory(t, d)
	require.Contains(t, w.run("", "key", "list").exits(cli.ExitUsage).err, "slipway use PROJECT")
	require.Contains(t, w.run("", "use").exits(cli.ExitNotFound).err, "no default project")
	require.Contains(t, w.run("", "use", "nothing").exits(cli.ExitNotFound).err, `project "nothing" was not found; slipway project list shows them`)
	w.run("", "use", "prj_00000000-0000-7000-8000-000000000000").exits(cli.ExitNotFound)
	require.Contains(t, w.run("", "use", "training").exits(0).out, "context dev: the default project is training ("+training+")")
	require.Equal(t, "training ("+training+")\n", w.run("", "use").exits(0).out)
	require.Contains(t, w.run("", "whoami").exits(0).out, training)

	lists := func(id string, args ...string) {
		t.Helper()
		d.asked = nil
		require.Contains(t, w.run("", args...).exits(0).out, "laptop")
		require.Contains(t, d.asked, "/api/v1/projects/"+id+"/ssh-keys")
	}
	lists(training, "key", "list")
	lists(research, "key", "list", "research")
	lists(research, "key", "list", "--project", "research")
	w.env["SLIPWAY_PROJECT"] = "research"
	lists(research, "key", "list")
	lists(training, "key", "list", "--project", "training")
	delete(w.env, "SLIPWAY_PROJECT")
	require.Contains(t, w.run("", "key", "list", "research", "--project", "training").exits(cli.ExitUsage).err, "the project is given twice")

	require.Contains(t, w.run("", "key", "delete", "laptop").exits(0).err, "slipway: in project training ("+training+"), by slipway use")
	require.Equal(t, []string{"DELETE /api/v1/projects/" + training + "/ssh-keys/key_01a20864-0000-7000-8000-000000000001"}, d.changes)
	require.Contains(t, w.run("", "key", "delete", "prj_01a20864").exits(cli.ExitUsage).err, "an argument behind it is missing")
	for _, command := range []string{"close", "delete"} {
		require.Contains(t, w.run("", "project", command).exits(cli.ExitUsage).err, "accepts 1 arg")
	}
	require.Len(t, d.changes, 1)

	w.run("slp_x\n", "login", "--server", w.url, "--token-stdin", "--name", "dev").exits(0)
	lists(training, "key", "list")
	w.run("", "machine", "list").exits(cli.ExitNotFound)
	require.Equal(t, training, d.headers[0].Get("Slipway-Project"), "a customer acts in the default project")
	d.roles = []string{"operator"}
	w.run("", "machine", "list").exits(cli.ExitNotFound)
	require.Empty(t, d.headers[1].Get("Slipway-Project"), "an operator acts for the platform")
	d.roles = nil
	require.Contains(t, w.run("", "use", "--none").exits(0).out, "no default project")
	w.run("", "key", "list").exits(cli.ExitUsage)
	d.project = research
	lists(research, "key", "list")
	require.Contains(t, w.run("", "key", "delete", "laptop").exits(0).err, "by the token")
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, "slp_x"
	require.Contains(t, w.run("", "use", "training").exits(cli.ExitUsage).err, "SLIPWAY_PROJECT")
}

// TestInvitation_AcceptByName accepts an invitation by the name of its project.
func TestInvitation_AcceptByName(t *testing.T) {
	t.Parallel()
	invitation := func(id, project, status string) row {
		return row{"id": id, "project_id": project, "project_name": "training", "status": status}
	}
	first, second := "inv_01a20864-0000-7000-8000-000000000001", "inv_01b30000-0000-7000-8000-000000000002"
	d := &directory{lists: map[string][]row{"/api/v1/invitations": {invitation(first, training, "expired"), invitation(second, training, "pending")}, owned: {}}}
	w := newDirectory(t, d)
	w.run("", "invitation", "accept", "training").exits(0)
	require.Equal(t, []string{"POST /api/v1/invitations/" + second + "/accept"}, d.changes)
	d.lists["/api/v1/invitations"][0] = invitation(first, research, "expired")
	require.Contains(t, w.run("", "invitation", "accept", "training").exits(cli.ExitRefused).err, second+"  training  pending  project "+training)
	require.Contains(t, w.run("", "invitation", "accept", "other").exits(cli.ExitNotFound).err, "slipway invitation mine shows them")
	w.run("", "invitation", "accept", "inv_01a20864").exits(0)
	require.Equal(t, "POST /api/v1/invitations/"+first+"/accept", d.changes[1])
}

// TestNames_OfEveryKind takes one resource of each kind by its name.
func TestNames_OfEveryKind(t *testing.T) {
	t.Parallel()
	site, profile, sku := "site_01a20864-0000-7000-8000-000000000001", "prof_01a20864-0000-7000-8000-000000000001", "sku_01a20864-0000-7000-8000-000000000001"
	key, token, inst := "key_01a20864-0000-7000-8000-000000000001", "tok_01a20864-0000-7000-8000-000000000001", "inst_01a20864-0000-7000-8000-000000000001"
	d := operators(projectRow(training, "training", "active", acme))
	in := "/api/v1/projects/" + training
	for path, rows := range map[string][]row{
		"/api/v1/admin/maas-sites": {{"id": site, "name": "north"}}, "/api/v1/admin/maas-sites/" + site + "/profiles": {{"id": profile, "name": "standard", "site_id": site}},
		"/api/v1/skus": {{"id": sku, "name": "h100x8"}}, "/api/v1/admin/skus": {{"id": sku, "name": "h100x8"}}, "/api/v1/catalogue": {{"sku_id": sku, "sku": "h100x8"}},
		"/api/v1/admin/billing-accounts": {{"id": acme, "name": "acme"}}, "/api/v1/admin/api-tokens": {{"id": token, "name": "ci"}},
		"/api/v1/admin/instances": {{"id": inst, "name": "chat", "project_id": training}}, in + "/ssh-keys": {{"id": key, "name": "laptop"}},
		in + "/tokens": {{"id": token, "name": "ci"}}, in + "/members": {{"id": "mem_1", "name": "Ada L."}}, in + "/invitations": {{"id": "inv_1", "email": "bob@acme.example"}},
		in + "/webhooks": {{"id": "whk_1", "name": "mine"}}, in + "/instances": {{"id": inst, "name": "chat"}},
	} {
		d.lists[path] = rows
	}
	dollars := row{"currency": "USD", "exponent": 2}
	d.single = map[string]row{in + "/balance": dollars, "/api/v1/admin/billing-accounts/" + acme + "/balance": dollars}
	w := newDirectory(t, d)
	for change, args := range map[string][]string{
		"PUT /api/v1/admin/catalogue/" + sku:                               {"catalogue", "create", "h100x8", "--profile", "standard", "--title", "x"},
		"DELETE /api/v1/admin/api-tokens/" + token:                         {"token", "revoke", "ci"},
		"POST /api/v1/admin/instances/" + inst + "/terminate":              {"instance", "terminate", "chat", "--reason", "x"},
		"POST " + in + "/instances/" + inst + "/terminate":                 {"instance", "own", "terminate", "training", "chat", "--why", "x"},
		"DELETE " + in + "/ssh-keys/" + key:                                {"key", "delete", "training", "laptop"},
		"DELETE " + in + "/tokens/" + token:                                {"project-token", "delete", "training", "ci"},
		"DELETE " + in + "/members/mem_1":                                  {"member", "delete", "training", "Ada L."},
		"DELETE " + in + "/invitations/inv_1":                              {"invitation", "delete", "training", "bob@acme.example"},
		"DELETE " + in + "/webhooks/whk_1":                                 {"webhook", "delete", "training", "mine"},
		"POST /api/v1/projects":                                            {"project", "create", "next", "--billing-account", "acme"},
		"POST /api/v1/admin/adjustments":                                   {"adjustment", "create", "acme", "100", "--project", "training", "--reason", "x"},
		"POST /api/v1/allocations":                                         {"allocation", "create", "h100x8", "--project", "training", "--key", "laptop"},
		"PUT /api/v1/admin/projects/" + training + "/quotas/" + sku:        {"quota", "set", "training", "h100x8", "3", "--reason", "x"},
		"DELETE /api/v1/admin/billing-accounts/" + acme:                    {"billing-account", "delete", "acc_01a20864", "--yes"},
		"POST " + in + "/payments/checkout-session":                        {"topup", "training", "5000"},
		"DELETE /api/v1/admin/maas-sites/" + site + "/profiles/" + profile: {"profile", "delete", "standard", "--site", "north"},
	} {
		d.changes = nil
		w.run("", args...).exits(0)
		require.Equal(t, []string{change}, d.changes, args)
	}
}

// TestLists_ShowShortIDs checks that the short ids of a list differ, and where whole ids are.
func TestLists_ShowShortIDs(t *testing.T) {
	t.Parallel()
	near := "prj_01a20864-0000-7000-8000-0000000000ff"
	d := &directory{lists: map[string][]row{owned: {projectRow(training, "training", "active", acme), projectRow(near, "near", "active", acme), projectRow(research, "research", "active", acme)}}}
	w := newDirectory(t, d)
	out := w.run("", "project", "list").exits(0).out
	require.Regexp(t, `(?m)^prj_01b30000 +research +active +acc_01a20864$`, out)
	require.Regexp(t, `(?m)^prj_01a20864-0000-7000-8000-00000000000 +training`, out, "as long as it takes")
	require.Regexp(t, `(?m)^prj_01a20864-0000-7000-8000-0000000000f +near`, out)
	require.Contains(t, w.run("", "project", "list", "-o", "wide").exits(0).out, research)
	require.Contains(t, w.run("", "project", "list", "-o", "json").exits(0).out, research)
	w.run("", "project", "rename", "prj_01b30000", "--name", "x").exits(0)
	require.Equal(t, []string{"PATCH /api/v1/projects/" + research}, d.changes)
}
