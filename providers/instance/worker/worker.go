// Package worker reaches the worker of an instance over SSH (providers.Worker): it installs it by a
// script, and asks it by requests that the server sends to itself. The host key is pinned, so that
// the answers are those of the server, and no key of vLLM crosses the network in the open.
package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // of the script and the agent
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// ScriptVersion is that of the installation script and the agent.
const ScriptVersion = "1.0.1"

// VLLMImage is the container of vLLM.
const VLLMImage = "vllm/vllm-openai:v0.11.0"

//go:embed install.sh
var script string

//go:embed agent.py
var agent []byte

var buildDate = regexp.MustCompile(`(?m)^BUILD_DATE = "([^"]+)"$`)

// Info returns what the installed agent says of itself.
func Info() providers.WorkerInfo {
	sum := sha256.Sum256(agent)
	info := providers.WorkerInfo{Version: ScriptVersion, Checksum: hex.EncodeToString(sum[:])}
	if m := buildDate.FindSubmatch(agent); m != nil {
		info.BuildDate = string(m[1])
	}
	return info
}

// Worker implements providers.Worker.
type Worker struct {
	SSH Runner
	// Env are further settings of the script, for tests.
	Env map[string]string
}

// Runner runs commands on servers over SSH, and scripts whose output it sends while they run.
type Runner interface {
	providers.SSHRunner
	providers.RemoteExec
}

var _ providers.Worker = Worker{}

const (
	installLimit = 25 * time.Minute
	askLimit     = 20 * time.Second
	maxTail      = 600
)

// stdinScript runs what comes on standard input as a script, whose own input is empty.
func stdinScript() []string { return []string{"sh", "-c", "exec 3<&0 </dev/null; exec sh /dev/fd/3"} }

// setting returns a line of a shell that sets a variable.
func setting(name, value string) string {
	return name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'\n"
}

var opIDForm = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// Install implements providers.Worker.
func (w Worker) Install(ctx context.Context, t providers.WorkerTarget, in providers.WorkerInstall) (providers.WorkerPhases, error) {
	info := Info()
	settings := map[string]string{
		"MODEL": in.Model, "API_KEY": t.APIKey.Reveal(), "TOKEN": in.Token.Reveal(), "INSTANCE": t.InstanceID, "HEARTBEAT_URL": in.HeartbeatURL,
		"AGENT_SHA256": info.Checksum, "AGENT": base64.StdEncoding.EncodeToString(agent), "CA": base64.StdEncoding.EncodeToString([]byte(in.CAPEM)),
		"VLLM_IMAGE": VLLMImage,
	}
	for name, value := range w.Env {
		settings[name] = value
	}
	var b strings.Builder
	names := make([]string, 0, len(settings))
	for name := range settings {
		names = append(names, name)
	}
	slices.Sort(names) // a repeated call is the same command
	for _, name := range names {
		b.WriteString(setting(name, settings[name]))
	}
	b.WriteString(script)
	var said output
	res, err := w.SSH.Exec(ctx, providers.MachineTarget{SSH: t.SSH}, providers.RemoteCommand{
		OpID: "install-" + opIDForm.ReplaceAllString(in.OpID, "-"), Script: b.String(), Secrets: []providers.Secret{t.APIKey, in.Token}, Timeout: installLimit,
	}, said.keepChunk)
	out := providers.WorkerPhases{Done: said.phases}
	if err != nil {
		return out, err
	}
	out.ExitStatus, out.Info = strconv.Itoa(res.ExitCode), info
	if res.ExitCode != 0 {
		last := "none"
		if n := len(out.Done); n > 0 {
			last = out.Done[n-1]
		}
		return out, &providers.Error{Kind: providers.KindExit, Op: "ssh.install", Message: fmt.Sprintf("the installation ended with exit status %d after phase %s: %s", res.ExitCode, last, tail(said.stderr))}
	}
	return out, nil
}

// output is what an installation has said so far. It is complete up to where the connection was
// lost, so an installation that is not read to its end has its phases too.
type output struct {
	phases         []string
	stdout, stderr []byte // the line that has not ended, and the last bytes
}

// Bounds of what is kept of the output of an installation, which a server may say at will.
const (
	maxPhases = 32
	maxLine   = 200
	keptTail  = 4 * maxTail
)

