// Package conformance holds one conformance suite for each capability. The same suite must succeed
// on the simulator and on the real system, which keeps the simulator honest; the suite knows
// neither, only the interfaces of package providers.
package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// MAASFixture is one region and one machine that it does not know yet.
type MAASFixture struct {
	Opener providers.MAASOpener
	Site   providers.MAASSite
	// Machine is what to create: a BMC that MAAS can drive and the MAC
	// addresses of its network cards. The region must not hold it yet.
	Machine providers.MAASCreate
	// Series is what to install; "" takes the region's default.
	Series string
	// SubnetID is where the boot interface gets its address; 0 takes a subnet
	// of the boot interface's VLAN.
	SubnetID int
	// CallTimeout bounds one call; 0 is three minutes.
	CallTimeout time.Duration
	// Settle polls cond until it holds and fails the test after the fixture's
	// own patience, naming what was waited for.
	Settle func(t *testing.T, what string, cond func() bool)
}

// ExerciseMAAS takes a machine through its whole life in MAAS, through
// providers.MAAS only, and checks on the way what each operation answers in the
// wrong state. It holds for the simulator and for a real region. open is called once a test.
func ExerciseMAAS(t *testing.T, open func(t *testing.T) MAASFixture) {
	t.Helper()
	t.Run("life", func(t *testing.T) { newMAASLife(t, open(t)).run() })
	t.Run("wrong key", func(t *testing.T) { maasWrongKey(t, open(t)) })
	t.Run("unknown machine", func(t *testing.T) { maasUnknownMachine(t, open(t)) })
}

// maasLife is one machine's way through MAAS.
type maasLife struct {
	t  *testing.T
	f  MAASFixture
	m  providers.MAAS
	id string

	info   providers.MAASInfo
	boot   providers.MAASMachine // as commissioned
	series string
}

func newMAASLife(t *testing.T, f MAASFixture) *maasLife {
	t.Helper()
	require.NotEmpty(t, f.Machine.MACs, "the fixture needs a MAC address")
	require.NotNil(t, f.Settle, "the fixture needs a way to wait")
	if f.CallTimeout == 0 {
		f.CallTimeout = 3 * time.Minute
	}
	m, err := f.Opener.OpenMAAS(f.Site)
	require.NoError(t, err)
	return &maasLife{t: t, f: f, m: m}
}

func (l *maasLife) run() {
	l.probe()
	l.findNone()
	l.create()
	l.commission()
	l.storage()
	l.network()
	l.allocate()
	l.deploy()
	l.deployed()
	l.release()
	l.delete()
}

// ctx is the context of one call.
func (l *maasLife) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), l.f.CallTimeout)
	l.t.Cleanup(cancel)
	return ctx
}

// refused runs something that MAAS must refuse with kind.
func (l *maasLife) refused(kind providers.Kind, what string, err error) {
	l.t.Helper()
	requireKind(l.t, kind, what, err)
}

func requireKind(t *testing.T, kind providers.Kind, what string, err error) {
	t.Helper()
	require.Error(t, err, what)
	require.Equal(t, kind, providers.KindOf(err), "%s: %v", what, err)
}

func (l *maasLife) read() providers.MAASMachine {
	l.t.Helper()
	m, err := l.m.Machine(l.ctx(), l.id)
	require.NoError(l.t, err)
	require.Equal(l.t, l.id, m.SystemID)
	return m
}

// reach waits for a status and fails at once on one that leads nowhere.
func (l *maasLife) reach(want providers.MAASStatus, dead ...providers.MAASStatus) providers.MAASMachine {
	l.t.Helper()
	var m providers.MAASMachine
	l.f.Settle(l.t, "status "+want.String(), func() bool {
		m = l.read()
		require.NotContains(l.t, dead, m.Status, "the machine ended in %s: %s %s", m.Status, m.StatusMessage, m.ErrorDescription)
		return m.Status == want
	})
	return m
}

func (l *maasLife) probe() {
	info, err := l.m.Probe(l.ctx())
	require.NoError(l.t, err)
	require.NotEmpty(l.t, info.Version)
	require.NotEmpty(l.t, info.User)
	require.True(l.t, info.IsSuperuser, "the API key must be an administrator's")
	require.Positive(l.t, info.SSHKeys, "MAAS seeds the user's SSH keys; there are none")
	require.NotEmpty(l.t, info.Config["node_timeout"])
	require.NotEmpty(l.t, info.Images)
	l.info = info
	l.series = l.f.Series
	if l.series == "" {
		l.series = info.Config["default_distro_series"]
	}
	require.NotEmpty(l.t, l.series)
	require.True(l.t, slices.ContainsFunc(info.Images, func(i string) bool {
		return i == l.series || strings.HasSuffix(i, "/"+l.series)
	}), "no image for %s among %v", l.series, info.Images)
}

