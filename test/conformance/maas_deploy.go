package conformance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// annotation marks the machine as the suite's own.
const annotation = "slipway-conformance"

// allocate takes the machine and marks it.
func (l *maasLife) allocate() {
	m, err := l.m.Allocate(l.ctx(), l.id, "slipway-conformance", "conformance suite")
	require.NoError(l.t, err)
	require.Equal(l.t, providers.MAASAllocated, m.Status)
	require.Equal(l.t, l.info.User, m.Owner)
	_, err = l.m.Allocate(l.ctx(), l.id, "slipway-conformance", "")
	l.refused(providers.KindStateConflict, "allocating twice", err)
	require.NoError(l.t, l.m.SetWorkloadAnnotations(l.ctx(), l.id, map[string]string{annotation: "1", "other": "x"}))
	require.NoError(l.t, l.m.SetWorkloadAnnotations(l.ctx(), l.id, map[string]string{"other": ""}))
	require.Equal(l.t, map[string]string{annotation: "1"}, l.read().Annotations)
	l.refused(providers.KindStateConflict, "a boot disk in Allocated", l.m.SetBootDisk(l.ctx(), l.id, l.read().BootDiskID))
	l.refused(providers.KindStateConflict, "a layout in Allocated", l.m.SetStorageLayout(l.ctx(), l.id, "flat", 0))
}

// deploy installs the system with user data and hardware sync.
func (l *maasLife) deploy() {
	_, err := l.m.Deploy(l.ctx(), l.id, providers.MAASDeploy{DistroSeries: "no-such-series"})
	l.refused(providers.KindInvalid, "an unknown series", err)
	in := providers.MAASDeploy{
		DistroSeries: l.series, EnableHWSync: true, Comment: "conformance suite",
		UserData: []byte("#cloud-config\nfinal_message: \"installed by the conformance suite\"\n"),
	}
	m, err := l.m.Deploy(l.ctx(), l.id, in)
	require.NoError(l.t, err)
	require.Equal(l.t, providers.MAASDeploying, m.Status)
	_, err = l.m.Deploy(l.ctx(), l.id, in)
	l.refused(providers.KindStateConflict, "deploying twice", err)
	l.refused(providers.KindStateConflict, "a boot disk while deploying", l.m.SetBootDisk(l.ctx(), l.id, m.BootDiskID))
	m = l.reach(providers.MAASDeployed, providers.MAASFailedDeployment, providers.MAASReady, providers.MAASAllocated, providers.MAASReleasing)
	require.NotEmpty(l.t, m.OSystem)
	require.NotEmpty(l.t, m.DistroSeries)
	require.NotEmpty(l.t, m.IPAddresses)
	require.Equal(l.t, "1", m.Annotations[annotation])
	require.Equal(l.t, l.info.User, m.Owner)
}

// deployed looks at what a running machine tells.
func (l *maasLife) deployed() {
	m := l.read()
	require.True(l.t, m.EnableHWSync)
	require.Positive(l.t, m.SyncInterval)
	require.NoError(l.t, l.m.SetHardwareSync(l.ctx(), l.id, true))
	require.True(l.t, l.read().EnableHWSync)

	l.events()
	results, err := l.m.Results(l.ctx(), l.id, "installation")
	require.NoError(l.t, err)
	require.NotEmpty(l.t, results)

	state, err := l.m.QueryPower(l.ctx(), l.id)
	require.NoError(l.t, err)
	require.Equal(l.t, "on", state)
	token, err := l.m.MachineToken(l.ctx(), l.id)
	require.NoError(l.t, err)
	require.False(l.t, token.IsZero())

	_, err = l.m.Commission(l.ctx(), l.id, providers.MAASCommission{})
	l.refused(providers.KindStateConflict, "commissioning in Deployed", err)
	l.refused(providers.KindStateConflict, "aborting in Deployed", l.m.Abort(l.ctx(), l.id, ""))
	nic := l.nic()
	require.NotEmpty(l.t, nic.Links)
	l.refused(providers.KindStateConflict, "unlinking in Deployed", l.m.UnlinkSubnet(l.ctx(), l.id, nic.ID, nic.Links[0].ID))
}

func (l *maasLife) events() {
	list := func(level string, limit int) []providers.MAASEvent {
		events, err := l.m.Events(l.ctx(), l.id, level, limit)
		require.NoError(l.t, err)
		require.LessOrEqual(l.t, len(events), limit)
		require.True(l.t, slices.IsSortedFunc(events, func(a, b providers.MAASEvent) int { return b.ID - a.ID }), "newest first")
		for _, e := range events {
			require.NotEmpty(l.t, e.Type)
			require.False(l.t, e.At.IsZero(), "event %d has no readable time", e.ID)
		}
		return events
	}
	info, debug := list("INFO", 1000), list("DEBUG", 1000)
	require.True(l.t, slices.ContainsFunc(info, func(e providers.MAASEvent) bool { return e.Type == "Deployed" }))
	for _, e := range info {
		require.NotEqual(l.t, "DEBUG", e.Level)
	}
	require.Greater(l.t, len(debug), len(info), "progress is at DEBUG")
	require.Len(l.t, list("DEBUG", 1), 1)
	require.Equal(l.t, debug[0].ID, list("DEBUG", 1)[0].ID)
}

