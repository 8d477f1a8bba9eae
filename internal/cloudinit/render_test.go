package cloudinit_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/taskhandlers"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

const token = "one-time-TOKEN_$(id)`id`'\"\\"

func input(t *testing.T) cloudinit.Input {
	t.Helper()
	host, _, err := cloudinit.NewHostKey()
	require.NoError(t, err)
	_, login, err := cloudinit.NewHostKey()
	require.NoError(t, err)
	return cloudinit.Input{Hostname: "gpu-01", User: "slipway", AuthorizedKeys: []string{login}, HostKey: host,
		Agent: cloudinit.Agent{ServerURL: "https://slipway.example:7443", CAPEM: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
			NodeID: "node_01", Token: providers.NewSecret(token), HeartbeatInterval: 5 * time.Second}}
}

// readPart is a part as any MIME reader sees it.
type readPart struct {
	kind, name, merge string
	body              []byte
}

// read takes user-data apart with the standard library's mail and MIME readers,
// which know nothing of this package.
func read(t *testing.T, raw []byte) []readPart {
	t.Helper()
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	require.NoError(t, err)
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "multipart/mixed", kind)
	mr := multipart.NewReader(msg.Body, params["boundary"])
	var out []readPart
	for {
		p, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		require.Equal(t, "base64", p.Header.Get("Content-Transfer-Encoding"))
		body, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, p))
		require.NoError(t, err)
		kind, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		require.NoError(t, err)
		out = append(out, readPart{kind, p.FileName(), p.Header.Get("Merge-Type"), body})
	}
}

func config(t *testing.T, p readPart) map[string]any {
	t.Helper()
	require.Equal(t, "text/cloud-config", p.kind)
	require.True(t, bytes.HasPrefix(p.body, []byte("#cloud-config\n")))
	var m map[string]any
	require.NoError(t, yaml.Unmarshal(p.body, &m))
	return m
}

func render(t *testing.T, in cloudinit.Input) []readPart {
	t.Helper()
	raw, err := cloudinit.Render(in)
	require.NoError(t, err)
	return read(t, raw)
}

func TestWhoMayLogInAndUnderWhichHostKey(t *testing.T) {
	t.Parallel()
	in := input(t)
	parts := render(t, in)
	require.Len(t, parts, 2)
	c := config(t, parts[0])
	require.Equal(t, "gpu-01", c["hostname"])
	keys := c["ssh_keys"].(map[string]any)
	signer, err := ssh.ParsePrivateKey([]byte(keys["ed25519_private"].(string)))
	require.NoError(t, err)
	require.Equal(t, keys["ed25519_public"], strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))))
	users := c["users"].([]any)
	require.Equal(t, "default", users[0], "the image's own user, whom MAAS names, stays")
	u := users[1].(map[string]any)
	require.Equal(t, "slipway", u["name"])
	require.Equal(t, []any{in.AuthorizedKeys[0]}, u["ssh_authorized_keys"])
	require.Equal(t, true, u["lock_passwd"])

	in.User = ""
	c = config(t, render(t, in)[0])
	require.NotContains(t, c, "users")
	require.Equal(t, []any{in.AuthorizedKeys[0]}, c["ssh_authorized_keys"])
}

func TestSameInputSameBytes(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Bundle = []byte("#!/bin/sh\necho site\n")
	a, err := cloudinit.Render(in)
	require.NoError(t, err)
	b, err := cloudinit.Render(in)
	require.NoError(t, err)
	require.Equal(t, a, b)
	in.Hostname = "gpu-02"
	c, err := cloudinit.Render(in)
	require.NoError(t, err)
	require.NotEqual(t, a, c)
}

