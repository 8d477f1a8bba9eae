package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// given is one start of the program.
type given struct {
	file  string // content; empty means no file
	env   map[string]string
	args  []string
	parts []Part
}

func (g given) load(t *testing.T) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.Bool("own", false, "a flag of the command's own")
	src := Flags(fs)
	args := g.args
	if g.file != "" {
		args = append([]string{"--config", write(t, g.file)}, args...)
	}
	require.NoError(t, fs.Parse(args))
	return src.Load(func(k string) (string, bool) { v, ok := g.env[k]; return v, ok }, g.parts...)
}

func write(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
	return p
}

// complete is a file with which every part is valid.
const complete = `
database: {url: "postgres://slipway@127.0.0.1:5432/slipway"}
api: {public_url: "https://slipway.example.com"}
agent: {public_url: "https://agents.example.com", ca_dir: /var/lib/slipway/ca}
oidc: {issuer: "https://id.example.com", audience: slipway}
secrets: {key_file: /var/lib/slipway/key}
`

var everyPart = []Part{PartDatabase, PartTemporal, PartAPI, PartAgent, PartSecrets, PartWorker}

func TestDefaultsAndACompleteFileAreValid(t *testing.T) {
	t.Parallel()
	c, err := given{}.load(t)
	require.NoError(t, err)
	require.Equal(t, Default(), c)

	c, err = given{file: complete, parts: everyPart}.load(t)
	require.NoError(t, err)
	require.Equal(t, "/var/lib/slipway/ca", c.Agent.CADir)
	require.Equal(t, 7*24*time.Hour, c.Agent.CertTTL)
	require.Equal(t, 90*24*time.Hour, c.Agent.RenewGrace)

	c, err = given{args: []string{"--temporal-payload-codec=none", "--api-codec-origins=http://a,https://b:8233"}, parts: []Part{PartTemporal}}.load(t)
	require.NoError(t, err)
	require.Equal(t, []string{"http://a", "https://b:8233"}, c.API.Origins())
}

func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	file := "temporal: {namespace: file, task_queue: file, build_id: file}\nworker: {stop_timeout: 5s}\nagent: {cert_ttl: 48h}"
	c, err := given{
		file: file,
		env: map[string]string{
			"SLIPWAY_TEMPORAL_TASK_QUEUE": "env", "SLIPWAY_TEMPORAL_BUILD_ID": "env",
			"SLIPWAY_WORKER_STOP_TIMEOUT": "7s", "SLIPWAY_LOG_LEVEL": "",
			"SLIPWAY_TEMPORAL_TLS_ENABLED": "true",
		},
		args: []string{"--temporal-build-id", "flag", "--own", "--worker-max-concurrent-activities=3"},
	}.load(t)
	require.NoError(t, err)
	require.Equal(t, "file", c.Temporal.Namespace)
	require.Equal(t, "env", c.Temporal.TaskQueue)
	require.Equal(t, "flag", c.Temporal.BuildID)
	require.Equal(t, 7*time.Second, c.Worker.StopTimeout)
	require.Equal(t, 48*time.Hour, c.Agent.CertTTL)
	require.Equal(t, 3, c.Worker.MaxConcurrentActivities)
	require.True(t, c.Temporal.TLS.Enabled)
	require.Equal(t, "info", c.Log.Level, "an empty variable counts as not set")
}

func TestTheFileMayBeNamedInTheEnvironment(t *testing.T) {
	t.Parallel()
	c, err := given{env: map[string]string{"SLIPWAY_CONFIG": write(t, "log: {format: text}")}}.load(t)
	require.NoError(t, err)
	require.Equal(t, "text", c.Log.Format)
}

// Each setting must be reachable in all three spellings, under one name.
func TestEverySettingHasAFlagOfItsName(t *testing.T) {
	t.Parallel()
	var c Config
	flags := map[string]bool{}
	settings(&c).VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
	var walk func(rt reflect.Type, prefix string)
	walk = func(rt reflect.Type, prefix string) {
		for i := range rt.NumField() {
			name := prefix + strings.ReplaceAll(rt.Field(i).Tag.Get("yaml"), "_", "-")
			if rt.Field(i).Type.Kind() == reflect.Struct {
				walk(rt.Field(i).Type, name+"-")
				continue
			}
			require.True(t, flags[name], "no flag for %s", name)
			delete(flags, name)
		}
	}
	walk(reflect.TypeFor[Config](), "")
	require.Empty(t, flags, "flags without a field")
}