// release switches the machine off and gives it back.
func (l *maasLife) release() {
	require.NoError(l.t, l.m.PowerOff(l.ctx(), l.id, true))
	l.f.Settle(l.t, "power off", func() bool {
		state, err := l.m.QueryPower(l.ctx(), l.id)
		require.NoError(l.t, err)
		return state == "off"
	})
	require.NoError(l.t, l.m.Release(l.ctx(), l.id, providers.MAASRelease{Comment: "conformance suite"}))
	m := l.reach(providers.MAASReady, providers.MAASReleasingFailed, providers.MAASFailedDiskErasing, providers.MAASBroken)
	require.Empty(l.t, m.Owner)
	require.Empty(l.t, m.Annotations, "a release wipes the annotations")
	require.False(l.t, m.EnableHWSync, "a release clears hardware sync")
	require.NoError(l.t, l.m.Release(l.ctx(), l.id, providers.MAASRelease{}), "releasing what is Ready does nothing")
	require.Equal(l.t, providers.MAASReady, l.read().Status)
}

// delete removes the record, twice.
func (l *maasLife) delete() {
	for range 2 {
		require.NoError(l.t, l.m.DeleteMachine(l.ctx(), l.id))
		_, err := l.m.Machine(l.ctx(), l.id)
		l.refused(providers.KindNotFound, "a deleted machine", err)
	}
	require.Empty(l.t, l.find(providers.MAASQuery{MACs: l.f.Machine.MACs}))
	_, err := l.m.Deploy(l.ctx(), l.id, providers.MAASDeploy{DistroSeries: l.series})
	l.refused(providers.KindNotFound, "deploying a deleted machine", err)
}

// maasWrongKey presents a key whose secret is not the right one.
func maasWrongKey(t *testing.T, f MAASFixture) {
	t.Helper()
	site := f.Site
	site.APIKey = providers.NewSecret(f.Site.APIKey.Reveal() + "x")
	l := newMAASLife(t, f)
	wrong, err := f.Opener.OpenMAAS(site)
	require.NoError(t, err)
	_, err = wrong.Probe(l.ctx())
	requireKind(t, providers.KindUnauthorized, "a probe with a wrong key", err)
	_, err = wrong.Machine(l.ctx(), "zzzzzz")
	requireKind(t, providers.KindUnauthorized, "a read with a wrong key", err)
	_, err = wrong.CreateMachine(l.ctx(), f.Machine)
	requireKind(t, providers.KindUnauthorized, "a create with a wrong key", err)
	require.NotContains(t, err.Error(), f.Site.APIKey.Reveal())
	require.Empty(t, l.find(providers.MAASQuery{MACs: f.Machine.MACs}))
}

// maasUnknownMachine asks for a machine that the region does not have.
func maasUnknownMachine(t *testing.T, f MAASFixture) {
	t.Helper()
	const none = "zzzzzz"
	l := newMAASLife(t, f)
	_, err := l.m.Machine(l.ctx(), none)
	requireKind(t, providers.KindNotFound, "a read", err)
	_, err = l.m.BlockDevices(l.ctx(), none)
	requireKind(t, providers.KindNotFound, "disks", err)
	_, err = l.m.Interfaces(l.ctx(), none)
	requireKind(t, providers.KindNotFound, "interfaces", err)
	_, err = l.m.QueryPower(l.ctx(), none)
	requireKind(t, providers.KindNotFound, "power", err)
	_, err = l.m.Results(l.ctx(), none, "testing")
	requireKind(t, providers.KindNotFound, "results", err)
	_, err = l.m.Commission(l.ctx(), none, providers.MAASCommission{})
	requireKind(t, providers.KindNotFound, "commission", err)
	_, err = l.m.Allocate(l.ctx(), none, "", "")
	requireKind(t, providers.KindStateConflict, "allocate", err)
	requireKind(t, providers.KindNotFound, "release", l.m.Release(l.ctx(), none, providers.MAASRelease{}))
	requireKind(t, providers.KindNotFound, "power off", l.m.PowerOff(l.ctx(), none, true))
	requireKind(t, providers.KindNotFound, "a boot disk", l.m.SetBootDisk(l.ctx(), none, 1))
	requireKind(t, providers.KindNotFound, "a layout", l.m.SetStorageLayout(l.ctx(), none, "flat", 0))
	require.NoError(t, l.m.DeleteMachine(l.ctx(), none), "absent is success")
}
