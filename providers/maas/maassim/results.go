package maassim

import (
	"encoding/base64"
	"strings"
)

var resultTypes = map[string]int{"commissioning": typeCommissioning, "installation": typeInstallation, "testing": typeTesting}

var scriptsOf = [...][]string{
	typeCommissioning: {"20-maas-01-install-lldpd", "20-maas-03-hwinfo", "50-maas-01-commissioning", "maas-list-modaliases"},
	typeInstallation:  {"/tmp/install.log", "/tmp/curtin-logs.tar"},
	typeTesting:       {"smartctl-validate"},
}

func (s *Server) newScripts(m *machine, kind int) {
	set := &scriptSet{id: s.nextID("script_set"), kind: kind}
	for _, name := range scriptsOf[kind] {
		set.results = append(set.results, &script{id: s.nextID("script"), name: name, updated: s.now()})
	}
	m.sets = append(m.sets, set)
	m.current[kind] = set.id
}

func (m *machine) currentSet(kind int) *scriptSet {
	for _, set := range m.sets {
		if set.id == m.current[kind] {
			return set
		}
	}
	return nil
}

func (s *Server) startScripts(m *machine, kind int) {
	set := m.currentSet(kind)
	if set == nil {
		return
	}
	set.started = s.now()
	for _, r := range set.results {
		r.status, r.started, r.updated = scriptRunning, s.now(), s.now()
	}
}

// endScripts ends every script that still waits or runs; a failure is the last
// one's, with its output.
func (s *Server) endScripts(m *machine, status int, output string) {
	for _, set := range m.sets {
		if set.id != m.current[set.kind] {
			continue
		}
		open := []*script{}
		for _, r := range set.results {
			if r.status == scriptPending || r.status == scriptRunning {
				open = append(open, r)
			}
		}
		for i, r := range open {
			st := status
			if status == scriptFailed && i > 0 {
				st = scriptPassed
			}
			exit := 0
			if st == scriptFailed {
				exit, r.output = 1, output
			}
			r.status, r.exit, r.ended, r.updated = st, &exit, s.now(), s.now()
		}
		set.ended = s.now()
	}
}

func (set *scriptSet) status() int {
	worst := scriptPassed
	for _, r := range set.results {
		if r.status != scriptPassed {
			worst = r.status
		}
		if r.status == scriptFailed {
			return scriptFailed
		}
	}
	return worst
}

func (m *machine) scriptStatus(kind int) int {
	set := m.currentSet(kind)
	if set == nil {
		return -1
	}
	return set.status()
}

func (c *call) setJSON(m *machine, set *scriptSet) map[string]any {
	out, _ := c.boolParam("include_output", false)
	results := []map[string]any{}
	for _, r := range set.results {
		row := map[string]any{
			"id": r.id, "name": r.name, "status": r.status, "status_name": scriptName(r.status), "exit_status": r.exit,
			"created": resultStamp(set.started), "updated": resultStamp(r.updated), "started": resultStamp(r.started), "ended": resultStamp(r.ended),
			"suppressed": false, "script_id": r.id, "parameters": map[string]any{},
		}
		if out {
			enc := base64.StdEncoding.EncodeToString([]byte(r.output))
			row["output"], row["stdout"], row["stderr"], row["result"] = enc, enc, "", ""
		}
		results = append(results, row)
	}
	st := set.status()
	return map[string]any{
		"id": set.id, "system_id": m.id, "type": set.kind, "type_name": [...]string{"Commissioning", "Installation", "Testing"}[set.kind],
		"last_ping": "", "status": st, "status_name": scriptName(st), "started": resultStamp(set.started), "ended": resultStamp(set.ended),
		"results": results, "resource_uri": Prefix + "nodes/" + m.id + "/results/" + itoa(set.id) + "/",
	}
}

func (c *call) listResults() *reply {
	out := []map[string]any{}
	want := strings.ToLower(c.form.Get("type"))
	if _, ok := resultTypes[want]; want != "" && !ok {
		return field("type", "'%s' is not a valid type.", want)
	}
	for _, set := range c.rec.sets {
		if want == "" || resultTypes[want] == set.kind {
			out = append(out, c.setJSON(c.rec, set))
		}
	}
	return jsonReply(out)
}

func (c *call) readResult() *reply {
	id := c.num("n")
	if kind, ok := strings.CutPrefix(c.vars["n"], "current-"); ok {
		k, known := resultTypes[kind]
		if !known {
			return notFound("ScriptSet")
		}
		id = c.rec.current[k]
	}
	for _, set := range c.rec.sets {
		if set.id == id {
			return jsonReply(c.setJSON(c.rec, set))
		}
	}
	return notFound("ScriptSet")
}

func (c *call) installationResults() *reply {
	out := []map[string]any{}
	for _, m := range c.s.machines {
		for _, set := range m.sets {
			for _, r := range set.results {
				out = append(out, map[string]any{
					"id": r.id, "name": r.name, "script_result": r.status, "result_type": set.kind,
					"node": map[string]any{"system_id": m.id}, "data": base64.StdEncoding.EncodeToString([]byte(r.output)),
					"created": resultStamp(set.started), "updated": resultStamp(r.updated),
					"resource_uri": Prefix + "commissioning-scripts/",
				})
			}
		}
	}
	return jsonReply(out)
}
