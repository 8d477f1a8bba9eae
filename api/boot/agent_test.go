package boot

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/pxetemplate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func caPEM(t *testing.T) string {
	t.Helper()
	ca, err := nodeca.Create()
	require.NoError(t, err)
	return string(ca.CertPEM())
}

// testUpdateKey is a public key that nobody has the other half of.
var testUpdateKey = base64.StdEncoding.EncodeToString(make([]byte, 32))

var fileInScript = regexp.MustCompile(`put (\S+) <<'END_OF_FILE'\n([A-Za-z0-9+/=\n]*)\nEND_OF_FILE\n`)

// carried reads the files that an install script carries.
func carried(t *testing.T, script string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range fileInScript.FindAllStringSubmatch(script, -1) {
		raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(m[2], "\n", ""))
		require.NoError(t, err)
		out[m[1]] = string(raw)
	}
	return out
}

// enrolment is the hash of the token that a script carries.
func enrolment(t *testing.T, script string) []byte {
	t.Helper()
	h := sha256.Sum256([]byte(strings.TrimSpace(carried(t, script)["token"])))
	return h[:]
}

func (s *site) redeem(hash []byte) db.TokenOutcome {
	s.Helper()
	var out db.TokenOutcome
	require.NoError(s, s.store.Tx(s.Context(), func(tx *db.Tx) error {
		var err error
		_, out, err = tx.RedeemEnrollmentToken(s.Context(), hash, []byte("a key"), 1)
		return err
	}))
	return out
}

func (s *site) report(mac, token string, status lifecycle.InstallStatus) {
	s.Helper()
	hash, ok := tokenHash(token)
	require.True(s, ok)
	require.NoError(s, s.store.Tx(s.Context(), func(tx *db.Tx) error {
		_, e, err := tx.ReportInstall(s.Context(), db.InstallReport{TokenHash: hash, MAC: mac, Status: status})
		if e == lifecycle.ReportIgnored {
			return fmt.Errorf("%s was ignored", status)
		}
		return err
	}))
}

func TestTheAgentIsHandedOutWithItsOwnToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	id, mac := s.node(lifecycle.NodePending)
	token := tokenInScript.FindString(s.script(mac))
	ask := func(want int) string {
		t.Helper()
		status, h, body := s.get("/boot/" + token + "/install-agent")
		require.Equal(t, want, status, body)
		if status != http.StatusOK {
			return ""
		}
		require.Equal(t, "no-store", h.Get("Cache-Control"))
		require.Equal(t, strconv.Itoa(len(body)), h.Get("Content-Length"))
		return body
	}
	ask(http.StatusConflict) // nothing was reported: no agent enrols in pending
	s.report(mac, token, lifecycle.InstallStarted)
	lost, script := ask(http.StatusOK), ask(http.StatusOK)
	require.True(t, strings.HasPrefix(script, "#!/bin/sh\n"))
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(carried(t, script)["agent.yaml"]), &config))
	require.Equal(t, []any{"https://slipway.example:8443", id, true, "7s", []any{"ops"}, testUpdateKey},
		[]any{config["server_url"], config["node_id"], config["simulated"], config["heartbeat_interval"], config["platform_users"], config["update_key"]})
	require.NotContains(t, carried(t, script), "download", "the image holds it")
	require.Equal(t, db.TokenRevoked, s.redeem(enrolment(t, lost)))
	n, err := s.store.Node(t.Context(), id)
	require.NoError(t, err)
	require.True(t, n.Simulated, "as its agent's workflow says")

	s.report(mac, token, lifecycle.InstallComplete)
	script = ask(http.StatusOK) // the installed system, at its first boot
	require.Contains(t, s.script(mac), diskScript)
	require.Equal(t, db.TokenFirst, s.redeem(enrolment(t, script)))
	ask(http.StatusNotFound)
	status, _, _ := s.get("/boot/" + token + "/user-data")
	require.Equal(t, http.StatusNotFound, status, "the attempt is over")

	require.NotContains(t, s.log.String(), strings.TrimSpace(carried(t, script)["token"]))
	require.NotRegexp(t, tokenInScript, s.log.String())
	for _, bad := range []string{"pxe_" + strings.Repeat("a", 43), "x", "pxe_..%2f"} {
		status, _, _ := s.get("/boot/" + bad + "/install-agent")
		require.Equal(t, http.StatusNotFound, status)
	}
}

