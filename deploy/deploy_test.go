// Package deploy holds what runs Slipway outside a checkout. There is no code in it, only this
// check that the files fit each other and the programs.
package deploy

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/deploy/agent"
)

const root = ".."

// dependency is the long form of depends_on.
type dependency struct {
	Condition string `yaml:"condition"`
}

type build struct {
	Dockerfile string            `yaml:"dockerfile"`
	Args       map[string]string `yaml:"args"`
}

type service struct {
	Image       string                `yaml:"image"`
	Build       *build                `yaml:"build"`
	Command     []string              `yaml:"command"`
	Entrypoint  []string              `yaml:"entrypoint"`
	Environment map[string]string     `yaml:"environment"`
	Secrets     []string              `yaml:"secrets"`
	Volumes     []string              `yaml:"volumes"`
	Ports       []string              `yaml:"ports"`
	DependsOn   map[string]dependency `yaml:"depends_on"`
	Restart     string                `yaml:"restart"`
	ReadOnly    bool                  `yaml:"read_only"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
}

type composeFile struct {
	Services map[string]service                      `yaml:"services"`
	Secrets  map[string]struct{ File string }        `yaml:"secrets"`
	Volumes  map[string]map[string]map[string]string `yaml:"volumes"`
}

func compose(t *testing.T) composeFile {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docker-compose.yaml"))
	require.NoError(t, err)
	var file composeFile
	require.NoError(t, yaml.Unmarshal(content, &file))
	return file
}

func TestComposeFitsTogether(t *testing.T) {
	t.Parallel()
	file := compose(t)
	require.Subset(t, slices.Collect(maps.Keys(file.Services)), []string{"postgres", "temporal", "temporal-ui", "migrate", "api", "worker"})
	for name, s := range file.Services {
		require.NotContains(t, s.Image, "latest", name)
		require.Regexp(t, `:\S+$`, s.Image, "%s: pin a version", name)
		for on, dep := range s.DependsOn {
			target, ok := file.Services[on]
			require.True(t, ok, "%s depends on %s, which is not there", name, on)
			switch dep.Condition {
			case "service_healthy":
				require.NotEmpty(t, target.Healthcheck.Test, "%s waits for the health of %s, which tells none", name, on)
			case "service_started":
			case "service_completed_successfully":
				require.NotEqual(t, "unless-stopped", target.Restart, "%s waits for the end of %s, which has none", name, on)
			default:
				t.Errorf("%s depends on %s: unknown condition %q", name, on, dep.Condition)
			}
		}
		for _, secret := range s.Secrets {
			require.Contains(t, file.Secrets, secret, name)
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if strings.HasPrefix(source, ".") {
				require.DirExists(t, filepath.Join(root, source), name)
			} else {
				require.Contains(t, file.Volumes, source, name)
			}
		}
		for key, value := range s.Environment {
			if mountsTLS(s, value) {
				continue
			}
			require.NotContains(t, value, tlsDir, "%s: %s names a folder that is not mounted", name, key)
			if strings.HasSuffix(key, "_FILE") && !strings.HasSuffix(key, "_KEY_FILE") {
				secret, ok := strings.CutPrefix(value, "/run/secrets/")
				require.True(t, ok, "%s: %s", name, key)
				require.Contains(t, s.Secrets, secret, "%s: %s", name, key)
			}
			require.NotRegexp(t, `(?i)(password|pwd|secret|key)$`, key, "%s: secrets come by file", name)
		}
	}
	for _, long := range []string{"postgres", "temporal", "api", "worker"} {
		require.NotEmpty(t, file.Services[long].Healthcheck.Test, long)
		require.Equal(t, "unless-stopped", file.Services[long].Restart, long)
	}
	require.Empty(t, file.Services["postgres"].Ports, "the database is reached from inside only")
	require.Empty(t, file.Services["temporal"].Ports, "Temporal is reached from inside only")
}

// tlsDir is where the volumes of certificates are mounted.
const tlsDir = "/var/lib/slipway-tls"

// mountsTLS reports whether value is a file of a volume of certificates that the service mounts.
func mountsTLS(s service, value string) bool {
	return slices.ContainsFunc(s.Volumes, func(volume string) bool {
		parts := strings.Split(volume, ":")
		return strings.HasPrefix(parts[1], tlsDir+"/") && strings.HasPrefix(value, parts[1]+"/")
	})
}

// TestCompose_TemporalAsksForCertificates: without a client certificate nobody reaches a workflow,
// and without a password nobody reaches the Web UI, which has one.
func TestCompose_TemporalAsksForCertificates(t *testing.T) {
	t.Parallel()
	file := compose(t)
	server := file.Services["temporal"].Environment
	require.Equal(t, "true", server["TEMPORAL_TLS_REQUIRE_CLIENT_AUTH"])

	// The files that the one-shot service makes are those that the others name.
	made := filepath.Join(t.TempDir(), "tls")
	for _, folder := range []string{"ca", "server", "client"} {
		require.NoError(t, os.MkdirAll(filepath.Join(made, folder), 0o755))
		require.Contains(t, containerfile(t), tlsDir+"/"+folder, "the image has the folder, so that the volume is the user's")
	}
	certs := file.Services["temporal-certs"]
	require.Equal(t, []string{"temporal-certs"}, certs.Command)
	out, err := exec.CommandContext(t.Context(), slipwayd(t), "temporal-certs", "--dir", made).CombinedOutput()
	require.NoError(t, err, string(out))
	clients := 0
	for name, s := range file.Services {
		for key, value := range s.Environment {
			if path, ok := strings.CutPrefix(value, tlsDir); ok {
				require.FileExists(t, filepath.Join(made, path), "%s: %s", name, key)
			}
		}
		for _, volume := range s.Volumes {
			require.False(t, strings.HasPrefix(volume, "temporal-ca:") && name != "temporal-certs", "%s mounts the authority", name)
			require.False(t, strings.HasPrefix(volume, "temporal-server-tls:") && name != "temporal-certs" && name != "temporal", "%s mounts the server's key", name)
		}
		if address := s.Environment["TEMPORAL_ADDRESS"] + s.Environment["SLIPWAY_TEMPORAL_ADDRESS"]; address != "" {
			clients++
			require.Contains(t, strings.Join(s.Volumes, " "), "temporal-client-tls:"+tlsDir+"/client:ro", "%s reaches Temporal and has no certificate", name)
		}
	}
	require.Equal(t, 7, clients)
	leaf, err := os.ReadFile(filepath.Join(made, "server", "tls.crt"))
	require.NoError(t, err)
	block, _ := pem.Decode(leaf)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	for _, name := range []string{server["TEMPORAL_TLS_FRONTEND_SERVER_NAME"], server["TEMPORAL_TLS_INTERNODE_SERVER_NAME"], "temporal"} {
		require.NoError(t, cert.VerifyHostname(name))
	}

	require.Empty(t, file.Services["temporal-ui"].Ports, "the Web UI has no login of its own")
	login := file.Services["temporal-ui-login"]
	require.Contains(t, login.Secrets, "temporal_ui_password")
	caddy, err := os.ReadFile("temporal/Caddyfile")
	require.NoError(t, err)
	require.Regexp(t, `(?s)basic_auth \{\s+\{\$TEMPORAL_UI_USER\} \{\$TEMPORAL_UI_HASH\}\s+\}\s+reverse_proxy temporal-ui:8080`, string(caddy))
	require.Contains(t, login.Environment, "TEMPORAL_UI_USER", "an empty user would be no login")
}

// TestCompose_TemporalReadsItsTLSSettings: a misspelt variable would leave TLS off without a word.
func TestCompose_TemporalReadsItsTLSSettings(t *testing.T) {
	t.Parallel()
	file := compose(t)
	for name, c := range map[string]struct{ module, template string }{
		"temporal":    {"go.temporal.io/server", "common/config/config_template_embedded.yaml"},
		"temporal-ui": {"github.com/temporalio/ui-server/v2", "config/docker.yaml"},
	} {
		find := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", c.module)
		find.Dir, find.Env = filepath.Join(root, "dev"), append(os.Environ(), "GOWORK=off")
		out, err := find.CombinedOutput()
		require.NoError(t, err, string(out))
		version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		require.NotEmpty(t, dir, "the dev module's dependencies are not downloaded: go -C dev mod download")
		require.Contains(t, file.Services[name].Image, strings.TrimPrefix(version, "v"), "the template is that of the image's version")
		template, err := os.ReadFile(filepath.Join(dir, c.template))
		require.NoError(t, err)
		for key := range file.Services[name].Environment {
			if strings.HasPrefix(key, "TEMPORAL_TLS_") {
				require.Contains(t, string(template), `env "`+key+`"`, name)
			}
		}
	}
}

func TestComposeRunsSubcommandsThatExist(t *testing.T) {
	t.Parallel()
	commands := map[string]string{"the image's default": defaultCommand(t)}
	for name, s := range ours(compose(t)) {
		require.Len(t, s.Command, 1, name)
		require.True(t, s.ReadOnly, name)
		if name == "temporal-certs" {
			continue // it has no configuration; TestCompose_TemporalAsksForCertificates runs it
		}
		commands[name] = s.Command[0]
		if s.Build != nil {
			require.Equal(t, "deploy/Containerfile", s.Build.Dockerfile, name)
			require.Equal(t, s.Image, "slipway:"+s.Build.Args["VERSION"], "%s: the program knows the version that its image is tagged with", name)
		}
	}
	require.Len(t, commands, 5)
	binary := slipwayd(t)
	for name, command := range commands {
		require.Contains(t, parts(), command, name)
		out, err := exec.CommandContext(t.Context(), binary, command, "--help").CombinedOutput()
		require.NoError(t, err, "%s: slipwayd %s --help: %s", name, command, out)
		require.Contains(t, string(out), "slipwayd "+command+" [flags]", "%s: slipwayd has no command %s", name, command)
	}
	out, err := exec.CommandContext(t.Context(), binary, "dance").CombinedOutput()
	require.Error(t, err, "slipwayd ends with an error at a command that it does not know: %s", out)
}

// ours are the services that run Slipway's image.
func ours(file composeFile) map[string]service {
	found := map[string]service{}
	for name, s := range file.Services {
		if strings.HasPrefix(s.Image, "slipway:") {
			found[name] = s
		}
	}
	return found
}

func containerfile(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	return string(content)
}

func defaultCommand(t *testing.T) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^CMD \["([a-z]+)"\]$`).FindStringSubmatch(containerfile(t))
	require.Len(t, match, 2)
	return match[1]
}

