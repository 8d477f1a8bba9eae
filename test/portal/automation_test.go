package portal_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The plans of the test, and what their steps write. The last one writes far more than a page
// keeps.
const (
	quickPlan, longPlan, floodPlan = "aa-quick", "bb-long", "cc-flood"
	firstLine, lastLine            = "the first line", "the last line"
	quickScript                    = "#fake\nstdout \"" + firstLine + "\\n\""
	longScript                     = "#fake\nstdout \"it has begun\\n\"\nwait"
	floodScript                    = "#fake\nflood 2000000\nstdout \"" + lastLine + "\\n\""
)

// mostShown is how many characters of output a page may hold: what it keeps, and one part more.
const mostShown = 400_000

// fillAutomation makes a machine, a plan and a run that has succeeded, and an instance that is
// ready.
func (w *world) fillAutomation(t *testing.T, project string) {
	t.Helper()
	w.registerMachine(t, "m-1")
	w.createPlan(t, quickPlan, quickScript)
	run := w.mustCall(t, http.MethodPost, "/slipway.v1.RunService/StartRun", object{"request_id": "fill", "machine_id": "m-1", "type": "UPGRADE", "plan_id": quickPlan})["run_id"]
	instance, ok := w.mustCall(t, http.MethodPost, "/api/v1/admin/instances", object{
		"project_id": project, "name": "chat", "provider": "mock", "zone": "mock-1", "type": "MOCK-GPU", "model": "acme/small",
	})["id"].(string)
	require.True(t, ok)
	require.Eventually(t, func() bool {
		_, now := w.call(t, http.MethodPost, "/slipway.v1.RunService/GetRun", object{"run_id": run})
		_, made := w.call(t, http.MethodGet, "/api/v1/admin/instances/"+instance, nil)
		return now["phase"] == "SUCCEEDED" && made["status"] == "ready"
	}, runenv.Patience(jobEnd), time.Second, runenv.Deadline+"the run does not succeed, or the instance is not ready")
	_, err := w.owner(t).Exec(t.Context(), `UPDATE machines SET version = version + 1, conditions = '[
		{"type": "Reachable", "status": true, "reason": "Unknown", "last_transition": "2026-01-02T03:04:05Z"},
		{"type": "Degraded", "status": true, "reason": "CriticalDrift", "last_transition": "2026-01-02T03:04:05Z"},
		{"type": "NeedsIntervention", "status": true, "reason": "JobParked", "last_transition": "2026-01-02T03:04:05Z"}]'`)
	require.NoError(t, err)
}

func (w *world) registerMachine(t *testing.T, id string) {
	t.Helper()
	w.mustCall(t, http.MethodPost, "/slipway.v1.MachineService/RegisterMachine", object{"machine": object{
		"machine_id": id, "labels": object{"env": "prod"}, "spec": object{"provider": "fake", "location": "hall 2", "rack": "r7"},
	}})
}

// createPlan creates a plan that sets the next boot and runs a script.
func (w *world) createPlan(t *testing.T, id, script string) {
	t.Helper()
	w.mustCall(t, http.MethodPost, "/slipway.v1.PlanService/CreatePlan", object{"plan": object{"plan_id": id, "steps": []object{
		{"name": "net-boot", "netboot": object{"mode": "DISK"}}, {"name": "work", "timeout_seconds": 600, "ssh": object{"command": script}},
	}}})
}

// plantHostileAutomation writes the texts where a machine, a provider or an administrator could
// have brought them.
func (w *world) plantHostileAutomation(t *testing.T, whole, short string) {
	t.Helper()
	conn := w.owner(t)
	_, err := conn.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	for sql, value := range map[string]any{
		"UPDATE machines SET labels = jsonb_build_object('label', $1::text), spec = jsonb_set(spec, '{location}', to_jsonb($1::text))": image,
		"UPDATE plans SET display_name = $1, steps = jsonb_set(steps, '{1,ssh,command}', to_jsonb($1::text))":                          image,
		"UPDATE runs SET message = $1, stages = jsonb_set(stages, '{0,message}', to_jsonb($1::text))":                                  short,
		"UPDATE run_logs SET data = $1":                       []byte(whole),
		"UPDATE instances SET model = $1, error_message = $1": image,
	} {
		done, err := conn.Exec(t.Context(), sql, value)
		require.NoError(t, err, sql)
		require.Positive(t, done.RowsAffected(), sql)
	}
}

// startInForm starts a run from the page of a machine, without a mouse.
func startInForm(p *browser.Page, machine, plan string) {
	p.Click("link", "Machines")
	p.Click("link", machine)
	p.Find("heading", "Machine: "+machine)
	p.PressOn("button", "Start a run")
	p.AwaitFocus("combobox", "Type")
	p.Pick("Plan", plan)
	p.PressOn("button", "Start a run")
	p.Find("heading", "Run: UPGRADE · "+machine)
	p.Evaluate(`window.sinceTheStart = true`, nil)
}

// requireNotReloaded fails where the page was loaded again since the run was started.
func requireNotReloaded(t *testing.T, p *browser.Page) {
	t.Helper()
	var same bool
	p.Evaluate(`window.sinceTheStart === true`, &same)
	require.True(t, same, "the page was loaded again: nothing shows that it follows")
}

// output returns what the page shows of the output of a run.
func output(p *browser.Page) string {
	return p.String(`[...document.querySelectorAll(".log-part")].map((e) => e.textContent).join("")`)
}

