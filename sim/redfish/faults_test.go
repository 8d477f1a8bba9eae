package redfishsim_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const sessions = "/redfish/v1/SessionService/Sessions"

func (r *rig) tryLogin() *answer {
	r.t.Helper()
	return r.do("POST", sessions, m{"UserName": r.user, "Password": r.pw}, "Authorization", "")
}

// faultTrials ask once and say whether the fault showed.
func faultTrials() map[redfishsim.FaultName]func(r *rig) bool {
	once := func(target string) m {
		return m{"Boot": m{"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once", "BootSourceOverrideMode": "UEFI"}}
	}
	systems := "/redfish/v1/Systems"
	return map[redfishsim.FaultName]func(r *rig) bool{
		redfishsim.FaultAuthReject:     func(r *rig) bool { return r.do("GET", systems, nil).status == 401 },
		redfishsim.FaultPasswordChange: func(r *rig) bool { return r.do("GET", systems, nil).status == 403 },
		redfishsim.FaultNoToken:        func(r *rig) bool { a := r.tryLogin(); return a.status == 201 && a.header.Get("X-Auth-Token") == "" },
		redfishsim.FaultNoLocation:     func(r *rig) bool { a := r.tryLogin(); return a.status == 201 && a.header.Get("Location") == "" },
		redfishsim.FaultSessionsFull:   func(r *rig) bool { return r.tryLogin().status == 503 },
		redfishsim.FaultSessionDropped: func(r *rig) bool {
			token, _ := r.login()
			return r.do("GET", systems, nil, "X-Auth-Token", token).status == 401
		},
		redfishsim.FaultConflictOn: func(r *rig) bool { return r.reset("On").status == 409 && r.m.Power() == simhw.Off },
		redfishsim.FaultWeakETag: func(r *rig) bool {
			tag := r.get(r.system()).header.Get("ETag")
			return strings.HasPrefix(tag, "W/") && r.do("PATCH", r.system(), m{"AssetTag": "a"}, "If-Match", tag).status == 412 &&
				r.do("PATCH", r.system(), m{"AssetTag": "a"}, "If-Match", strings.TrimPrefix(tag, "W/")).status == 200
		},
		redfishsim.FaultIgnoredOverride: func(r *rig) bool {
			want := map[string]string{"Pxe": "Hdd", "Hdd": "Pxe", "None": "Pxe"}[r.m.BootOverride().Target]
			require.Equal(r.t, 200, r.patch(r.system(), once(want)).status)
			return r.m.BootOverride().Target != want
		},
		redfishsim.FaultPOST: func(r *rig) bool {
			return r.patch(r.system(), once("Pxe")).messageID() == "Base.1.8.UnableToModifyDuringSystemPOST"
		},
		redfishsim.FaultEcho: func(r *rig) bool {
			a := r.do("POST", sessions, m{"UserName": r.user, "Password": r.pw})
			return a.status == 400 && strings.Contains(string(a.raw), r.pw)
		},
		redfishsim.FaultGarbage:      func(r *rig) bool { return r.get(systems).obj == nil },
		redfishsim.FaultRedirect:     func(r *rig) bool { return r.do("GET", systems, nil).status == 307 },
		redfishsim.FaultNextLinkLoop: func(r *rig) bool { return r.get(systems).obj["Members@odata.nextLink"] == systems },
		redfishsim.FaultForeignLink: func(r *rig) bool {
			return strings.HasPrefix(r.get(systems).members()[0], "https://127.0.0.1:9/")
		},
		redfishsim.FaultUnavailable: func(r *rig) bool {
			a := r.do("PATCH", r.system(), m{"AssetTag": "a"})
			return a.status == 503 && a.header.Get("Retry-After") == "5"
		},
	}
}