func (l *maasLife) find(q providers.MAASQuery) []string {
	l.t.Helper()
	found, err := l.m.FindMachines(l.ctx(), q)
	require.NoError(l.t, err)
	ids := make([]string, 0, len(found))
	for _, m := range found {
		ids = append(ids, m.SystemID)
	}
	return ids
}

func (l *maasLife) findNone() {
	require.Empty(l.t, l.find(providers.MAASQuery{MACs: l.f.Machine.MACs}), "the region holds the fixture's machine already")
	require.Empty(l.t, l.find(providers.MAASQuery{BMCAddress: l.f.Machine.PowerAddress}))
}

func (l *maasLife) create() {
	m, err := l.m.CreateMachine(l.ctx(), l.f.Machine)
	if providers.IsKind(err, providers.KindUncertain) {
		ids := l.find(providers.MAASQuery{MACs: l.f.Machine.MACs})
		require.Len(l.t, ids, 1, "the create was uncertain and left nothing: %v", err)
		m, err = l.m.Machine(l.ctx(), ids[0])
	}
	require.NoError(l.t, err)
	l.id = m.SystemID
	l.t.Cleanup(l.tidy)
	require.Equal(l.t, providers.MAASNew, m.Status, "commission=false was not heeded")
	require.Equal(l.t, l.f.Machine.PowerType, m.PowerType)
	require.Equal(l.t, []string{l.id}, l.find(providers.MAASQuery{MACs: l.f.Machine.MACs}))
	require.Equal(l.t, []string{l.id}, l.find(providers.MAASQuery{BMCAddress: l.f.Machine.PowerAddress}))
	require.Equal(l.t, []string{l.id}, l.find(providers.MAASQuery{
		MACs: l.f.Machine.MACs, Hostname: m.Hostname, BMCAddress: l.f.Machine.PowerAddress,
	}), "facts about one machine must join to one")

	_, err = l.m.CreateMachine(l.ctx(), l.f.Machine)
	l.refused(providers.KindInvalid, "creating the same machine twice", err)
	_, err = l.m.Deploy(l.ctx(), l.id, providers.MAASDeploy{DistroSeries: l.series})
	l.refused(providers.KindStateConflict, "deploying in New", err)
	l.refused(providers.KindStateConflict, "releasing in New", l.m.Release(l.ctx(), l.id, providers.MAASRelease{}))
}

// tidy leaves the region as it was, also after a failure half way.
func (l *maasLife) tidy() {
	m, err := l.m.Machine(l.ctx(), l.id)
	if err != nil {
		return
	}
	l.t.Logf("the life ended early in %s; removing the machine", m.Status)
	_ = l.m.Abort(l.ctx(), l.id, "test ends")
	_ = l.m.Release(l.ctx(), l.id, providers.MAASRelease{})
	_ = l.m.PowerOff(l.ctx(), l.id, true)
	if err := l.m.DeleteMachine(l.ctx(), l.id); err != nil {
		l.t.Logf("the machine %s stays in the region: %v", l.id, err)
	}
}

func (l *maasLife) commission() {
	m, err := l.m.Commission(l.ctx(), l.id, providers.MAASCommission{TestingScripts: "none"})
	require.NoError(l.t, err)
	require.Equal(l.t, providers.MAASCommissioning, m.Status)
	l.boot = l.reach(providers.MAASReady, providers.MAASFailedCommissioning, providers.MAASFailedTesting, providers.MAASBroken, providers.MAASNew)
	require.Empty(l.t, l.boot.Owner, "commissioning ends without an owner")
	require.NotZero(l.t, l.boot.BootInterfaceID)
	require.NotZero(l.t, l.boot.BootVLANID, "the boot interface has no VLAN")
	for _, mac := range l.f.Machine.MACs {
		require.Contains(l.t, l.boot.MACs, strings.ToLower(mac))
	}
	if l.boot.Serial != "" {
		require.Contains(l.t, l.find(providers.MAASQuery{Serial: l.boot.Serial}), l.id)
	}
	results, err := l.m.Results(l.ctx(), l.id, "commissioning")
	require.NoError(l.t, err)
	require.NotEmpty(l.t, results)
	for _, r := range results {
		require.NotEmpty(l.t, r.Name)
		require.LessOrEqual(l.t, len(r.Output), 16<<10)
	}
	l.refused(providers.KindStateConflict, "aborting in Ready", l.m.Abort(l.ctx(), l.id, ""))
}

