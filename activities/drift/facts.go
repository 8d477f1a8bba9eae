package drift

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Facts has all facts about one node that detectors use. A detector is a pure function of it. An
// absent fact is nil.
type Facts struct {
	Now    time.Time `json:"-"`
	Policy Policy    `json:"-"`
	// Listed is the time of the region's list. It is zero when this pass has no list, and then the
	// facts of the machine are not valid.
	Listed time.Time `json:"-"`
	User   string    `json:"-"` // Slipway's user in the region

	Node      NodeFacts         `json:"node"`
	Machine   *Machine          `json:"machine"`
	BMC       *BMCFacts         `json:"bmc"`
	Look      *LookFacts        `json:"look"`
	Parts     *PartsFacts       `json:"parts"`
	Heartbeat *HeartbeatFacts   `json:"heartbeat"`
	Identity  *IdentityFacts    `json:"identity"`
	SKU       *spec.SKUSpec     `json:"sku"`
	Profile   *spec.ProfileSpec `json:"profile"`
	Mark      *Mark             `json:"mark"`
	LiveJob   string            `json:"live_job"`
	LastJobAt *time.Time        `json:"last_job_at"`
	// RestoredAt is when the database was last restored from a backup.
	RestoredAt *time.Time `json:"restored_at"`
	// Network is the last probe of the node's network that its agent ended.
	Network *driftdb.NetworkProbe `json:"network"`
}

// NodeFacts is the node's row.
type NodeFacts struct {
	ID        string               `json:"id"`
	Lifecycle string               `json:"lifecycle"`
	Status    lifecycle.NodeStatus `json:"status"`
	Hostname  string               `json:"hostname"`
	MACs      []string             `json:"macs"`
	SystemID  string               `json:"system_id"`
	// Addresses are those of the record, and AddressSource is who named them.
	Addresses      []string                `json:"ip_addresses"`
	AddressSource  lifecycle.AddressSource `json:"ip_addresses_source"`
	StateChangedAt time.Time               `json:"state_changed_at"`
	// Pointer is the allocation that the node names, Occupant the one that has the node; "" is
	// none.
	Pointer  string `json:"pointer"`
	Occupant string `json:"occupant"`
	// OccupiedSince is when that allocation was requested.
	OccupiedSince *time.Time `json:"occupied_since"`
	// TenantLeft says that a tenant has left the node and nothing has proven it clean since.
	TenantLeft bool `json:"tenant_left"`
}

// Machine is a machine in the region's list.
type Machine struct {
	SystemID     string               `json:"system_id"`
	Hostname     string               `json:"hostname"`
	Status       providers.MAASStatus `json:"status"`
	Error        string               `json:"error,omitempty"`
	Power        string               `json:"power"`
	Owner        string               `json:"owner,omitempty"`
	Locked       bool                 `json:"locked,omitempty"`
	Pool         string               `json:"pool,omitempty"`
	Serial       string               `json:"serial,omitempty"`
	UUID         string               `json:"uuid,omitempty"`
	MACs         []string             `json:"macs,omitempty"`
	Addresses    []string             `json:"addresses,omitempty"`
	HWSync       bool                 `json:"hw_sync,omitempty"`
	SyncInterval spec.Duration        `json:"sync_interval,omitempty"`
	LastSync     *time.Time           `json:"last_sync,omitempty"`
	DeployedBy   string               `json:"deployed_by,omitempty"`
	PowerAddress string               `json:"power_address,omitempty"`
	// Allocation is the allocation that the machine is marked for, "" for none.
	Allocation string `json:"allocation,omitempty"`
}

// BMCFacts is the BMC's record.
type BMCFacts struct {
	ID            string     `json:"id"`
	Address       string     `json:"address"`
	Protocol      string     `json:"protocol"`
	PinSHA256     string     `json:"pin_sha256"`
	BlockedAt     *time.Time `json:"blocked_at"`
	BlockedReason string     `json:"blocked_reason"`
}

