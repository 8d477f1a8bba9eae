package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/providers/webhook"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/stripeaccount"
)

// world is a real API on a database of its own, and a user's home.
type world struct {
	t      *testing.T
	store  *db.Store
	sealed providers.Secrets
	url    string
	home   string
	env    map[string]string
	stripe *stripesim.Server
	pay    *paymentsync.Syncer
	engine func(client.UpdateWorkflowOptions) error
	// workflow answers where the test cares for the answer itself.
	workflow func(client.UpdateWorkflowOptions, *contract.ActionResult) error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, dbtest.Store(t))
}

func newWorldOn(t *testing.T, store *db.Store) *world {
	t.Helper()
	w := &world{t: t, store: store, home: t.TempDir(), env: map[string]string{}}
	sealed, err := secrets.Open(t.Context(), w.store, secrets.Keeper{URL: "base64key://", KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sealed.Close() })
	w.sealed = sealed
	w.stripe, w.pay = stripeaccount.Open(t, store, "127.0.0.1", "portal.example.com")
	s, err := httpapi.New(httpapi.Config{API: op.Config{Store: w.store}, Payments: w.pay, Instances: simulatedOffers(), REST: rest.Config{
		Temporal: w, Secrets: sealed, AgentURL: "https://agents.example:7443", AgentCAPEM: "PEM",
		MAASProbe: func(_ context.Context, _ string, s spec.SiteSpec) (any, error) {
			if strings.Contains(s.MAASURL, "down") {
				return nil, &providers.Error{Kind: providers.KindUnreachable, Op: "maas.version", Message: "no answer"}
			}
			return map[string]any{"version": "3.5"}, nil
		},
	}, Events: tenancy.EventsConfig{Secrets: sealed, NewSecret: webhook.NewSecret, Rule: func(context.Context) (spec.AddressRule, error) {
		return spec.PublicAddresses(nil, nil, []uint16{443}), nil
	}}})
	require.NoError(t, err)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

func (w *world) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	if w.workflow != nil {
		var res contract.ActionResult
		err := w.workflow(o, &res)
		return handle{o, err, &res}, nil
	}
	if w.engine == nil {
		return nil, serviceerror.NewNotFound("no workflow")
	}
	return handle{o, w.engine(o), nil}, nil
}

func (w *world) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	return &client.CheckHealthResponse{}, nil
}

func (w *world) SignalWorkflow(context.Context, string, string, string, any) error { return nil }

type handle struct {
	o   client.UpdateWorkflowOptions
	err error
	res *contract.ActionResult
}

func (h handle) WorkflowID() string { return h.o.WorkflowID }
func (h handle) RunID() string      { return "" }
func (h handle) UpdateID() string   { return h.o.UpdateID }
func (h handle) Get(_ context.Context, into any) error {
	if h.err == nil && h.res != nil {
		*into.(*contract.ActionResult) = *h.res
	} else if h.err == nil {
		*into.(*contract.ActionResult) = contract.ActionResult{Effect: lifecycle.EffectRetryStage, Status: lifecycle.JobRunning, Stage: "deploy_via_maas"}
	}
	return h.err
}

// said is what a command printed and returned.
type said struct {
	t        *testing.T
	code     int
	out, err string
}

func (s said) exits(code int) said {
	s.t.Helper()
	require.Equal(s.t, code, s.code, "out: %s\nerr: %s", s.out, s.err)
	return s
}

func (s said) id() string {
	s.t.Helper()
	var v struct{ ID string }
	require.NoError(s.t, json.Unmarshal([]byte(s.out), &v), s.out)
	return v.ID
}

func (w *world) run(in string, args ...string) said { return w.runOn(false, in, args...) }

func (w *world) runOn(terminal bool, in string, args ...string) said {
	w.t.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(w.t.Context(), cli.Env{
		In: strings.NewReader(in), Out: &out, Err: &errs, Terminal: terminal, Version: "test", ConfigPath: filepath.Join(w.home, "slipway", "config.yaml"),
		Getenv: func(k string) string { return w.env[k] },
	}, args)
	return said{w.t, code, out.String(), errs.String()}
}

func (w *world) token(role string) string {
	w.t.Helper()
	text, err := op.CreateToken(w.t.Context(), w.store, "t-"+role, []string{role}, time.Hour)
	require.NoError(w.t, err)
	return text
}