// The test above would not find a flag that is bound to the wrong field.
func TestEveryFlagReachesItsOwnField(t *testing.T) {
	t.Parallel()
	var names []string
	var zero Config
	settings(&zero).VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, name := range names {
		var c Config
		f := settings(&c).Lookup(name)
		value := map[string]string{"string": "x", "int": "7", "bool": "true", "duration": "7s"}[f.Value.Type()]
		require.NoError(t, f.Value.Set(value))
		require.Equal(t, []string{name}, nonZero(reflect.ValueOf(c), ""))
	}
}

func nonZero(v reflect.Value, prefix string) (names []string) {
	for i := range v.NumField() {
		name := prefix + strings.ReplaceAll(v.Type().Field(i).Tag.Get("yaml"), "_", "-")
		switch {
		case v.Field(i).Kind() == reflect.Struct:
			names = append(names, nonZero(v.Field(i), name+"-")...)
		case !v.Field(i).IsZero():
			names = append(names, name)
		}
	}
	return names
}

func TestProblemsNameTheSetting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given
		want []string // all must be in the error
	}{
		"unknown key":     {given{file: "api:\n  listne: x"}, []string{"line 2", `"listne"`}},
		"unknown section": {given{file: "apis: {}"}, []string{`"apis"`}},
		"wrong type":      {given{file: "worker:\n  max_concurrent_activities: many"}, []string{"line 2", "wrong form"}},
		"not YAML":        {given{file: "api: ["}, []string{"configuration file"}},
		"two documents":   {given{file: "api: {}\n---\napi: {}"}, []string{"more than one"}},
		"missing file":    {given{args: []string{"--config", "/nonexistent/x"}}, []string{"/nonexistent/x"}},
		"bad variable":    {given{env: map[string]string{"SLIPWAY_WORKER_STOP_TIMEOUT": "soon"}}, []string{"SLIPWAY_WORKER_STOP_TIMEOUT", "duration"}},
		"payments without a secret": {given{args: []string{"--payment-stripe-key-ref=stripe/key"}, parts: everyPart},
			[]string{"payment.webhook_secret_refs must name the secret"}},
		"a webhook secret without a key": {given{args: []string{"--payment-webhook-secret-refs=a"}, parts: everyPart}, []string{"payment.stripe_key_ref is missing"}},
		"three webhook secrets": {given{args: []string{"--payment-stripe-key-ref=k", "--payment-webhook-secret-refs=a,b,c"}, parts: everyPart},
			[]string{"payment.webhook_secret_refs must name"}},
		"live without a key": {given{args: []string{"--payment-stripe-live"}, parts: everyPart}, []string{"payment.stripe_key_ref is missing"}},
		"nothing for an account": {given{args: []string{"--payment-account-sessions-per-hour=0"}, parts: everyPart},
			[]string{"payment.account_sessions_per_hour must lie between 1"}},
		"events for a month":    {given{args: []string{"--retention-payment-events=720h"}, parts: everyPart}, []string{"retention.payment_events must lie between 744h"}},
		"payments in the clear": {given{args: []string{"--payment-stripe-url=http://stripe.example.com"}, parts: everyPart}, []string{"payment.stripe_url must be an https URL"}},
		"a redirect address":    {given{args: []string{"--payment-redirect-hosts=https://x.example/"}, parts: everyPart}, []string{"payment.redirect_hosts must be hosts"}},
		"amounts the wrong way": {given{args: []string{"--payment-min-amount=20", "--payment-max-amount=10"}, parts: everyPart}, []string{"payment.max_amount must lie between 20"}},
		"a page for a minute":   {given{args: []string{"--payment-session-ttl-seconds=60"}, parts: everyPart}, []string{"payment.session_ttl_seconds must lie between 1800 and 86400"}},
		"a folder of machines":  {given{args: []string{"--machine-state-dir=ops"}, parts: everyPart}, []string{"machine.state_dir must be an absolute path"}},
		"a provider of nothing": {given{args: []string{"--machine-providers=dc-1"}, parts: everyPart}, []string{"machine.providers gives dc-1 the adapter"}},
		"a provider twice":      {given{args: []string{"--machine-providers=dc-1=ssh,dc-1=datacenter"}, parts: everyPart}, []string{"names dc-1 twice"}},
		"an adapter renamed":    {given{args: []string{"--machine-providers=ssh=datacenter"}, parts: everyPart}, []string{"the name of an adapter"}},
		"a simulated provider":  {given{args: []string{"--machine-providers=lab=fake"}, parts: everyPart}, []string{"needs machine.simulated"}},
		"little output":         {given{args: []string{"--machine-step-log-mib=63"}, parts: everyPart}, []string{"machine.step_log_mib must lie between 64"}},
		"allocations kept":      {given{args: []string{"--retention-allocations=2159h"}, parts: everyPart}, []string{"retention.allocations must lie between 2160h"}},
		"runs for a moment": {given{args: []string{"--retention-runs=59m", "--retention-run-logs=59m"}, parts: everyPart},
			[]string{"retention.runs must lie between 1h", "retention.run_logs must lie between 1h"}},
		"no database":        {given{parts: []Part{PartDatabase}}, []string{"database.url is missing", "SLIPWAY_DATABASE_URL"}},
		"database no URL":    {given{env: map[string]string{"SLIPWAY_DATABASE_URL": "host=x"}, parts: []Part{PartDatabase}}, []string{"database.url must be"}},
		"connections":        {given{file: complete + "worker: {}", args: []string{"--database-max-conns=0"}, parts: everyPart}, []string{"database.max_conns must lie between 2"}},
		"temporal address":   {given{args: []string{"--temporal-address=x"}, parts: everyPart}, []string{"temporal.address must be host:port", "database.url is missing"}},
		"temporal TLS off":   {given{args: []string{"--temporal-api-key-file=x"}, parts: []Part{PartTemporal}}, []string{"temporal.api_key_file", "turn TLS on"}},
		"deployment name":    {given{args: []string{"--temporal-deployment-name=a.b"}, parts: []Part{PartTemporal}}, []string{"temporal.deployment_name"}},
		"plain payloads":     {given{args: []string{"--temporal-payload-codec=none", "--temporal-address=temporal:7233"}, parts: []Part{PartTemporal}}, []string{"temporal.payload_codec must be aes256-gcm", "on this machine"}},
		"plain with a build": {given{args: []string{"--temporal-payload-codec=none", "--temporal-build-id=1"}, parts: []Part{PartTemporal}}, []string{"temporal.payload_codec must be aes256-gcm"}},
		"payload codec":      {given{args: []string{"--temporal-payload-codec=rot13"}, parts: []Part{PartTemporal}}, []string{"temporal.payload_codec must be one of aes256-gcm, none"}},
		"codec origin":       {given{file: complete, args: []string{"--api-codec-origins=https://t.example.com, https://t.example.com/ui"}, parts: everyPart}, []string{"api.codec_origins must hold origins"}},
		"any codec origin":   {given{file: complete, args: []string{"--api-codec-origins=*"}, parts: everyPart}, []string{"api.codec_origins must be a whole URL"}},
		"API without URL":    {given{parts: []Part{PartAPI}}, []string{"api.public_url is missing"}},
		"API key alone":      {given{file: complete, args: []string{"--api-tls-key=x"}, parts: everyPart}, []string{"api.tls_cert is missing"}},
		"API URL":            {given{file: complete, args: []string{"--api-public-url=slipway.example.com"}, parts: everyPart}, []string{"api.public_url must be a whole URL"}},
		"plain issuer":       {given{file: complete, args: []string{"--oidc-issuer=http://id.example.com"}, parts: everyPart}, []string{"oidc.issuer must be an https URL"}},
		"issuer no audience": {given{file: complete, args: []string{"--oidc-audience="}, parts: everyPart}, []string{"oidc.audience is missing"}},
		"agent plain URL":    {given{file: complete, args: []string{"--agent-public-url=http://a"}, parts: everyPart}, []string{"agent.public_url must be", "https://"}},
		"two authorities":    {given{file: complete, args: []string{"--agent-ca-ref=ca"}, parts: everyPart}, []string{"agent.ca_dir or agent.ca_ref"}},
		"certificate life":   {given{file: complete, args: []string{"--agent-cert-ttl=1m"}, parts: everyPart}, []string{"agent.cert_ttl must lie"}},
		"renewal grace":      {given{file: complete, args: []string{"--agent-renew-grace=9000h"}, parts: everyPart}, []string{"agent.renew_grace must lie"}},
		"key in URL":         {given{file: complete, args: []string{"--secrets-keeper=base64key://c2VjcmV0"}, parts: everyPart}, []string{"secrets.keeper must be just base64key://"}},
		"no key file":        {given{parts: []Part{PartSecrets}}, []string{"secrets.key_file is missing"}},
		"useless key file":   {given{file: complete, args: []string{"--secrets-keeper=hashivault://k"}, parts: everyPart}, []string{"secrets.key_file is set while"}},
		"keeper kind":        {given{file: complete, args: []string{"--secrets-keeper=ftp://k"}, parts: everyPart}, []string{"secrets.keeper must be"}},
		"previous keeper":    {given{file: complete, args: []string{"--secrets-previous-keeper=base64key://"}, parts: everyPart}, []string{"secrets.previous_key_file is missing"}},
		"worker":             {given{file: complete, args: []string{"--worker-max-concurrent-workflow-tasks=1"}, parts: everyPart}, []string{"worker.max_concurrent_workflow_tasks must lie between 2"}},
		"lease too short":    {given{file: complete, args: []string{"--relay-lease=2s"}, parts: everyPart}, []string{"relay.lease must lie between 3s and 10m0s"}},
		"lease too long":     {given{file: complete, args: []string{"--relay-lease=11m"}, parts: everyPart}, []string{"relay.lease must lie between 3s and 10m0s"}},
		"poll too often":     {given{file: complete, args: []string{"--relay-poll=0s"}, parts: everyPart}, []string{"relay.poll must lie between 100ms and 1m0s"}},
		"poll too rare":      {given{file: complete, args: []string{"--relay-poll=2m"}, parts: everyPart}, []string{"relay.poll must lie between 100ms and 1m0s"}},
		"sweeps too often":   {given{file: complete, args: []string{"--sweep-every=0s"}, parts: everyPart}, []string{"sweep.every must lie between 1s and 30s"}},
		"sweeps too rare":    {given{file: complete, args: []string{"--sweep-every=31s"}, parts: everyPart}, []string{"sweep.every must lie between 1s and 30s"}},
		"settle too short":   {given{file: complete, args: []string{"--sweep-settle=0s"}, parts: everyPart}, []string{"sweep.settle must lie between 1s and 10m0s"}},
		"settle too long":    {given{file: complete, args: []string{"--sweep-settle=11m"}, parts: everyPart}, []string{"sweep.settle must lie between 1s and 10m0s"}},
		"quiet too long":     {given{file: complete, args: []string{"--sweep-quiet=11m"}, parts: everyPart}, []string{"sweep.quiet must lie between 1s and 10m0s"}},
		"quiet below settle": {given{file: complete, args: []string{"--sweep-quiet=14s"}, parts: everyPart}, []string{"sweep.quiet must not be less than sweep.settle"}},
		"passes too often":   {given{file: complete, args: []string{"--reconcile-every=900ms"}, parts: everyPart}, []string{"reconcile.every must lie between 1s and 24h0m0s"}},
		"passes too rare":    {given{file: complete, args: []string{"--reconcile-every=25h"}, parts: everyPart}, []string{"reconcile.every must lie between 1s and 24h0m0s"}},
		"new sites":          {given{file: complete, args: []string{"--reconcile-new-sites=0s"}, parts: everyPart}, []string{"reconcile.new_sites must lie between 1s and 1h0m0s"}},
		"new sites too rare": {given{file: complete, args: []string{"--reconcile-new-sites=2h"}, parts: everyPart}, []string{"reconcile.new_sites must lie between 1s and 1h0m0s"}},
		"log level":          {given{args: []string{"--log-level=loud"}}, []string{"log.level must be one of debug"}},
		"metrics":            {given{args: []string{"--metrics-listen=x"}}, []string{"metrics.listen must be host:port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.load(t)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "c2VjcmV0")
		})
	}
}