// storage sets the smallest disk as boot disk and lays it out.
func (l *maasLife) storage() {
	disks, err := l.m.BlockDevices(l.ctx(), l.id)
	require.NoError(l.t, err)
	boot := providers.MAASBlockDevice{}
	for _, d := range disks {
		require.Positive(l.t, d.ID)
		require.Positive(l.t, d.SizeBytes)
		if d.Type == "physical" && (boot.ID == 0 || d.SizeBytes < boot.SizeBytes) {
			boot = d
		}
	}
	require.NotZero(l.t, boot.ID, "the machine has no physical disk")
	for range 2 { // setting it again is harmless
		require.NoError(l.t, l.m.SetBootDisk(l.ctx(), l.id, boot.ID))
	}
	require.Equal(l.t, boot.ID, l.read().BootDiskID)
	l.refused(providers.KindNotFound, "an unknown boot disk", l.m.SetBootDisk(l.ctx(), l.id, 1<<30))
	require.NoError(l.t, l.m.SetStorageLayout(l.ctx(), l.id, "flat", boot.ID))
	l.refused(providers.KindInvalid, "an unknown layout", l.m.SetStorageLayout(l.ctx(), l.id, "no-such-layout", boot.ID))

	disks, err = l.m.BlockDevices(l.ctx(), l.id)
	require.NoError(l.t, err)
	at := slices.IndexFunc(disks, func(d providers.MAASBlockDevice) bool { return slices.Contains(d.MountPoints, "/") })
	require.GreaterOrEqual(l.t, at, 0, "no disk holds the root file system")
	require.Equal(l.t, boot.ID, disks[at].ID, "the layout went to another disk than the boot disk")
}

// nic reads the boot interface.
func (l *maasLife) nic() providers.MAASInterface {
	l.t.Helper()
	nics, err := l.m.Interfaces(l.ctx(), l.id)
	require.NoError(l.t, err)
	at := slices.IndexFunc(nics, func(n providers.MAASInterface) bool { return n.ID == l.boot.BootInterfaceID })
	require.GreaterOrEqual(l.t, at, 0, "the boot interface is not listed")
	return nics[at]
}

func autoLinks(n providers.MAASInterface) []providers.MAASLink {
	return slices.DeleteFunc(slices.Clone(n.Links), func(k providers.MAASLink) bool { return k.Mode != "auto" })
}

func (l *maasLife) network() {
	nic := l.nic()
	require.Equal(l.t, l.boot.BootInterfaceMAC, nic.MAC)
	subnets, err := l.m.Subnets(l.ctx())
	require.NoError(l.t, err)
	subnet := l.f.SubnetID
	for _, s := range subnets {
		if subnet == 0 && s.VLANID == l.boot.BootVLANID {
			subnet = s.ID
		}
	}
	require.NotZero(l.t, subnet, "no subnet on the boot VLAN")

	for _, k := range autoLinks(nic) {
		require.NoError(l.t, l.m.UnlinkSubnet(l.ctx(), l.id, nic.ID, k.ID))
	}
	require.Empty(l.t, autoLinks(l.nic()))
	require.NoError(l.t, l.m.LinkSubnet(l.ctx(), l.id, nic.ID, subnet, "auto"))
	links := autoLinks(l.nic())
	require.Len(l.t, links, 1)
	require.Equal(l.t, subnet, links[0].SubnetID)

	// MAAS adds a second link where a retry meant the first.
	require.NoError(l.t, l.m.LinkSubnet(l.ctx(), l.id, nic.ID, subnet, "auto"))
	links = autoLinks(l.nic())
	require.Len(l.t, links, 2)
	require.NoError(l.t, l.m.UnlinkSubnet(l.ctx(), l.id, nic.ID, links[1].ID))
	require.Equal(l.t, links[:1], autoLinks(l.nic()))

	require.NoError(l.t, l.m.UpdateInterface(l.ctx(), l.id, nic.ID, 1500, []string{"slipway-test"}))
	nic = l.nic()
	require.Equal(l.t, 1500, nic.MTU)
	require.Contains(l.t, nic.Tags, "slipway-test")
	l.refused(providers.KindInvalid, "a link to an unknown subnet", l.m.LinkSubnet(l.ctx(), l.id, nic.ID, 1<<30, "auto"))
	l.refused(providers.KindNotFound, "a link of an unknown interface", l.m.LinkSubnet(l.ctx(), l.id, 1<<30, subnet, "auto"))
}
