package redfish

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// hijack drops the connection without an answer.
func hijack(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestPowerChangesAndRepeatsSendNothing(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	b := s.open()
	for _, step := range []struct {
		intent providers.PowerIntent
		want   providers.PowerState
		resets int
	}{
		{providers.IntentOn, providers.PowerOn, 0},
		{providers.IntentForceOff, providers.PowerOff, 1},
		{providers.IntentForceOff, providers.PowerOff, 1},
		{providers.IntentGracefulOff, providers.PowerOff, 1},
		{providers.IntentOn, providers.PowerOn, 2},
		{providers.IntentGracefulOff, providers.PowerOff, 3},
	} {
		got, err := b.SetPower(t.Context(), step.intent)
		require.NoError(t, err, step.intent)
		require.Equal(t, step.want, got)
		require.Len(t, s.requests("POST "+resetURI), step.resets, step.intent)
	}
	for _, r := range s.requests("POST " + resetURI) {
		require.Empty(t, r.Header.Get("If-Match"))
	}
	_, err := b.SetPower(t.Context(), "toggle")
	requireKind(t, err, providers.KindInvalid)
}

func TestNMINeedsASystemThatIsOn(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	b := s.open()
	_, err := b.SetPower(t.Context(), providers.IntentNMI)
	require.NoError(t, err)
	require.Contains(t, s.requests("POST " + resetURI)[0].Body, `"Nmi"`)
	s.set(sysURI, "PowerState", "Off")
	_, err = b.SetPower(t.Context(), providers.IntentNMI)
	requireKind(t, err, providers.KindStateConflict)
}

func (s *stub) resetAction(action obj) {
	action["target"] = resetURI
	s.set(sysURI, "Actions", obj{"#ComputerSystem.Reset": action})
}

func TestResetTypesComeFromTheBMC(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.resetAction(obj{"ResetType@Redfish.AllowableValues": []any{"ForceOn", "PushPowerButton"}})
	s.on("POST "+resetURI, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "ForceOn", resetType(r))
		s.set(sysURI, "PowerState", "On")
		w.WriteHeader(http.StatusNoContent)
	})
	b := s.open()
	for _, intent := range []providers.PowerIntent{providers.IntentGracefulOff, providers.IntentForceOff, providers.IntentNMI} {
		_, err := b.SetPower(t.Context(), intent)
		requireKind(t, err, providers.KindUnsupported)
	}
	require.Empty(t, s.requests("POST "+resetURI), "an unsupported intent is not sent")
	s.set(sysURI, "PowerState", "Off")
	_, err := b.SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
}

func TestResetTypesFromActionInfo(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.resetAction(obj{"@Redfish.ActionInfo": sysURI + "/ResetActionInfo"})
	s.put(sysURI+"/ResetActionInfo", obj{"Parameters": []any{obj{"Name": "ResetType", "AllowableValues": []any{"On", "ForceOff"}}}})
	b := s.open()
	_, err := b.SetPower(t.Context(), providers.IntentGracefulOff)
	requireKind(t, err, providers.KindUnsupported)
	_, err = b.SetPower(t.Context(), providers.IntentForceOff)
	require.NoError(t, err)

	s.resetAction(obj{}) // no list at all: the standard name is tried
	_, err = b.SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
}

func TestOnIsRetriedAfterConflict(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.set(sysURI, "PowerState", "Off")
	var refusals atomic.Int32
	s.on("POST "+resetURI, func(w http.ResponseWriter, r *http.Request) {
		if refusals.Add(1) <= 2 {
			refuse(http.StatusConflict, "Base.1.12.ActionParameterValueConflict", "")(w, r)
			return
		}
		s.set(sysURI, "PowerState", "On")
		w.WriteHeader(http.StatusNoContent)
	})
	state, err := s.open().SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
	require.Equal(t, providers.PowerOn, state)

	s.set(sysURI, "PowerState", "Off")
	s.on("POST "+resetURI, refuse(http.StatusConflict, "Base.1.12.ActionParameterValueConflict", ""))
	before := len(s.requests("POST " + resetURI))
	_, err = s.open().SetPower(t.Context(), providers.IntentOn)
	requireKind(t, err, providers.KindBusy)
	require.Equal(t, fast().ConflictRetries+1, len(s.requests("POST "+resetURI))-before)

	o := fast()
	o.ConflictWait = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = openTarget(t, s.target(), o).SetPower(ctx, providers.IntentOn)
	require.ErrorIs(t, requireError(t, err, providers.KindBusy), context.DeadlineExceeded)
}