func TestHostileValuesStayValues(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{
		"a: b", "- x", "x # y", "yes", "0x10", "1e3", "~", "*alias", "&anchor", "!!python/object:os.system", "%YAML 1.1",
		"a\nruncmd:\n- reboot", "a\r\n--slipway-00\r\n", "'; reboot; '", "\"$(reboot)\"", "END_OF_FILE", "| \n x", "\ttab", "\u2028", "{a: 1}", "${HOME}", "\x00\x01", "é漢",
	} {
		in := input(t)
		in.Hostname = evil
		in.Agent.NodeID = evil
		in.Agent.CAPEM = evil
		in.Agent.Token = providers.NewSecret(evil)
		raw, err := cloudinit.Render(in)
		require.NoError(t, err, "%q", evil)
		parts := read(t, raw)
		require.Len(t, parts, 2, "%q", evil)
		c := config(t, parts[0])
		require.Equal(t, evil, c["hostname"])
		require.NotContains(t, c, "runcmd")
		root, calls := install(t, parts[1], nil)
		got := load(t, root)
		require.Equal(t, evil, got.NodeID)
		require.Equal(t, evil, got.CAPEM)
		require.Equal(t, allStarted, calls)
		left, err := os.ReadFile(filepath.Join(root, cloudinit.TokenPath))
		require.NoError(t, err)
		require.Equal(t, evil+"\n", string(left))
	}
}

// install runs the script part as cloud-init does, below a root of its own,
// with programs that only note how they were called.
func install(t *testing.T, p readPart, env []string) (root, calls string) {
	t.Helper()
	root, calls, err := tryInstall(t, p, env)
	require.NoError(t, err)
	return root, calls
}

// imageAgent is the agent that the image of tryInstall holds.
const imageAgent = "#!/bin/sh\necho the image's agent\n"

// emptyImage stands in an environment for an image without an agent.
const emptyImage = "EMPTY_IMAGE=1"

func tryInstall(t *testing.T, p readPart, env []string) (root, calls string, err error) {
	t.Helper()
	require.Equal(t, "text/x-shellscript", p.kind)
	dir := t.TempDir()
	root = filepath.Join(dir, "root")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	// No process is forked while a program is open for writing: one that holds it open would keep
	// it from being run ("text file busy").
	syscall.ForkLock.RLock()
	note := "#!/bin/sh\necho \"${0##*/} $*\" >>'" + dir + "/calls'\n"
	for name, then := range map[string]string{"systemctl": "", "useradd": "touch '" + dir + "/account'\n", "getent": "test -e '" + dir + "/account'\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", name), []byte(note+then), 0o755))
	}
	if !slices.Contains(env, emptyImage) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(cloudinit.AgentPath)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, cloudinit.AgentPath), []byte(imageAgent), 0o755))
	}
	script := filepath.Join(dir, "part-001")
	require.NoError(t, os.WriteFile(script, p.body, 0o700))
	syscall.ForkLock.RUnlock()
	var out []byte
	for range 2 { // the second time as after a boot that was cut short
		_ = os.Remove(filepath.Join(dir, "calls"))
		cmd := exec.CommandContext(t.Context(), script)
		cmd.Env = append([]string{"SLIPWAY_ROOT=" + root, "PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin"}, env...)
		cmd.Dir = dir
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
			break
		}
	}
	require.NoDirExists(t, filepath.Join(root, "run/slipway-install"), "nothing secret is left behind")
	raw, _ := os.ReadFile(filepath.Join(dir, "calls"))
	return root, string(raw), err
}

// allStarted is what a repeated installation asks of the machine.
const allStarted = "getent passwd slipway-agent\nsystemctl daemon-reload\n" +
	"systemctl enable slipway-agent-helper.socket slipway-agent-helper.service slipway-agent-metadata.socket slipway-agent.service\n" +
	"systemctl restart --no-block slipway-agent-helper.socket\nsystemctl restart --no-block slipway-agent-helper.service\n" +
	"systemctl restart --no-block slipway-agent-metadata.socket\nsystemctl restart --no-block slipway-agent.service\n"