// keepChunk is a providers.OutputSink.
func (o *output) keepChunk(_ context.Context, c providers.OutputChunk) error {
	if c.Stream == providers.StreamStderr {
		o.stderr = append(o.stderr, c.Data...)
		o.stderr = o.stderr[max(0, len(o.stderr)-keptTail):]
		return nil
	}
	o.stdout = append(o.stdout, c.Data...)
	for {
		line, rest, ended := bytes.Cut(o.stdout, []byte("\n"))
		if !ended {
			break
		}
		name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "slipway-phase ")
		if ok && len(o.phases) < maxPhases && len(line) <= maxLine {
			o.phases = append(o.phases, name)
		}
		o.stdout = rest
	}
	o.stdout = o.stdout[:min(len(o.stdout), maxLine+1)]
	return nil
}

func tail(b []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "?")), " ")
	if len(text) > maxTail {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxTail:], "")
	}
	return text
}

// ReachSSH implements providers.Worker.
func (w Worker) ReachSSH(ctx context.Context, t providers.WorkerTarget) (bool, error) {
	res, err := w.SSH.RunSSH(ctx, t.SSH, providers.SSHCommand{Argv: []string{"true"}, Timeout: askLimit})
	return err == nil && res.ExitCode == 0, err
}

// ask has the server ask itself. The status and the body come back; an unanswered request is
// KindUnreachable.
func (w Worker) ask(ctx context.Context, t providers.WorkerTarget, port, usual int, path, body string) (int, []byte, error) {
	if port == 0 {
		port = usual
	}
	text := setting("KEY", t.APIKey.Reveal()) + setting("BODY", body) + setting("URL", "http://127.0.0.1:"+strconv.Itoa(port)+path) + `
set -- -sS --max-time 15 -o - -w '\n%{http_code}' -H @- "$URL"
[ -z "$BODY" ] || set -- -H 'Content-Type: application/json' --data "$BODY" "$@"
printf 'Authorization: Bearer %s\n' "$KEY" | curl "$@"
`
	res, err := w.SSH.RunSSH(ctx, t.SSH, providers.SSHCommand{Argv: stdinScript(), Stdin: []byte(text), Secrets: []providers.Secret{t.APIKey}, Timeout: askLimit})
	if err != nil {
		return 0, nil, err
	}
	out := strings.TrimSpace(string(res.Stdout))
	cut := strings.LastIndexByte(out, '\n')
	status, err := strconv.Atoi(out[cut+1:])
	if res.ExitCode != 0 || err != nil || status == 0 {
		return 0, nil, &providers.Error{Kind: providers.KindUnreachable, Op: "ssh.ask", Message: fmt.Sprintf("%s on port %d does not answer: %s", path, port, tail(res.Stderr))}
	}
	return status, []byte(out[:max(cut, 0)]), nil
}

// Readyz implements providers.Worker.
func (w Worker) Readyz(ctx context.Context, t providers.WorkerTarget) (bool, error) {
	status, _, err := w.ask(ctx, t, t.AgentPort, providers.WorkerAgentPort, "/readyz", "")
	return status == 200, err
}

func notOK(path string, status int) error {
	return &providers.Error{Kind: providers.KindUnavailable, Op: "ssh.ask", Status: status, Message: path + " is refused"}
}

// Models implements providers.Worker.
func (w Worker) Models(ctx context.Context, t providers.WorkerTarget) ([]string, error) {
	const path = "/v1/models"
	status, body, err := w.ask(ctx, t, t.VLLMPort, providers.WorkerVLLMPort, path, "")
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if status != 200 || json.Unmarshal(body, &list) != nil {
		return nil, notOK(path, status)
	}
	out := []string{}
	for _, m := range list.Data {
		out = append(out, m.ID)
	}
	return out, nil
}

// Complete implements providers.Worker.
func (w Worker) Complete(ctx context.Context, t providers.WorkerTarget, model string) error {
	const path = "/v1/completions"
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "Hello", "max_tokens": 1})
	if err != nil {
		return err
	}
	status, _, err := w.ask(ctx, t, t.VLLMPort, providers.WorkerVLLMPort, path, string(body))
	if err == nil && status != 200 {
		err = notOK(path, status)
	}
	return err
}

// Info implements providers.Worker.
func (w Worker) Info(ctx context.Context, t providers.WorkerTarget) (providers.WorkerInfo, error) {
	const path = "/info"
	status, body, err := w.ask(ctx, t, t.AgentPort, providers.WorkerAgentPort, path, "")
	if err != nil {
		return providers.WorkerInfo{}, err
	}
	var info providers.WorkerInfo
	if status != 200 || json.Unmarshal(body, &info) != nil {
		return providers.WorkerInfo{}, notOK(path, status)
	}
	return info, nil
}
