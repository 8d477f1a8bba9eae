package redfish

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/conformance"
)

// The suite itself is tried on the smallest BMC, so that a failure elsewhere
// is the machine's and not the suite's.
func TestConformanceOnTheStub(t *testing.T) {
	t.Parallel()
	conformance.ExerciseBMC(t, func(t *testing.T) conformance.BMCFixture {
		s := machine(t)
		s.on("POST "+sessionsURI, func(w http.ResponseWriter, r *http.Request) {
			if login := s.requests("POST " + sessionsURI); len(login) > 0 && !acceptedLogin(login[len(login)-1].Body) {
				refuse(http.StatusUnauthorized, "Base.1.8.AccessDenied", "")(w, r)
				return
			}
			w.Header().Set("X-Auth-Token", testToken)
			w.Header().Set("Location", sessionsURI+"/7")
			w.WriteHeader(http.StatusCreated)
		})
		target := s.target()
		target.Address, target.PinSHA256 = s.tls()
		return conformance.BMCFixture{
			Opener: Opener{Options: fast()}, Target: target, WrongPassword: true, Graceful: conformance.GracefulWorks,
			BootTargets: []providers.BootTarget{providers.BootPXE, providers.BootCD},
			Logins:      func() int { return len(s.requests("POST " + sessionsURI)) },
			Resets:      func() int { return len(s.requests("POST " + resetURI)) },
			Lacks:       conformance.BMCLacks{Addresses: true},
		}
	})
}

func acceptedLogin(body string) bool {
	return body == `{"UserName":"operator","Password":"Tr0ub4dor\u0026\"3"}`
}

func TestConformanceOnRealGear(t *testing.T) {
	t.Parallel()
	f, ok := conformance.RealBMC(os.Getenv, Opener{})
	if !ok {
		t.Skip("no real BMC is given; set SLIPWAY_TEST_BMC_ADDRESS, _USER, _PASSWORD and _PIN to run the suite on one")
	}
	require.NotEmpty(t, f.Target.User, "SLIPWAY_TEST_BMC_USER")
	conformance.ExerciseBMC(t, func(*testing.T) conformance.BMCFixture { return f })
}