// signedIn signs in as admin.
func signedIn(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.run(w.token("admin")+"\n", "login", "--server", w.url, "--token-stdin", "--name", "dev").exits(0)
	return w
}

// ready adds what an onboarding refers to, by the CLI itself.
func ready(t *testing.T) *world {
	t.Helper()
	w := signedIn(t)
	w.run(`{"username":"root","password":"calvin"}`, "secret", "put", "bmc/gpu-1", "--kind", "bmc_login", "--network", "10.0.0.0/8,127.0.0.0/8", "--stdin").exits(0)
	w.run("", "site", "create", "north", "--maas-url", "http://127.0.0.1:5240/MAAS", "--maas-api-key-ref", "maas/north", "--set", "ssh_user=ubuntu", "--set", "simulated=true",
		"--set", "bmc_networks=[10.0.0.0/8]").exits(0)
	w.run("", "profile", "create", "standard", "--site", "north", "--set", "stage_deadlines.deploy_via_maas=20m").exits(0)
	w.run("gpus: 8\n", "sku", "create", "h100x8", "-f", "-").exits(0)
	return w
}

func TestLoginKeepsAContextThatOthersCannotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Contains(t, w.run("", "node", "list").exits(cli.ExitUnauthorised).err, "slipway login")
	require.Contains(t, w.run("slp_wrong", "login", "--server", w.url, "--token-stdin").exits(cli.ExitUnauthorised).err, "unknown, expired or revoked")
	w.run("", "login", "--server", "nowhere", "--token-stdin").exits(cli.ExitUsage)
	w.run("", "login", "--server", w.url).exits(cli.ExitUsage)
	w.run("\n", "login", "--server", w.url, "--token-stdin").exits(cli.ExitUsage)

	file := filepath.Join(w.home, "token")
	require.NoError(t, os.WriteFile(file, []byte(w.token("viewer")+"\n"), 0o600))
	require.Contains(t, w.run("", "login", "--server", w.url, "--token-file", file, "--name", "a").exits(0).out, "t-viewer (viewer)")
	w.run(w.token("admin"), "login", "--server", w.url, "--token-stdin", "--name", "b").exits(0)
	path := filepath.Join(w.home, "slipway", "config.yaml")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Contains(t, w.run("", "context", "list").exits(0).out, "*  b")
	w.run("", "sku", "create", "x").exits(0)
	require.Contains(t, w.run("", "--context", "a", "sku", "create", "y").exits(cli.ExitUnauthorised).err, "needs role admin")
	w.run("", "context", "use", "a").exits(0)
	w.run("", "sku", "create", "y").exits(cli.ExitUnauthorised)
	w.run("", "context", "use", "none").exits(cli.ExitNotFound)
	w.run("", "--context", "none", "sku", "list").exits(cli.ExitUsage)
	require.NoError(t, os.Chmod(path, 0o644))
	require.Contains(t, w.run("", "sku", "list").exits(cli.ExitError).err, "chmod 600")
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	w.run("", "sku", "list").exits(0)
	w.env["SLIPWAY_SERVER"] = "http://127.0.0.1:1"
	require.Contains(t, w.run("", "sku", "list").exits(cli.ExitUnreachable).err, "cannot be reached")
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	for _, args := range [][]string{
		{"nonsense"}, {"node", "nonsense"}, {"node", "show"}, {"node", "list", "--colour"}, {"-o", "xml", "node", "list"}, {"profile", "list"},
		{"secret", "put", "x"}, {"node", "onboard"}, {"node", "onboard", "--site", "x"}, {"sku", "create", "x", "--set", "gpus"}, {"roce", "set", "a", "b", "--port", "x=1"},
	} {
		require.NotEmpty(t, w.run("", args...).exits(cli.ExitUsage).err, args)
	}
	for said, args := range map[string][]string{
		"received 0; usage: slipway node show NODE": {"node", "show"}, "See slipway node show --help.": {"node", "show"},
		"usage: slipway bmc rotate BMC": {"bmc", "rotate", "a", "b"}, "did you mean list?": {"node", "lst"}, "did you mean job or node?": {"nod", "list"}, "did you mean show?": {"job", "shwo", "x"},
		"See slipway node list --help.": {"node", "list", "--colour"}, `invalid argument "x" for "--limit" flag: invalid syntax`: {"node", "list", "--limit", "x"},
	} {
		require.Contains(t, w.run("", args...).exits(cli.ExitUsage).err, said)
	}
	require.Contains(t, w.run("", "token", "revoke", "none").exits(cli.ExitNotFound).err, `API token "none" was not found; slipway token list shows them`)
	require.NotContains(t, w.run("", "node", "zzzzzz").exits(cli.ExitUsage).err, "did you mean")
	require.Contains(t, w.run("", "--help").exits(0).out, "Exit codes")
	require.Contains(t, w.run("", "completion", "bash").exits(0).out, "slipway")
}

