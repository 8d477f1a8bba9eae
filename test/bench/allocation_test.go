package bench_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/bench/rig"
)

const (
	allocationsARound = 24
	allocationsAtOnce = 12
	allocationRounds  = 3
	allocatableNodes  = 24
)

var tenant = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:bench"}

// BenchmarkAllocation measures allocations over providers that answer at once, from the accepted
// request over an active allocation to the node that is free again, against two workflows that run
// as many activities and nothing else.
func BenchmarkAllocation(b *testing.B) {
	m := newMarket(b)
	first, err := m.allocate(b.Context(), 0)
	require.NoError(b, err)
	provision, release := countIn(b, m.rig, first[0]), countIn(b, m.rig, first[1])
	engine := startBare(b, m.rig.Temporal)

	var c contest
	took := map[string]*durations{}
	used := map[string]time.Duration{} // processor time of this process, with its workers, and of PostgreSQL
	enter := func(name string, work func(ctx context.Context, i int) error) {
		took[name] = &durations{}
		c.enter(name, func() float64 {
			m.heartbeats(b)
			began := processorTime(b) + postgresTime(b, m.rig.Store.DBTX())
			defer func() { used[name] += processorTime(b) + postgresTime(b, m.rig.Store.DBTX()) - began }()
			return rate(b, allocationsARound, allocationsAtOnce, func(ctx context.Context, i int) error {
				defer took[name].since(time.Now())
				return work(ctx, i)
			})
		})
	}
	enter("allocation", func(ctx context.Context, i int) error {
		_, err := m.allocate(ctx, i)
		return err
	})
	bare := func(local bool) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			for _, l := range []bareLoad{provision, release} {
				if !local {
					l.Local = 0
				}
				if err := engine.run(ctx, l); err != nil {
					return err
				}
			}
			return nil
		}
	}
	enter("bare", bare(false))
	enter("bare with local", bare(true))
	for b.Loop() {
		for range allocationRounds {
			c.round()
		}
	}
	late := took["allocation"].p99().Seconds() / took["bare"].p99().Seconds()
	b.ReportMetric(c.of("allocation"), "allocations/s")
	b.ReportMetric(c.of("bare"), "bare/s")
	b.ReportMetric(c.ratio("allocation", "bare"), "ratio")
	b.ReportMetric(c.ratio("allocation", "bare with local"), "ratio-with-local")
	b.ReportMetric(late, "p99-ratio")
	measure(b, rowAllocation, c.ratio("allocation", "bare"), "%.2f; %.2f to ones with the local activities; p99 %.1f times",
		c.ratio("allocation", "bare"), c.ratio("allocation", "bare with local"), late)
	say("allocation and release: %.1f/s, p99 %s; two bare workflows of %d and %d activities: %.1f/s, p99 %s; ratio %.2f (aim 0.6)\n"+
		"  the same with %d and %d local activities: %.1f/s; ratio %.2f\n"+
		"  processor time of workers and PostgreSQL, without Temporal: %.2f times",
		c.of("allocation"), took["allocation"].p99().Round(time.Millisecond), provision.Remote, release.Remote, c.of("bare"),
		took["bare"].p99().Round(time.Millisecond), c.ratio("allocation", "bare"), provision.Local, release.Local, c.of("bare with local"),
		c.ratio("allocation", "bare with local"), used["allocation"].Seconds()/used["bare"].Seconds())
}

// durations are how long pieces of work took.
type durations struct {
	mu   sync.Mutex
	list []time.Duration
}

func (d *durations) since(began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, time.Since(began))
}

func (d *durations) p99() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.list))[(len(d.list)*99-1)/100]
}

// allocationMarket is a SKU with free nodes, and projects that ask for them.
type allocationMarket struct {
	rig      *rig.Rig
	sku      db.SKU
	nodes    []string
	projects []string
	key      tenancy.SSHKey
	// proofs has a certificate of each node that says that it is clean.
	proofs map[string]string
}