func load(t *testing.T, root string) agentconfig.Config {
	t.Helper()
	c, err := agentconfig.Load(filepath.Join(root, cloudinit.AgentConfigPath), nil)
	require.NoError(t, err)
	return c
}

func TestBothHalvesOfTheAgentAreInstalled(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Agent.PlatformUsers = []string{"ops", "slipway"}
	in.Agent.UpdateKey = base64.StdEncoding.EncodeToString(make([]byte, 32))
	root, calls := install(t, render(t, in)[1], nil)
	require.Equal(t, allStarted, calls)
	require.FileExists(t, filepath.Join(filepath.Dir(root), "account"), "useradd was run, once")
	c := load(t, root)
	require.Equal(t, in.Agent.ServerURL, c.ServerURL)
	require.Equal(t, in.Agent.CAPEM, c.CAPEM)
	require.Equal(t, "node_01", c.NodeID)
	require.Equal(t, 5*time.Second, c.HeartbeatInterval)
	require.False(t, c.Simulated)
	require.Equal(t, "/", c.Root)
	require.Equal(t, []string{"ops", "slipway"}, c.PlatformUsers, "the site's login is no tenant")
	require.Equal(t, in.Agent.UpdateKey, c.UpdateKey)
	require.Equal(t, cloudinit.TokenPath, c.TokenFile)
	for path, mode := range map[string]os.FileMode{cloudinit.AgentConfigPath: 0o640, cloudinit.TokenPath: 0o600, "/opt/slipway-agent/guard": 0o755,
		"/opt/slipway-agent/a/slipway-agent": 0o755, cloudinit.StateDir: 0o700, "/var/lib/slipway-agent-helper": 0o700} {
		st, err := os.Stat(filepath.Join(root, path))
		require.NoError(t, err)
		require.Equal(t, mode, st.Mode().Perm(), path)
	}
	got, err := os.ReadFile(filepath.Join(root, c.TokenFile))
	require.NoError(t, err)
	require.Equal(t, token+"\n", string(got))
	got, err = os.ReadFile(filepath.Join(root, "opt/slipway-agent/current/slipway-agent"))
	require.NoError(t, err)
	require.Equal(t, imageAgent, string(got))
	for _, name := range taskhandlers.Units() {
		unit, err := os.ReadFile(filepath.Join(root, "etc/systemd/system", name))
		require.NoError(t, err)
		same, err := os.ReadFile("../../deploy/agent/" + name)
		require.NoError(t, err)
		require.Equal(t, string(same), string(unit))
	}
	socket, err := os.ReadFile(filepath.Join(root, "etc/systemd/system/slipway-agent-helper.socket"))
	require.NoError(t, err)
	require.Contains(t, string(socket), "ListenStream="+c.HelperSocket+"\n", "the network half asks where systemd listens")
	verify(t, root)
}

// verify lets systemd itself read the units where they were put.
func verify(t *testing.T, root string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not on this machine: the units were not read by systemd")
		return
	}
	dir := filepath.Join(root, "etc/systemd/system")
	args := []string{"verify", "--man=no"}
	for _, name := range taskhandlers.Units() {
		path := filepath.Join(dir, name)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		// They name the programs of the node, which lie below the root here.
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), "/opt/slipway-agent/", root+"/opt/slipway-agent/")), 0o644))
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), analyze, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "slipway-agent", "systemd says something of the units")
}

func TestASimulatedNodeHasOneHalf(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Agent.Simulated = true
	root, calls := install(t, render(t, in)[1], nil)
	require.NotContains(t, calls, "helper")
	require.Contains(t, calls, "systemctl restart --no-block slipway-agent.service\n")
	require.Empty(t, load(t, root).HelperSocket)
	require.NoFileExists(t, filepath.Join(root, "etc/systemd/system/slipway-agent-helper.service"))
}

