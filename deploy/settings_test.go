package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/config"
)

// parts is what each subcommand of slipwayd needs of the configuration.
func parts() map[string][]config.Part {
	return map[string][]config.Part{
		"api":     {config.PartDatabase, config.PartTemporal, config.PartAPI, config.PartAgent, config.PartSecrets},
		"worker":  {config.PartDatabase, config.PartTemporal, config.PartAgent, config.PartSecrets, config.PartWorker},
		"all":     {config.PartDatabase, config.PartTemporal, config.PartAPI, config.PartAgent, config.PartSecrets, config.PartWorker},
		"migrate": {config.PartDatabase, config.PartMigrations},
	}
}

// slipwayd builds the server into a folder of the test's own.
func slipwayd(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "slipwayd")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "./cmd/slipwayd")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

var (
	withDefault = regexp.MustCompile(`\$\{(\w+):-([^}]*)\}`)
	mandatory   = regexp.MustCompile(`\$\{(\w+):\?[^}]+\}`)
)

// interpolate does what compose does with a value when the .env file holds env.
func interpolate(t *testing.T, value string, env map[string]string) string {
	t.Helper()
	value = withDefault.ReplaceAllStringFunc(value, func(found string) string {
		match := withDefault.FindStringSubmatch(found)
		if v := env[match[1]]; v != "" {
			return v
		}
		return match[2]
	})
	value = mandatory.ReplaceAllStringFunc(value, func(found string) string {
		v := env[mandatory.FindStringSubmatch(found)[1]]
		require.NotEmpty(t, v, "compose would stop at %s", found)
		return v
	})
	require.NotContains(t, value, "$")
	return value
}

// Compose must set the whole configuration that each service needs, and nothing that slipwayd does
// not read: a misspelt variable would silently leave its default.
func TestEveryServiceIsConfiguredByWhatComposePasses(t *testing.T) {
	t.Parallel()
	dotenv := map[string]string{"SLIPWAY_AGENT_PUBLIC_URL": "https://slipway.example.com:8443", "SLIPWAY_VERSION": "1.2.3", "SLIPWAY_PREVIOUS_VERSION": "1.2.2"}
	url := filepath.Join(t.TempDir(), "database_url")
	require.NoError(t, os.WriteFile(url, []byte("postgres://slipway:secret@postgres:5432/slipway"), 0o600))
	builds := map[string]string{}
	for name, s := range ours(compose(t)) {
		if name == "temporal-certs" {
			continue
		}
		passed := map[string]string{}
		for key, value := range s.Environment {
			passed[key] = interpolate(t, value, dotenv)
		}
		require.Equal(t, "/run/secrets/database_url", passed["SLIPWAY_DATABASE_URL_FILE"], name)
		passed["SLIPWAY_DATABASE_URL_FILE"] = url
		require.Equal(t, "/run/secrets/database_customer_url", passed["SLIPWAY_DATABASE_CUSTOMER_URL_FILE"], name)
		require.Contains(t, s.Secrets, "database_customer_url", name)
		passed["SLIPWAY_DATABASE_CUSTOMER_URL_FILE"] = url
		require.Equal(t, name == "migrate", passed["SLIPWAY_DATABASE_OWNER_URL_FILE"] != "", "%s: only the migration has the owner's password", name)
		require.Equal(t, name == "migrate", slices.Contains(s.Secrets, "database_owner_url"), name)
		if name == "migrate" {
			passed["SLIPWAY_DATABASE_OWNER_URL_FILE"] = url
		}

		read := map[string]bool{}
		flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
		cfg, err := config.Flags(flags).Load(func(key string) (string, bool) {
			read[key] = true
			value, ok := passed[key]
			return value, ok
		}, parts()[s.Command[0]]...)
		require.NoError(t, err, name)
		for key := range passed {
			require.True(t, read[key], "%s: slipwayd reads no %s", name, key)
		}
		folder := filepath.Dir(cfg.Secrets.KeyFile)
		require.Contains(t, s.Volumes, "slipway:"+folder, "%s: the key must outlive the container", name)
		require.Contains(t, containerfile(t), " "+folder+"\n", "the image has the folder, so that the volume is the user's")
		require.NotEmpty(t, cfg.Agent.CARef, "%s: several processes share the CA", name)
		if s.Healthcheck.Test != nil {
			_, port, _ := strings.Cut(cfg.Metrics.Listen, ":")
			require.Contains(t, strings.Join(s.Healthcheck.Test, " "), ":"+port+"/readyz", name)
		}
		for _, published := range s.Ports {
			inside := published[strings.LastIndex(published, ":"):]
			require.Contains(t, []string{cfg.API.Listen, cfg.Agent.Listen, "0.0.0.0:8081"}, "0.0.0.0"+inside, name)
		}
		builds[name] = cfg.Temporal.BuildID
		require.Equal(t, "slipway:"+cfg.Temporal.BuildID, interpolate(t, s.Image, dotenv), "%s: the build id is the image's version", name)
	}
	require.Equal(t, map[string]string{"migrate": "1.2.3", "api": "1.2.3", "worker": "1.2.3", "worker-previous": "1.2.2"}, builds)
}