func TestContainerfileIsStaticPinnedAndNotRoot(t *testing.T) {
	t.Parallel()
	text := containerfile(t)
	stages := regexp.MustCompile(`(?m)^FROM (\S+)( AS \S+)?$`).FindAllStringSubmatch(text, -1)
	require.Len(t, stages, 2)
	for _, stage := range stages {
		require.Regexp(t, `^docker\.io/.+:[0-9]`, stage[1])
	}
	require.Contains(t, text, "CGO_ENABLED=0")
	stamped := regexp.MustCompile(`-X \S+/(assembly/\w+)\.(\w+)=\$VERSION`).FindStringSubmatch(text)
	require.Len(t, stamped, 3)
	declared, err := exec.CommandContext(t.Context(), "go", "doc", "-C", root, "./"+stamped[1], stamped[2]).CombinedOutput()
	require.NoError(t, err, string(declared))
	require.Contains(t, string(declared), "var "+stamped[2]+" = ", "the linker sets a variable that is there")
	final := text[strings.LastIndex(text, "\nFROM "):]
	require.Regexp(t, `(?m)^USER [1-9][0-9]*:[1-9][0-9]*$`, final)
	require.Regexp(t, `(?m)^ENTRYPOINT \["/usr/local/bin/slipwayd"\]$`, final)
	for _, dir := range regexp.MustCompile(`\./cmd/[a-z-]+`).FindAllString(text, -1) {
		list := exec.CommandContext(t.Context(), "go", "list", "-find", "-f", "{{.Name}}", dir)
		list.Dir = root
		out, err := list.CombinedOutput()
		require.NoError(t, err, "the image is built from %s: %s", dir, out)
		require.Equal(t, "main", strings.TrimSpace(string(out)), dir)
	}

	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	require.Contains(t, stages[0][1], "golang:"+string(want[1]), "the image builds with the Go that go.mod asks for")
}