func TestTheInstallScriptAloneIsThatOfTheDocument(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Agent.PlatformUsers = []string{cloudinit.DefaultUser} // Render adds the site's login
	in.User = ""
	script, err := cloudinit.InstallScript(in.Agent)
	require.NoError(t, err)
	require.Equal(t, string(render(t, in)[1].body), string(script))

	for name, change := range map[string]func(*cloudinit.Agent){
		"no server": func(a *cloudinit.Agent) { a.ServerURL = "" },
		"no token":  func(a *cloudinit.Agent) { a.Token = providers.Secret{} },
		"no sum":    func(a *cloudinit.Agent) { a.BinaryURL = "https://images.example/agent" },
	} {
		a := in.Agent
		change(&a)
		_, err := cloudinit.InstallScript(a)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), token)
	}
}

func TestAgentIsFetchedAndItsSumIsChecked(t *testing.T) {
	t.Parallel()
	binary := []byte("#!/bin/sh\necho the agent\n")
	fetches := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fetches++; _, _ = w.Write(binary) }))
	defer srv.Close()
	sum := sha256.Sum256(binary)
	in := input(t)
	in.Agent.BinaryURL, in.Agent.BinarySHA256 = srv.URL+"/agent?x=$(id)&y='z'", hex.EncodeToString(sum[:])
	const installed = "/opt/slipway-agent/current/slipway-agent"
	for _, env := range [][]string{{"no_proxy=*"}, {"no_proxy=*", emptyImage}} {
		fetches = 0
		root, calls := install(t, render(t, in)[1], env)
		got, err := os.ReadFile(filepath.Join(root, installed))
		require.NoError(t, err)
		require.Equal(t, binary, got)
		require.Equal(t, allStarted, calls)
		require.Equal(t, 1, fetches, "what is right already is not fetched again")
	}
	in.Agent.BinarySHA256 = strings.Repeat("0", 64)
	root, calls, err := tryInstall(t, render(t, in)[1], []string{"no_proxy=*"})
	require.ErrorContains(t, err, "expected sha256")
	require.NoFileExists(t, filepath.Join(root, installed))
	require.Empty(t, calls, "nothing is started")

	in.Agent.BinaryURL = ""
	_, calls, err = tryInstall(t, render(t, in)[1], []string{emptyImage})
	require.ErrorContains(t, err, "the image holds no agent")
	require.Empty(t, calls)
}

func TestAnArchiveHoldsBothPrograms(t *testing.T) {
	t.Parallel()
	for name, programs := range map[string]map[string]string{
		"both": {"slipway-agent": "the agent", "slipway-gpu-pattern": "the pattern"}, "the agent alone": {"slipway-agent": "the agent"},
	} {
		var archive bytes.Buffer
		gz := gzip.NewWriter(&archive)
		w := tar.NewWriter(gz)
		for file, content := range programs {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(content))}))
			_, err := w.Write([]byte(content))
			require.NoError(t, err)
		}
		require.NoError(t, errors.Join(w.Close(), gz.Close()))
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive.Bytes()) }))
		defer srv.Close()
		sum := sha256.Sum256(archive.Bytes())
		in := input(t)
		in.Agent.BinaryURL, in.Agent.BinarySHA256 = srv.URL+"/slipway-agent.tar.gz", hex.EncodeToString(sum[:])
		root, calls := install(t, render(t, in)[1], []string{"no_proxy=*", emptyImage})
		require.Equal(t, allStarted, calls, name)
		got, err := os.ReadFile(filepath.Join(root, "opt/slipway-agent/current/slipway-agent"))
		require.NoError(t, err)
		require.Equal(t, "the agent", string(got), name)
		got, _ = os.ReadFile(filepath.Join(root, "usr/local/bin/slipway-gpu-pattern"))
		require.Equal(t, programs["slipway-gpu-pattern"], string(got), name)
	}
}

