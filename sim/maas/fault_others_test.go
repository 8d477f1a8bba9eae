package maassim_test

import (
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

func TestFaultsOfRelease(t *testing.T) {
	t.Parallel()
	releasing := func(t *testing.T, name string, form url.Values) (*lab, string) {
		t.Parallel()
		l := newLab(t, func(o *maassim.Options) { o.Durations.ReleaseExpiry = 5 * time.Minute })
		id := l.deployed()
		l.fault(maassim.Fault{Name: name})
		l.ok("machines/"+id+"/", "release", form)
		return l, id
	}
	t.Run("stuck", func(t *testing.T) {
		l, id := releasing(t, "stuck_releasing", nil)
		l.hw.PowerOff("someone", true)
		l.stays(id, maassim.Releasing)
		l.get("machines/"+id+"/", url.Values{"op": {"query_power_state"}})
		require.Equal(t, maassim.Releasing, l.view(id).Status)
	})
	t.Run("erasing", func(t *testing.T) {
		l, id := releasing(t, "stuck_erasing", url.Values{"erase": {"true"}})
		l.stays(id, maassim.DiskErasing)
		l.ok("machines/"+id+"/", "abort", nil)
		require.Equal(t, maassim.FailedDiskErasing, l.view(id).Status)
	})
	t.Run("power", func(t *testing.T) {
		l, id := releasing(t, "release_power_fail", nil)
		l.await(id, maassim.FailedReleasing)
		require.Equal(t, simhw.On, l.hw.Power())
	})
	t.Run("late write", func(t *testing.T) {
		l, id := releasing(t, "late_deployed_write", nil)
		l.until(func() bool {
			h := l.srv.History()
			last := h[len(h)-1]
			return last.Bypass == "set-node-status" && last.To == maassim.Deployed
		}, "Deployed is written although the release began")
		require.Equal(t, maassim.Deployed, l.view(id).Status)
	})
}

// TestOtherPeople act just before or just after a call.
func TestOtherPeople(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{maassim.Before, maassim.After} {
		for name, c := range map[string]struct {
			fault         maassim.Fault
			op            string
			before, after int // answers by phase
			check         func(t *testing.T, l *lab, id string)
		}{
			"deleted":  {maassim.Fault{Name: "machine_deleted", Op: "deploy"}, "deploy", 404, 200, func(t *testing.T, l *lab, id string) { require.Empty(t, l.srv.Machines()) }},
			"locked":   {maassim.Fault{Name: "locked"}, "deploy", 403, 200, func(t *testing.T, l *lab, id string) { require.True(t, l.view(id).Locked) }},
			"deployed": {maassim.Fault{Name: "externally_deployed", Op: "allocate"}, "allocate", 409, 200, func(t *testing.T, l *lab, id string) { l.await(id, maassim.Deployed) }},
			"taken":    {maassim.Fault{Name: "owned_by_other", Op: "abort"}, "abort", 409, 409, func(t *testing.T, l *lab, id string) { require.Equal(t, "other", l.view(id).Owner) }},
			"owned": {maassim.Fault{Name: "owned_by_other"}, "deploy", 409, 200, func(t *testing.T, l *lab, id string) {
				require.Contains(t, []string{"other", "admin"}, l.view(id).Owner)
			}},
		} {
			t.Run(name+" "+phase, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				id := l.ready()
				c.fault.Phase = phase
				l.fault(c.fault)
				path, form := "machines/"+id+"/", url.Values{}
				if c.op == "allocate" {
					path, form = "machines/", url.Values{"system_id": {id}}
				}
				want := map[string]int{maassim.Before: c.before, maassim.After: c.after}[phase]
				a := l.post(path, c.op, form)
				require.Equal(t, want, a.code, "%s", a.body)
				c.check(t, l, id)
			})
		}
		t.Run("released "+phase, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			id := l.deployed()
			l.fault(maassim.Fault{Name: "externally_released", Phase: phase})
			want := map[string]float64{maassim.Before: 12, maassim.After: 6}[phase]
			require.InDelta(t, want, l.get("machines/"+id+"/", nil).object(t)["status"], 0)
			l.await(id, maassim.Ready)
		})
		t.Run("enlisted "+phase, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.fault(maassim.Fault{Name: "enlist_race", Phase: phase})
			a := l.post("machines/", "", l.createForm())
			require.Equal(t, map[string]int{maassim.Before: 400, maassim.After: 200}[phase], a.code, "%s", a.body)
			require.Len(t, l.srv.Machines(), 1)
		})
	}
}

// TestConflictingCandidates: a search by our MACs finds two records, or two have
// our serial.
func TestConflictingCandidates(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"", "serial"} {
		t.Run(fmt.Sprintf("variant %q", variant), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.fault(maassim.Fault{Name: "conflicting_candidates", Params: map[string]string{"variant": variant}})
			macs := url.Values{}
			for _, n := range l.hw.Spec().NICs {
				macs.Add("mac_address", n.MAC)
			}
			found := l.get("machines/", macs).objects(t)
			if variant == "" {
				require.Len(t, found, 2)
				require.NotEqual(t, found[0]["system_id"], found[1]["system_id"])
				return
			}
			same := 0
			for _, m := range l.get("machines/", nil).objects(t) {
				if m["hardware_info"].(map[string]any)["system_serial"] == l.hw.Spec().Serial {
					same++
				}
			}
			require.Equal(t, 2, same)
		})
	}
}

// TestEveryFaultHasATest in this file.
func TestEveryFaultHasATest(t *testing.T) {
	t.Parallel()
	var src []byte
	for _, file := range []string{"fault_test.go", "fault_others_test.go"} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		src = append(src, raw...)
	}
	for name, detail := range newLab(t).srv.FaultNames() {
		require.NotEmpty(t, detail, name)
		require.Contains(t, string(src), `"`+name+`"`)
	}
}

func TestFaultScript(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	_, err := l.srv.AddFault(maassim.Fault{Name: "gremlins"})
	require.ErrorContains(t, err, "unknown")
	_, err = l.srv.AddFault(maassim.Fault{Name: "http_403", Phase: "later"})
	require.ErrorContains(t, err, "phase")
	_, err = l.srv.AddFault(maassim.Fault{Name: "http_403", Params: map[string]string{"delay": "long"}})
	require.ErrorContains(t, err, "delay")
	id := l.created()
	l.fault(maassim.Fault{Name: "http_403", Machine: "somebody-else", Count: -1})
	twice := l.fault(maassim.Fault{Name: "http_403", Machine: "gpu-1", Op: "read", Count: 2})
	require.Equal(t, []int{403, 403, 200}, []int{l.get("machines/"+id+"/", nil).code, l.get("machines/"+id+"/", nil).code, l.get("machines/"+id+"/", nil).code})
	for _, f := range l.srv.Faults() {
		if f.ID == twice {
			require.Equal(t, 2, f.Applied)
		}
	}
	l.srv.ClearFaults(twice)
	require.Len(t, l.srv.Faults(), 1)
}