func newMarket(b *testing.B) *allocationMarket {
	b.Helper()
	m := &allocationMarket{proofs: map[string]string{}}
	var err error
	m.key, err = tenancy.ParseSSHKey(dbtest.Key)
	require.NoError(b, err)
	m.rig = rig.NewScripted(b, m.answer)
	store, ctx := m.rig.Store, b.Context()
	m.sku = dbtest.SKU(b, store)
	profile := dbtest.Profile(b, store, dbtest.At(m.rig.Site.ID))
	for range allocatableNodes {
		n := dbtest.FreeNode(b, store, dbtest.Of(m.sku.ID), dbtest.At(m.rig.Site.ID))
		m.nodes = append(m.nodes, n.ID)
		m.proofs[n.ID] = dbtest.Certificate(b, store, n.ID, "clean", time.Now().Add(time.Hour))
	}
	require.NoError(b, store.Tx(ctx, func(tx *db.Tx) error {
		_, err := tenancydb.PutOffer(ctx, tx, tenancydb.Offer{SKUID: m.sku.ID, ProfileID: profile.ID, Title: "Eight GPUs", Isolation: "shared_network"})
		return err
	}))
	for range allocationsAtOnce { // those of one billing account would wait for each other
		m.projects = append(m.projects, m.newProject(b))
	}
	return m
}

// newProject makes a project with a member and a key.
func (m *allocationMarket) newProject(b *testing.B) string {
	b.Helper()
	store, ctx := m.rig.Store, b.Context()
	p := dbtest.Project(b, store)
	var member tenancydb.Member
	require.NoError(b, store.Tx(ctx, func(tx *db.Tx) (err error) {
		member, err = tenancydb.AddMember(ctx, tx, p.ID, tenancydb.NewMember{Subject: tenant.ID, Name: "Ada", Role: lifecycle.RoleProjectOwner})
		return err
	}))
	require.NoError(b, store.ForProject(ctx, p.ID, func(tx *db.ProjectTx) error {
		_, err := tenancydb.AddSSHKey(ctx, tx, tenancydb.SSHKey{
			MemberID: member.ID, Name: "key", Type: m.key.Type, PublicKey: m.key.PublicKey, Fingerprint: m.key.Fingerprint,
		})
		return err
	}))
	return p.ID
}

// heartbeats keeps the nodes fresh, since a claim takes no other.
func (m *allocationMarket) heartbeats(b *testing.B) {
	b.Helper()
	var list []db.Heartbeat
	for _, id := range m.nodes {
		list = append(list, db.Heartbeat{NodeID: id, BootID: "boot-1", Generation: 1, ReceivedAt: time.Now(), Report: &spec.HealthReport{}})
	}
	require.NoError(b, m.rig.Store.RecordHeartbeats(b.Context(), list))
}

