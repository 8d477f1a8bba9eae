package redfish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	testUser     = "operator"
	testPassword = `Tr0ub4dor&"3`
	testToken    = "token-5f1c"
	sysURI       = "/redfish/v1/Systems/1"
	resetURI     = sysURI + "/Actions/ComputerSystem.Reset"
	sessionsURI  = "/redfish/v1/SessionService/Sessions"
)

// fast keeps the waits of a test short; the logic is that of DefaultOptions.
func fast() Options {
	return Options{
		ConnectTimeout: 2 * time.Second, RequestTimeout: 2 * time.Second, LogoutTimeout: time.Second,
		PollMin: time.Millisecond, PollMax: 5 * time.Millisecond,
		PowerTimeout: 3 * time.Second, GracefulTimeout: 500 * time.Millisecond,
		ConflictWait: time.Millisecond, ConflictRetries: 3,
		LostAnswerWait: 400 * time.Millisecond, VerifyWait: 40 * time.Millisecond, TaskTimeout: 3 * time.Second,
	}
}

type seen struct {
	Method, Path string
	Header       http.Header
	Body         string
}

func (s seen) credential() bool {
	return s.Header.Get("X-Auth-Token") != "" || s.Header.Get("Authorization") != "" || strings.Contains(s.Body, "Password")
}

// stub is a small BMC: resources as JSON, and hooks where a test wants a trap.
type stub struct {
	t   *testing.T
	srv *httptest.Server

	mu    sync.Mutex
	res   map[string]map[string]any
	hooks map[string]http.HandlerFunc
	log   []seen
}

type obj = map[string]any

func ref(uri string) obj { return obj{"@odata.id": uri} }

func collection(uris ...string) obj {
	members := []any{}
	for _, u := range uris {
		members = append(members, ref(u))
	}
	return obj{"Members": members, "Members@odata.count": len(uris)}
}

func newStub(t *testing.T) *stub {
	t.Helper()
	s := &stub{t: t, hooks: map[string]http.HandlerFunc{}, res: map[string]map[string]any{
		"/redfish/v1": {
			"RedfishVersion": "1.15.0", "Vendor": "Testco", "Systems": ref("/redfish/v1/Systems"),
			"SessionService": ref("/redfish/v1/SessionService"),
			"Links":          obj{"Sessions": ref(sessionsURI)},
		},
		"/redfish/v1/Systems": collection(sysURI),
		sysURI: {
			"Id": "1", "PowerState": "On", "SerialNumber": " SN1 ", "Status": obj{"Health": "OK", "State": "Enabled"},
			"Actions": obj{"#ComputerSystem.Reset": obj{"target": resetURI,
				"ResetType@Redfish.AllowableValues": []any{"On", "ForceOff", "GracefulShutdown", "Nmi"}}},
			"Boot": obj{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI",
				"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "Cd", "Hdd"}},
		},
	}}
	s.on("POST "+sessionsURI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Auth-Token", testToken)
		w.Header().Set("Location", sessionsURI+"/7")
		reply(w, http.StatusCreated, obj{"@odata.id": sessionsURI + "/7"})
	})
	s.on("DELETE "+sessionsURI+"/7", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.on("POST "+resetURI, func(w http.ResponseWriter, r *http.Request) {
		s.set(sysURI, "PowerState", map[string]string{"On": "On", "ForceOff": "Off", "GracefulShutdown": "Off", "Nmi": "On"}[resetType(r)])
		w.WriteHeader(http.StatusNoContent)
	})
	s.on("PATCH "+sysURI, func(w http.ResponseWriter, r *http.Request) {
		s.mergeBoot(sysURI, r)
		w.WriteHeader(http.StatusNoContent)
	})
	s.srv = httptest.NewServer(s)
	t.Cleanup(s.srv.Close)
	return s
}

// quietTLS is a TLS server that does not log the handshakes a test aborts on
// purpose.
func quietTLS(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	return srv
}

// tls serves the same stub over TLS and returns the pin of its leaf.
func (s *stub) tls() (address, pin string) {
	srv := quietTLS(s)
	s.t.Cleanup(srv.Close)
	sum := sha256.Sum256(srv.Certificate().RawSubjectPublicKeyInfo)
	return srv.URL, hex.EncodeToString(sum[:])
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(status int, messageID, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply(w, status, obj{"error": obj{"code": "Base.1.8.GeneralError", "message": "see below",
			"@Message.ExtendedInfo": []any{obj{"MessageId": messageID, "Message": message}}}})
	}
}

func resetType(r *http.Request) string {
	var v struct{ ResetType string }
	_ = json.NewDecoder(r.Body).Decode(&v)
	return v.ResetType
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	path := strings.TrimSuffix(r.URL.Path, "/")
	s.mu.Lock()
	s.log = append(s.log, seen{r.Method, path, r.Header.Clone(), string(body)})
	hook := s.hooks[r.Method+" "+path]
	res, ok := s.res[path]
	copied := maps.Clone(res)
	s.mu.Unlock()
	open := path == "/redfish/v1" || (r.Method == http.MethodPost && path == sessionsURI)
	_, _, basic := r.BasicAuth()
	switch {
	case hook != nil:
		hook(w, r)
	case !open && !basic && r.Header.Get("X-Auth-Token") != testToken:
		refuse(http.StatusUnauthorized, "Base.1.8.NoValidSession", "no session")(w, r)
	case r.Method == http.MethodGet && ok:
		reply(w, http.StatusOK, copied)
	default:
		refuse(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "missing")(w, r)
	}
}

func (s *stub) on(route string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks[route] = h
}

func (s *stub) put(uri string, v map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.res[uri] = v
}

// set replaces one property, copying the resource since answers share it.
func (s *stub) set(uri, key string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(s.res[uri])
	m[key] = v
	s.res[uri] = m
}

func (s *stub) mergeBoot(uri string, r *http.Request) {
	var v struct{ Boot map[string]any }
	_ = json.NewDecoder(r.Body).Decode(&v)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(s.res[uri])
	old, _ := m["Boot"].(map[string]any)
	boot := maps.Clone(old)
	maps.Copy(boot, v.Boot)
	m["Boot"] = boot
	s.res[uri] = m
}

func (s *stub) requests(route string) []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(func(yield func(seen) bool) {
		for _, r := range s.log {
			if (route == "" || r.Method+" "+r.Path == route) && !yield(r) {
				return
			}
		}
	})
}

func (s *stub) target() providers.BMCTarget {
	return providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: s.srv.URL, User: testUser, Password: providers.NewSecret(testPassword)}
}

func (s *stub) open() *BMC { return openTarget(s.t, s.target(), fast()) }

func openTarget(t *testing.T, target providers.BMCTarget, o Options) *BMC {
	t.Helper()
	b, err := Opener{Options: o}.OpenBMC(target)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b.(*BMC)
}

// requireKind checks the kind and that nothing secret got into any part of
// the error.
func requireKind(t *testing.T, err error, kind providers.Kind) {
	t.Helper()
	_ = requireError(t, err, kind)
}

// requireError is requireKind for a test that looks at more of the error.
func requireError(t *testing.T, err error, kind providers.Kind) *providers.Error {
	t.Helper()
	require.Error(t, err)
	var pe *providers.Error
	require.ErrorAs(t, err, &pe)
	require.Equal(t, kind, pe.Kind, "%v", err)
	text := err.Error()
	if pe.Err != nil {
		text += pe.Err.Error()
	}
	require.NotContains(t, text, testPassword)
	require.NotContains(t, text, testToken)
	return pe
}