// Where the agent is not configured, no token is made and none is ended.
func TestAnAgentThatCannotBeHandedOut(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		change func(*Config)
		agent  *spec.InstallAgent
		status int
	}{
		"no agent block":       {nil, nil, http.StatusNotFound},
		"the log of the":       {func(c *Config) { c.AgentURL = "" }, &spec.InstallAgent{}, http.StatusInternalServerError},
		"Something went wrong": {func(c *Config) { c.AgentCAPEM = "" }, &spec.InstallAgent{}, http.StatusInternalServerError},
	} {
		s := newSite(t, c.change)
		id, mac := s.node(lifecycle.NodeInstalling)
		p, err := s.store.PXENode(t.Context(), id)
		require.NoError(t, err)
		w, err := s.store.InstallWorkflow(t.Context(), *p.InstallWorkflowID)
		require.NoError(t, err)
		w.Spec.Agent = c.agent
		_, err = s.store.UpdateInstallWorkflow(t.Context(), w.ID, w.Version, w.Name, w.Spec)
		require.NoError(t, err)
		held := sha256.Sum256([]byte("held"))
		require.NoError(t, s.store.Tx(t.Context(), func(tx *db.Tx) error {
			now, err := tx.Clock(t.Context())
			if err != nil {
				return err
			}
			return tx.IssueEnrollmentToken(t.Context(), id, "", held[:], now.Add(enrolmentLife))
		}))
		status, _, body := s.get("/boot/" + tokenInScript.FindString(s.script(mac)) + "/install-agent")
		require.Equal(t, c.status, status)
		require.Contains(t, body, says)
		open, err := s.store.OpenEnrollmentTokens(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 1, open)
		require.Equal(t, db.TokenFirst, s.redeem(held[:]))
	}
}

// The command as it stands in user-data: read as YAML and run by a shell, with
// either tool, against a server that first does not answer as it should.
func TestTheCommandThatInstallsTheAgent(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "wget"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Logf("%s is not on this machine: the command was not run with it", tool)
			continue
		}
		var asked atomic.Int64
		answer := "#!/bin/sh\nstat -c %a \"$0\" >\"$OUT/mode\"\necho it\\'s done >\"$OUT/done\"\n"
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/boot/pxe_x/install-agent", r.URL.Path)
			switch asked.Add(1) {
			case 1:
				http.Error(w, "no", http.StatusTooManyRequests)
			case 2: // the connection breaks
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte("#!/bin/sh\necho half >\"$OUT/half\"\n"))
			default:
				write(w, answer)
			}
		}))
		bin, out := t.TempDir(), t.TempDir()
		require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
		for _, p := range []string{"sh", "mktemp", "rm", "stat", "timeout"} {
			at, err := exec.LookPath(p)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(at, filepath.Join(bin, p)))
		}
		require.NoError(t, os.WriteFile(filepath.Join(bin, "sleep"), []byte("#!/bin/sh\n"), 0o755))
		run := func() error {
			text, err := pxetemplate.UserData{SeedURL: pxetemplate.Plain(srv.URL + "/boot/pxe_x/")}.Render("#cloud-config\nrun:\n  - {{ install_agent }}\n")
			require.NoError(t, err)
			var doc struct{ Run []string }
			require.NoError(t, yaml.Unmarshal([]byte(text), &doc), text)
			require.Len(t, doc.Run, 1)
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sh"), "-c", doc.Run[0])
			cmd.Env = []string{"PATH=" + bin, "OUT=" + out, "TMPDIR=" + out, "no_proxy=*"}
			said, err := cmd.CombinedOutput()
			t.Logf("%s said %.120q", tool, said)
			return err
		}
		require.NoError(t, run())
		require.EqualValues(t, 3, asked.Load())
		left, err := os.ReadDir(out)
		require.NoError(t, err)
		require.Len(t, left, 2, "the file with the token is gone, and half of one was not run")
		mode, err := os.ReadFile(filepath.Join(out, "mode"))
		require.NoError(t, err)
		require.Equal(t, "600\n", string(mode))

		answer = "#!/bin/sh\nexit 3\n"
		require.ErrorContains(t, run(), "exit status 3", "the installation sees it")
		srv.Close()
		require.ErrorContains(t, run(), "exit status 1", "it ends")
	}
}