// answer answers for the outside. The activities that store the state of an allocation really run.
func (m *allocationMarket) answer(ctx context.Context, activity string, in []any) (any, bool, error) {
	deployed := contract.MachineFacts{SystemID: "abc", Status: "Deployed", IPs: []string{"127.0.0.1"}}
	ready := contract.MachineFacts{SystemID: "abc", Status: "Ready"}
	profile := spec.ProfileSpec{}.WithDefaults()
	switch activity {
	case "TakeJob", "ProjectJob", "ClaimNode", "ReadAllocation", "DescribeInstance", "GiveAccess", "RecordKeys", "TakeNode", "EndAccess", "StopUsage",
		"RecordOccupancy":
		return nil, false, nil
	case "ReadNodeFacts":
		facts := contract.DecommissionFacts{
			Status: lifecycle.NodeActive, Agent: contract.AgentAlive, SystemID: "abc", BMCID: "bmc_1", Hostname: "gpu-1", BootID: "boot-2",
			Drives: []spec.ExpectedDrive{{Serial: "D1"}},
		}
		a, err := allocationdb.FindForNode(ctx, m.rig.Store, nodeOf(in))
		facts.AllocationID = a.ID
		return facts, true, err
	case "CertifyNode":
		return contract.CertificateFacts{CertificateID: m.proofs[nodeOf(in)], Verdict: "clean"}, true, nil
	case "ObserveMachine":
		return deployed, true, nil
	case "LoadNodeConfig":
		return contract.DecommissionConfig{Profile: profile, ProfileID: "prof_1", SKUID: m.sku.ID}, true, nil
	case "LoadSiteConfig":
		return contract.SiteFacts{Profile: profile}, true, nil
	case "ReadInstalledImage":
		return contract.AllocationImage{ID: "ubuntu/noble", Name: "ubuntu", Version: "noble"}, true, nil
	case "RunTask":
		return lifecycle.TaskResult{OK: true, BootID: "boot-1"}, true, nil
	case "OfferKeys":
		return accessact.OfferedKeys{
			Done: true, Keys: []accessact.OfferedKey{{Fingerprint: m.key.Fingerprint, Accepted: true}},
			Connection: accessact.Connection{Address: "127.0.0.1:22", User: "t-1", HostKey: "ssh-ed25519 AAAA", HostKeySHA256: "SHA256:a"},
		}, true, nil
	case "PowerOffByBMC":
		return contract.PowerFacts{State: "off", ReportedBy: "BMC", Done: true}, true, nil
	case "EraseAndRelease":
		return contract.ReleaseFacts{MachineFacts: ready, Erased: true}, true, nil
	case "WaitForDeployed":
		return maasact.DeployedFacts{MachineFacts: deployed, Outcome: contract.DeployOK}, true, nil
	case "CommitRotation":
		return contract.RotationFacts{Committed: true}, true, nil
	default:
		return nil, true, nil
	}
}

// nodeOf returns the node of an activity's input.
func nodeOf(in []any) string {
	if ref, ok := in[0].(interface{ Ref() contract.JobRef }); ok {
		return ref.Ref().NodeID
	}
	return ""
}

// allocate takes a node from the request over an active allocation to its end. It returns the ids
// of the two workflows.
func (m *allocationMarket) allocate(ctx context.Context, i int) (workflows [2]string, err error) {
	policy := allocation.Policy{MaxLaunches: 1 << 20, LaunchWindow: time.Minute, MaxReleasing: 1 << 20, MaxUnpaid: 1 << 20}
	var made allocation.Accepted
	var released allocation.Released
	err = m.rig.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		made, err = allocation.Create(ctx, tx, allocation.Request{ProjectID: m.projects[i%len(m.projects)], SKUID: m.sku.ID, Policy: policy, Actor: tenant})
		return err
	})
	if err != nil {
		return workflows, err
	}
	if workflows[0], err = m.await(ctx, contract.KindAllocationProvision, made.Job.ID); err != nil {
		return workflows, err
	}
	err = m.rig.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		released, err = allocation.Release(ctx, tx, made.Allocation.ID, "bench", tenant)
		return err
	})
	if err != nil {
		return workflows, err
	}
	if workflows[1], err = m.await(ctx, contract.KindAllocationRelease, released.Job.ID); err != nil {
		return workflows, err
	}
	a, err := allocationdb.Get(ctx, m.rig.Store, made.Allocation.ID)
	if err == nil && (a.Status != lifecycle.AllocationReleased || a.StartTime == nil) {
		err = fmt.Errorf("allocation %s is %s: %s", a.ID, a.Status, a.FailureMessage)
	}
	return workflows, err
}

// await waits for the end of a job.
func (m *allocationMarket) await(ctx context.Context, kind contract.JobKind, jobID string) (workflowID string, err error) {
	run, err := m.rig.Await(ctx, kind, jobID)
	if err != nil {
		return "", err
	}
	var res contract.JobResult
	if err := run.Get(ctx, &res); err != nil {
		return "", err
	}
	if res.Status != lifecycle.JobCompleted {
		return "", fmt.Errorf("%s %s ended %s at %s", kind, jobID, res.Status, res.Stage)
	}
	return run.GetID(), nil
}