func TestInventory(t *testing.T) {
	t.Parallel()
	w := ready(t)
	require.Equal(t, "bmc/gpu-1@1\n", w.run("", "secret", "show", "bmc/gpu-1").exits(0).out)
	listed := w.run("", "secret", "list", "--prefix", "bmc/").exits(0).out
	require.Regexp(t, `(?m)^NAME +VERSION +KEPT +STORED +FIRST STORED\nbmc/gpu-1 +1 +1 +\d+s ago +\d+s ago`, listed)
	require.NotContains(t, listed, "calvin")
	require.Contains(t, w.run("", "site", "show", "north").exits(0).out, "ssh_user: ubuntu")
	require.Contains(t, w.run("", "site", "update", "north", "--set", "ssh_user=null", "--set", "region=eu").exits(0).out, "region: eu")
	shown := w.run("", "site", "show", "north").out
	require.NotContains(t, shown, "ssh_user")
	require.Contains(t, shown, "maas_url: http://127.0.0.1:5240/MAAS")
	require.Contains(t, w.run("", "site", "list").exits(0).out, "north")
	require.Contains(t, w.run("", "site", "probe", "north").exits(0).out, "3.5")
	w.run("", "site", "update", "north", "--set", "maas_url=http://down.example/MAAS").exits(0)
	require.Contains(t, w.run("", "site", "probe", "north").exits(cli.ExitUnreachable).err, "No answer")
	require.Contains(t, w.run("", "site", "show", "south").exits(cli.ExitNotFound).err, "slipway site list")
	bad := w.run("", "site", "create", "south", "--maas-url", "ftp://x").exits(cli.ExitUsage)
	require.Contains(t, bad.err, "spec.maas_url: must be an http or https URL")
	require.Contains(t, bad.err, "spec.maas_api_key_ref")
	require.Contains(t, w.run("", "site", "create", "north", "--maas-url", "https://x", "--maas-api-key-ref", "a").exits(cli.ExitRefused).err, "taken")

	require.Contains(t, w.run("", "profile", "show", "standard", "--site", "north").exits(0).out, "deploy_via_maas: 20m0s")
	require.Contains(t, w.run("", "profile", "update", "standard", "--site", "north", "--set", "batch_max_parallel=2").exits(0).out, "batch_max_parallel: 2")
	require.Contains(t, w.run("", "-o", "json", "sku", "show", "h100x8").exits(0).out, `"gpus": 8`)
	require.Contains(t, w.run("", "-o", "yaml", "sku", "list").exits(0).out, "name: h100x8")
	w.run("", "roce", "set", "north", "gpu-1", "--port", "interface=ens1,mtu=9000,subnet=10.1.0.0/24,ip=10.1.0.7,tag=roce").exits(0)
	require.Contains(t, w.run("", "roce", "show", "north", "gpu-1").exits(0).out, "10.1.0.7")
	w.run("", "sku", "delete", "h100x8").exits(0)
	w.run("", "sku", "show", "h100x8").exits(cli.ExitNotFound)
	require.Contains(t, w.run("", "profile", "show", "none", "--site", "north").exits(cli.ExitNotFound).err, "slipway profile list --site SITE shows")
	require.Contains(t, w.run("", "node", "show", "node_zzz").exits(cli.ExitNotFound).err, "Node node_zzz was not found; slipway node list")
	require.Contains(t, w.run("", "audit", "verify", "zebra", "x").exits(cli.ExitNotFound).err, "Audit log of zebra x was not found")
	require.Contains(t, w.run("", "token", "revoke", "tok_none").exits(cli.ExitNotFound).err, "API token tok_none was not found; slipway token list")
	require.Contains(t, w.run("", "site", "delete", "north").exits(cli.ExitRefused).err, "it is used by profiles")
	require.Contains(t, w.run("", "token", "create", "ci", "--roles", "viewer").exits(0).out, "slp_")
	require.Contains(t, w.run("", "token", "list").exits(0).out, "ci")
}

