package contract

import (
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// OnboardingInput is the accepted request. PXE MAC, RoCE mapping and retry overrides are not in it.
// Credentials are references.
type OnboardingInput struct {
	Manual    bool   `json:"manual,omitempty"` // bootstrapped by hand: no MAAS stages
	SiteID    string `json:"site_id"`
	ProfileID string `json:"profile_id"`
	SKUID     string `json:"sku_id"`
	Hostname  string `json:"hostname"`
	BMCID     string `json:"bmc_id,omitempty"`
}

// JobRef names the job, node and site an activity works for; it is the first
// part of every activity input.
type JobRef struct {
	JobID  string `json:"job_id"`
	NodeID string `json:"node_id"`
	SiteID string `json:"site_id"`
	Stage  string `json:"stage,omitempty"`
	// ResourceID is what the job is about besides a node: the allocation.
	ResourceID string `json:"resource_id,omitempty"`
	// ObserveOnly asks only whether the outcome is already there: nothing
	// outside is changed.
	ObserveOnly bool `json:"observe_only,omitempty"`
	// Pass is the job's when the activity was asked for: 1, and one more each time that the job was
	// taken back. 0 is not known. It tells which activities came late.
	Pass int `json:"pass,omitempty"`
}

// SetPass sets the pass. The stage runner calls it for every input that embeds a JobRef.
func (r *JobRef) SetPass(pass int) { r.Pass = pass }

// At returns the reference at a stage.
func (r JobRef) At(stage string) JobRef {
	r.Stage = stage
	return r
}

// Ref returns itself, so that every input that embeds a JobRef can be asked.
func (r JobRef) Ref() JobRef { return r }

// SiteFacts is what load_site_config found and proved.
type SiteFacts struct {
	Site        spec.SiteSpec    `json:"site"`
	Profile     spec.ProfileSpec `json:"profile"`
	SKU         spec.SKUSpec     `json:"sku"`
	Hostname    string           `json:"hostname"`
	MAASVersion string           `json:"maas_version,omitempty"`
	NodeTimeout spec.Duration    `json:"node_timeout,omitempty"`
}

// BMCFacts is what a BMC said of its system.
type BMCFacts struct {
	BMCID        string   `json:"bmc_id"`
	Address      string   `json:"address"`
	Protocol     string   `json:"protocol,omitempty"` // redfish or ipmi; MAAS is given the same
	Vendor       string   `json:"vendor,omitempty"`
	Model        string   `json:"model,omitempty"`
	Serial       string   `json:"serial,omitempty"`
	SerialSource string   `json:"serial_source,omitempty"` // system, chassis or FRU that names it
	UUID         string   `json:"uuid,omitempty"`
	MACs         []string `json:"macs,omitempty"`
	Power        string   `json:"power,omitempty"`
	RedfishSysID string   `json:"redfish_system_id,omitempty"`
	// Health is the worst of every part: OK, Warning, or Unknown where a part could not be read.
	Health         string   `json:"health,omitempty"`
	HealthProblems []string `json:"health_problems,omitempty"`
}

// MachineFacts is what MAAS said of a machine.
type MachineFacts struct {
	SystemID string `json:"system_id,omitempty"`
	Created  bool   `json:"created,omitempty"` // by this job
	Status   string `json:"status,omitempty"`
	Power    string `json:"power,omitempty"`
	Done     bool   `json:"done,omitempty"` // the outcome asked for is there
	Note     string `json:"note,omitempty"`
	// Foreign is set where the machine is observed without this job's mark.
	Foreign bool     `json:"foreign,omitempty"`
	IPs     []string `json:"ips,omitempty"`
	// Commissioning is MAAS's number of the last commissioning.
	Commissioning int `json:"commissioning,omitempty"`
	// LastSync is the last hardware sync known at that moment.
	LastSync *time.Time `json:"last_sync,omitempty"`
	// Allocation is the allocation that MAAS has the machine marked for.
	Allocation string `json:"allocation,omitempty"`
}

// ActionMetadata is what the action log says of the machine.
func (f MachineFacts) ActionMetadata() lifecycle.ActionMetadata {
	m := lifecycle.ActionMetadata{ServerID: f.SystemID}
	if len(f.IPs) > 0 {
		m.IPAddress = f.IPs[0]
	}
	return m
}

// DeployOutcome is how a deployment ended as far as MAAS tells.
type DeployOutcome string

// The outcomes of wait_for_deployed.
const (
	DeployOK      DeployOutcome = "deployed"
	DeployFailed  DeployOutcome = "failed"
	DeployTimeout DeployOutcome = "timeout"
)

// UserData is rendered user-data, sealed in the secret store: it holds the
// enrolment token and the host key.
type UserData struct {
	Ref      string     `json:"ref,omitempty"`
	SHA256   string     `json:"sha256,omitempty"` // of the bytes, for comparison only
	IssuedAt *time.Time `json:"issued_at,omitempty"`
}

// AgentFacts is what the control plane knows of a node's agent.
type AgentFacts struct {
	Enrolled  bool     `json:"enrolled,omitempty"`
	Healthy   bool     `json:"healthy,omitempty"`
	Simulated bool     `json:"simulated,omitempty"`
	BootID    string   `json:"boot_id,omitempty"`
	Version   string   `json:"version,omitempty"`
	Problems  []string `json:"problems,omitempty"`
}

// ActionMetadata is what the action log says of the agent.
func (f AgentFacts) ActionMetadata() lifecycle.ActionMetadata { return agentVersion(f.Version) }

func agentVersion(version string) (m lifecycle.ActionMetadata) {
	if version != "" {
		m.AgentInfo = &lifecycle.AgentInfo{Version: version}
	}
	return m
}

// TimelineNote is what the node's timeline says of the facts.
func (f MachineFacts) TimelineNote() string {
	if f.Note != "" {
		return f.Status + ": " + f.Note
	}
	return f.Status
}