func TestEachFaultBitesAsOftenAsItSays(t *testing.T) {
	t.Parallel()
	for name, bitten := range faultTrials() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "Lenovo")
			require.False(t, bitten(r), "before it is armed")
			r.settleOff()
			r.fault(redfishsim.Fault{Name: name, Count: 2})
			require.True(t, bitten(r), "first")
			require.True(t, bitten(r), "second")
			require.False(t, bitten(r), "after its count is used up")
			require.Empty(t, r.s.Faults())
			require.Equal(t, map[string]int{string(name): 2}, r.s.Counters().Faults)
			r.settleOff()
			r.fault(redfishsim.Fault{Name: name})
			for range 3 {
				require.True(t, bitten(r), "without a count it stays")
			}
			r.s.ClearFaults()
			require.False(t, bitten(r), "cleared")
		})
	}
}

// settleOff switches the host off when a trial left it on.
func (r *rig) settleOff() {
	r.t.Helper()
	if r.m.Power() != simhw.Off {
		r.m.PowerOff("test", true)
		r.settle(simhw.Off)
	}
}

func TestFaultsAimByMethodAndPath(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Method: "GET", Path: "/Chassis", Status: 500})
	r.get("/redfish/v1/Systems")
	require.Equal(t, 500, r.do("GET", "/redfish/v1/Chassis", nil).status)
	require.Less(t, r.patch(r.system(), m{"AssetTag": "a"}).status, 300)
	require.ErrorContains(t, r.s.AddFault(redfishsim.Fault{Name: "gremlin"}), "no fault")
	require.ErrorContains(t, r.s.AddFault(redfishsim.Fault{Name: redfishsim.FaultHangBody, Count: -1}), "negative")
	require.ErrorContains(t, r.s.AddFault(redfishsim.Fault{Name: redfishsim.FaultCertificateChange}), "TLS")
}

func TestForcedLockout(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultLockout, Count: 1})
	require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil).status)
	require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil).status, "locked until the time is over")
	r.m.Clock().Step(10*time.Minute + time.Second)
	r.get("/redfish/v1/Systems")
}

func TestPasswordChangeRequiredEndsWithTheChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, "NVIDIA")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultPasswordChange})
	login := r.tryLogin()
	require.Equal(t, 201, login.status)
	require.Contains(t, string(login.raw), "PasswordChangeRequired")
	a := r.do("GET", "/redfish/v1/Systems", nil)
	require.Equal(t, 403, a.status)
	require.Equal(t, "Base.1.13.PasswordChangeRequired", a.messageID())
	account := "/redfish/v1/AccountService/Accounts/" + r.user
	require.Equal(t, 204, r.patch(account, m{"Password": "brand-new-password"}).status)
	r.pw = "brand-new-password"
	r.get("/redfish/v1/Systems")
}

func TestAsyncAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Supermicro")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultAsyncAbsolute, Count: 1})
	a := r.reset("On")
	require.Equal(t, 202, a.status)
	monitor, ok := strings.CutPrefix(a.header.Get("Location"), r.url)
	require.True(t, ok, "absolute, on this host: %s", a.header.Get("Location"))
	require.Equal(t, simhw.PoweringOn, r.m.Power())
	require.Equal(t, 202, r.do("GET", monitor, nil).status)
	tasks := r.get("/redfish/v1/TaskService/Tasks").members()
	require.Equal(t, "Running", r.get(tasks[0]).obj["TaskState"])
	r.m.Clock().Step(3 * time.Second)
	require.Equal(t, 204, r.do("GET", monitor, nil).status)
	require.Equal(t, "Completed", r.get(tasks[0]).obj["TaskState"])

	r.settle(simhw.On)
	r.fault(redfishsim.Fault{Name: redfishsim.FaultAsyncNoLocation, Count: 1})
	a = r.reset("ForceOff")
	require.Equal(t, 202, a.status)
	require.Empty(t, a.header.Get("Location"))
	r.settle(simhw.Off)

	r.fault(redfishsim.Fault{Name: redfishsim.FaultAsyncAbsolute, URL: "https://127.0.0.1:9"})
	require.True(t, strings.HasPrefix(r.reset("On").header.Get("Location"), "https://127.0.0.1:9/redfish/"))
}

func TestPowerThatLiesOrWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Supermicro")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultIgnoredPower, Count: 1})
	require.Equal(t, 204, r.reset("On").status)
	require.Equal(t, simhw.Off, r.m.Power())
	require.Empty(t, r.s.Counters().Resets, "what had no effect is not counted")

	r.fault(redfishsim.Fault{Name: redfishsim.FaultDelayedPower, Count: 1, Delay: time.Minute})
	require.Equal(t, 204, r.reset("On").status)
	require.Equal(t, simhw.Off, r.m.Power())
	r.settle(simhw.On)

	r.fault(redfishsim.Fault{Name: redfishsim.FaultIgnoredGraceful})
	require.Equal(t, 204, r.reset("GracefulShutdown").status)
	require.Equal(t, simhw.On, r.m.Power())
	require.Equal(t, 204, r.reset("ForceOff").status)
	r.settle(simhw.Off)
}

func TestHangingAndHugeBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultHangBody, Count: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/redfish/v1/Systems", nil)
	require.NoError(t, err)
	req.SetBasicAuth(r.user, r.pw)
	res, err := r.http.Do(req)
	require.NoError(t, err, "the headers come")
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotEmpty(t, got, "half the body comes")

	r.fault(redfishsim.Fault{Name: redfishsim.FaultHugeBody, Count: 1, Bytes: 5 << 20})
	a := r.get("/redfish/v1/Systems")
	require.Greater(t, len(a.raw), 5<<20)
	require.Equal(t, "huge", a.obj["Id"], "it is valid JSON, only long")
}

func TestLostAnswerComesAfterTheEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		r.fault(redfishsim.Fault{Name: redfishsim.FaultLostAnswer, Count: 1})
		_, err := r.try("POST", r.system()+"/Actions/ComputerSystem.Reset", m{"ResetType": "On"})
		require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF), "%v", err)
		require.Equal(t, simhw.PoweringOn, r.m.Power())
		require.Equal(t, 1, r.s.Counters().Resets["On"])
	})
}

func TestUnavailableComesBeforeTheEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t, "HPE")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Count: 1})
	require.Equal(t, 503, r.reset("On").status)
	require.Equal(t, simhw.Off, r.m.Power())
	require.Empty(t, r.s.Counters().Resets)
}

func TestBMCResetInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Supermicro")
	token, _ := r.login()
	r.fault(redfishsim.Fault{Name: redfishsim.FaultBMCReset, Count: 1, Delay: 90 * time.Second})
	_, err := r.try("POST", r.system()+"/Actions/ComputerSystem.Reset", m{"ResetType": "On"})
	require.Error(t, err)
	require.Equal(t, simhw.PoweringOn, r.m.Power(), "the host goes on without its BMC")
	_, err = r.try("GET", "/redfish/v1", nil)
	require.Error(t, err)
	require.ErrorIs(t, r.m.CheckBMC(r.user, r.pw), simhw.ErrBMCUnreachable)
	r.m.Clock().Step(91 * time.Second)
	require.Eventually(t, func() bool { _, err := r.try("GET", "/redfish/v1", nil); return err == nil }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil, "X-Auth-Token", token).status)
	require.Equal(t, 1, r.s.Counters().BMCResets)
}

func TestManagerResetAnswersFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	reset := "/redfish/v1/Managers/iDRAC.Embedded.1/Actions/Manager.Reset"
	require.Equal(t, 400, r.do("POST", reset, m{"ResetType": "On"}).status)
	require.Equal(t, 204, r.do("POST", reset, m{"ResetType": "GracefulRestart"}).status)
	require.Eventually(t, func() bool { _, err := r.try("GET", "/redfish/v1", nil); return err != nil }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	r.m.Clock().Step(61 * time.Second)
	require.Eventually(t, func() bool { _, err := r.try("GET", "/redfish/v1", nil); return err == nil }, runenv.Patience(5*time.Second), 5*time.Millisecond)
}

func TestCertificateChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell", func(o *redfishsim.Options) { o.TLS = true })
	require.True(t, strings.HasPrefix(r.url, "https://"))
	pin := func() [32]byte {
		d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: runenv.Patience(5 * time.Second)}, Config: &tls.Config{InsecureSkipVerify: true}}
		c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "https://"))
		require.NoError(t, err)
		defer c.Close()
		return sha256.Sum256(c.(*tls.Conn).ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
	}
	first, pem := pin(), string(r.s.CertificatePEM())
	require.Equal(t, first, pin())
	r.get("/redfish/v1/Systems")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultCertificateChange})
	second := pin()
	require.NotEqual(t, first, second)
	require.Equal(t, second, pin(), "one change, not one a handshake")
	require.NotEqual(t, pem, string(r.s.CertificatePEM()))
}