func onboard(w *world, more ...string) said {
	w.t.Helper()
	return w.run("", append([]string{"node", "onboard", "--site", "north", "--profile", "standard", "--sku", "h100x8", "--hostname", "gpu-1", "--bmc", "10.0.0.1",
		"--credential", "bmc/gpu-1"}, more...)...)
}

func TestOnboardAndAct(t *testing.T) {
	t.Parallel()
	w := ready(t)
	first := onboard(w, "-o", "json", "--idempotency-key", "k").exits(0)
	require.Equal(t, first.out, onboard(w, "-o", "json", "--idempotency-key", "k").exits(0).out, "the same key is the same job")
	id := first.id()
	require.Contains(t, onboard(w).exits(cli.ExitRefused).err, id)
	list := w.run("", "node", "list", "--site", "north").exits(0).out
	require.Contains(t, list, "gpu-1")
	require.Contains(t, list, "bootstrap_issued")
	require.Contains(t, w.run("", "node", "show", "gpu-1").exits(0).out, id)
	require.Contains(t, w.run("", "node", "history", "gpu-1").exits(0).out, "1 of 1")
	require.Contains(t, w.run("", "node", "timeline", "gpu-1").exits(0).out, "create")
	require.Contains(t, w.run("", "node", "label", "gpu-1", "rack=7").exits(0).out, "labels of gpu-1: rack=7")
	require.Contains(t, w.run("", "node", "show", "gpu-1").exits(0).out, "rack=7")
	w.run("", "node", "show", "gpu-9").exits(cli.ExitNotFound)
	shown := w.run("", "job", "show", "gpu-1").exits(0).out
	for _, s := range lifecycle.OnboardingStages() {
		require.Contains(t, shown, s)
	}
	require.Contains(t, w.run("", "job", "list", "--node", "gpu-1").exits(0).out, id)
	require.NotContains(t, w.run("", "job", "list", "--needs-human").exits(0).out, id)

	w.engine = func(o client.UpdateWorkflowOptions) error {
		ask := o.Args[0].(contract.ActionRequest)
		if o.UpdateName == "rerun" {
			return temporal.NewNonRetryableApplicationError("rerun is refused: "+ask.Reason, contract.ErrTypeActionRefused, nil, []lifecycle.Action{"cancel"})
		}
		return nil
	}
	require.Contains(t, w.run("", "job", "retry", id).exits(0).out, "retry requested: ")
	w.workflow = func(_ client.UpdateWorkflowOptions, res *contract.ActionResult) error {
		*res = contract.ActionResult{Effect: lifecycle.EffectCancel, Status: lifecycle.JobRunning}
		return nil
	}
	require.Contains(t, w.run("", "job", "cancel", id).exits(0).out, "cancel requested: what can be undone is undone, then the job ends")
	w.workflow = nil
	for _, verb := range []string{"resume", "restart-clean", "cancel", "adopt", "mark-manual"} {
		w.run("", "job", verb, id, "--reason", "x").exits(0)
	}
	refused := w.run("", "job", "rerun", id, "--reason", "hurry").exits(cli.ExitRefused)
	require.Contains(t, refused.err, "Rerun is refused: hurry")
	require.Contains(t, refused.err, "allowed now: cancel")
	require.Contains(t, w.run("", "job", "adopt", id, "--accept-risk").exits(cli.ExitUsage).err, "reason")
}

// project moves a job as its workflow would.
func (w *world) project(id string, seq int64, status lifecycle.JobStatus, done int) {
	w.t.Helper()
	now := time.Now().UTC()
	p := db.Projection{JobID: id, Seq: seq, Status: status, ReachedPercent: done * 100 / 16, Actor: db.Actor{Owner: lifecycle.OwnerJob}}
	for i, name := range lifecycle.OnboardingStages() {
		row := lifecycle.StageRow{Ordinal: i + 1, Name: name, State: "pending"}
		if i < done {
			row = lifecycle.StageRow{Ordinal: i + 1, Name: name, State: "succeeded", Attempts: 1, StartedAt: &now, FinishedAt: &now}
		}
		if i == done && status == lifecycle.JobFailedManual {
			row.State, p.FailedStage, p.FailureClass, p.Message = "failed", name, lifecycle.FailBootDiskNotFound, "no disk is a BOSS"
			p.NextStep = lifecycle.Failure(p.FailureClass).Next
		}
		if i == done && status == lifecycle.JobRunning {
			row.State, row.Attempts, row.StartedAt, p.Stage, p.StageOrdinal = "running", 1, &now, name, i+1
		}
		p.Stages = append(p.Stages, row)
	}
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(w.t.Context(), p)
		return err
	}))
}

