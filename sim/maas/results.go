package maassim

import (
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

func scriptsOf(kind int) []string {
	switch kind {
	case typeCommissioning:
		return []string{"20-maas-01-install-lldpd", "20-maas-02-dhcp-unconfigured-ifaces", "30-maas-01-bmc-config", "50-maas-01-commissioning", "maas-lshw", "20-maas-03-install-lldpd"}
	case typeTesting:
		return []string{"smartctl-validate", "internet-connectivity"}
	default:
		return []string{"/tmp/install.log", "/tmp/curtin-logs.tar"}
	}
}

// newScripts makes the pending script set of a run and the machine's current one.
func (s *Server) newScripts(m *machine, kind int) {
	set := &scriptSet{id: s.nextID("set"), kind: kind}
	for _, name := range scriptsOf(kind) {
		set.results = append(set.results, &script{id: s.nextID("script"), name: name, updated: s.now()})
	}
	m.sets = append(m.sets, set)
	m.current[kind] = set.id
}

func (s *Server) startScripts(m *machine, kind int) {
	if set := m.setByID(m.current[kind]); set != nil {
		set.started = s.now()
		for _, r := range set.results {
			r.status, r.started, r.updated = scriptRunning, s.now(), s.now()
		}
	}
}

// endScripts ends whatever still runs; a failure falls on the first script.
func (s *Server) endScripts(m *machine, status int, output string) {
	for _, set := range m.sets {
		if !set.ended.IsZero() {
			continue
		}
		set.ended = s.now()
		for i, r := range set.results {
			code := 0
			r.status, r.ended, r.updated, r.exit = status, s.now(), s.now(), &code
			if status == scriptFailed && i > 0 {
				r.status = scriptAborted
			}
			if i == 0 {
				r.output = output
			}
			switch r.status {
			case scriptFailed:
				code = 1
			case scriptTimeout, scriptAborted:
				r.exit = nil
			}
		}
	}
}

func (m *machine) setByID(id int) *scriptSet {
	for _, set := range m.sets {
		if set.id == id {
			return set
		}
	}
	return nil
}

// status of a set is that of its worst script; -1 without one.
func (set *scriptSet) status() int {
	if set == nil || len(set.results) == 0 {
		return -1
	}
	for _, st := range []int{scriptFailed, scriptTimeout, scriptAborted, scriptRunning, scriptPending} {
		if slices.ContainsFunc(set.results, func(r *script) bool { return r.status == st }) {
			return st
		}
	}
	return scriptPassed
}

var resultTypes = [...]string{"Commissioning", "Installation", "Testing"}

func (c *call) listResults() *reply {
	want := -1
	switch v := c.form.Get("type"); v {
	case "":
	case "commissioning", "0":
		want = typeCommissioning
	case "installation", "1":
		want = typeInstallation
	case "testing", "2":
		want = typeTesting
	default:
		return field("type", "Value must be one of: commissioning; installation; testing (not '%s')", v)
	}
	output, bad := c.boolParam("include_output", false)
	if bad != nil {
		return bad
	}
	out := []any{}
	for i := len(c.rec.sets) - 1; i >= 0; i-- {
		if set := c.rec.sets[i]; want < 0 || set.kind == want {
			out = append(out, setJSON(c.rec, set, output))
		}
	}
	return jsonReply(out)
}

func (c *call) readResult() *reply {
	output, bad := c.boolParam("include_output", false)
	if bad != nil {
		return bad
	}
	id := c.num("n")
	for i, word := range []string{"current-commissioning", "current-installation", "current-testing"} {
		if c.vars["n"] == word {
			id = c.rec.current[i]
		}
	}
	set := c.rec.setByID(id)
	if set == nil {
		return notFound("ScriptSet")
	}
	return jsonReply(setJSON(c.rec, set, output))
}

func setJSON(m *machine, set *scriptSet, output bool) map[string]any {
	results := []any{}
	for _, r := range set.results {
		results = append(results, scriptJSON(r, output))
	}
	return map[string]any{
		"id": set.id, "system_id": m.id, "type": set.kind, "type_name": resultTypes[set.kind], "last_ping": resultStamp(set.started),
		"status": set.status(), "status_name": scriptName(set.status()), "started": resultStamp(set.started), "ended": resultStamp(set.ended),
		"runtime": runtime(set.started, set.ended), "results": results, "power_state_before_transition": "off",
		"resource_uri": fmt.Sprintf("%snodes/%s/results/%d/", Prefix, m.id, set.id),
	}
}

func scriptJSON(r *script, output bool) map[string]any {
	out := map[string]any{
		"id": r.id, "name": r.name, "created": resultStamp(r.started), "updated": resultStamp(r.updated), "status": r.status,
		"status_name": scriptName(r.status), "exit_status": nil, "started": resultStamp(r.started), "ended": resultStamp(r.ended),
		"runtime": runtime(r.started, r.ended), "starttime": unixOrNil(r.started), "endtime": unixOrNil(r.ended), "estimated_runtime": runtime(r.started, r.ended),
		"parameters": map[string]any{}, "script_id": r.id, "script_revision_id": nil, "suppressed": false,
	}
	if r.exit != nil {
		out["exit_status"] = *r.exit
	}
	if output {
		b := base64.StdEncoding.EncodeToString([]byte(r.output))
		out["output"], out["stdout"], out["stderr"], out["result"] = b, b, "", ""
	}
	return out
}

func runtime(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	d := to.Sub(from).Round(time.Second)
	return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}

func unixOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return float64(t.UnixMicro()) / 1e6
}