func TestRedirectAndForeignLinksGoWhereAimed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	r.fault(redfishsim.Fault{Name: redfishsim.FaultRedirect, Count: 1, URL: "http://127.0.0.1:9", Status: 302})
	a := r.do("GET", "/redfish/v1/Systems", nil)
	require.Equal(t, 302, a.status)
	require.Equal(t, "http://127.0.0.1:9/redfish/v1/Systems", a.header.Get("Location"))
	r.fault(redfishsim.Fault{Name: redfishsim.FaultForeignLink, Count: 1, Path: "/Systems", URL: "@127.0.0.1:9/x"})
	require.Equal(t, []string{"@127.0.0.1:9/x"}, r.get("/redfish/v1/Systems").members())
	r.fault(redfishsim.Fault{Name: redfishsim.FaultForeignLink, Count: 1, Path: "/Sessions", URL: "http://127.0.0.1:9/s"})
	require.Equal(t, "http://127.0.0.1:9/s", r.tryLogin().header.Get("Location"))
}

func TestPasswordRefusedOrIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t, "HPE")
	const account = "/redfish/v1/AccountService/Accounts/1"
	r.fault(redfishsim.Fault{Name: redfishsim.FaultPasswordRefused, Count: 1})
	require.Equal(t, 400, r.patch(account, m{"Password": "A-better-password1"}).status)
	r.fault(redfishsim.Fault{Name: redfishsim.FaultPasswordIgnored, Count: 1})
	require.Less(t, r.patch(account, m{"Password": "A-better-password1"}).status, 300)
	require.Equal(t, r.pw, r.m.Spec().BMCPassword)
	require.Zero(t, r.s.Counters().PasswordChanges)
	require.Less(t, r.patch(account, m{"Password": "A-better-password1"}).status, 300)
	require.Equal(t, 1, r.s.Counters().PasswordChanges)
}

func TestPasswordPolicyByVendor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		p := r.s.Personality()
		account := "/redfish/v1/AccountService/Accounts/" + p.AccountID
		if p.AccountByName {
			account = "/redfish/v1/AccountService/Accounts/" + r.user
		}
		long := "A1-" + strings.Repeat("x", p.MaxPassword-3)
		require.Equal(t, 400, r.patch(account, m{"Password": long + "x"}).status)
		if p.PasswordSorts > 1 {
			require.Equal(t, 400, r.patch(account, m{"Password": strings.Repeat("x", p.MinPassword)}).status)
		}
		token, _ := r.login()
		res := r.do("PATCH", account, m{"Password": long}, "X-Auth-Token", token, "If-Match", r.get(account).header.Get("ETag"))
		require.Less(t, res.status, 300)
		want := 200
		if p.ChangeEndsOwn {
			want = 401
		}
		require.Equal(t, want, r.do("GET", "/redfish/v1/Systems", nil, "X-Auth-Token", token).status)
	})
}

// A new fault needs a trial above or a test of its own.
func TestEveryFaultHasATest(t *testing.T) {
	t.Parallel()
	tested := []redfishsim.FaultName{
		redfishsim.FaultLockout, redfishsim.FaultAsyncAbsolute, redfishsim.FaultAsyncNoLocation, redfishsim.FaultIgnoredPower,
		redfishsim.FaultDelayedPower, redfishsim.FaultIgnoredGraceful, redfishsim.FaultHangBody, redfishsim.FaultHugeBody,
		redfishsim.FaultLostAnswer, redfishsim.FaultBMCReset, redfishsim.FaultCertificateChange, redfishsim.FaultPasswordRefused, redfishsim.FaultPasswordIgnored,
	}
	for name := range faultTrials() {
		tested = append(tested, name)
	}
	require.ElementsMatch(t, redfishsim.FaultNames(), tested)
}
