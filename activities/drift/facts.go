package drift

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Facts is all that is known of one node when it is compared: a value, so that
// every detector is a function of it and of nothing else. What is absent is nil.
type Facts struct {
	Now    time.Time `json:"-"`
	Policy Policy    `json:"-"`
	// Listed is when the region was asked for its list; zero when this pass has
	// none, and then nothing is known of the machine.
	Listed time.Time `json:"-"`
	User   string    `json:"-"` // as whom Slipway speaks to the region

	Node      NodeFacts         `json:"node"`
	Machine   *Machine          `json:"machine"`
	BMC       *BMCFacts         `json:"bmc"`
	Look      *LookFacts        `json:"look"`
	Beat      *BeatFacts        `json:"beat"`
	Identity  *IdentityFacts    `json:"identity"`
	SKU       *spec.SKUSpec     `json:"sku"`
	Profile   *spec.ProfileSpec `json:"profile"`
	Mark      *Mark             `json:"mark"`
	LiveJob   string            `json:"live_job"`
	LastJobAt *time.Time        `json:"last_job_at"`
}

// NodeFacts is the node's row.
type NodeFacts struct {
	ID             string               `json:"id"`
	Status         lifecycle.NodeStatus `json:"status"`
	Hostname       string               `json:"hostname"`
	MACs           []string             `json:"macs"`
	SystemID       string               `json:"system_id"`
	StateChangedAt time.Time            `json:"state_changed_at"`
}

// Machine is what the region's list says of a machine.
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

// LookFacts is what the BMC itself showed last.
type LookFacts struct {
	Address    string     `json:"address"`
	ProbedAt   time.Time  `json:"probed_at"`
	AnsweredAt *time.Time `json:"answered_at"`
	Failures   int        `json:"failures"`
	PinSHA256  string     `json:"pin_sha256"`
	Problem    string     `json:"problem"`
	Power      string     `json:"power"`
	PowerAt    *time.Time `json:"power_at"`
}

// BeatFacts is the agent's last heartbeat and report.
type BeatFacts struct {
	BootID       string             `json:"boot_id"`
	AgentVersion string             `json:"agent_version"`
	SkewMS       int64              `json:"skew_ms"`
	ReceivedAt   time.Time          `json:"received_at"`
	Report       *spec.HealthReport `json:"report"`
	ReportBootID string             `json:"report_boot_id"`
	ReportedAt   *time.Time         `json:"reported_at"`
}

// IdentityFacts is the agent's certificate that counts.
type IdentityFacts struct {
	Generation   int64      `json:"generation"`
	LockedAt     *time.Time `json:"locked_at"`
	LockedReason string     `json:"locked_reason"`
	NotBefore    *time.Time `json:"not_before"`
	NotAfter     *time.Time `json:"not_after"`
}

// Mark is what is accounted for: how boot and machine were when they were first
// seen after a job, or as somebody adopted them.
type Mark struct {
	BootID     string    `json:"boot_id,omitempty"`
	DeployedBy string    `json:"deployed_by,omitempty"`
	Hostname   string    `json:"hostname,omitempty"`
	Serial     string    `json:"serial,omitempty"`
	UUID       string    `json:"uuid,omitempty"`
	MACs       []string  `json:"macs,omitempty"`
	Addresses  []string  `json:"addresses,omitempty"`
	MarkedAt   time.Time `json:"marked_at,omitzero"`
}

// settled says that node and jobs have stood still since before the region was
// asked: what was read there is of the node as it stands here.
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

// beats says that the agent is heard now: its report is of the present.
func (f Facts) beats() bool {
	return f.Beat != nil && f.Now.Sub(f.Beat.ReceivedAt) <= f.Policy.Fresh
}

// report is the agent's report of its present boot, nil for none.
func (f Facts) report() *spec.HealthReport {
	if !f.beats() || f.Beat.Report == nil || f.Beat.ReportBootID != f.Beat.BootID {
		return nil
	}
	return f.Beat.Report
}

// announced says that a job has worked on the node since it was marked: what
// is different now is its doing.
func (f Facts) announced() bool {
	return f.Mark != nil && f.LastJobAt != nil && f.LastJobAt.After(f.Mark.MarkedAt)
}

// nextMark is what is to be accounted for from now on; changed is false when
// that is what is stored. Only of a node in service that has settled.
func (f Facts) nextMark() (next Mark, changed bool) {
	serves := f.Node.Status == lifecycle.NodeActive || f.Node.Status == lifecycle.NodeOffline
	if !serves || f.LiveJob != "" || !f.settled() {
		return Mark{}, false
	}
	if f.Mark != nil && !f.announced() {
		next = *f.Mark
	}
	if next.BootID == "" && f.beats() {
		next.BootID = f.Beat.BootID
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

// sameSet compares two lists without order and case.
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
