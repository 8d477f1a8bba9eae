package allocation_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	isolationact "github.com/slipway-cloud/slipway/activities/isolation"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

const publicKey = "ssh-ed25519 AAAA"

// fixture is a job of an allocation. The answers of its activities can be changed.
type fixture struct {
	*stagetest.Harness
	stagetest.Activities

	mu    sync.Mutex
	facts contract.AllocationFacts
	node  contract.DecommissionFacts
}

func setup(t *testing.T, workflow any, kind contract.JobKind, status lifecycle.AllocationStatus, root bool) *fixture {
	t.Helper()
	f := &fixture{Harness: stagetest.New(t, workflow, kind, contract.AllocationInput{AllocationID: "alc_1"})}
	f.In.NodeID, f.In.SiteID, f.In.ResourceID = "", "", "alc_1"
	f.facts = contract.AllocationFacts{
		Status: status, NodeID: "node_1", SiteID: "site_1", TenantRoot: root, MaxDeliver: 5, RevokeSeconds: 120,
		Keys: []contract.AllocationKey{{Fingerprint: "SHA256:a", PublicKey: publicKey}},
	}
	f.node = contract.DecommissionFacts{
		Status: lifecycle.NodeActive, AllocationID: "alc_1", Agent: contract.AgentAlive, SystemID: "abc", BMCID: "bmc_1", Hostname: "gpu-1", BootID: "boot-2",
		Drives: []spec.ExpectedDrive{{Serial: "D1"}},
	}
	f.register()
	return f
}

func (f *fixture) register() {
	f.Register(f.Env, &allocationact.Activities{}, &bmcact.Activities{}, &maasact.Activities{}, &nodeact.Activities{}, &nodestateact.Activities{},
		&accessact.Activities{}, &isolationact.Activities{}, &agenttask.Activities{}, &evidenceact.Activities{})
	read := func() (any, error) { return lookedUp(f, f.facts) }
	for _, name := range []string{"ClaimNode", "ReadAllocation", "TakeNode", "StopUsage"} {
		f.Answer(name, read)
	}
	f.Answer("ReadNodeFacts", func() (any, error) { return lookedUp(f, f.node) })
	f.says("ObserveMachine", contract.MachineFacts{SystemID: "abc", Status: "Deployed", IPs: []string{"127.0.0.9"}, Done: true})
	f.says("ReadInstalledImage", contract.AllocationImage{ID: "ubuntu/noble", Name: "ubuntu", Version: "noble"})
	f.says("OfferKeys", accessact.OfferedKeys{
		Done: true, Keys: []accessact.OfferedKey{{Fingerprint: "SHA256:a", Accepted: true}},
		Connection: accessact.Connection{Address: "[::1]:2222", User: "t-1", HostKey: "ssh-ed25519 BBBB", HostKeySHA256: "SHA256:b"},
	})
	f.says("EndAccess", contract.AllocationFacts{Access: lifecycle.AccessRevoked})
	f.says("RunTask", lifecycle.TaskResult{OK: true, BootID: "boot-1"})
	f.says("LoadSiteConfig", contract.SiteFacts{Profile: spec.ProfileSpec{}.WithDefaults()})
	f.says("LoadNodeConfig", contract.DecommissionConfig{Profile: spec.ProfileSpec{}.WithDefaults(), ProfileID: "prof_1", SKUID: "sku_1"})
	f.says("EraseAndRelease", contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Ready"}, Erased: true})
	f.says("WaitForDeployed", maasact.DeployedFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}, Outcome: contract.DeployOK})
	f.says("PowerOffByBMC", contract.PowerFacts{State: "off", ReportedBy: "BMC", Done: true})
	f.says("PowerOffByMAAS", contract.PowerFacts{State: "off", ReportedBy: "MAAS", Done: true})
	f.says("CommitRotation", contract.RotationFacts{Committed: true})
	f.says("CertifyNode", contract.CertificateFacts{CertificateID: "cert_1", Verdict: "clean"})
}

func lookedUp[T any](f *fixture, v T) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return v, nil
}

func (f *fixture) says(name string, v any) {
	f.Answer(name, func() (any, error) { return v, nil })
}

// fails has an activity fail with a class, as often as times says, and answer after that with then.
func (f *fixture) fails(name string, class lifecycle.FailureClass, times int, then any) {
	f.Answer(name, func() (any, error) {
		if times--; times >= 0 {
			return nil, stagetest.Failure(class)
		}
		return then, nil
	})
}

const always = 1 << 20

// allocationMoves returns the moves of the allocation that were stored.
func (f *fixture) allocationMoves() []contract.AllocationMove {
	var out []contract.AllocationMove
	for _, p := range f.Store.Steps() {
		if m := allocationMove(p); m != nil {
			out = append(out, *m)
		}
	}
	return out
}

func allocationMove(p contract.Projection) *contract.AllocationMove {
	return stagetest.MoveOf[contract.AllocationMove](p, contract.SubjectAllocation)
}

func (f *fixture) count(name string) int {
	n := 0
	for _, c := range f.Calls() {
		if c == name {
			n++
		}
	}
	return n
}

// before reports whether one activity was first called before another.
func (f *fixture) before(first, second string) bool {
	i, j := slices.Index(f.Calls(), first), slices.Index(f.Calls(), second)
	return i >= 0 && i < j
}

func (f *fixture) at(d time.Duration, a lifecycle.Action) *stagetest.Answer {
	return f.Act(d, a, contract.ActionRequest{Reason: "test"})
}

// endedAt has the allocation end by another way after d.
func (f *fixture) endedAt(d time.Duration) {
	f.After(d, func() {
		ended := f.facts
		ended.Status = lifecycle.AllocationReleased
		f.says("ReadAllocation", ended)
	})
}

func stageNames(raw []contract.Projection) []string {
	var out []string
	for _, r := range raw[len(raw)-1].Stages {
		out = append(out, r.Name)
	}
	return out
}
