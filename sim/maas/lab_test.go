package maassim_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	bmcUser = "root"
	bmcPass = "bmc-pass-1"
)

// lab is a listening region over one physical machine, on a clock that only
// moves when a test steps it. It asks by hand-made requests.
type lab struct {
	t     *testing.T
	srv   *maassim.Server
	fleet *simhw.Fleet
	hw    *simhw.Machine
	addrs maassim.Addresses
	http  *http.Client
}

// longDurations returns durations so long that no timer of MAAS ends during a test.
func longDurations() maassim.Durations {
	return maassim.Durations{NodeTimeout: 1000 * time.Hour, ReleaseExpiry: 1000 * time.Hour}
}

func newLab(t *testing.T, change ...func(*maassim.Options)) *lab {
	t.Helper()
	fleet := simhw.NewFleet(t.Context(), simhw.NewClock(1))
	spec := simhw.GPUServer("Dell", 1)
	spec.PowerOnDelay, spec.PowerOffDelay = time.Second, time.Second
	hw, err := fleet.Add(spec)
	require.NoError(t, err)
	hw.SetBMC("https://192.0.2.10", bmcUser, bmcPass)
	opt := maassim.Options{Fleet: fleet, APIKey: apiKey, Seed: 11, Durations: longDurations()}
	for _, f := range change {
		f(&opt)
	}
	srv, err := maassim.New(opt)
	require.NoError(t, err)
	addrs, stop, err := srv.Start(context.WithoutCancel(t.Context()), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	client := &http.Client{
		Timeout: runenv.Patience(20 * time.Second), Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &lab{t: t, srv: srv, fleet: fleet, hw: hw, addrs: addrs, http: client}
}

func oauth(key string, at time.Time) string {
	k := strings.Split(key, ":")
	return fmt.Sprintf(`OAuth realm="MAAS API", oauth_consumer_key="%s", oauth_token="%s", oauth_signature_method="PLAINTEXT", oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d", oauth_version="1.0"`,
		k[0], k[1], k[2], at.Unix(), at.UnixNano())
}

// answer is one HTTP answer, read whole.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) text() string { return strings.TrimSpace(string(a.body)) }

func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(a.body, &out), "%s", a.body)
	return out
}

func (a answer) objects(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	require.NoError(t, json.Unmarshal(a.body, &out), "%s", a.body)
	return out
}

func (l *lab) request(method, path, query string, form url.Values, auth string) (answer, error) {
	l.t.Helper()
	var body io.Reader
	if form != nil && method != http.MethodGet && method != http.MethodDelete {
		body = strings.NewReader(form.Encode())
	} else if form != nil {
		query = strings.Trim(query+"&"+form.Encode(), "&")
	}
	target := "http://" + l.addrs.API + maassim.Prefix + path
	if query != "" {
		target += "?" + query
	}
	req, err := http.NewRequestWithContext(l.t.Context(), method, target, body)
	require.NoError(l.t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b}, err
}

// try sends a signed request; op goes into the query as clients send it.
func (l *lab) try(method, path, op string, form url.Values) (answer, error) {
	query := ""
	if op != "" {
		query = "op=" + op
	}
	return l.request(method, path, query, form, oauth(apiKey, time.Now()))
}

func (l *lab) get(path string, form url.Values) answer {
	l.t.Helper()
	a, err := l.try(http.MethodGet, path, "", form)
	require.NoError(l.t, err)
	return a
}

func (l *lab) post(path, op string, form url.Values) answer {
	l.t.Helper()
	a, err := l.try(http.MethodPost, path, op, form)
	require.NoError(l.t, err)
	return a
}

// ok is post for calls that must succeed.
func (l *lab) ok(path, op string, form url.Values) answer {
	l.t.Helper()
	a := l.post(path, op, form)
	require.Equal(l.t, 200, a.code, "%s %s: %s", path, op, a.body)
	return a
}

func (l *lab) fault(f maassim.Fault) int {
	l.t.Helper()
	id, err := l.srv.AddFault(f)
	require.NoError(l.t, err)
	return id
}

func (l *lab) createForm() url.Values {
	form := url.Values{
		"architecture": {"amd64/generic"}, "hostname": {"gpu-1"}, "power_type": {"redfish"}, "commission": {"false"},
		"power_parameters_power_address": {l.hw.Spec().BMCAddress}, "power_parameters_power_user": {bmcUser}, "power_parameters_power_pass": {bmcPass},
	}
	for _, n := range l.hw.Spec().NICs {
		form.Add("mac_addresses", n.MAC)
	}
	return form
}