func TestWatching(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  lifecycle.JobStatus
		code int
	}{"success": {lifecycle.JobCompleted, 0}, "an operator is needed": {lifecycle.JobFailedManual, cli.ExitJobFailed}} {
		for _, terminal := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := ready(t)
				id := onboard(w, "-o", "json").exits(0).id()
				w.project(id, 1, lifecycle.JobRunning, 0)
				watched := make(chan said, 1)
				go func() { watched <- w.runOn(terminal, "", "job", "show", id, "--watch", "--interval", "5ms") }()
				w.project(id, 2, lifecycle.JobRunning, 5)
				done := 5
				if c.end == lifecycle.JobCompleted {
					done = 16
				}
				w.project(id, 3, c.end, done)
				got := (<-watched).exits(c.code)
				require.Contains(t, got.out, lifecycle.StageLoadSiteConfig)
				require.Contains(t, got.out, string(c.end))
				require.Equal(t, terminal, strings.Contains(got.out, "\x1b["), "only a terminal is redrawn")
				if c.code != 0 {
					require.Contains(t, got.err, "no disk is a BOSS")
					require.Contains(t, got.err, "fix the hardware or the rule")
				}
			})
		}
	}
}

func TestWatchingEndsAtItsLimitAndShowsJSONOnce(t *testing.T) {
	t.Parallel()
	w := ready(t)
	id := onboard(w, "-o", "json").exits(0).id()
	require.Contains(t, w.run("", "job", "show", id, "-w", "--interval", "5ms", "--watch-timeout", "60ms").exits(cli.ExitError).err, "goes on without us")
	w.project(id, 1, lifecycle.JobRunning, 1)
	require.Contains(t, w.run("", "job", "show", id).exits(0).out, "unknown: 0 comparable past jobs")
	w.project(id, 2, lifecycle.JobCompleted, 16)
	for _, command := range [][]string{{"job", "actions", "gpu-1"}, {"node", "actions", "gpu-1", "--status", "success", "--type", lifecycle.StageResolvePower}} {
		require.Regexp(t, lifecycle.StageResolvePower+` +1 +success`, w.run("", command...).exits(0).out)
	}
	require.Equal(t, id, w.run("", "-o", "json", "job", "show", "gpu-1", "-w").exits(0).id())
}

