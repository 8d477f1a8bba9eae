package redfishsim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

func TestSessionLifeAndTimeout(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		token, location := r.login()
		r.get("/redfish/v1/Systems", "X-Auth-Token", token)
		require.Len(t, r.get("/redfish/v1/SessionService/Sessions").members(), 1)
		require.Less(t, r.do("DELETE", location, nil, "X-Auth-Token", token).status, 300)
		require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil, "X-Auth-Token", token).status)

		token, _ = r.login()
		p := r.s.Personality()
		r.m.Clock().Step(p.SessionTimeout / 2)
		r.get("/redfish/v1/Systems", "X-Auth-Token", token)
		r.m.Clock().Step(p.SessionTimeout/2 + time.Second)
		r.get("/redfish/v1/Systems", "X-Auth-Token", token)
		r.m.Clock().Step(p.SessionTimeout + time.Second)
		require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil, "X-Auth-Token", token).status)
		c := r.s.Counters()
		require.Equal(t, 2, c.Logins)
		require.Zero(t, c.Sessions)
		require.Zero(t, c.FailedLogins, "an expired token is no failed login")
	})
}

func TestSessionTableFills(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell", func(o *redfishsim.Options) {
		o.Adjust = func(p *redfishsim.Personality) { p.SessionLimit = 2 }
	})
	_, first := r.login()
	r.login()
	a := r.do("POST", "/redfish/v1/SessionService/Sessions", m{"UserName": r.user, "Password": r.pw})
	require.Equal(t, 503, a.status)
	require.Less(t, r.do("DELETE", first, nil).status, 300)
	r.login()
}

func TestLockoutByVendor(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		threshold int
		duration  time.Duration
	}{"Lenovo": {5, time.Hour}, "NVIDIA": {4, 600 * time.Second}, "Dell": {}, "HPE": {}, "Supermicro": {3, 30 * time.Second}}
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		w := want[vendor]
		svc := r.get("/redfish/v1/AccountService").obj
		require.EqualValues(t, w.threshold, svc["AccountLockoutThreshold"])
		require.EqualValues(t, w.duration/time.Second, svc["AccountLockoutDuration"])
		good := r.pw
		r.pw = "wrong"
		for range max(w.threshold, 6) {
			require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil).status)
		}
		r.pw = good
		if w.threshold == 0 {
			r.get("/redfish/v1/Systems")
			return
		}
		a := r.do("GET", "/redfish/v1/Systems", nil)
		require.Equal(t, 401, a.status, "a locked account is refused with the right password too")
		require.Equal(t, vendor == "Lenovo", a.messageID() == "Base.1.8.AccountLocked")
		require.Equal(t, max(w.threshold, 6)+1, r.s.Counters().FailedLogins)
		r.m.Clock().Step(w.duration + time.Second)
		r.get("/redfish/v1/Systems")
	})
}

func TestLockoutPolicyCanBeSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Lenovo")
	require.Equal(t, 200, r.patch("/redfish/v1/AccountService", m{"AccountLockoutThreshold": 0}).status)
	require.Equal(t, 400, r.patch("/redfish/v1/AccountService", m{"AccountLockoutDuration": -1}).status)
	good := r.pw
	r.pw = "wrong"
	for range 8 {
		r.do("GET", "/redfish/v1/Systems", nil)
	}
	r.pw = good
	r.get("/redfish/v1/Systems")
}

func TestPasswordChangeReachesTheMachine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		p := r.s.Personality()
		id := p.AccountID
		if p.AccountByName {
			id = r.user
		}
		account, old := "/redfish/v1/AccountService/Accounts/"+id, r.pw
		a := r.get(account)
		require.Equal(t, r.user, a.obj["UserName"])
		require.Nil(t, a.obj["Password"], "a password is never shown")
		require.Equal(t, 400, r.patch(account, m{"Password": "short"}).status)
		token, _ := r.login()
		require.Less(t, r.patch(account, m{"Password": "A-better-password1"}).status, 300)
		require.Equal(t, "A-better-password1", r.m.Spec().BMCPassword)
		require.Equal(t, r.url, r.m.Spec().BMCAddress)
		require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil, "X-Auth-Token", token).status, "other sessions of the account end")
		r.pw = "A-better-password1"
		r.get("/redfish/v1/Systems")
		r.pw = old
		require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil).status)
	})
}

func TestChangePasswordAction(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Supermicro")
	target := r.get("/redfish/v1/AccountService/Accounts/2").obj["Actions"].(m)["#ManagerAccount.ChangePassword"].(m)["target"].(string)
	require.Equal(t, 400, r.do("POST", target, m{"NewPassword": "Another-password"}).status)
	require.Equal(t, 400, r.do("POST", target, m{"NewPassword": "Another-password", "SessionAccountPassword": "no"}).status)
	require.Equal(t, 204, r.do("POST", target, m{"NewPassword": "Another-password", "SessionAccountPassword": r.pw}).status)
	require.Equal(t, "Another-password", r.m.Spec().BMCPassword)
}

func TestAccountsAreMadeByPostOrBySlot(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		const base = "/redfish/v1/AccountService/Accounts"
		fresh := m{"UserName": "slipway", "Password": "slipway-password-1", "RoleId": "Administrator"}
		a := r.do("POST", base, fresh)
		path := a.header.Get("Location")
		if r.s.Personality().AccountSlots > 0 {
			require.Equal(t, 405, a.status)
			require.Len(t, r.get(base).members(), 16)
			path = base + "/5"
			fresh["Enabled"] = true
			require.Less(t, r.patch(path, fresh).status, 300)
		} else {
			require.Equal(t, 201, a.status)
			require.Equal(t, 400, r.do("POST", base, fresh).status, "taken")
		}
		root, rootPW := r.user, r.pw
		r.user, r.pw = "slipway", "slipway-password-1"
		r.get("/redfish/v1/Systems")
		r.user, r.pw = root, rootPW
		if r.s.Personality().AccountSlots == 0 {
			require.Less(t, r.do("DELETE", path, nil).status, 300)
			require.Equal(t, 404, r.do("GET", path, nil).status)
		}
		require.Equal(t, rootPW, r.m.Spec().BMCPassword)
	})
}

func TestTokensRepeatWithASeed(t *testing.T) {
	t.Parallel()
	seeded := func(o *redfishsim.Options) { o.Seed = 42 }
	a, _ := newRig(t, "Dell", seeded).login()
	b, _ := newRig(t, "Dell", seeded).login()
	c, _ := newRig(t, "Dell").login()
	require.Equal(t, a, b)
	require.NotEqual(t, a, c)
}
