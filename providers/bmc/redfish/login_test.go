package redfish

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

func TestSessionIsCreatedOnceAndLoggedOut(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	b := s.open()
	for range 3 {
		_, err := b.Power(t.Context())
		require.NoError(t, err)
	}
	require.Len(t, s.requests("POST "+sessionsURI), 1)
	for _, r := range s.requests("") {
		require.Empty(t, r.Header.Get("Authorization"), "the password travels in the session request only")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, b.Close(ended), "logout has its own deadline")
	require.NoError(t, b.Close(t.Context()))
	require.Len(t, s.requests("DELETE "+sessionsURI+"/7"), 1)
	_, err := b.Power(t.Context())
	requireKind(t, err, providers.KindInvalid)
}

func TestCloseWithoutLoginSendsNothing(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	require.NoError(t, s.open().Close(t.Context()))
	require.Empty(t, s.requests(""))
}

func TestWrongPasswordIsTriedOnce(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+sessionsURI, refuse(http.StatusUnauthorized, "Base.1.8.InsufficientPrivilege", "bad login"))
	b := s.open()
	for range 3 {
		_, err := b.Power(t.Context())
		requireKind(t, err, providers.KindUnauthorized)
	}
	_, err := b.SetPower(t.Context(), providers.IntentForceOff)
	requireKind(t, err, providers.KindUnauthorized)
	require.NoError(t, b.Close(t.Context()))
	sent := 0
	for _, r := range s.requests("") {
		if r.credential() {
			sent++
		}
	}
	require.Equal(t, 1, sent)
}

func TestBasicWhenThereIsNoSessionService(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.put("/redfish/v1", obj{"RedfishVersion": "1.5.0", "Systems": ref("/redfish/v1/Systems")})
	_, err := s.open().Power(t.Context())
	require.NoError(t, err)
	r := s.requests("GET " + sysURI)
	require.NotEmpty(t, r)
	req := http.Request{Header: r[0].Header}
	user, password, ok := req.BasicAuth()
	require.True(t, ok)
	require.Equal(t, testUser, user)
	require.Equal(t, testPassword, password)
	root := s.requests("GET /redfish/v1")
	require.False(t, root[0].credential(), "the root is read without a login")

	s.on("GET /redfish/v1/Systems", refuse(http.StatusUnauthorized, "Base.1.8.AccessDenied", "no"))
	b := s.open()
	before := len(s.requests(""))
	for range 3 {
		_, err := b.Power(t.Context())
		requireKind(t, err, providers.KindUnauthorized)
	}
	require.Equal(t, before+2, len(s.requests("")), "the root and one request with the login")
}

func TestAnnouncedSessionServiceThatIsNotThereFallsBackToBasic(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+sessionsURI, refuse(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "missing"))
	_, err := s.open().Power(t.Context())
	require.NoError(t, err)
}

func TestSessionWithoutTokenIsNoLogin(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+sessionsURI, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusCreated, obj{"Id": "7"}) })
	b := s.open()
	for range 2 {
		_, err := b.Power(t.Context())
		requireKind(t, err, providers.KindProtocol)
	}
	require.Len(t, s.requests("POST "+sessionsURI), 1)
	require.Empty(t, s.requests("GET "+sysURI))
}

func TestSessionLocationForms(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, s *stub){
		"absolute":  func(w http.ResponseWriter, s *stub) { w.Header().Set("Location", s.srv.URL+sessionsURI+"/7") },
		"body only": func(http.ResponseWriter, *stub) {},
	} {
		s := newStub(t)
		s.on("POST "+sessionsURI, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Auth-Token", testToken)
			answer(w, s)
			reply(w, http.StatusCreated, obj{"Id": "7"})
		})
		b := s.open()
		_, err := b.Power(t.Context())
		require.NoError(t, err, name)
		require.NoError(t, b.Close(t.Context()))
		require.Len(t, s.requests("DELETE "+sessionsURI+"/7"), 1, name)
	}
	s := newStub(t)
	s.on("POST "+sessionsURI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Auth-Token", testToken)
		w.Header().Set("Location", "https://evil.example/redfish/v1/SessionService/Sessions/7")
		w.WriteHeader(http.StatusCreated)
	})
	_, err := s.open().Power(t.Context())
	requireKind(t, err, providers.KindForeign)
}

func TestLoginRefusalsHaveTheirOwnKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status   int
		id, text string
		kind     providers.Kind
	}{
		{401, "IDRAC.2.7.RAC0212", "The account is temporarily locked.", providers.KindLocked},
		{403, "ExtendedError.1.2.AccountLockedOut", "", providers.KindLocked},
		{403, "Base.1.8.PasswordChangeRequired", "The password must be changed.", providers.KindPasswordChangeRequired},
		{403, "Base.1.8.InsufficientPrivilege", "", providers.KindForbidden},
		{503, "Base.1.8.SessionLimitExceeded", "", providers.KindUnavailable},
	} {
		s := newStub(t)
		s.on("POST "+sessionsURI, refuse(c.status, c.id, c.text))
		b := s.open()
		for range 2 {
			_, err := b.Power(t.Context())
			requireKind(t, err, c.kind)
		}
		require.Len(t, s.requests("POST "+sessionsURI), 1, c.id)
	}
}

// A factory BMC accepts the login and answers everything else so.
func TestPasswordChangeRequiredAfterLogin(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("GET /redfish/v1/Systems", refuse(http.StatusForbidden, "Base.1.8.PasswordChangeRequired", ""))
	_, err := s.open().Identify(t.Context())
	requireKind(t, err, providers.KindPasswordChangeRequired)
}

func TestSessionThatEndsIsNoWrongPassword(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	b := s.open()
	_, err := b.Power(t.Context())
	require.NoError(t, err)
	s.on("GET "+sysURI, refuse(http.StatusUnauthorized, "Base.1.8.NoValidSession", "expired"))
	before := len(s.requests(""))
	for range 3 {
		_, err = b.Power(t.Context())
		requireKind(t, err, providers.KindUnavailable)
	}
	require.Equal(t, before+1, len(s.requests("")), "no login and no request after the session ended")

	fresh := newStub(t)
	fresh.on("GET /redfish/v1/Systems", refuse(http.StatusUnauthorized, "Base.1.8.NoValidSession", "expired"))
	_, err = fresh.open().Identify(t.Context())
	requireKind(t, err, providers.KindUnavailable) // a token was given out: the password was right
	require.Len(t, fresh.requests("POST "+sessionsURI), 1)
}

func TestUnreachableBeforeTheLoginMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	target := s.target()
	target.Address = "http://127.0.0.1:1"
	b := openTarget(t, target, fast())
	for range 2 {
		_, err := b.Power(t.Context())
		requireKind(t, err, providers.KindUnreachable)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Power(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