func TestBatch(t *testing.T) {
	t.Parallel()
	w := ready(t)
	file := filepath.Join(w.home, "batch.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
name: rack 7
site: north
profile: standard
sku: h100x8
items:
  - {hostname: gpu-1, bmc: 10.0.0.1, credential: bmc/gpu-1}
  - {hostname: gpu-2, bmc: 10.0.0.2, credential: nowhere}
`), 0o600))
	made := w.run("", "node", "onboard", "-f", file, "-o", "json").exits(cli.ExitRefused)
	require.Contains(t, made.err, "1 of 2 items were rejected")
	var b struct {
		ID    string
		Items []struct {
			JobID string `json:"job_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(made.out), &b))
	shown := w.run("", "batch", "show", b.ID).exits(0).out
	require.Contains(t, shown, "1 pending, 1 rejected")
	require.Contains(t, shown, "there is no secret ")
	require.Contains(t, w.run("", "batch", "list", "-o", "wide").exits(0).out, b.ID)
	w.project(b.Items[0].JobID, 1, lifecycle.JobRunning, 1)
	w.project(b.Items[0].JobID, 2, lifecycle.JobCompleted, 16)
	require.Contains(t, w.run("", "batch", "show", b.ID, "--watch").exits(cli.ExitJobFailed).err, "gpu-2 (rejected)")
	require.NoError(t, os.WriteFile(file, []byte("site: [\n"), 0o600))
	w.run("", "node", "onboard", "-f", file).exits(cli.ExitUsage)
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("name: x\nitems: 3\n")
	require.Contains(t, w.run("", "node", "onboard", "-f", file).exits(cli.ExitUsage).err, "items must not be a number")
	write("- x\n")
	require.Contains(t, w.run("", "node", "onboard", "-f", file).exits(cli.ExitUsage).err, "must hold fields with their values")
	write("site: north\nprofile: standard\nsku: h100x8\nitems: [{hostname: gpu-3, bmc: 10.0.0.3, credential: nowhere}]\n")
	none := w.run("", "node", "onboard", "-f", file).exits(cli.ExitRefused)
	require.Contains(t, none.out, "there is no secret nowhere")
	require.Contains(t, none.err, "nothing was started: all 1 items were rejected")
	write("site: north\nprofile: standard\nsku: h100x8\nitems: [{hostname: gpu-4, bmc: 10.0.0.1, credential: bmc/gpu-1}]\n")
	require.Contains(t, w.run("", "node", "onboard", "-f", file).exits(cli.ExitRefused).out, "has the BMC at 10.0.0.1")
}

// Whether one by one or from a file, a BMC's protocol is the request's.
func TestOnboardOverIPMI(t *testing.T) {
	t.Parallel()
	w := ready(t)
	alone := []string{"node", "onboard", "--site", "north", "--profile", "standard", "--sku", "h100x8", "--hostname", "old-1", "--bmc", "10.0.0.7", "--credential", "bmc/gpu-1"}
	w.run("", append(alone, "--bmc-protocol", "ipmi", "--ipmi-cipher-suite", "3")...).exits(0)
	file := filepath.Join(w.home, "batch.yaml")
	require.NoError(t, os.WriteFile(file, []byte("site: north\nprofile: standard\nsku: h100x8\nitems:\n"+
		"  - {hostname: old-2, bmc: 10.0.0.8, credential: bmc/gpu-1, bmc_protocol: ipmi}\n"), 0o600))
	w.run("", "node", "onboard", "-f", file).exits(0)
	rows, err := w.store.ListBMCs(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []any{"ipmi", 3, "ipmi", 17}, []any{rows[0].Protocol, rows[0].IPMICipherSuite, rows[1].Protocol, rows[1].IPMICipherSuite})
	alone[9] = "old-3"
	require.Contains(t, w.run("", append(alone, "--bmc-protocol", "telnet")...).exits(cli.ExitUsage).err, "redfish")
}

func TestBootstrapAndBMC(t *testing.T) {
	t.Parallel()
	w := ready(t)
	out := filepath.Join(w.home, "bundle")
	args := []string{"node", "bootstrap", "--site", "north", "--profile", "standard", "--sku", "h100x8", "--hostname", "hand", "--out", out, "--idempotency-key", "b"}
	said := w.run("", args...).exits(0)
	token, err := os.ReadFile(filepath.Join(out, "token"))
	require.NoError(t, err)
	require.Len(t, strings.TrimSpace(string(token)), 43)
	require.NotContains(t, said.out, strings.TrimSpace(string(token)))
	info, err := os.Stat(filepath.Join(out, "token"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Contains(t, w.run("", args...).exits(cli.ExitRefused).err, "shown once")
	require.Contains(t, w.run("", "node", "bootstrap", "--reissue", "hand").exits(0).out, "server_url: https://agents.example:7443")

	onboard(w).exits(0)
	var node struct {
		BMCID string `json:"bmc_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("", "-o", "json", "node", "show", "gpu-1").exits(0).out), &node))
	pin := strings.Repeat("ab", 32)
	require.NoError(t, w.store.SetBMCPinPending(t.Context(), node.BMCID, pin))
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), node.BMCID, "rejected"))
	require.Contains(t, w.run("", "bmc", "show", node.BMCID).exits(0).out, "pin that waits")
	require.Contains(t, w.run("", "bmc", "approve-pin", node.BMCID, pin).exits(0).out, "approved pin")
	require.NotContains(t, w.run("", "bmc", "clear-auth-block", node.BMCID).exits(0).out, "logins stopped")
}

func TestAStrangeServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://elsewhere.example/", http.StatusFound)
	}))
	t.Cleanup(srv.Close)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = srv.URL, "slp_x"
	require.Contains(t, w.run("", "sku", "list").exits(cli.ExitError).err, "no problem document")
}