func TestRefusalInTheWantedStateIsSuccess(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusConflict} {
		s := newStub(t)
		s.on("POST "+resetURI, func(w http.ResponseWriter, r *http.Request) {
			s.set(sysURI, "PowerState", "Off") // it went off by itself between the read and the request
			refuse(status, "Base.1.8.ActionNotSupported", "already off")(w, r)
		})
		state, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
		require.NoError(t, err)
		require.Equal(t, providers.PowerOff, state)
	}
}

func TestPowerRefusalKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		id     string
		kind   providers.Kind
	}{
		{400, "Base.1.8.ActionParameterValueFormatError", providers.KindInvalid},
		{400, "iLO.2.14.UnableToModifyDuringSystemPOST", providers.KindBusy},
		{409, "Base.1.8.Conflict", providers.KindStateConflict},
		{403, "Base.1.8.InsufficientPrivilege", providers.KindForbidden},
		{405, "Base.1.8.OperationNotAllowed", providers.KindUnsupported},
		{503, "Base.1.8.ServiceTemporarilyUnavailable", providers.KindUnavailable},
	} {
		s := newStub(t)
		s.on("POST "+resetURI, refuse(c.status, c.id, ""))
		state, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
		require.Equal(t, c.status, requireError(t, err, c.kind).Status)
		require.Equal(t, providers.PowerOn, state)
		require.Len(t, s.requests("POST "+resetURI), 1)
	}
}

func TestRetryAfterIsPassedOnAndBounded(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, "999999": time.Hour, "-3": 0, "soon": 0} {
		s.on("GET "+sysURI, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", value)
			refuse(http.StatusServiceUnavailable, "Base.1.8.ServiceTemporarilyUnavailable", "")(w, r)
		})
		_, err := s.open().Power(t.Context())
		require.Equal(t, want, requireError(t, err, providers.KindUnavailable).RetryAfter)
	}
}

func TestLostAnswerToAResetIsReadBackAndNeverRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		done bool
		drop func(http.ResponseWriter)
	}{
		"done, dropped":     {true, hijack},
		"not done, dropped": {false, hijack},
		"done, 502":         {true, func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }},
		"not done, 500":     {false, func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }},
	} {
		s := newStub(t)
		s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
			if c.done {
				s.set(sysURI, "PowerState", "Off")
			}
			c.drop(w)
		})
		state, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
		if c.done {
			require.NoError(t, err, name)
			require.Equal(t, providers.PowerOff, state)
		} else {
			requireKind(t, err, providers.KindUncertain)
		}
		require.Len(t, s.requests("POST "+resetURI), 1, name)
	}
}

func TestLostAnswerThatCannotBeReadBackIsUncertain(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
		s.on("GET "+sysURI, func(w http.ResponseWriter, _ *http.Request) { hijack(w) })
		hijack(w)
	})
	_, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
	requireKind(t, err, providers.KindUncertain)
}

// steps makes the power state of successive reads.
func (s *stub) steps(states ...string) {
	var n atomic.Int32
	s.on("GET "+sysURI, func(w http.ResponseWriter, _ *http.Request) {
		i := min(int(n.Add(1)), len(states)) - 1
		s.set(sysURI, "PowerState", states[i])
		s.mu.Lock()
		res := s.res[sysURI]
		s.mu.Unlock()
		reply(w, http.StatusOK, res)
	})
}

func TestOnlyFinalStatesCount(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
		s.steps("PoweringOff", "PoweringOff", "On", "PoweringOff", "Off")
		w.WriteHeader(http.StatusNoContent)
	})
	state, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
	require.NoError(t, err)
	require.Equal(t, providers.PowerOff, state)

	s = newStub(t)
	s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
		s.steps("PoweringOff")
		w.WriteHeader(http.StatusNoContent)
	})
	state, err = s.open().SetPower(t.Context(), providers.IntentGracefulOff)
	requireKind(t, err, providers.KindUncertain)
	require.Equal(t, providers.PowerPoweringOff, state)
}

func TestOnWhileTheSystemMovesIsNotSentTooEarly(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.set(sysURI, "PowerState", "PoweringOn")
	s.on("GET /redfish/v1/Systems", func(w http.ResponseWriter, _ *http.Request) {
		s.steps("PoweringOn", "PoweringOn", "PoweringOn", "On")
		reply(w, http.StatusOK, collection(sysURI))
	})
	_, err := s.open().SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
	require.Empty(t, s.requests("POST "+resetURI))

	s = newStub(t)
	s.on("GET /redfish/v1/Systems", func(w http.ResponseWriter, _ *http.Request) {
		s.steps("PoweringOff", "PoweringOff", "PoweringOff", "Off")
		reply(w, http.StatusOK, collection(sysURI))
	})
	s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
		require.Equal(t, "Off", s.res[sysURI]["PowerState"])
		s.steps("PoweringOn", "On")
		w.WriteHeader(http.StatusNoContent)
	})
	_, err = s.open().SetPower(t.Context(), providers.IntentOn)
	require.NoError(t, err)
	require.Len(t, s.requests("POST "+resetURI), 1)
}

func TestPollingSurvivesABMCThatIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	var reads atomic.Int32
	s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
		s.on("GET "+sysURI, func(w http.ResponseWriter, r *http.Request) {
			switch n := reads.Add(1); {
			case n < 4: // the transport itself repeats a dropped GET
				hijack(w)
			case n < 6:
				refuse(http.StatusServiceUnavailable, "Base.1.8.ServiceTemporarilyUnavailable", "")(w, r)
			default:
				s.steps("Off")
				reply(w, http.StatusOK, obj{"PowerState": "Off"})
			}
		})
		w.WriteHeader(http.StatusNoContent)
	})
	state, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
	require.NoError(t, err)
	require.Equal(t, providers.PowerOff, state)
}

func TestSessionThatEndsWhilePollingStopsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
		s.on("GET "+sysURI, refuse(http.StatusUnauthorized, "Base.1.8.NoValidSession", ""))
		w.WriteHeader(http.StatusNoContent)
	})
	_, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
	requireKind(t, err, providers.KindUncertain)
	require.Len(t, s.requests("POST "+sessionsURI), 1)
}

func TestTaskOfAReset(t *testing.T) {
	t.Parallel()
	const monitor = "/redfish/v1/TaskService/TaskMonitors/9"
	for name, c := range map[string]struct {
		location func(s *stub) string
		body     any
		state    string
		kind     providers.Kind
	}{
		"absolute location": {func(s *stub) string { return s.srv.URL + monitor }, nil, "Completed", ""},
		"relative location": {func(*stub) string { return monitor }, nil, "Completed", ""},
		"body only":         {func(*stub) string { return "" }, obj{"@odata.id": monitor, "TaskState": "New"}, "Completed", ""},
		"no location":       {func(*stub) string { return "" }, nil, "", ""},
		"foreign location":  {func(*stub) string { return "https://evil.example" + monitor }, nil, "", providers.KindForeign},
		"task fails":        {func(*stub) string { return monitor }, nil, "Exception", providers.KindStateConflict},
	} {
		s := newStub(t)
		var polls atomic.Int32
		s.on("GET "+monitor, func(w http.ResponseWriter, _ *http.Request) {
			if polls.Add(1) < 3 {
				reply(w, http.StatusAccepted, obj{"TaskState": "Running"})
				return
			}
			if c.kind == "" {
				s.set(sysURI, "PowerState", "Off")
			}
			reply(w, http.StatusOK, obj{"TaskState": c.state})
		})
		s.on("POST "+resetURI, func(w http.ResponseWriter, _ *http.Request) {
			if l := c.location(s); l != "" {
				w.Header().Set("Location", l)
			}
			if name == "no location" {
				s.set(sysURI, "PowerState", "Off")
			}
			if c.body == nil {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			reply(w, http.StatusAccepted, c.body)
		})
		_, err := s.open().SetPower(t.Context(), providers.IntentForceOff)
		if c.kind == "" {
			require.NoError(t, err, name)
			continue
		}
		requireKind(t, err, c.kind)
	}
}

func TestTwoSystemsInAnyOrder(t *testing.T) {
	t.Parallel()
	const board = "/redfish/v1/Systems/HGX_Baseboard_0"
	for _, order := range [][]string{{board, sysURI}, {sysURI, board}} {
		s := newStub(t)
		s.put("/redfish/v1/Systems", collection(order...))
		s.put(board, obj{"Id": "HGX_Baseboard_0", "PowerState": "On"})
		got, err := s.open().Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, sysURI, got.URI)

		target := s.target()
		target.SystemID = "HGX_Baseboard_0"
		b := openTarget(t, target, fast())
		got, err = b.Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, board, got.URI)
		_, err = b.SetPower(t.Context(), providers.IntentForceOff)
		requireKind(t, err, providers.KindUnsupported)

		target.SystemID = "other"
		_, err = openTarget(t, target, fast()).Power(t.Context())
		requireKind(t, err, providers.KindNotFound)
	}
	s := newStub(t)
	s.put("/redfish/v1/Systems", collection(sysURI, board))
	s.put(board, obj{"Actions": obj{"#ComputerSystem.Reset": obj{"target": board + "/x"}}})
	_, err := s.open().Power(t.Context())
	require.Contains(t, requireError(t, err, providers.KindInvalid).Message, "HGX_Baseboard_0")
}
