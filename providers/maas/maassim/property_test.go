package maassim_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/internal/simhw"
	"github.com/slipway-cloud/slipway/providers/maas/maassim"
)

const apiKey = "consumer:tokenkey:secretkey"

// region is a simulated region with two machines, asked by hand-made requests:
// no client of MAAS is involved.
type region struct {
	srv   *maassim.Server
	fleet *simhw.Fleet
	api   http.Handler
}

func newRegion(ctx context.Context, t require.TestingT, speed float64) *region {
	fleet := simhw.NewFleet(ctx, simhw.NewClock(speed))
	for i, v := range []string{"Dell", "HPE"} {
		m, err := fleet.Add(simhw.GPUServer(v, i+1))
		require.NoError(t, err)
		m.SetBMC(fmt.Sprintf("127.0.0.1:%d", i+1), "root", "bmc-pass-1")
	}
	srv, err := maassim.New(maassim.Options{Fleet: fleet, APIKey: apiKey, Seed: 7})
	require.NoError(t, err)
	return &region{srv, fleet, srv.API()}
}

// ask sends one signed request and returns status and body.
func (r *region) ask(method, path string, form url.Values) (int, []byte) {
	var req *http.Request
	if method == http.MethodGet || method == http.MethodDelete {
		req = httptest.NewRequest(method, maassim.Prefix+path, nil)
		q := req.URL.Query()
		for k, v := range form {
			q[k] = v
		}
		req.URL.RawQuery = q.Encode()
	} else {
		req = httptest.NewRequest(method, maassim.Prefix+path, strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	k := strings.Split(apiKey, ":")
	req.Header.Set("Authorization", fmt.Sprintf(
		`OAuth realm="MAAS API", oauth_consumer_key="%s", oauth_token="%s", oauth_signature_method="PLAINTEXT", oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d", oauth_version="1.0"`,
		k[0], k[1], k[2], time.Now().Unix(), time.Now().UnixNano()))
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }() // a cut connection aborts the handler
		r.api.ServeHTTP(w, req)
	}()
	return w.Code, w.Body.Bytes()
}

func (r *region) create(i int) {
	m := r.fleet.All()[i]
	form := url.Values{
		"architecture": {"amd64/generic"}, "hostname": {fmt.Sprintf("node-%d", i)}, "power_type": {"redfish"}, "commission": {"false"},
		"power_parameters_power_address": {m.Spec().BMCAddress}, "power_parameters_power_user": {"root"}, "power_parameters_power_pass": {"bmc-pass-1"},
	}
	for _, n := range m.Spec().NICs {
		form.Add("mac_addresses", n.MAC)
	}
	r.ask(http.MethodPost, "machines/", form)
}

func (r *region) ids() []string {
	_, body := r.ask(http.MethodGet, "machines/", nil)
	var list []struct {
		ID string `json:"system_id"`
	}
	_ = json.Unmarshal(body, &list)
	out := make([]string, 0, len(list))
	for _, m := range list {
		out = append(out, m.ID)
	}
	return out
}

// TestNoEdgeOutsideTheTable drives a region with random calls, power, time,
// faults and other people, and never sees a status change that NODE_TRANSITIONS
// does not list, but for the two bypasses that MAAS itself has.
func TestNoEdgeOutsideTheTable(t *testing.T) {
	t.Parallel()
	ops := []string{
		"commission", "deploy", "release", "abort", "lock", "unlock", "mark_broken", "mark_fixed", "rescue_mode", "exit_rescue_mode",
		"power_on", "power_off", "test", "override_failed_testing", "set_storage_layout", "restore_default_configuration",
	}
	faults := []string{
		"commission_fail", "test_fail", "deploy_curtin_fail", "deploy_datasource_none", "stuck_deploying", "release_power_fail", "machine_deleted",
		"externally_released", "externally_deployed", "locked", "owned_by_other", "bmc_unreachable", "bmc_auth", "late_deployed_write",
		"504_but_continues", "409_serialization", "connection_reset", "hw_sync_never", "enlist_race",
	}
	seen := map[[2]maassim.Status]bool{}
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := newRegion(ctx, t, 2000)
		defer r.srv.Close()
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				r.create(rapid.IntRange(0, 1).Draw(t, "machine"))
			case 1:
				r.step(t, rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour}).Draw(t, "step"))
			case 2:
				_, err := r.srv.AddFault(maassim.Fault{
					Name:  rapid.SampledFrom(faults).Draw(t, "fault"),
					Phase: rapid.SampledFrom([]string{"", maassim.Before, maassim.After}).Draw(t, "phase"),
				})
				require.NoError(t, err)
			case 3:
				m := r.fleet.All()[rapid.IntRange(0, 1).Draw(t, "machine")]
				if rapid.Bool().Draw(t, "on") {
					m.PowerOn("someone")
				} else {
					m.PowerOff("someone", true)
				}
			default:
				r.random(t, ops)
			}
		}
		r.step(t, 3*time.Hour)
		for _, c := range r.srv.History() {
			seen[[2]maassim.Status{c.From, c.To}] = true
			require.True(t, maassim.Allowed(c.From, c.To) || c.Bypass != "", "%s -> %s by %s", c.From, c.To, c.Cause)
		}
	})
	require.Greater(t, len(seen), 10, "the test walks too few edges to mean anything")
}

// step moves the clock and lets its timers run.
func (r *region) step(t require.TestingT, d time.Duration) {
	r.fleet.Clock().Step(d)
	before := -1
	for quiet := 0; quiet < 3; {
		n := len(r.srv.History())
		if n == before {
			quiet++
		} else {
			quiet = 0
		}
		before = n
		<-time.After(time.Millisecond)
	}
}

func (r *region) random(t *rapid.T, ops []string) {
	ids := r.ids()
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	op := rapid.SampledFrom(append(ops, "delete", "allocate")).Draw(t, "op")
	switch op {
	case "delete":
		r.ask(http.MethodDelete, "machines/"+id+"/", nil)
	case "allocate":
		r.ask(http.MethodPost, "machines/", url.Values{"op": {"allocate"}, "system_id": {id}})
	default:
		form := url.Values{"op": {op}, "storage_layout": {"flat"}, "erase": {fmt.Sprint(rapid.Bool().Draw(t, "erase"))}}
		form.Set("user_data", base64.StdEncoding.EncodeToString([]byte("#cloud-config\n")))
		r.ask(http.MethodPost, "machines/"+id+"/", form)
	}
}
