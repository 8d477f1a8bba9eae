package cli_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func hostKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return key
}

func keyLine(k ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k))) }

// addKey gives a project an owner with an SSH key, as his invitation would.
func (w *world) addKey(project string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := tenancydb.AddMember(w.t.Context(), tx, project, tenancydb.NewMember{Subject: "oidc:ada", Name: "Ada", Role: lifecycle.RoleProjectOwner})
		return err
	}))
	require.NoError(w.t, w.store.ForProject(w.t.Context(), project, func(tx *db.ProjectTx) error {
		members, err := tenancydb.ListMembers(w.t.Context(), tx, "", 1)
		if err != nil {
			return err
		}
		key := hostKey(w.t)
		_, err = tenancydb.AddSSHKey(w.t.Context(), tx, tenancydb.SSHKey{
			MemberID: members[0].ID, Name: "laptop", Type: key.Type(), PublicKey: keyLine(key), Fingerprint: ssh.FingerprintSHA256(key),
		})
		return err
	}))
}

// TestAllocations takes nodes for a customer and gives them back, as an operator with a reason.
func TestAllocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("admin")
	run := func(args ...string) said { return w.run("", append(args, "--reason", "ticket 4711")...) }
	account := w.run("", "-o", "json", "billing-account", "create", "acme").exits(0).id()
	project := w.run("", "-o", "json", "project", "create", "training", "--billing-account", account, "--owner-email", "ada@example.com").exits(0).id()
	run("quota", "set", project, "total", "2").exits(0)
	sku, site := dbtest.SKU(t, w.store, dbtest.Named("h100x8")), dbtest.Site(t, w.store, dbtest.Named("south"))
	profile := dbtest.Profile(t, w.store, dbtest.At(site.ID))
	w.run("", "catalogue", "create", "h100x8", "--profile", profile.ID, "--title", "Eight GPUs").exits(0)
	create := []string{"allocation", "create", "h100x8", "--project", project, "--tag", "Team=a"}

	require.Contains(t, run(create...).exits(cli.ExitRefused).err, "has no SSH key")
	w.addKey(project)
	require.Contains(t, run(create...).exits(cli.ExitRefused).err, "0 are free")
	require.Contains(t, run("allocation", "create", "none", "--project", project).exits(cli.ExitNotFound).err, `SKU "none" was not found; slipway catalogue list shows them`)
	require.Contains(t, run("allocation", "create", "h100x8", "--tag", "Team").exits(cli.ExitUsage).err, "KEY=VALUE")
	require.Contains(t, run("allocation", "list").exits(cli.ExitUsage).err, "which project")

	waiting := run(append(slices.Clone(create), "--wait", "1m", "--name", "later", "-o", "json")...).exits(0).id()
	require.Contains(t, w.run("", "ssh", "--reason", "ticket 4711", waiting).exits(cli.ExitRefused).err, "nowhere to log in")
	require.Contains(t, run("allocation", "list", "--project", "training", "--tag", "Team=a", "-o", "wide").exits(0).out, waiting)
	require.NotContains(t, run("allocation", "list", "--project", project, "--tag", "team=a", "-o", "wide").exits(0).out, waiting)
	out := run("allocation", "release", "later", "--project", "training", "--watch").exits(0).out
	require.Contains(t, out, waiting+": released")
	require.Contains(t, out, "terminated")

	node := dbtest.FreeNode(t, w.store, dbtest.Of(sku.ID), dbtest.At(site.ID))
	id := run(append(slices.Clone(create), "-o", "json")...).exits(0).id()
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := allocationdb.Fail(t.Context(), tx, id, lifecycle.FailureProvision, "login at prove_login", db.Actor{Owner: lifecycle.OwnerJob})
		return err
	}))
	require.Contains(t, run("allocation", "show", id).exits(0).out, "login at prove_login")
	require.Contains(t, run("allocation", "list-all", "--status", "failed").exits(cli.ExitUsage).err, "unknown flag: --reason")
	require.Contains(t, w.run("", "allocation", "list-all", "--status", "failed").exits(0).out, node.Hostname)
	require.Contains(t, w.run("", "allocation", "force-release", id).exits(cli.ExitUsage).err, "reason")
	require.Contains(t, run("allocation", "force-release", id).exits(cli.ExitRefused).err, "whose release failed")
	require.Contains(t, run("allocation", "remove-assignment", id).exits(cli.ExitRefused).err, "only the assignment of one that is being released")
}

