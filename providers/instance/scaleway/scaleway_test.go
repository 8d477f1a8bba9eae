package scaleway_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/scaleway"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/conformance"
)

const (
	secretKey = "00000000-0000-4000-8000-5ec0e7000001"
	projectID = "00000000-0000-4000-8000-000000000002"
	accessKey = "SCWXXXXXXXXXXXXXXXXX"
)

type rig struct {
	*testing.T
	sim   *cloudsim.Server
	clock *simhw.Clock
	url   string
	providers.Cloud
}

func newRig(t *testing.T) *rig {
	t.Helper()
	clock := simhw.NewClock(1)
	sim, err := cloudsim.New(cloudsim.Options{SecretKey: secretKey, ProjectID: projectID, Clock: clock})
	require.NoError(t, err)
	at, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	r := &rig{T: t, sim: sim, clock: clock, url: at.URL()}
	r.Cloud = r.open(secretKey, projectID)
	return r
}

func (r *rig) open(key, project string) providers.Cloud {
	r.Helper()
	c, err := scaleway.Open(providers.CloudAccount{
		URL: r.url, ProjectID: project, AccessKey: accessKey, SecretKey: providers.NewSecret(key), Rule: providers.SimulatedAddresses(),
	}, "inst-a")
	require.NoError(r, err)
	return c
}

func (r *rig) fault(f cloudsim.Fault) {
	r.Helper()
	_, err := r.sim.AddFault(f)
	require.NoError(r, err)
}

func (r *rig) create(id string) (providers.CloudServer, error) {
	return r.Create(r.Context(), providers.CloudCreate{
		Zone: cloudsim.Zone, InstanceID: id, Type: "L4-1-24G", Image: cloudsim.ImageLabel,
		Sources: providers.CloudSources{SSH: []string{"192.0.2.0/24"}, Worker: []string{"192.0.2.0/24"}},
	})
}

func target(id, server string) providers.CloudTarget {
	return providers.CloudTarget{Zone: cloudsim.Zone, InstanceID: id, ServerID: server}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.ExerciseCloud(t, func(t *testing.T) conformance.CloudFixture {
		r := newRig(t)
		t.Cleanup(func() { require.Empty(t, r.sim.Billed(), "something is still billed") })
		return conformance.CloudFixture{
			Cloud: r, Zone: cloudsim.Zone, Type: "L4-1-24G", Image: cloudsim.ImageLabel, InstanceID: "inst_1", Pass: func() { r.clock.Step(5 * time.Second) },
		}
	})
}

// TestCreate_LostAnswer: an order whose answer is lost is uncertain, and the server is found by its
// tag when the lists show it. Nothing that failed before the order is uncertain.
func TestCreate_LostAnswer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{cloudsim.FaultReset, cloudsim.FaultInternalError} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.fault(cloudsim.Fault{Name: cloudsim.FaultListLag, Params: map[string]string{"delay": "60s"}})
			r.fault(cloudsim.Fault{Name: name, Op: "create_server"})
			_, err := r.create("inst_1")
			require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
			found, err := r.Find(t.Context(), cloudsim.Zone, "inst_1")
			require.NoError(t, err)
			require.Empty(t, found)
			r.clock.Step(time.Minute)
			found, err = r.Find(t.Context(), cloudsim.Zone, "inst_1")
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, 1, r.sim.Counts().ServersMade)
		})
	}
	t.Run("before the order", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.fault(cloudsim.Fault{Name: cloudsim.FaultReset, Op: "create_group"})
		_, err := r.create("inst_1")
		require.Equal(t, providers.KindUnavailable, providers.KindOf(err), "%v", err)
		_, err = r.create("inst_1")
		require.NoError(t, err)
		require.Len(t, r.sim.Billed(), 3, "one group, one server, one volume")
	})
}

// TestCreate_ProxyGivesUp: a status by which a proxy says that it waited no longer is no refusal:
// the order may have reached the provider.
func TestCreate_ProxyGivesUp(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusRequestTimeout, http.StatusTooEarly, 499} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			at, err := url.Parse(r.url)
			require.NoError(t, err)
			proxy := httputil.NewSingleHostReverseProxy(at)
			proxy.ModifyResponse = func(resp *http.Response) error {
				if resp.Request.Method == http.MethodPost && strings.HasSuffix(resp.Request.URL.Path, "/servers") {
					resp.StatusCode = status
				}
				return nil
			}
			front := httptest.NewServer(proxy)
			t.Cleanup(front.Close)
			r.url = front.URL
			r.Cloud = r.open(secretKey, projectID)
			_, err = r.create("inst_1")
			require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
			require.Equal(t, 1, r.sim.Counts().ServersMade)
		})
	}
}

