package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// CloudFixture is an account at a cloud provider in which a test may make servers.
type CloudFixture struct {
	Cloud             providers.Cloud
	Zone, Type, Image string
	InstanceID        string
	// Pass lets time go by at the provider between two looks; nil waits a second.
	Pass func()
	// Looks bounds how often something is looked at; 0 is 200.
	Looks int
}

const grownSize = 200_000_000_000

// ExerciseCloud takes a server through its life, through providers.Cloud only. open is called once
// a test.
func ExerciseCloud(t *testing.T, open func(t *testing.T) CloudFixture) {
	t.Helper()
	t.Run("life", func(t *testing.T) { cloudRun{t, open(t)}.life() })
	t.Run("absent", func(t *testing.T) { cloudRun{t, open(t)}.absent() })
	t.Run("deleted while stopped", func(t *testing.T) { cloudRun{t, open(t)}.deletedStopped() })
}

type cloudRun struct {
	*testing.T
	f CloudFixture
}

func (r cloudRun) ctx() context.Context { return r.Context() }

// until looks again and again.
func (r cloudRun) until(what string, look func() bool) {
	r.Helper()
	looks := r.f.Looks
	if looks == 0 {
		looks = 200
	}
	for range looks {
		if look() {
			return
		}
		if r.f.Pass == nil {
			time.Sleep(time.Second)
			continue
		}
		r.f.Pass()
	}
	r.Fatal(what)
}

func (r cloudRun) create() (providers.CloudServer, providers.CloudTarget) {
	r.Helper()
	require.NoError(r, r.f.Cloud.Check(r.ctx(), r.f.Zone))
	_, err := r.f.Cloud.Offer(r.ctx(), r.f.Zone, r.f.Type)
	require.NoError(r, err)
	s, err := r.f.Cloud.Create(r.ctx(), providers.CloudCreate{
		Zone: r.f.Zone, InstanceID: r.f.InstanceID, Type: r.f.Type, Image: r.f.Image,
		Sources: providers.CloudSources{SSH: []string{"192.0.2.0/24"}, Worker: []string{"198.51.100.0/24"}},
	})
	require.NoError(r, err)
	require.Equal(r, providers.CloudStopped, s.State, "a server is made stopped: its volume grows before it starts")
	require.Empty(r, s.Address)
	t := providers.CloudTarget{Zone: r.f.Zone, InstanceID: r.f.InstanceID, ServerID: s.ID}
	r.until("the provider does not list the server", func() bool {
		found, err := r.f.Cloud.Find(r.ctx(), r.f.Zone, r.f.InstanceID)
		require.NoError(r, err)
		return len(found) == 1 && found[0].ID == s.ID
	})
	return s, t
}

func (r cloudRun) life() {
	c := r.f.Cloud
	_, t := r.create()
	volumes, err := c.ClaimVolumes(r.ctx(), t)
	require.NoError(r, err)
	require.Len(r, volumes, 1)
	require.Equal(r, r.f.InstanceID, volumes[0].InstanceID)
	again, err := c.ClaimVolumes(r.ctx(), t)
	require.NoError(r, err)
	require.Equal(r, volumes, again)
	r.until("the volume did not grow", func() bool {
		done, err := c.GrowVolume(r.ctx(), t, grownSize)
		require.NoError(r, err)
		return done
	})
	require.NoError(r, c.SetUserData(r.ctx(), t, providers.NewSecret("#cloud-config\n")))
	require.NoError(r, c.Start(r.ctx(), t))
	require.NoError(r, c.Start(r.ctx(), t), "a repeated start changes nothing")
	var at providers.CloudServer
	r.until("the server did not start", func() bool {
		at, err = c.Server(r.ctx(), t.Zone, t.ServerID)
		require.NoError(r, err)
		return at.State == providers.CloudRunning && at.Address != ""
	})
	r.until("the rules are not in force", func() bool {
		done, err := c.VerifyGroup(r.ctx(), t, providers.CloudSources{SSH: []string{"192.0.2.0/24"}, Worker: []string{"198.51.100.0/24"}})
		require.NoError(r, err)
		return done
	})
	kinds := map[providers.CloudKind]int{}
	all, err := c.List(r.ctx(), t.Zone, "")
	require.NoError(r, err)
	for _, res := range all {
		require.Equal(r, r.f.InstanceID, res.InstanceID)
		kinds[res.Kind]++
	}
	require.Equal(r, map[providers.CloudKind]int{providers.CloudKindServer: 1, providers.CloudKindVolume: 1, providers.CloudKindGroup: 1}, kinds)
	require.NoError(r, c.Stop(r.ctx(), t))
	r.until("the server did not stop", func() bool {
		at, err = c.Server(r.ctx(), t.Zone, t.ServerID)
		require.NoError(r, err)
		return at.State == providers.CloudStopped
	})
	r.delete(t)
}

// delete deletes a server and everything that stays after it.
func (r cloudRun) delete(t providers.CloudTarget) {
	r.until("the server is not gone", func() bool {
		gone, err := r.f.Cloud.DeleteServer(r.ctx(), t)
		require.NoError(r, err)
		return gone
	})
	_, err := r.f.Cloud.Server(r.ctx(), t.Zone, t.ServerID)
	require.Equal(r, providers.KindNotFound, providers.KindOf(err))
	rest, err := r.f.Cloud.List(r.ctx(), t.Zone, t.InstanceID)
	require.NoError(r, err)
	require.NotEmpty(r, rest, "a provider keeps the volume, and bills it")
	for _, res := range rest {
		r.until("it is not gone: "+res.Name, func() bool {
			gone, err := r.f.Cloud.Delete(r.ctx(), res)
			require.NoError(r, err)
			return gone
		})
	}
	rest, err = r.f.Cloud.List(r.ctx(), t.Zone, t.InstanceID)
	require.NoError(r, err)
	require.Empty(r, rest)
}

// deletedStopped: a server that never started is deleted as it is, without the machine that a start
// takes.
func (r cloudRun) deletedStopped() {
	_, t := r.create()
	_, err := r.f.Cloud.ClaimVolumes(r.ctx(), t)
	require.NoError(r, err)
	r.delete(t)
}

func (r cloudRun) absent() {
	found, err := r.f.Cloud.Find(r.ctx(), r.f.Zone, "inst_absent")
	require.NoError(r, err)
	require.Empty(r, found)
	absent := providers.CloudTarget{Zone: r.f.Zone, InstanceID: "inst_absent", ServerID: "00000000-0000-4000-8000-000000000000"}
	_, err = r.f.Cloud.Server(r.ctx(), absent.Zone, absent.ServerID)
	require.Equal(r, providers.KindNotFound, providers.KindOf(err))
	gone, err := r.f.Cloud.DeleteServer(r.ctx(), absent)
	require.NoError(r, err)
	require.True(r, gone)
}