// TestAllocation_SetKeys replaces the keys of an active allocation, which shows the former one
// until the node was seen to refuse it.
func TestAllocation_SetKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("admin")
	a := dbtest.Occupy(t, w.store, dbtest.Node(t, w.store, dbtest.Active()).ID)
	w.addKey(a.ProjectID)
	keys, err := tenancydb.ListKeysOf(t.Context(), w.store, a.ProjectID)
	require.NoError(t, err)
	former, other := keys[0], keys[1]
	if former.Fingerprint != dbtest.KeyFingerprint {
		former, other = other, former
	}
	set := []string{"allocation", "set-keys", a.ID, "--key", other.Name}
	require.Contains(t, w.run("", "allocation", "set-keys", a.ID).exits(cli.ExitUsage).err, "key")
	require.Contains(t, w.run("", append(slices.Clone(set), "--key", "desktop", "--reason", "ticket 4711")...).exits(cli.ExitNotFound).err, `SSH key "desktop" was not found; slipway key list `+a.ProjectID)
	require.NotContains(t, w.run("", "allocation", "show", a.ID, "--reason", "ticket 4711").exits(0).out, "withdrawn")
	out := w.run("", append(set, "--reason", "ticket 4711")...).exits(0).out
	require.Regexp(t, `keys +`+regexp.QuoteMeta(other.Fingerprint), out)
	require.Regexp(t, `withdrawn, not proven +`+regexp.QuoteMeta(former.Fingerprint), out)
	require.NoError(t, allocationdb.RecordKey(t.Context(), w.store, a.ID, former.Fingerprint, false))
	require.NotContains(t, w.run("", "allocation", "show", a.ID, "--reason", "ticket 4711").exits(0).out, former.Fingerprint)
}

// TestAllocation_RefusalsSayWhatToDo gives wrong inputs to command and server. Nothing is written.
func TestAllocation_RefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("admin")
	account := w.run("", "-o", "json", "billing-account", "create", "acme").exits(0).id()
	project := w.run("", "-o", "json", "project", "create", "training", "--billing-account", account, "--owner-email", "ada@example.com").exits(0).id()
	w.run("", "quota", "set", project, "total", "2", "--reason", "ticket 4711").exits(0)
	sku, site := dbtest.SKU(t, w.store, dbtest.Named("h100x8")), dbtest.Site(t, w.store, dbtest.Named("south"))
	w.run("", "catalogue", "create", "h100x8", "--profile", dbtest.Profile(t, w.store, dbtest.At(site.ID)).ID, "--title", "Eight GPUs").exits(0)
	w.addKey(project)
	dbtest.FreeNode(t, w.store, dbtest.Of(sku.ID), dbtest.At(site.ID))
	create := func(more ...string) []string {
		return append([]string{"allocation", "create", "h100x8", "--project", project}, more...)
	}
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"allocation", "create", "no such"}, cli.ExitUsage, "neither the id nor the name of a SKU"},
		{[]string{"allocation", "create", "a100x8"}, cli.ExitNotFound, "slipway catalogue list shows them"},
		{[]string{"allocation", "create", dbtest.SKU(t, w.store, dbtest.Named("inside")).ID, "--project", project}, cli.ExitUsage, "choose one of the catalogue"},
		{[]string{"allocation", "create", "h100x8", "--project", "prj_none"}, cli.ExitNotFound, "prj_none"},
		{create("--tag", "te am=a"), cli.ExitUsage, "must have keys of"},
		{create("--key", "desktop"), cli.ExitNotFound, `SSH key "desktop" was not found`},
		{create("--site", "south"), cli.ExitUsage, "give the id, site_..."},
		{create("--max-spend", "-3"), cli.ExitUsage, "--max-spend: "},
		{create("--key", "key_none"), cli.ExitUsage, "--key: "},
		{create("--name", "train\x1b[31m"), cli.ExitUsage, "must not hold control characters"},
		{[]string{"allocation", "list", "--project", project, "--status", "runs"}, cli.ExitUsage, "must be one of requested, provisioning, active"},
		{[]string{"allocation", "show", "alc_none"}, cli.ExitNotFound, "alc_none"},
	} {
		got := w.run("", append(row.args, "--reason", "ticket 4711")...)
		require.Contains(t, got.exits(row.code).err, row.says, row.args)
		require.Empty(t, got.out, row.args)
	}
	require.NotContains(t, w.run("", "allocation", "list-all").exits(0).out, "alc_", "nothing was written")
	w.run("", append(create("--wait", "24h", "--name", "train 1"), "--reason", "ticket 4711")...).exits(0)
}

