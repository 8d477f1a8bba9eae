package replay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// allocationJobs are the jobs that give a node to a tenant, change his keys and take it back.
func allocationJobs() []scriptedJob {
	return []scriptedJob{
		{
			kind: contract.KindAllocationProvision, last: "ProveLogin", start: startProvision, givesUp: true, answers: provisionAnswers(),
			asks: [3]counts{{Activities: 30, Local: 14, Timers: 11, Upserts: 5}, {}, {Activities: 25, Local: 13, Timers: 8, Upserts: 5}},
		},
		{
			kind: contract.KindAllocationRelease, last: "CompareSettings", start: startRelease, answers: releaseAnswers(),
			asks: [3]counts{{Activities: 39, Local: 15, Timers: 12, Upserts: 6}, {Activities: 40, Local: 18, Timers: 13, Upserts: 8, Updates: 1},
				{Activities: 33, Local: 14, Timers: 9, Upserts: 8, Updates: 1}},
		},
		{
			kind: contract.KindAllocationKeys, last: "OfferKeys", start: startKeys, givesUp: true, answers: keysAnswers(),
			asks: [3]counts{{Activities: 13, Local: 6, Timers: 3, Upserts: 4}, {}, {Activities: 11, Local: 8, Timers: 4, Upserts: 4}},
		},
	}
}

func keysAnswers() answers {
	return answers{
		"ObserveMachine": contract.MachineFacts{SystemID: "abc", Status: "Deployed", IPs: []string{"127.0.0.1"}},
		"LoadNodeConfig": contract.DecommissionConfig{Profile: spec.ProfileSpec{}.WithDefaults()},
		"RunTask":        lifecycle.TaskResult{OK: true},
		"OfferKeys":      accessact.OfferedKeys{Done: true},
	}
}

// startKeys ends the key of the allocation that occupies a node, and tells the activities of
// another one that is in force.
func startKeys(t *testing.T, p *play, a answers) {
	t.Helper()
	n := inService(t, p.rig)
	store := p.rig.Store
	row, err := dbtest.OccupyNode(t.Context(), store, n.ID)
	require.NoError(t, err)
	a["ReadAllocation"] = contract.AllocationFacts{
		Status: lifecycle.AllocationActive, NodeID: n.ID, SiteID: n.SiteID, TenantRoot: true,
		Keys:   []contract.AllocationKey{{Fingerprint: "SHA256:other", PublicKey: "ssh-ed25519 AAAA"}},
		Former: []contract.AllocationKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
	}
	a["ReadNodeFacts"] = contract.DecommissionFacts{Status: lifecycle.NodeActive, AllocationID: row.ID, Agent: contract.AgentAlive, SystemID: "abc", Hostname: n.Hostname}
	_, err = store.DBTX().Exec(t.Context(), "DELETE FROM project_ssh_keys WHERE project_id = $1", row.ProjectID)
	require.NoError(t, err)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		c, err := allocation.Continue(t.Context(), tx, row.ID)
		if err != nil {
			return err
		}
		p.job = c.Job.ID
		return nil
	}))
	p.started(t, contract.JobWorkflowID(contract.KindAllocationKeys, p.job))
}

func provisionAnswers() answers {
	return answers{
		"ObserveMachine":     contract.MachineFacts{SystemID: "abc", Status: "Deployed", IPs: []string{"127.0.0.1"}},
		"LoadNodeConfig":     contract.DecommissionConfig{Profile: spec.ProfileSpec{}.WithDefaults()},
		"ReadInstalledImage": contract.AllocationImage{ID: "ubuntu/noble", Name: "ubuntu", Version: "noble"},
		"RunTask":            lifecycle.TaskResult{OK: true},
		"OfferKeys": accessact.OfferedKeys{
			Done: true, Keys: []accessact.OfferedKey{{Fingerprint: dbtest.KeyFingerprint, Accepted: true}},
			Connection: accessact.Connection{Address: "127.0.0.1:22", User: "t-1", HostKey: "ssh-ed25519 AAAA", HostKeySHA256: "SHA256:a"},
		},
	}
}

