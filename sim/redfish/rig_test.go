package redfishsim_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// rig is one BMC on a loopback port and a bare HTTP client for it.
type rig struct {
	t    *testing.T
	m    *simhw.Machine
	s    *redfishsim.Server
	url  string
	http *http.Client
	user string
	pw   string
}

type answer struct {
	status int
	header http.Header
	raw    []byte
	obj    map[string]any
}

func newRig(t *testing.T, vendor string, change ...func(*redfishsim.Options)) *rig {
	return newRigAt(t, vendor, 1, change...)
}

func newRigAt(t *testing.T, vendor string, speed float64, change ...func(*redfishsim.Options)) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	spec := simhw.GPUServer(vendor, 7)
	o := redfishsim.Options{Machine: simhw.NewMachine(ctx, simhw.NewClock(speed), spec)}
	for _, f := range change {
		f(&o)
	}
	s, err := redfishsim.New(o)
	require.NoError(t, err)
	url, stop, err := s.Start(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	return &rig{
		t: t, m: o.Machine, s: s, url: url, user: spec.BMCUser, pw: spec.BMCPassword,
		http: &http.Client{
			Timeout:       runenv.Patience(20 * time.Second),
			Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// try sends a request with Basic unless a header says otherwise; header is
// pairs of name and value.
func (r *rig) try(method, path string, body any, header ...string) (*answer, error) {
	r.t.Helper()
	var rd io.Reader
	if raw, ok := body.(string); ok {
		rd = strings.NewReader(raw)
	} else if body != nil {
		b, err := json.Marshal(body)
		require.NoError(r.t, err)
		rd = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, r.url+path, rd)
	require.NoError(r.t, err)
	req.SetBasicAuth(r.user, r.pw)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "X-Auth-Token" || header[i] == "Authorization" {
			req.Header.Del("Authorization")
		}
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &answer{status: res.StatusCode, header: res.Header}
	if a.raw, err = io.ReadAll(io.LimitReader(res.Body, 100<<20)); err != nil {
		return a, err
	}
	_ = json.Unmarshal(a.raw, &a.obj)
	return a, nil
}

func (r *rig) do(method, path string, body any, header ...string) *answer {
	r.t.Helper()
	a, err := r.try(method, path, body, header...)
	require.NoError(r.t, err, "%s %s", method, path)
	return a
}

func (r *rig) get(path string, header ...string) *answer {
	r.t.Helper()
	a := r.do("GET", path, nil, header...)
	require.Equal(r.t, 200, a.status, "GET %s: %s", path, a.raw)
	return a
}

// patch reads the ETag first, as a careful client does.
func (r *rig) patch(path string, body any) *answer {
	r.t.Helper()
	return r.do("PATCH", path, body, "If-Match", r.get(path).header.Get("ETag"))
}

func (r *rig) login() (token, location string) {
	r.t.Helper()
	a := r.do("POST", "/redfish/v1/SessionService/Sessions", m{"UserName": r.user, "Password": r.pw}, "Authorization", "")
	require.Equal(r.t, 201, a.status, "%s", a.raw)
	return a.header.Get("X-Auth-Token"), a.header.Get("Location")
}

func (r *rig) system() string { return "/redfish/v1/Systems/" + r.s.Personality().SystemID }

func (r *rig) reset(kind string) *answer {
	r.t.Helper()
	return r.do("POST", r.system()+"/Actions/ComputerSystem.Reset", m{"ResetType": kind})
}

// settle steps the machine's clock until its power is p.
func (r *rig) settle(p simhw.Power) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		if r.m.Power() == p {
			return true
		}
		r.m.Clock().Step(500 * time.Millisecond)
		return false
	}, runenv.Patience(10*time.Second), time.Millisecond, "power never became %s", p)
}

func (r *rig) fault(f redfishsim.Fault) {
	r.t.Helper()
	require.NoError(r.t, r.s.AddFault(f))
}

type m = map[string]any

// messageID is the first extended message of an error.
func (a *answer) messageID() string {
	e, _ := a.obj["error"].(m)
	list, _ := e["@Message.ExtendedInfo"].([]any)
	if len(list) == 0 {
		return ""
	}
	id, _ := list[0].(m)["MessageId"].(string)
	return id
}

func (a *answer) boot(key string) any {
	b, _ := a.obj["Boot"].(m)
	return b[key]
}

func (a *answer) members() []string {
	var out []string
	list, _ := a.obj["Members"].([]any)
	for _, e := range list {
		out = append(out, e.(m)["@odata.id"].(string))
	}
	return out
}