// TestAllocation_WatchTellsHowItEnds follows an allocation that fails.
func TestAllocation_WatchTellsHowItEnds(t *testing.T) {
	t.Parallel()
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked++
		status := "provisioning"
		if asked > 3 {
			status = "failed"
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"id": "alc_1", "status": status, "failure_message": "login at prove_login", "progress": map[string]any{"stage": "check_node", "stages": 10, "stages_done": 1, "percent": 4}})
	}))
	t.Cleanup(srv.Close)
	got := runAgainst(t, srv.URL, "allocation", "create", "sku_1", "--watch", "--interval", "1ms")
	got.exits(cli.ExitJobFailed)
	require.Contains(t, got.out, "alc_1: provisioning, 2/10 check_node 4%")
	require.Contains(t, got.err, "alc_1 is failed: login at prove_login")
}

// TestAllocation_WatchesAList follows two allocations, of which one still moves.
func TestAllocation_WatchesAList(t *testing.T) {
	t.Parallel()
	asked := 0
	const id = "alc_01a20864-29ce-7cf7-9705-0c944c76f300"
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		require.Equal(t, []string{"50", "releasing"}, []string{r.URL.Query().Get("limit"), r.URL.Query().Get("status")})
		asked++
		moving := map[string]any{"id": id, "name": strings.Repeat("n", 100), "sku": "h100x8-dedicated", "status": "releasing", "state": "terminating",
			"topology": map[string]any{"site": "frankfurt-1"},
			"progress": map[string]any{"stage": "validate_clean_node", "stages": 12, "stages_done": 8, "percent": 82, "eta": map[string]any{"p50_seconds": 65}}}
		if asked > 2 {
			moving["status"] = "release_failed"
			moving["progress"] = map[string]any{"stage": "validate_clean_node", "stages": 12, "stages_done": 8, "percent": 82}
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"data": []any{moving, map[string]any{"id": "alc_2", "status": "active", "condition": "degraded"}}})
	}))
	t.Cleanup(srv.Close)
	got := runAgainst(t, srv.URL, "allocation", "list", "--watch", "--status", "releasing", "--interval", "1ms").exits(0).out
	require.Equal(t, 1, strings.Count(got, id+": releasing, 9/12 validate_clean_node 82%, 1m5s left\n"), "one line for a change: %s", got)
	require.NotContains(t, got, "alc_2: active", "what does not move is in the list alone")
	require.Contains(t, got, "active, degraded")
	require.Contains(t, got, "9/12 82%")
	for _, line := range strings.Split(got, "\n") {
		require.LessOrEqual(t, len([]rune(line)), 120, line)
	}
}

// TestAllocation_WatchOfARetry follows the release of one whose release had failed: its job has not
// begun the next try when the server answers.
func TestAllocation_WatchOfARetry(t *testing.T) {
	t.Parallel()
	answers := []struct {
		status  string
		version int
	}{{"release_failed", 7}, {"release_failed", 7}, {"releasing", 8}, {"release_failed", 9}}
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		a := answers[min(asked, len(answers)-1)]
		asked++
		_ = json.NewEncoder(rw).Encode(map[string]any{"id": "alc_1", "status": a.status, "version": a.version, "failure_message": "bmc_unreachable at revoke_access"})
	}))
	t.Cleanup(srv.Close)
	got := runAgainst(t, srv.URL, "allocation", "release", "alc_1", "--watch", "--interval", "1ms").exits(cli.ExitJobFailed)
	require.Contains(t, got.out, "alc_1: releasing")
	require.Contains(t, got.err, "alc_1 is release_failed: bmc_unreachable at revoke_access")
	asked = len(answers) - 1
	got = runAgainst(t, srv.URL, "allocation", "show", "alc_1", "--watch", "--interval", "1ms").exits(cli.ExitJobFailed)
	require.Contains(t, got.err, "release_failed", "nothing was asked for, so nothing is waited for")
}

