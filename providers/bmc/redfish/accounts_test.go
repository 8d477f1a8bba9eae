package redfish

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

const freshPassword = "Fresh-Pass-2468x"

// works reports whether a login with this password is taken; one attempt.
func (s *sim) works(password string) error {
	t := s.target
	t.Password = providers.NewSecret(password)
	b := openTarget(s.t, t, simOptions())
	defer func() { require.NoError(s.t, b.Close(s.t.Context())) }()
	return b.Login(s.t.Context())
}

func TestChangePasswordOnEveryMake(t *testing.T) {
	t.Parallel()
	for _, vendor := range redfishsim.Names() {
		for name, fault := range map[string]*redfishsim.Fault{
			"used": nil, "factory": {Name: redfishsim.FaultPasswordChange}, "weak etag": {Name: redfishsim.FaultWeakETag, Count: 1},
		} {
			t.Run(vendor+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newSim(t, vendor)
				if fault != nil {
					s.fault(*fault)
				}
				b := s.open()
				require.NoError(t, b.Login(t.Context()))
				require.NoError(t, b.ChangePassword(t.Context(), providers.NewSecret(freshPassword)))
				require.NoError(t, b.Close(t.Context()))
				require.NoError(t, s.works(freshPassword))
				requireKind(t, s.works(s.target.Password.Reveal()), providers.KindUnauthorized)
				c := s.server.Counters()
				require.Equal(t, 1, c.PasswordChanges)
				require.Equal(t, 1, c.FailedLogins)
				require.Equal(t, 2, c.Logins, "one login for the change, one for the proof")
				require.Zero(t, c.Sessions)
			})
		}
	}
}

// AMI's rule: the administrator is in slot 2, and a change wants If-Match: *. It
// saves requests and is no condition: an account that stands elsewhere is found
// by its name, and nobody else's is touched.
func TestAMIsAccountIsLookedForInItsSlotAndChangedUnderAnyTag(t *testing.T) {
	t.Parallel()
	change := func(t *testing.T, vendor, slot string) (requests int) {
		t.Helper()
		s := newSim(t, "Supermicro", func(p *redfishsim.Personality) {
			p.Name, p.AccountID, p.AccountSlots, p.NeedsIfMatch, p.AnyTagOnly = vendor, slot, 12, true, true
		})
		b := s.open()
		require.NoError(t, b.Login(t.Context()))
		before := s.server.Counters().Requests
		require.NoError(t, b.ChangePassword(t.Context(), providers.NewSecret(freshPassword)))
		requests = s.server.Counters().Requests - before
		require.NoError(t, b.Close(t.Context()))
		require.NoError(t, s.works(freshPassword))
		require.Equal(t, 1, s.server.Counters().PasswordChanges)
		return requests
	}
	for _, vendor := range []string{"AMI", "American Megatrends MegaRAC SP-X"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 3, change(t, vendor, "2"), "the account service, the slot, and one change")
		})
	}
	for name, c := range map[string][2]string{"AMI with another slot": {"AMI", "3"}, "a name that only contains ami": {"Siamix", "2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Greater(t, change(t, c[0], c[1]), 4, "it is looked for in the list, and the change is refused once")
		})
	}
}

func TestChangePasswordRefusedLostOrIgnored(t *testing.T) {
	t.Parallel()
	old := func(s *sim) string { return s.target.Password.Reveal() }
	fresh := func(*sim) string { return freshPassword }
	for name, c := range map[string]struct {
		fault redfishsim.Fault
		kind  providers.Kind
		live  func(*sim) string
	}{
		"policy":         {redfishsim.Fault{Name: redfishsim.FaultPasswordRefused, Count: 1}, providers.KindInvalid, old},
		"echoed":         {redfishsim.Fault{Name: redfishsim.FaultEcho, Count: 1, Method: http.MethodPatch}, providers.KindInvalid, old},
		"before effect":  {redfishsim.Fault{Name: redfishsim.FaultUnavailable, Count: 1}, providers.KindUncertain, old},
		"answer lost":    {redfishsim.Fault{Name: redfishsim.FaultLostAnswer, Count: 1}, providers.KindUncertain, fresh},
		"session ended":  {redfishsim.Fault{Name: redfishsim.FaultSessionDropped, Count: 1, Method: http.MethodPatch}, providers.KindUncertain, old},
		"redirected":     {redfishsim.Fault{Name: redfishsim.FaultRedirect, Count: 1, Method: http.MethodPatch}, providers.KindUncertain, old},
		"huge answer":    {redfishsim.Fault{Name: redfishsim.FaultHugeBody, Count: 1, Method: http.MethodPatch}, providers.KindUncertain, fresh},
		"said, not done": {redfishsim.Fault{Name: redfishsim.FaultPasswordIgnored, Count: 1}, "", old},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, "HPE")
			s.fault(c.fault)
			b := s.open()
			require.NoError(t, b.Login(t.Context()))
			err := b.ChangePassword(t.Context(), providers.NewSecret(freshPassword))
			if c.kind == "" {
				require.NoError(t, err)
			} else {
				requireKind(t, err, c.kind)
				require.NotContains(t, err.Error(), freshPassword)
				require.NotContains(t, err.Error(), old(s))
			}
			require.NoError(t, s.works(c.live(s)))
		})
	}
}

func TestLoginIsOneAttemptAndSaysWhetherItWasSent(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Lenovo")
	requireKind(t, s.works("no such password"), providers.KindUnauthorized)
	require.Equal(t, 1, s.server.Counters().FailedLogins)

	good := s.open()
	require.False(t, good.LoginSent())
	require.NoError(t, good.Login(t.Context()))
	require.NoError(t, good.Login(t.Context()), "repeated, it is the same login")
	require.True(t, good.LoginSent())
	require.Equal(t, 1, s.server.Counters().Logins)

	pinned := s.target
	other := "00"
	if strings.HasPrefix(pinned.PinSHA256, other) {
		other = "11"
	}
	pinned.PinSHA256 = other + pinned.PinSHA256[2:]
	b := openTarget(t, pinned, simOptions())
	requireKind(t, b.Login(t.Context()), providers.KindPinMismatch)
	require.False(t, b.LoginSent(), "the handshake failed before any password left")
}

func TestPasswordPolicyAsToldByTheBMC(t *testing.T) {
	t.Parallel()
	s := newSim(t, "NVIDIA")
	p, err := s.open().PasswordPolicy(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, *p.LockoutThreshold)
	require.Equal(t, s.server.Personality().LockoutDuration, p.LockoutWindow)
	require.Equal(t, 13, p.MinLength)
	require.Equal(t, 20, p.MaxLength)
}

func TestBasicLoginIsTriedOnTheAccountService(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+sessionsURI, refuse(http.StatusNotFound, "Base.1.8.ResourceMissing", "no sessions"))
	s.on("GET /redfish/v1/AccountService", refuse(http.StatusUnauthorized, "Base.1.8.NoValidSession", "bad"))
	b := s.open()
	requireKind(t, b.Login(t.Context()), providers.KindUnauthorized)
	require.True(t, b.LoginSent())
}