// startProvision accepts an allocation, claims its node, and tells the activities of it.
func startProvision(t *testing.T, p *play, a answers) {
	t.Helper()
	n := inService(t, p.rig)
	store := p.rig.Store
	require.NoError(t, store.RecordHeartbeats(t.Context(), []db.Heartbeat{
		{NodeID: n.ID, BootID: "boot-1", Generation: 1, ReceivedAt: time.Now(), Report: &spec.HealthReport{}},
	}))
	project := dbtest.Project(t, store)
	var id string
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		row, err := allocationdb.Create(t.Context(), tx, allocationdb.New{
			ProjectID: project.ID, SKUID: *n.SKUID, RequestedBy: "test", Actor: admin,
			Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
		if err != nil {
			return err
		}
		id = row.ID
		facts := contract.AllocationFacts{
			Status: lifecycle.AllocationProvisioning, NodeID: n.ID, SiteID: n.SiteID, TenantRoot: true,
			Keys: []contract.AllocationKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		}
		a["ClaimNode"], a["ReadAllocation"] = facts, facts
		a["ReadNodeFacts"] = contract.DecommissionFacts{
			Status: lifecycle.NodeActive, AllocationID: id, Agent: contract.AgentAlive, SystemID: "abc", BMCID: "bmc_1", Hostname: n.Hostname,
		}
		job, err := tx.CreateJob(t.Context(), db.NewJob{
			Kind: string(contract.KindAllocationProvision), ResourceKind: allocationdb.Resource, ResourceID: id, Actor: admin,
		})
		if err != nil {
			return err
		}
		p.job = job.ID
		_, found, err := allocationdb.Claim(t.Context(), tx, id, admin)
		require.True(t, found)
		return err
	}))
	p.started(t, contract.JobWorkflowID(contract.KindAllocationProvision, p.job))
}

func releaseAnswers() answers {
	return answers{
		"ObserveMachine":  contract.MachineFacts{SystemID: "abc", Status: "Ready"},
		"LoadNodeConfig":  contract.DecommissionConfig{Profile: spec.ProfileSpec{}.WithDefaults(), ProfileID: "prof_1", SKUID: "sku_1"},
		"LoadSiteConfig":  contract.SiteFacts{Profile: spec.ProfileSpec{}.WithDefaults()},
		"PowerOffByBMC":   contract.PowerFacts{State: "off", ReportedBy: "BMC", Done: true},
		"EndAccess":       contract.AllocationFacts{Access: lifecycle.AccessRevoked},
		"EraseAndRelease": contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Ready"}, Erased: true},
		"WaitForDeployed": maasact.DeployedFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}, Outcome: contract.DeployOK},
		"RunTask":         lifecycle.TaskResult{OK: true, BootID: "boot-1"},
		"CommitRotation":  contract.RotationFacts{Committed: true},
		"CertifyNode":     contract.CertificateFacts{CertificateID: "cert_1", Verdict: "clean"},
		// Asked only when the job is cancelled: the assignment was removed.
		"ReadAllocation": contract.AllocationFacts{Status: lifecycle.AllocationReleased},
	}
}

// startRelease releases the allocation that occupies a node. Its access has ended before the job
// runs, since the activity that ends it is played.
func startRelease(t *testing.T, p *play, a answers) {
	t.Helper()
	n := inService(t, p.rig)
	store := p.rig.Store
	row, err := dbtest.OccupyNode(t.Context(), store, n.ID)
	require.NoError(t, err)
	facts := contract.AllocationFacts{Status: lifecycle.AllocationReleasing, NodeID: n.ID, SiteID: n.SiteID, TenantRoot: true, RevokeSeconds: 120, MaxDeliver: 5}
	a["TakeNode"], a["StopUsage"] = facts, facts
	a["ReadNodeFacts"] = contract.DecommissionFacts{
		Status: lifecycle.NodeActive, AllocationID: row.ID, Agent: contract.AgentAlive, SystemID: "abc", BMCID: "bmc_1", Hostname: n.Hostname, BootID: "boot-2",
		Drives: []spec.ExpectedDrive{{Serial: "D1"}},
	}
	a["CertifyNode"] = contract.CertificateFacts{CertificateID: dbtest.Certificate(t, store, n.ID, "clean", time.Now().Add(time.Minute)), Verdict: "clean"}
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		r, err := allocation.Release(t.Context(), tx, row.ID, "test", admin)
		if err != nil {
			return err
		}
		p.job = r.Job.ID
		return allocationdb.EndAccess(t.Context(), tx, row.ID, lifecycle.AccessRevoked)
	}))
	p.started(t, contract.JobWorkflowID(contract.KindAllocationRelease, p.job))
}