// TestAllocation_WrongInputs gives the command what it must refuse before it asks the server.
func TestAllocation_WrongInputs(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--wait must not be negative":           {"create", "sku_1", "--wait", "-5m"},
		"--wait must be at most 24h":            {"create", "sku_1", "--wait", "25h"},
		"missing unit in duration":              {"create", "sku_1", "--wait", "30"},
		"KEY=VALUE, not \"a b\"":                {"list", "--tag", "a b"},
		"\"alc_../projects\" is neither the id": {"release", "alc_../projects"},
		"\"node_01a20864\" is the id of a node": {"set-keys", "node_01a20864", "--key", "key_1"},
		"neither the id nor the name of an SSH": {"set-keys", "alc_1", "--key", "a b"},
		"--expires-in must be more than 0":      {"create", "sku_1", "--expires-in", "0s"},
		"--tag must be KEY=VALUE, not \"team\"": {"create", "sku_1", "--tag", "team"},
		"--tag must be KEY=VALUE, not \"=a\"":   {"create", "sku_1", "--tag", "=a"},
		"names the key \"team\" twice":          {"create", "sku_1", "--tag", "team=a", "--tag", "team=b"},
		"accepts 1 arg(s)":                      {"create"},
		"unknown command":                       {"shwo", "alc_1"},
		"requires at least 1 arg":               nil, // of ssh
	} {
		cmd := append([]string{"allocation"}, args...)
		if args == nil {
			cmd = []string{"ssh"}
		}
		got := runAgainst(t, "http://127.0.0.9:1", cmd...)
		require.Contains(t, got.exits(cli.ExitUsage).err, want)
	}
}

// login runs slipway ssh against a server that names a connection. It returns the arguments of ssh
// and what its file of known hosts says of two keys: the pinned one and another.
func login(t *testing.T, connection map[string]any, pinned ssh.PublicKey, args ...string) (got said, ran []string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"id": "alc_1", "status": "active", "connection": connection})
	}))
	t.Cleanup(srv.Close)
	var out, errs bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		In: strings.NewReader(""), Out: &out, Err: &errs, Version: "test", ConfigPath: filepath.Join(t.TempDir(), "c.yaml"),
		Getenv: func(k string) string { return map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "x"}[k] },
		RunSSH: func(_ context.Context, args []string) error {
			ran = args
			file := strings.Trim(strings.TrimPrefix(args[1], "UserKnownHostsFile="), `"`)
			check, err := knownhosts.New(file)
			require.NoError(t, err)
			host := net.JoinHostPort(connection["host"].(string), args[slices.Index(args, "-p")+1])
			addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 1}
			require.NoError(t, check(host, addr, pinned))
			require.Error(t, check(host, addr, hostKey(t)), "another key is refused")
			require.Error(t, check("127.0.0.8:22", addr, pinned), "another host is refused")
			return errors.New("it ended")
		},
	}, append([]string{"ssh"}, args...))
	return said{t, code, out.String(), errs.String()}, ran
}

// TestSSH_TrustsThePinnedKeyAlone reads what ssh is given.
func TestSSH_TrustsThePinnedKeyAlone(t *testing.T) {
	t.Parallel()
	key := hostKey(t)
	for _, port := range []int{22, 2222} {
		at := map[string]any{"host": "127.0.0.9", "port": port, "user": "alc-1", "host_key": lifecycle.KnownHostsLine("127.0.0.9", port, keyLine(key))}
		got, ran := login(t, at, key, "-i", "id", "alc_1", "--", "nvidia-smi", "-L")
		require.Contains(t, got.exits(cli.ExitError).err, "it ended")
		require.Contains(t, strings.Join(ran, " "), "StrictHostKeyChecking=yes")
		require.Contains(t, strings.Join(ran, " "), "-l alc-1 -o IdentitiesOnly=yes -i id -- 127.0.0.9 nvidia-smi -L")
		require.NoFileExists(t, strings.Trim(strings.TrimPrefix(ran[1], "UserKnownHostsFile="), `"`))
	}
}

// TestSSH_RefusesAHostileServer answers with what ssh would take for options, or other files.
func TestSSH_RefusesAHostileServer(t *testing.T) {
	t.Parallel()
	key := keyLine(hostKey(t))
	line := "127.0.0.9 " + key
	for name, wrong := range map[string][2]any{
		"an option": {"host", "-oProxyCommand=sh"}, "a file": {"user", "-F/x"}, "no port": {"port", 0}, "two lines": {"host_key", line + "\n* " + key},
		"every host": {"host_key", "* " + key}, "another host": {"host_key", "127.0.0.8 " + key}, "no pattern": {"host_key", key},
	} {
		at := map[string]any{"host": "127.0.0.9", "port": 22, "user": "alc-1", "host_key": line}
		at[wrong[0].(string)] = wrong[1]
		got, ran := login(t, at, nil, "alc_1")
		require.Contains(t, got.exits(cli.ExitError).err, "the server names", name)
		require.Nil(t, ran, name)
	}
	got, ran := login(t, nil, nil, "alc_1")
	require.Contains(t, got.exits(cli.ExitRefused).err, "nowhere to log in")
	require.Nil(t, ran)
}