// LookFacts is the result of the last probe of the BMC.
type LookFacts struct {
	Address    string     `json:"address"`
	ProbedAt   time.Time  `json:"probed_at"`
	AnsweredAt *time.Time `json:"answered_at"`
	Failures   int        `json:"failures"`
	PinSHA256  string     `json:"pin_sha256"`
	Problem    string     `json:"problem"`
	Power      string     `json:"power"`
	PowerAt    *time.Time `json:"power_at"`
	// Health is the worst of every part, "" before it was read. HealthProblems names the parts that
	// are not well.
	Health         string     `json:"health"`
	HealthProblems []string   `json:"health_problems"`
	HealthAt       *time.Time `json:"health_at"`
}

// PartsFacts is what was last read of the machine's parts by its BMC and its agent. The digests are
// "" where nothing was read.
type PartsFacts struct {
	BMCDigest   string `json:"bmc_digest"`
	AgentDigest string `json:"agent_digest"`
	// Modes are those of its DPUs, as id=mode.
	Modes        []string          `json:"modes"`
	BMCChanges   []hardware.Change `json:"bmc_changes"` // newest first
	AgentChanges []hardware.Change `json:"agent_changes"`
	BMCAt        *time.Time        `json:"bmc_at"`
	AgentAt      *time.Time        `json:"agent_at"`
}

// HeartbeatFacts is the agent's last heartbeat and report.
type HeartbeatFacts struct {
	BootID       string             `json:"boot_id"`
	AgentVersion string             `json:"agent_version"`
	SkewMS       int64              `json:"skew_ms"`
	ReceivedAt   time.Time          `json:"received_at"`
	Report       *spec.HealthReport `json:"report"`
	ReportBootID string             `json:"report_boot_id"`
	ReportedAt   *time.Time         `json:"reported_at"`
	// Allocation is the allocation that the agent says its node holds, "" for none. It is nil when
	// the agent does not say.
	Allocation *string `json:"allocation"`
}

// IdentityFacts is the agent's valid certificate.
type IdentityFacts struct {
	Generation   int64      `json:"generation"`
	LockedAt     *time.Time `json:"locked_at"`
	LockedReason string     `json:"locked_reason"`
	NotBefore    *time.Time `json:"not_before"`
	NotAfter     *time.Time `json:"not_after"`
}

// Mark is the baseline of a node: its boot and machine as first observed after a job, or as an
// operator adopted them.
type Mark struct {
	BootID     string   `json:"boot_id,omitempty"`
	DeployedBy string   `json:"deployed_by,omitempty"`
	Hostname   string   `json:"hostname,omitempty"`
	Serial     string   `json:"serial,omitempty"`
	UUID       string   `json:"uuid,omitempty"`
	MACs       []string `json:"macs,omitempty"`
	Addresses  []string `json:"addresses,omitempty"`
	// BMCParts and AgentParts are the digests of the parts, PartsAt is when they were read.
	BMCParts   string    `json:"bmc_parts,omitempty"`
	AgentParts string    `json:"agent_parts,omitempty"`
	DPUModes   []string  `json:"dpu_modes,omitempty"`
	PartsAt    time.Time `json:"parts_at,omitzero"`
	MarkedAt   time.Time `json:"marked_at,omitzero"`
}

// settled returns whether neither the node's state nor its jobs have changed since before the
// region was read, so that both sides describe the same time.
func (f Facts) settled() bool {
	since := f.Node.StateChangedAt
	if f.LastJobAt != nil && f.LastJobAt.After(since) {
		since = *f.LastJobAt
	}
	asked := f.Listed
	if asked.IsZero() {
		asked = f.Now
	}
	return !since.After(asked.Add(-f.Policy.Settle))
}

// agentAlive returns whether the last heartbeat is fresh, so that its report is current.
func (f Facts) agentAlive() bool {
	return f.Heartbeat != nil && f.Now.Sub(f.Heartbeat.ReceivedAt) <= f.Policy.Fresh
}

// isPXE returns whether the node boots from the network, without MAAS.
func (f Facts) isPXE() bool { return f.Node.Lifecycle == lifecycle.NodePXE.Lifecycle }