// TestErrors has the kind and the failure class of each refusal of the provider.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault cloudsim.Fault
		kind  providers.Kind
		class lifecycle.FailureClass
	}{
		"quota":              {cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "create_server"}, providers.KindQuota, lifecycle.FailCloudQuota},
		"quota, older form":  {cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "create_server", Params: map[string]string{"form": "old"}}, providers.KindQuota, lifecycle.FailCloudQuota},
		"rate limit":         {cloudsim.Fault{Name: cloudsim.FaultRateLimited, Op: "create_server"}, providers.KindUnavailable, lifecycle.FailCloudUnavailable},
		"unavailable before": {cloudsim.Fault{Name: cloudsim.FaultUnavailable, Op: "list_groups"}, providers.KindUnavailable, lifecycle.FailCloudUnavailable},
		"forbidden":          {cloudsim.Fault{Name: cloudsim.FaultForbidden, Op: "create_server"}, providers.KindForbidden, lifecycle.FailCloudRejected},
		"key revoked":        {cloudsim.Fault{Name: cloudsim.FaultUnauthorized, Op: "list_images"}, providers.KindUnauthorized, lifecycle.FailCloudRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.fault(tc.fault)
			_, err := r.create("inst_1")
			require.Equal(t, tc.kind, providers.KindOf(err), "%v", err)
			require.Equal(t, tc.class, providers.SideCloud.FailureClass(tc.kind))
			require.Zero(t, r.sim.Counts().ServersMade)
			require.NotContains(t, err.Error(), secretKey)
			require.NotContains(t, err.Error(), "0/0")
		})
	}
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		require.Equal(t, providers.KindUnauthorized, providers.KindOf(r.open("00000000-0000-4000-8000-5ec0e7000009", projectID).Check(t.Context(), cloudsim.Zone)))
	})
	t.Run("no such type or image", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, err := r.Offer(t.Context(), cloudsim.Zone, "L4-9")
		require.Equal(t, providers.KindInvalid, providers.KindOf(err))
		_, err = r.Create(t.Context(), providers.CloudCreate{Zone: cloudsim.Zone, InstanceID: "inst_1", Type: "L4-1-24G", Image: "windows"})
		require.Equal(t, providers.KindInvalid, providers.KindOf(err))
		require.Empty(t, r.sim.Billed())
	})
}

func TestStart_Capacity(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.create("inst_1")
	require.NoError(t, err)
	r.fault(cloudsim.Fault{Name: cloudsim.FaultOutOfStock})
	require.Equal(t, providers.KindCapacity, providers.KindOf(r.Start(t.Context(), target("inst_1", s.ID))))
	r.fault(cloudsim.Fault{Name: cloudsim.FaultFallsBack})
	require.NoError(t, r.Start(t.Context(), target("inst_1", s.ID)))
	r.clock.Step(time.Minute)
	now, err := r.Server(t.Context(), cloudsim.Zone, s.ID)
	require.NoError(t, err)
	require.Equal(t, providers.CloudStopped, now.State, "the provider took the order and let the server fall back")
}

// TestVerifyGroup_Tampered: a group that somebody opened is written again, and a server in another
// group is told.
func TestVerifyGroup_Tampered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.create("inst_1")
	require.NoError(t, err)
	wanted := providers.CloudSources{SSH: []string{"203.0.113.0/24"}}
	done, err := r.VerifyGroup(t.Context(), target("inst_1", s.ID), wanted)
	require.NoError(t, err)
	require.False(t, done, "the rules differ and are written")
	r.clock.Step(5 * time.Second)
	done, err = r.VerifyGroup(t.Context(), target("inst_1", s.ID), wanted)
	require.NoError(t, err)
	require.True(t, done)
	_, err = r.VerifyGroup(t.Context(), target("inst_2", s.ID), wanted)
	require.Equal(t, providers.KindStateConflict, providers.KindOf(err))
}

// TestGrowVolume_Failures: the answer to the order is no proof, and a volume in error is told.
func TestGrowVolume_Failures(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.create("inst_1")
	require.NoError(t, err)
	grow := func() (bool, error) { return r.GrowVolume(t.Context(), target("inst_1", s.ID), 200_000_000_000) }
	r.fault(cloudsim.Fault{Name: cloudsim.FaultVolumeStuck})
	for range 3 {
		done, err := grow()
		require.NoError(t, err)
		require.False(t, done)
		r.clock.Step(time.Minute)
	}
	r.sim.ClearFaults(0)
	done, err := grow()
	require.NoError(t, err)
	require.True(t, done)
}

// TestList_OtherInstallation: what another installation has in the same project is nobody's orphan
// here.
func TestList_OtherInstallation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "orphan", Tags: []string{"slipway-installation=inst-b", "slipway-instance=inst_1"}}))
	require.NoError(t, r.sim.Do(cloudsim.Act{Act: "orphan", Tags: []string{"slipway-installation=inst-a", "slipway-instance=inst_9"}}))
	all, err := r.List(t.Context(), cloudsim.Zone, "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "inst_9", all[0].InstanceID)
	require.Equal(t, int64(787_500), all[0].HourlyMicro)
	found, err := r.Find(t.Context(), cloudsim.Zone, "inst_1")
	require.NoError(t, err)
	require.Empty(t, found)
	all, err = r.open(secretKey, "00000000-0000-4000-8000-000000000003").List(t.Context(), cloudsim.Zone, "")
	require.NoError(t, err)
	require.Empty(t, all, "a wrong project is an empty list and no error")
}

func TestSimulator_Refuses(t *testing.T) {
	t.Parallel()
	_, err := scaleway.Open(providers.CloudAccount{URL: "http://192.0.2.1", ProjectID: projectID, AccessKey: accessKey, SecretKey: providers.NewSecret(secretKey)}, "inst-a")
	require.Equal(t, providers.KindInvalid, providers.KindOf(err), "a key goes over TLS alone")
	_, err = scaleway.Open(providers.CloudAccount{ProjectID: "wrong", AccessKey: accessKey, SecretKey: providers.NewSecret(secretKey)}, "inst-a")
	require.Equal(t, providers.KindInvalid, providers.KindOf(err))
	require.NotContains(t, err.Error(), secretKey)
}