// setHidden has the page believe that its tab is hidden, or shown again.
func setHidden(p *browser.Page, hidden bool) {
	value := map[bool]string{true: "true", false: "false"}[hidden]
	p.Evaluate(`Object.defineProperty(document, "hidden", { configurable: true, get: () => `+value+` }); document.dispatchEvent(new Event("visibilitychange"))`, nil)
}

// An operator starts runs from the page of a machine and follows their output; a viewer may only
// read.
func TestPortal_FollowsRuns(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	for plan, script := range map[string]string{quickPlan: quickScript, longPlan: longScript, floodPlan: floodScript} {
		w.createPlan(t, plan, script)
	}
	for _, m := range []string{"m-1", "m-2", "m-3"} {
		w.registerMachine(t, m)
	}
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/machines", "Machines")
	p.AwaitText("m-2")

	startInForm(p, "m-1", quickPlan)
	p.AwaitTextWithin(firstLine, jobEnd)
	p.AwaitTextWithin("SUCCEEDED", jobEnd)
	p.AwaitText("this is all of its output")
	requireNotReloaded(t, p)
	p.Picture("run")

	startInForm(p, "m-2", longPlan)
	p.AwaitTextWithin("it has begun", jobEnd)
	p.AwaitText("RUNNING") // it has no end; the page may read the output before the state
	setHidden(p, true)
	p.AwaitText("Paused while this tab is hidden")
	setHidden(p, false)
	p.AwaitText("Output arrives as it comes")
	require.Equal(t, 1, strings.Count(output(p), "it has begun"), "it continues after its position")
	p.Click("button", "Cancel the run")
	p.Find("dialog", "...")
	p.Click("button", "Cancel the run")
	p.AwaitTextWithin("CANCELED", jobEnd)
	p.AwaitText("this is all of its output")
	requireNotReloaded(t, p)
	p.Click("link", "m-2")
	p.Find("heading", "Machine: m-2")
	p.AwaitText("MAINTENANCE")

	startInForm(p, "m-3", floodPlan)
	p.AwaitTextWithin("SUCCEEDED", jobEnd)
	p.AwaitTextWithin("Older output is not kept on this page", jobEnd)
	p.Await("the newest line", jobEnd, func() bool { return strings.HasSuffix(output(p), lastLine+"\n") })
	require.Less(t, len(output(p)), mostShown)
	p.RequireNoFaults()
	w.readAsViewer(t, chromium)
}

// readAsViewer opens the page of a machine as a viewer, who is offered no run.
func (w *world) readAsViewer(t *testing.T, chromium *browser.Browser) {
	t.Helper()
	text, err := op.CreateToken(t.Context(), w.App.Store, "viewer-"+db.NewID("x"), []string{"viewer"}, time.Hour)
	require.NoError(t, err)
	viewer := *w
	viewer.token = text
	p := chromium.Open(t, w.url)
	p.Resize(320, 640)
	viewer.signIn(p, "/portal/machines/m-3", "Machine: m-3")
	p.AwaitText("READY")
	require.False(t, p.Has("button", "Start a run"))
	requireNarrow(t, p)
	p.Allow(403, "/slipway.v1.RunService/StartRun")
	var status int
	p.Evaluate(`fetch("/slipway.v1.RunService/StartRun", {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({request_id: "v", machine_id: "m-3", type: "REBOOT"})}).then((r) => r.status)`, &status)
	require.Equal(t, http.StatusForbidden, status)
	p.Faults() // the refused request is what this is about
}

// An instance is made from its page; the column of its progress moves without a reload, and its
// action log is there.
func TestPortal_FollowsInstance(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1, Configure: func(c *config.Config) { c.Instance.MockDuration = time.Minute }})
	project := dbtest.Project(t, w.App.Store).ID
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/instances", "Instances")
	p.Click("button", "Make an instance")
	p.Fill("Project", project)
	p.Fill("Name", "chat")
	p.Choose("Type and zone", "MOCK-GPU")
	p.Fill("Model", "acme/small")
	p.Click("button", "Make an instance")
	p.Find("heading", "Instance: chat")
	p.Click("link", "Instances")
	p.AwaitText("acme/small")
	p.Evaluate(`window.sinceTheStart = true`, nil)
	percent := func() (n int) {
		p.Evaluate(`Number(document.querySelector("tbody [data-progress]")?.dataset.progress ?? -1)`, &n)
		return n
	}
	first := -1
	p.Await("some progress", jobEnd, func() bool { first = percent(); return first > 0 && first < 100 })
	p.Await("more progress", jobEnd, func() bool { return percent() > first })
	p.Picture("instances")
	p.Await("an instance that is ready", jobEnd, func() bool {
		return percent() == 100 && p.String(`document.querySelector("tbody .badge")?.dataset.status ?? ""`) == "ready"
	})
	requireNotReloaded(t, p)
	p.Click("link", "chat")
	p.Find("heading", "Instance: chat")
	for _, done := range []string{"PROVIDER CREATE", "WORKER SSH INSTALL", "INSTANCE READY"} {
		p.AwaitText(done)
	}
	p.Picture("instance")
	p.Allow(403, "/terminate")
	p.Click("button", "Terminate")
	p.Fill("Reason (required)", "the test has seen it")
	p.Fill("Type chat to confirm", "chat")
	p.Click("button", "Terminate")
	p.Fill("API token", w.token)
	p.Click("button", "Confirm")
	p.AwaitTextWithin("terminated", jobEnd)
	p.RequireNoFaults()
}