func TestTheSiteBundleIsAPartOfItsOwn(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Bundle = []byte("#!/bin/sh\n--slipway-\necho site\n")
	p := render(t, in)[2]
	require.Equal(t, readPart{"text/x-shellscript", "site-bundle.sh", "", in.Bundle}, p)

	in.Bundle = []byte("#cloud-config\npackages: [jq]\nhostname: other\n")
	p = render(t, in)[2]
	require.Equal(t, "text/cloud-config", p.kind)
	require.Equal(t, in.Bundle, p.body)
	require.Equal(t, "list(append)+dict(no_replace,recurse_list)+str()", p.merge, "it adds and never replaces")

	for name, bad := range map[string]string{
		"hardware sync": "#cloud-config\nruncmd: [[reboot]]\n", "files": "#cloud-config\nwrite_files: []\n",
		"merge": "#cloud-config\nmerge_how: dict(replace)\n", "user": "#cloud-config\nsystem_info: {}\n",
		"kind": "hello", "mime": "Content-Type: multipart/mixed\n\n", "yaml": "#cloud-config\n- a\n", "jsonp": "#cloud-config-jsonp\n[]\n",
	} {
		in.Bundle = []byte(bad)
		_, err := cloudinit.Render(in)
		require.Error(t, err, name)
	}
	in.Bundle = append([]byte("#!/bin/sh\n"), make([]byte, cloudinit.MaxSize)...)
	_, err := cloudinit.Render(in)
	require.ErrorContains(t, err, "smaller")
}

func TestInputThatIsRefusedWithoutTellingSecrets(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cloudinit.Input){
		"user":            func(in *cloudinit.Input) { in.User = "root; reboot" },
		"hostname":        func(in *cloudinit.Input) { in.Hostname = "" },
		"key":             func(in *cloudinit.Input) { in.AuthorizedKeys = []string{"ssh-ed25519 nonsense"} },
		"two keys in one": func(in *cloudinit.Input) { in.AuthorizedKeys[0] += "\n" + in.AuthorizedKeys[0] },
		"key options":     func(in *cloudinit.Input) { in.AuthorizedKeys[0] = `command="reboot" ` + in.AuthorizedKeys[0] },
		"host key":        func(in *cloudinit.Input) { in.HostKey = providers.NewSecret("SECRET-HOST-KEY") },
		"server":          func(in *cloudinit.Input) { in.Agent.ServerURL = "http://x" },
		"token":           func(in *cloudinit.Input) { in.Agent.Token = providers.Secret{} },
		"url": func(in *cloudinit.Input) {
			in.Agent.BinaryURL = "ftp://x"
			in.Agent.BinarySHA256 = strings.Repeat("a", 64)
		},
		"url newline": func(in *cloudinit.Input) {
			in.Agent.BinaryURL = "http://x/\nq"
			in.Agent.BinarySHA256 = strings.Repeat("a", 64)
		},
		"sum": func(in *cloudinit.Input) { in.Agent.BinaryURL = "http://x/q" },
	} {
		in := input(t)
		change(&in)
		_, err := cloudinit.Render(in)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), token)
		require.NotContains(t, err.Error(), "SECRET-HOST-KEY")
	}
}

// TestWhatMAASInstallsSurvives merges as cloud-init does (read in and run with
// 22.4.2): user-data first, then vendor-data by the default mergers, under
// which a key that is there already keeps its lists.
func TestWhatMAASInstallsSurvives(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Bundle = []byte("#cloud-config\npackages: [jq]\n")
	vendor := map[string]any{"write_files": []any{"hw-sync unit"}, "runcmd": []any{"enable hw-sync"}, "ntp": "maas", "system_info": "default user"}
	merged := map[string]any{}
	for _, p := range render(t, in) {
		if p.kind == "text/cloud-config" {
			for k, v := range config(t, p) {
				merged[k] = v
			}
		}
	}
	for k, v := range vendor {
		if _, there := merged[k]; !there {
			merged[k] = v
		}
	}
	for k, v := range vendor {
		require.Equal(t, v, merged[k], k)
	}
}
