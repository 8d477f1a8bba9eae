package maas

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// historyRegion is a region of which only the events are read.
type historyRegion struct {
	providers.MAAS
	events []providers.MAASEvent
}

func (r historyRegion) Events(_ context.Context, _, level string, _ int) ([]providers.MAASEvent, error) {
	var out []providers.MAASEvent
	for _, e := range r.events {
		if level == "DEBUG" || e.Level == level {
			out = append(out, e)
		}
	}
	return out, nil
}

// TestErased_PassedWithoutEvent: a machine that was seen erasing and then releasing is erased, also
// in a MAAS that writes no event of it, but not when MAAS says that the erasing failed in between.
func TestErased_PassedWithoutEvent(t *testing.T) {
	t.Parallel()
	change := func(id int, from, to string) providers.MAASEvent {
		return providers.MAASEvent{ID: id, Level: "DEBUG", Type: "Node changed status", Description: "From '" + from + "' to '" + to + "'"}
	}
	old := []providers.MAASEvent{change(3, "Disk erasing", "Releasing"), {ID: 4, Level: "INFO", Type: "Disks erased"}}
	failed := slices.Concat(old, []providers.MAASEvent{change(11, "Deployed", "Disk erasing"), change(12, "Disk erasing", "Failed disk erasing"), change(13, "Failed disk erasing", "Releasing")})
	for name, c := range map[string]struct {
		passed bool
		events []providers.MAASEvent
		want   bool
	}{
		"MAAS says it":               {false, []providers.MAASEvent{{ID: 12, Level: "INFO", Type: "Disks erased"}}, true},
		"of another release":         {false, old, false},
		"seen, no history":           {true, old, true},
		"seen, and so in history":    {true, []providers.MAASEvent{change(12, "Disk erasing", "Releasing")}, true},
		"seen, and it failed":        {true, failed, false},
		"failed, then erased":        {true, slices.Concat(failed, []providers.MAASEvent{change(14, "Releasing failed", "Disk erasing"), change(15, "Disk erasing", "Releasing")}), true},
		"erased, power off repeated": {true, []providers.MAASEvent{change(12, "Disk erasing", "Releasing"), change(14, "Releasing failed", "Releasing")}, true},
		"nothing":                    {false, nil, false},
	} {
		r := &eraseAndRelease{m: historyRegion{events: c.events}, in: EraseAndReleaseIn{AfterEvent: 10}, passed: c.passed}
		got, err := r.erased(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.want, got, name)
	}
}