// created adds the machine and returns its system_id.
func (l *lab) created() string {
	l.t.Helper()
	id, _ := l.ok("machines/", "", l.createForm()).object(l.t)["system_id"].(string)
	require.Regexp(l.t, `^[0-9a-z]{6}$`, id)
	return id
}

func (l *lab) view(id string) maassim.View {
	v, _ := l.srv.Machine(id)
	return v
}

// tick steps the clock and yields to its timers.
func (l *lab) tick(d time.Duration) {
	l.fleet.Clock().Step(d)
	<-time.After(time.Millisecond)
}

// until steps the clock minute by minute until cond holds.
func (l *lab) until(cond func() bool, what string) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		if cond() {
			return true
		}
		l.tick(time.Minute)
		return cond()
	}, runenv.Patience(15*time.Second), time.Millisecond, what)
}

func (l *lab) await(id string, want maassim.Status) {
	l.t.Helper()
	l.until(func() bool { return l.view(id).Status == want }, fmt.Sprintf("%s is reached", want))
}

// stays steps two hours and requires the status to be the same all along.
func (l *lab) stays(id string, want maassim.Status) {
	l.t.Helper()
	for range 24 {
		l.tick(5 * time.Minute)
		require.Equal(l.t, want, l.view(id).Status)
	}
}

func (l *lab) commissionForm() url.Values {
	return url.Values{"skip_bmc_config": {"1"}, "testing_scripts": {"none"}}
}

// ready creates and commissions the machine.
func (l *lab) ready() string {
	l.t.Helper()
	id := l.created()
	l.ok("machines/"+id+"/", "commission", l.commissionForm())
	l.await(id, maassim.Ready)
	l.until(func() bool { return l.hw.Power() == simhw.Off }, "powered off after commissioning")
	return id
}

func deployForm(userData string, sync bool) url.Values {
	return url.Values{
		"distro_series": {"jammy"}, "user_data": {base64.StdEncoding.EncodeToString([]byte(userData))}, "enable_hw_sync": {fmt.Sprint(sync)},
	}
}

// deployed takes the machine to Deployed with hardware sync on.
func (l *lab) deployed() string {
	l.t.Helper()
	id := l.ready()
	l.ok("machines/"+id+"/", "deploy", deployForm("#cloud-config\n", true))
	l.await(id, maassim.Deployed)
	return id
}

func (l *lab) total(what string) int { return l.srv.Counters().Total[what] }

// nicAndSubnet are the boot NIC's id and its subnet's.
func (l *lab) bootNIC(id string) string {
	l.t.Helper()
	boot, ok := l.get("machines/"+id+"/", nil).object(l.t)["boot_interface"].(map[string]any)
	require.True(l.t, ok)
	return fmt.Sprintf("nodes/%s/interfaces/%v/", id, boot["id"])
}

// nicView is the interface at a path, as the list of them has it.
func (l *lab) nicView(path string) map[string]any {
	l.t.Helper()
	list, id, _ := strings.Cut(strings.TrimSuffix(path, "/"), "/interfaces/")
	for _, n := range l.get(list+"/interfaces/", nil).objects(l.t) {
		if fmt.Sprint(n["id"]) == id {
			return n
		}
	}
	return nil
}

func (l *lab) events(id, level string) []map[string]any {
	l.t.Helper()
	a := l.get("events/", url.Values{"op": {"query"}, "id": {id}, "level": {level}, "limit": {"1000"}})
	require.Equal(l.t, 200, a.code, "%s", a.body)
	var page struct{ Events []map[string]any }
	require.NoError(l.t, json.Unmarshal(a.body, &page))
	return page.Events
}

func (l *lab) sawEvent(id, kind string) bool {
	for _, e := range l.events(id, "DEBUG") {
		if e["type"] == kind {
			return true
		}
	}
	return false
}

func (l *lab) admin(method, path string, body any) answer {
	l.t.Helper()
	var b bytes.Buffer
	if body != nil {
		require.NoError(l.t, json.NewEncoder(&b).Encode(body))
	}
	req, err := http.NewRequestWithContext(l.t.Context(), method, "http://"+l.addrs.Admin+path, &b)
	require.NoError(l.t, err)
	resp, err := l.http.Do(req)
	require.NoError(l.t, err)
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	require.NoError(l.t, err)
	return answer{resp.StatusCode, resp.Header, out}
}

// lost reports an answer that never came.
func lost(err error) bool { var u *url.Error; return errors.As(err, &u) }
