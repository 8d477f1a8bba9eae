package maassim_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
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

// published is NODE_TRANSITIONS as MAAS's source has it, written down apart
// from the simulator's own copy.
func published(t *testing.T) map[maassim.Status][]maassim.Status {
	t.Helper()
	const table = `-1:0,3,7 0:1,3,4,7,8,17,21 1:0,2,3,4,7,8,21 2:1,3,7,8,17,21 3:0,1,4,8,10,17,21 4:1,3,5,7,8,10,17,21
		5:3,4,7,8,10,12,14,17,21 6:3,4,8,10,12,14,17,21 7:0,3,4,8,17,21 8:1,4,6,12,14,17,21 9:3,4,6,8,10,11,12,14 10:3,4,7,8,9,12,14,17,21
		11:3,4,8,10,12,14,17,21 12:0,3,4,5,6,8,10,11,13,15 13:4,8,12,14,21 14:4,8,12,14,15 15:4,8,10,12,14,17,21 16:8,19,21 17:4,6,8,16,18,19
		18:8,17,19,21 19:0,2,3,4,5,6,7,8,10,11,13,15,16,18,20,22 20:8,19,21 21:0,1,3,4,5,6,7,8,10,11,13,15,18,20,22 22:1,3,4,6,8,17,21`
	out := map[maassim.Status][]maassim.Status{}
	for row := range strings.FieldsSeq(table) {
		from, to, _ := strings.Cut(row, ":")
		f, err := strconv.Atoi(from)
		require.NoError(t, err)
		for word := range strings.SplitSeq(to, ",") {
			n, err := strconv.Atoi(word)
			require.NoError(t, err)
			out[maassim.Status(f)] = append(out[maassim.Status(f)], maassim.Status(n))
		}
	}
	return out
}

func TestTransitionsAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	edges := published(t)
	for from := maassim.Status(-1); from <= maassim.FailedTesting; from++ {
		for to := maassim.StatusNew; to <= maassim.FailedTesting; to++ {
			require.Equal(t, slices.Contains(edges[from], to), maassim.Allowed(from, to), "%d -> %d", from, to)
		}
	}
}

// TestNoEdgeOutsideTheTable drives a region with random calls, power, time,
// faults and other people, and never sees a status change that NODE_TRANSITIONS
// does not list, but for the two bypasses that MAAS itself has.
func TestNoEdgeOutsideTheTable(t *testing.T) {
	t.Parallel()
	ops := []string{
		"commission", "deploy", "release", "abort", "power_on", "power_off", "override_failed_testing", "set_storage_layout", "release_many",
	}
	acts := []string{"release", "deploy", "delete", "lock", "unlock", "allocate", "mark_broken", "mark_fixed", "enlist"}
	edges := published(t)
	seen := map[[2]maassim.Status]bool{}
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := newRegion(ctx, t, 2000)
		defer r.srv.Close()
		faults := slices.Sorted(maps.Keys(r.srv.FaultNames()))
		faults = slices.DeleteFunc(faults, func(f string) bool { return f == "slow_response" || f == "query_power_timeout" }) // they only wait
		if rapid.Bool().Draw(t, "commissioned") {                                                                             // most edges are behind Ready
			r.create(0)
			r.ask(http.MethodPost, "machines/"+r.ids()[0]+"/", url.Values{"op": {"commission"}, "skip_bmc_config": {"1"}})
			r.steps(t, 10*time.Minute, 8)
		}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				r.create(rapid.IntRange(0, 1).Draw(t, "machine"))
			case 1:
				by := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour}).Draw(t, "step")
				r.steps(t, by, rapid.IntRange(1, 4).Draw(t, "times"))
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
			case 4:
				m := r.fleet.All()[rapid.IntRange(0, 1).Draw(t, "machine")]
				err := r.srv.External(rapid.SampledFrom(acts).Draw(t, "act"), m.Spec().NICs[0].MAC)
				require.True(t, err == nil || errors.Is(err, maassim.ErrNoEffect), "%v", err)
			default:
				r.random(t, ops)
			}
		}
		r.step(t, 3*time.Hour)
		last := map[string]maassim.Status{}
		for _, c := range r.srv.History() {
			if c.From < 0 {
				last[c.SystemID] = c.From
			}
			seen[[2]maassim.Status{c.From, c.To}] = true
			require.True(t, slices.Contains(edges[c.From], c.To) || c.Bypass != "", "%s -> %s by %s", c.From, c.To, c.Cause)
			require.Contains(t, []string{"", "_set_status", "set-node-status"}, c.Bypass)
			require.Equal(t, last[c.SystemID], c.From, "no change is missing from the record")
			last[c.SystemID] = c.To
		}
	})
	require.Greater(t, len(seen), 10, "the test walks too few edges to mean anything")
}

// steps moves the clock several times: what one timer starts waits for the next step.
func (r *region) steps(t require.TestingT, d time.Duration, times int) {
	for range times {
		r.step(t, d)
	}
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
	case "release_many":
		r.ask(http.MethodPost, "machines/", url.Values{"op": {"release"}, "machines": {id}})
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