const withPassword = "postgres://slipway:hunter2@127.0.0.1:5432/slipway"

func TestPasswordsComeFromFilesOrTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]given{
		"in the file":             {file: "database: {url: '" + withPassword + "'}"},
		"as a parameter":          {file: "database: {url: 'postgres://slipway@h/slipway?password=hunter2'}"},
		"in key=value form":       {file: "database: {url: 'host=h password=hunter2'}"},
		"in an unreadable URL":    {file: "database: {url: 'postgres://slipway:hunter2%@h'}"},
		"on the command line":     {args: []string{"--database-url", withPassword}},
		"the owner's in a flag":   {args: []string{"--database-owner-url", withPassword}},
		"in the file, overridden": {file: "database: {url: '" + withPassword + "'}", env: map[string]string{"SLIPWAY_DATABASE_URL": withPassword}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := g.load(t)
			var invalid Invalid
			require.ErrorAs(t, err, &invalid)
			require.Regexp(t, `^database\.(owner_)?url$`, invalid[0].Field)
			require.ErrorContains(t, err, "url_file")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	for name, g := range map[string]given{
		"environment":             {env: map[string]string{"SLIPWAY_DATABASE_URL": withPassword}},
		"file of its own":         {file: "database: {url_file: " + write(t, withPassword+"\n") + "}"},
		"environment over a file": {file: "database: {url_file: /nonexistent}", env: map[string]string{"SLIPWAY_DATABASE_URL": withPassword}},
		"flag over environment":   {env: map[string]string{"SLIPWAY_DATABASE_URL": "postgres://other"}, args: []string{"--database-url-file", write(t, withPassword)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.parts = []Part{PartDatabase}
			c, err := g.load(t)
			require.NoError(t, err)
			require.Equal(t, withPassword, c.Database.URL)
		})
	}
	_, err := given{file: "database: {url: 'postgres://x', url_file: /x}"}.load(t)
	require.ErrorContains(t, err, "keep one")
	for name, env := range map[string]map[string]string{
		"alone":                {"SLIPWAY_DATABASE_OWNER_URL": withPassword},
		"beside another":       {"SLIPWAY_DATABASE_OWNER_URL": withPassword, "SLIPWAY_DATABASE_URL": "postgres://other"},
		"not there":            {"SLIPWAY_DATABASE_URL": withPassword},
		"in a file of its own": {"SLIPWAY_DATABASE_OWNER_URL_FILE": write(t, withPassword), "SLIPWAY_DATABASE_URL": "postgres://other"},
	} {
		c, err := given{env: env, parts: []Part{PartMigrations}}.load(t)
		require.NoError(t, err, name)
		require.Equal(t, withPassword, c.Database.MigrationURL(), name)
	}
	_, err = given{parts: []Part{PartMigrations}}.load(t)
	require.ErrorContains(t, err, "SLIPWAY_DATABASE_OWNER_URL")
}

func TestPrintingShowsNoSecret(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Database.URL = withPassword + "?password=hunter2&sslmode=disable"
	c.Database.OwnerURL = withPassword
	c.Secrets.Keeper = "base64key://c2VjcmV0"
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "config", c)
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%v", &c), c.String(), log.String()} {
		require.NotContains(t, text, "hunter2")
		require.NotContains(t, text, "c2VjcmV0")
		require.Contains(t, text, "slipway@127.0.0.1")
		require.Contains(t, text, "sslmode=disable")
	}
	require.Contains(t, c.Database.URL, "hunter2", "redaction must not change the configuration itself")
}

// TestWaits_AcceptTheirBounds loads the shortest and the longest waits that are allowed.
func TestWaits_AcceptTheirBounds(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--relay-lease=3s", "--relay-poll=100ms", "--sweep-every=1s", "--sweep-settle=1s", "--sweep-quiet=1s", "--reconcile-every=1s", "--reconcile-new-sites=1s"},
		{"--relay-lease=10m", "--relay-poll=1m", "--sweep-every=30s", "--sweep-settle=10m", "--sweep-quiet=10m", "--reconcile-every=24h", "--reconcile-new-sites=1h"},
	} {
		_, err := given{file: complete, args: args, parts: everyPart}.load(t)
		require.NoError(t, err)
	}
}