// report returns the agent's report of its present boot. It returns nil when there is none.
func (f Facts) report() *spec.HealthReport {
	if !f.agentAlive() || f.Heartbeat.Report == nil || f.Heartbeat.ReportBootID != f.Heartbeat.BootID {
		return nil
	}
	return f.Heartbeat.Report
}

// announced returns whether a job has ended on the node since the baseline was stored, so that the
// job explains the differences. An installation of a PXE node is no job: it moves the node's state.
func (f Facts) announced() bool {
	switch {
	case f.Mark == nil:
		return false
	case f.isPXE() && f.Node.StateChangedAt.After(f.Mark.MarkedAt):
		return true
	}
	return f.LastJobAt != nil && f.LastJobAt.After(f.Mark.MarkedAt)
}

// nextBaseline returns the node's new baseline. It returns changed false when the stored one is
// current, or the node is not in service or has not settled.
func (f Facts) nextBaseline() (next Mark, changed bool) {
	inService := f.Node.Status == lifecycle.NodeActive || f.Node.Status == lifecycle.NodeOffline
	if !inService || f.LiveJob != "" || !f.settled() {
		return Mark{}, false
	}
	if f.Mark != nil && !f.announced() {
		next = *f.Mark
	}
	if next.BootID == "" && f.agentAlive() {
		next.BootID = f.Heartbeat.BootID
	}
	if m := f.Machine; m != nil && !f.Listed.IsZero() && m.Status == providers.MAASDeployed {
		fill(&next.DeployedBy, m.DeployedBy)
		fill(&next.Hostname, m.Hostname)
		fill(&next.Serial, m.Serial)
		fill(&next.UUID, m.UUID)
		if len(next.MACs) == 0 {
			next.MACs = m.MACs
		}
		if len(next.Addresses) == 0 {
			next.Addresses = m.Addresses
		}
	}
	f.baseParts(&next)
	if f.Mark == nil {
		return next, next.BootID != "" || next.Hostname != ""
	}
	before := *f.Mark
	before.MarkedAt, next.MarkedAt = time.Time{}, time.Time{}
	return next, f.announced() || string(encode(before)) != string(encode(next))
}

func fill(into *string, from string) {
	if *into == "" {
		*into = from
	}
}

// sameSet returns whether two lists have the same values, in any order and case.
func sameSet(a, b []string) bool {
	return slices.Equal(normal(a), normal(b))
}

func normal(list []string) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, strings.ToLower(v))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func encode(v any) json.RawMessage {
	doc, err := json.Marshal(v)
	if err != nil { // values of this package always encode
		return json.RawMessage("{}")
	}
	return doc
}

// nextAddresses returns the addresses that the node's record is to have: those that MAAS gives its
// deployed machine, or else the one that its agent reports. changed is false where the record is
// right. Where MAAS shows others than the baseline has, the record waits until an operator has
// adopted them. The agent of a tenant's node names no address, since the
// tenant may be root there, and neither does that of a node which a tenant has left.
func (f Facts) nextAddresses() (next db.NodeAddresses, changed bool) {
	if m := f.Machine; m != nil && !f.Listed.IsZero() && !f.isPXE() {
		inMAAS := f.Node.AddressSource == lifecycle.AddressesOfMAAS
		switch {
		case !f.settled():
			return next, false
		case m.Status == providers.MAASReady || m.Status == providers.MAASNew:
			return next, inMAAS
		case m.Status != providers.MAASDeployed || len(m.Addresses) == 0 || inMAAS && sameSet(m.Addresses, f.Node.Addresses):
			return next, false
		case !inMAAS || f.Mark == nil || sameSet(m.Addresses, f.Mark.Addresses):
			return db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: m.Addresses}, true
		}
		return next, false
	}
	r := f.report()
	if r == nil || r.Address == "" || f.Node.Pointer != "" || f.Node.Occupant != "" || f.Node.TenantLeft || slices.Equal(f.Node.Addresses, []string{r.Address}) {
		return next, false
	}
	if s := f.Node.AddressSource; s != "" && s != lifecycle.AddressesOfAgent {
		return next, false
	}
	return db.NodeAddresses{Source: lifecycle.AddressesOfAgent, IPs: []string{r.Address}}, true
}
