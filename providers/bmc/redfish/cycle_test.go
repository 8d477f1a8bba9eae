package redfish

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

func TestPowerCycleOrder(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	var steps []CycleStep
	res, err := PowerCycle(t.Context(), s.open(), CycleOptions{Settle: time.Millisecond, Boot: providers.BootPXE, UEFI: true,
		Done: func(c CycleStep) { steps = append(steps, c) }})
	require.NoError(t, err)
	require.Equal(t, []CycleStep{CycleOff, CycleBootSet, CycleOn}, steps)
	require.Equal(t, providers.PowerOn, res.Power)
	require.Equal(t, providers.BootPXE, res.Override.Target)
	var changes []string
	for _, r := range s.requests("") {
		if r.Method != http.MethodGet && r.Path != sessionsURI {
			changes = append(changes, r.Method+" "+r.Body)
		}
	}
	require.Len(t, changes, 3)
	require.Contains(t, changes[0], "ForceOff")
	require.Contains(t, changes[1], "PATCH")
	require.Contains(t, changes[2], `"On"`)
}

// A repeat after a lost worker must not take down what is coming up.
func TestPowerCycleResumes(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.set(sysURI, "PowerState", "Off")
	res, err := PowerCycle(t.Context(), s.open(), CycleOptions{After: CycleBootSet})
	require.NoError(t, err)
	require.Equal(t, CycleOn, res.Step)
	res, err = PowerCycle(t.Context(), s.open(), CycleOptions{After: CycleBootSet})
	require.NoError(t, err)
	require.Equal(t, CycleOn, res.Step)
	require.Len(t, s.requests("POST "+resetURI), 1, "the second run found it on")
}

func TestPowerCycleTellsWhereItStopped(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("PATCH "+sysURI, refuse(http.StatusBadRequest, "iLO.2.14.UnableToModifyDuringSystemPOST", ""))
	res, err := PowerCycle(t.Context(), s.open(), CycleOptions{Settle: time.Millisecond, Boot: providers.BootPXE})
	requireKind(t, err, providers.KindBusy)
	require.Equal(t, CycleOff, res.Step)
	require.Equal(t, providers.PowerOff, res.Power)

	s = newStub(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	res, err = PowerCycle(ctx, s.open(), CycleOptions{Settle: time.Hour})
	requireKind(t, err, providers.KindUncertain)
	require.Equal(t, CycleStarted, res.Step)
}