func TestTheImageHoldsTheAgentsInstaller(t *testing.T) {
	t.Parallel()
	text := containerfile(t)
	final := strings.ReplaceAll(text[strings.LastIndex(text, "\nFROM "):], "\\\n", " ")
	copied := regexp.MustCompile(`(?m)^COPY (deploy/agent/.*) /usr/local/share/slipway/agent/$`).FindStringSubmatch(final)
	require.Len(t, copied, 2)
	files, err := agent.Files()
	require.NoError(t, err)
	var want []string
	for _, f := range files {
		want = append(want, "deploy/agent/"+f.Name)
	}
	require.ElementsMatch(t, want, strings.Fields(copied[1]))
	require.Contains(t, text, "-X main.version=$VERSION", "the agent knows its version, without which it takes no update")
	require.Contains(t, text, "./cmd/slipway-agent")
	require.Contains(t, text, "./cmd/slipway-gpu-pattern")
}

func TestTheNamespaceScriptRegistersWhatWorkflowsSet(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("temporal/namespace.sh")
	require.NoError(t, err)
	registered := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^attribute (\w+) (\w+)$`).FindAllStringSubmatch(string(script), -1) {
		registered[match[1]] = match[2]
	}
	require.Equal(t, temporal.SearchAttributes(), registered)
}

func TestShellScriptsParse(t *testing.T) {
	t.Parallel()
	var scripts []string
	for _, pattern := range []string{"*.sh", "*/*.sh", "../scripts/*.sh", "../.ci/run"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		scripts = append(scripts, found...)
	}
	require.Greater(t, len(scripts), 6)
	for _, script := range scripts {
		content, err := os.ReadFile(script)
		require.NoError(t, err)
		shell := "sh"
		if strings.HasPrefix(string(content), "#!/usr/bin/env bash") {
			shell = "bash"
		}
		out, err := exec.CommandContext(t.Context(), shell, "-n", script).CombinedOutput()
		require.NoError(t, err, string(out))
		info, err := os.Stat(script)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&0o100, "%s is not executable", script)
	}
}

// The roles script must accept the secrets that init-secrets.sh makes on a real server, new or of
// an earlier installation: one connection string can migrate, and the other can serve.
func TestSecretsAndRolesWorkOnARealServer(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil && os.Getenv("SLIPWAY_REQUIRE_PEERS") == "" {
		t.Skip("psql is not installed (apt-get install postgresql-client), so the role script cannot be run")
	}
	require.NoError(t, err)
	dir := t.TempDir()
	script, err := os.ReadFile("init-secrets.sh")
	require.NoError(t, err)
	// Read by a shell rather than executed: while another test forks, a file that was just written
	// is busy.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "init.sh"), script, 0o600))
	run := func(cmd *exec.Cmd) string {
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	require.Equal(t, len(compose(t).Secrets), strings.Count(run(exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "init.sh"))), "made "))
	require.Empty(t, run(exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "init.sh"))), "the second run changes nothing")

	srv, err := pg.Start(t.Context(), pg.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	roles, err := os.ReadFile("postgres/10-roles.sh")
	require.NoError(t, err)
	here := strings.ReplaceAll(string(roles), "/run/secrets", filepath.Join(dir, "secrets"))
	here = strings.ReplaceAll(here, "--dbname postgres", "--dbname \"$ADMIN\"")
	here = strings.ReplaceAll(here, `--username "${POSTGRES_USER:-postgres}"`, "")
	setUp := func() {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", here)
		cmd.Env = append(os.Environ(), "ADMIN="+srv.DSN("postgres"))
		run(cmd)
	}
	asAdmin := func(sql string) {
		run(exec.CommandContext(t.Context(), psql, srv.DSN("slipway"), "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "-qc", sql))
	}
	login := func(secret string) string {
		url, err := os.ReadFile(filepath.Join(dir, "secrets", secret))
		require.NoError(t, err)
		admin := srv.DSN("slipway")
		return strings.Replace(string(url), "postgres:5432", admin[strings.Index(admin, "@")+1:strings.LastIndex(admin, "/")], 1)
	}
	check := func() {
		require.NoError(t, db.Migrate(t.Context(), login("database_owner_url")))
		store, err := db.Open(t.Context(), login("database_url"), db.CustomerLogin(login("database_customer_url")))
		require.NoError(t, err)
		defer store.Close()
		require.NoError(t, store.CheckUser(t.Context()))
		require.NoError(t, store.CheckCustomerUser(t.Context()))
	}
	setUp()
	check()
	// An installation of before: its one login owns all, and there was no other.
	asAdmin("ALTER DATABASE slipway OWNER TO slipway")
	asAdmin("REASSIGN OWNED BY slipway_owner TO slipway")
	asAdmin("REVOKE slipway_app FROM slipway")
	asAdmin("REVOKE slipway FROM slipway_migrate")
	asAdmin("DROP ROLE slipway_migrate")
	setUp()
	check()
}
