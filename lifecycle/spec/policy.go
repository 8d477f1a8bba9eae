package spec

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that reads and writes as text ("90s", "15m").
type Duration time.Duration

// D is the plain duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalText writes the usual Go form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the usual Go form.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write for example 90s or 15m", b)
	}
	*d = Duration(v)
	return nil
}

// Invalid is one wrong field of a site, profile, SKU or request.
type Invalid struct{ Field, Problem string }

// InvalidError lists every wrong field at once.
type InvalidError struct{ Fields []Invalid }

func (e *InvalidError) Error() string {
	parts := make([]string, 0, len(e.Fields))
	for _, f := range e.Fields {
		parts = append(parts, f.Field+": "+f.Problem)
	}
	return "not valid: " + strings.Join(parts, "; ")
}

type problems []Invalid

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, Invalid{field, fmt.Sprintf(format, args...)})
}

// within adds a problem unless d lies between low and high, which the texts name.
func (p *problems) within(field string, d Duration, low time.Duration, lowText string, high time.Duration, highText string) {
	if d.D() < low || d.D() > high {
		p.add(field, "must be %s to %s", lowText, highText)
	}
}

// The longest that a profile may state.
const (
	maxSyncInterval  = 24 * time.Hour
	maxStageDeadline = 30 * 24 * time.Hour
)

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &InvalidError{p}
}

// SiteSpec is one MAAS region and the network around it.
type SiteSpec struct {
	MAASURL       string `json:"maas_url" maxLength:"500"`
	MAASAPIKeyRef string `json:"maas_api_key_ref" maxLength:"210"`
	MAASCAPEM     string `json:"maas_ca_pem,omitempty" maxLength:"65536"`
	Region        string `json:"region,omitempty" maxLength:"100"`
	DefaultDomain string `json:"default_domain,omitempty" maxLength:"253"`
	Pool          string `json:"pool,omitempty" maxLength:"100"`
	Zone          string `json:"zone,omitempty" maxLength:"100"`
	// SSHUser and SSHKeyRef are the login Slipway seeds on every node.
	SSHUser   string `json:"ssh_user,omitempty" maxLength:"32"`
	SSHKeyRef string `json:"ssh_key_ref,omitempty" maxLength:"210"`
	// SSHPort is the port of sshd on the nodes; 0 means 22.
	SSHPort int `json:"ssh_port,omitempty" minimum:"0" maximum:"65535"`
	// BMCCAPEM is the second trust mode for BMCs: a CA bundle of the site.
	BMCCAPEM string `json:"bmc_ca_pem,omitempty" maxLength:"65536"`
	// TrustFirstBMCPin approves the certificate that a BMC shows first; without
	// it an operator approves each pin.
	TrustFirstBMCPin bool `json:"trust_first_bmc_pin,omitempty"`
	// BMCNetworks are the networks of the site's BMCs. No other address of a BMC is accepted, and
	// no login is sent to one.
	BMCNetworks []string `json:"bmc_networks,omitempty" maxItems:"100" itemMaxLength:"64"`
	// NodeNetworks are the networks of the site's nodes. Slipway logs in by SSH to no other
	// address. None allows every address that is not refused anyway.
	NodeNetworks []string `json:"node_networks,omitempty" maxItems:"100" itemMaxLength:"64"`
	// MAASPlainHTTP accepts a region over http, which shows the API key to the network.
	MAASPlainHTTP bool `json:"maas_plain_http,omitempty"`
	// Simulated marks a site of simulators; every result says so. Its BMCs, its nodes and its
	// region may be on loopback addresses and speak plain HTTP.
	Simulated bool `json:"simulated,omitempty"`
}

// AddressRule returns the rule of a kind of target of the site, whose name errors say.
func (s SiteSpec) AddressRule(kind SecretKind, name string) AddressRule {
	rule := AddressRule{Anywhere: true, Loopback: s.Simulated, PlainHTTP: s.Simulated}
	switch kind {
	case SecretMAASKey:
		rule.PlainHTTP = s.Simulated || s.MAASPlainHTTP
	case SecretBMCLogin:
		rule.Anywhere, rule.Networks, rule.Where = false, ParseNetworks(s.BMCNetworks), "bmc_networks of site "+name
	case SecretSSHKey:
		rule.Anywhere, rule.Networks, rule.Where = len(s.NodeNetworks) == 0, ParseNetworks(s.NodeNetworks), "node_networks of site "+name
	case SecretBootstrap, SecretInternal, SecretSMTPPassword, SecretStripeKey, SecretStripeWebhook, SecretCloudKey, SecretKubeconfig:
	}
	return rule
}

// SSHAddress returns host:port of the sshd of a node with these addresses: at the first of them
// that the site allows a login to, or else at the first. It returns "" for a node without an
// address.
func (s SiteSpec) SSHAddress(addresses []string) string {
	if len(addresses) == 0 {
		return ""
	}
	port := cmp.Or(s.SSHPort, 22)
	rule, best := s.AddressRule(SecretSSHKey, ""), addresses[0]
	for _, text := range addresses {
		ip, err := netip.ParseAddr(text)
		if err == nil && rule.Check(netip.AddrPortFrom(ip, uint16(port))) == nil { //nolint:gosec // a port
			best = text
			break
		}
	}
	return net.JoinHostPort(best, strconv.Itoa(port))
}

// Validate checks the fields and names all that are wrong.
func (s SiteSpec) Validate() error {
	var p problems
	u, err := url.Parse(s.MAASURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		p.add("maas_url", "must be an http or https URL such as https://maas.example:5240/MAAS")
	} else if u.User != nil {
		p.add("maas_url", "must not hold a user or password")
	} else if err := s.AddressRule(SecretMAASKey, "").CheckURL(s.MAASURL); err != nil {
		p.add("maas_url", "%v; maas_plain_http accepts a region over http", err)
	}
	checkNetworks(&p, "bmc_networks", s.BMCNetworks)
	checkNetworks(&p, "node_networks", s.NodeNetworks)
	if s.MAASAPIKeyRef == "" {
		p.add("maas_api_key_ref", "must name a stored secret; store it first")
	} else if !ValidRef(s.MAASAPIKeyRef) {
		p.add("maas_api_key_ref", "is not a secret reference (name or name@version)")
	}
	if s.SSHKeyRef != "" && !ValidRef(s.SSHKeyRef) {
		p.add("ssh_key_ref", "is not a secret reference (name or name@version)")
	}
	return p.err()
}

var refPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9/_.-]{0,199}(@[0-9]{1,9})?$`)

// ReservedSecrets begins the names of the secrets that slipwayd makes for itself, such as its keys
// and the node CA: nobody stores one over the API, reads about one, or refers to one.
const ReservedSecrets = "slipway/"

// ValidRef reports whether s is a secret reference, name or name@version, that is not reserved.
func ValidRef(s string) bool {
	return refPattern.MatchString(s) && !strings.HasPrefix(s, ReservedSecrets)
}

var hostnamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ValidHostname reports whether s is one DNS label in lower case.
func ValidHostname(s string) bool { return hostnamePattern.MatchString(s) }

// BootDiskRule chooses the boot disk among the machine's physical disks. All
// set fields must match; of several matches the smallest, then the lowest id.
type BootDiskRule struct {
	ModelContains string `json:"model_contains,omitempty" maxLength:"100"` // for example BOSS
	MinBytes      int64  `json:"min_bytes,omitempty" minimum:"0" maximum:"1000000000000000"`
	MaxBytes      int64  `json:"max_bytes,omitempty" minimum:"0" maximum:"1000000000000000"`
}

// ProfileSpec is the policy of a site for one kind of node.
type ProfileSpec struct {
	SiteBootstrapBundleRef string   `json:"site_bootstrap_bundle_ref,omitempty" maxLength:"210"`
	StrictPXEPreflight     bool     `json:"strict_pxe_preflight"`
	EnablePhase2RoCE       bool     `json:"enable_phase2_roce"`
	RequireHWSync          bool     `json:"require_hw_sync"`
	HardwareSyncInterval   Duration `json:"hardware_sync_interval,omitempty" maxLength:"32"`
	ReleaseFallbackNoErase bool     `json:"release_fallback_no_erase"`
	// ScrubAllowOverwrite lets a scrub overwrite a disk that has no purge command
	// of its own; the certificate then says clear.
	ScrubAllowOverwrite bool `json:"scrub_allow_overwrite"`
	// ProtectSerials are drives that no job erases, by serial number or WWN.
	ProtectSerials                      []string     `json:"protect_serials,omitempty" maxItems:"64" itemMaxLength:"128"`
	EnableDeployRetryOnDatasourceFailed bool         `json:"enable_deploy_retry_on_datasource_failure"`
	MaxDeployRetryAttempts              int          `json:"max_deploy_retry_attempts" minimum:"0" maximum:"10"`
	AutoClaimSingleNewMachine           bool         `json:"auto_claim_single_new_machine"`
	BatchMaxParallel                    int          `json:"batch_max_parallel" minimum:"0" maximum:"500"`
	EnrollmentTokenTTLSeconds           int          `json:"enrollment_token_ttl_seconds" minimum:"0" maximum:"86400"`
	Architecture                        string       `json:"architecture" maxLength:"100"`
	DistroSeries                        string       `json:"distro_series" maxLength:"100"`
	HWEKernel                           string       `json:"hwe_kernel,omitempty" maxLength:"100"`
	BootDisk                            BootDiskRule `json:"boot_disk"`
	StorageLayout                       string       `json:"storage_layout" maxLength:"100"`
	PowerType                           string       `json:"power_type" maxLength:"20"`
	// StageDeadlines overrides the default deadline of a stage by its name.
	StageDeadlines map[string]Duration `json:"stage_deadlines,omitempty" maxProperties:"64" itemMaxLength:"32"`
	// PollInterval is how often MAAS and the node are asked while waiting.
	PollInterval Duration `json:"poll_interval,omitempty" maxLength:"32"`
	// AgentURL and AgentServerCAPEM are what a node's agent is told; empty
	// takes the server's own.
	AgentURL string `json:"agent_url,omitempty" maxLength:"500"`
	// AgentHeartbeatInterval is how often the agent reports; 0 = its default.
	AgentHeartbeatInterval Duration `json:"agent_heartbeat_interval,omitempty" maxLength:"32"`
	// AgentBinaryURL is where cloud-init fetches the agent; empty means that
	// the image already holds it.
	AgentBinaryURL    string `json:"agent_binary_url,omitempty" maxLength:"1024"`
	AgentBinarySHA256 string `json:"agent_binary_sha256,omitempty" maxLength:"64"`
	// AgentUpdateKey is the public half of the offline key that signs new
	// versions of the agent, in base64; without it nodes take no updates.
	AgentUpdateKey string `json:"agent_update_key,omitempty" maxLength:"64"`
}

// StageDeadline returns the deadline of a stage: the profile's own, or else the default.
func (p ProfileSpec) StageDeadline(stage string, dflt time.Duration) time.Duration {
	if d, ok := p.StageDeadlines[stage]; ok {
		return d.D()
	}
	return dflt
}

// WithDefaults fills what was left out.
func (p ProfileSpec) WithDefaults() ProfileSpec {
	if p.HardwareSyncInterval == 0 {
		p.HardwareSyncInterval = Duration(15 * time.Minute)
	}
	if p.BatchMaxParallel == 0 {
		p.BatchMaxParallel = 4
	}
	if p.EnrollmentTokenTTLSeconds == 0 {
		p.EnrollmentTokenTTLSeconds = 3600
	}
	if p.Architecture == "" {
		p.Architecture = "amd64/generic"
	}
	if p.DistroSeries == "" {
		p.DistroSeries = "jammy"
	}
	if p.StorageLayout == "" {
		p.StorageLayout = "flat"
	}
	if p.PowerType == "" {
		p.PowerType = "redfish"
	}
	if p.PollInterval == 0 {
		p.PollInterval = Duration(10 * time.Second)
	}
	return p
}

// Validate checks a profile after WithDefaults. stages are the stage names
// that deadlines may refer to.
func (p ProfileSpec) Validate(stages []string) error {
	var bad problems
	if p.MaxDeployRetryAttempts < 0 || p.MaxDeployRetryAttempts > 10 {
		bad.add("max_deploy_retry_attempts", "must be 0 to 10")
	}
	if p.BatchMaxParallel < 1 || p.BatchMaxParallel > 500 {
		bad.add("batch_max_parallel", "must be 1 to 500")
	}
	if p.EnrollmentTokenTTLSeconds < 60 || p.EnrollmentTokenTTLSeconds > 3600*24 {
		bad.add("enrollment_token_ttl_seconds", "must be 60 to 86400")
	}
	bad.within("hardware_sync_interval", p.HardwareSyncInterval, time.Second, "1s", maxSyncInterval, "24h")
	bad.within("poll_interval", p.PollInterval, 50*time.Millisecond, "50ms", 5*time.Minute, "5m")
	if p.AgentHeartbeatInterval != 0 {
		bad.within("agent_heartbeat_interval", p.AgentHeartbeatInterval, 50*time.Millisecond, "50ms", 5*time.Minute, "5m")
	}
	if p.PowerType != "redfish" && p.PowerType != "ipmi" {
		bad.add("power_type", "must be redfish or ipmi")
	}
	if p.SiteBootstrapBundleRef != "" && !ValidRef(p.SiteBootstrapBundleRef) {
		bad.add("site_bootstrap_bundle_ref", "is not a secret reference (name or name@version)")
	}
	if err := downloads().CheckURL(p.AgentBinaryURL); p.AgentBinaryURL != "" && err != nil {
		bad.add("agent_binary_url", "%v", err)
	}
	if p.AgentBinaryURL != "" && len(p.AgentBinarySHA256) != 64 {
		bad.add("agent_binary_sha256", "is required with agent_binary_url: 64 hex digits")
	}
	if key, err := base64.StdEncoding.DecodeString(p.AgentUpdateKey); p.AgentUpdateKey != "" && (err != nil || len(key) != ed25519.PublicKeySize) {
		bad.add("agent_update_key", "must be the 32 bytes of an ed25519 public key in base64")
	}
	known := map[string]bool{}
	for _, s := range stages {
		known[s] = true
	}
	if why := CheckProtectSerials(p.ProtectSerials); why != "" {
		bad.add("protect_serials", "%s", why)
	}
	for name, d := range p.StageDeadlines {
		if !known[name] {
			bad.add("stage_deadlines."+name, "is not a stage; stages are %s", strings.Join(stages, ", "))
		} else {
			bad.within("stage_deadlines."+name, d, time.Second, "1s", maxStageDeadline, "720h")
		}
	}
	return bad.err()
}

// SKUSpec is what a node of one product must show before it may be active.
// Zero fields are not checked; a set field that the node cannot report counts
// as failed, since unknown is not healthy.
type SKUSpec struct {
	GPUs              int    `json:"gpus,omitempty" minimum:"0" maximum:"256"`
	GPUModelContains  string `json:"gpu_model_contains,omitempty" maxLength:"100"`
	GPUMemoryMiB      int64  `json:"gpu_memory_mib,omitempty" minimum:"0" maximum:"16777216"`
	DriverMinVersion  string `json:"driver_min_version,omitempty" maxLength:"64"`
	NICsUp            int    `json:"nics_up,omitempty" minimum:"0" maximum:"1024"`
	DataDisks         int    `json:"data_disks,omitempty" minimum:"0" maximum:"1024"`
	MinMemoryMiB      int64  `json:"min_memory_mib,omitempty" minimum:"0" maximum:"1073741824"`
	RequireECC        bool   `json:"require_ecc,omitempty"`
	MaxUncorrectedECC int    `json:"max_uncorrected_ecc,omitempty" minimum:"0" maximum:"1000000"`
	// ProtectSerials are drives that no job erases, by serial number or WWN.
	ProtectSerials []string `json:"protect_serials,omitempty" maxItems:"64" itemMaxLength:"128"`
}

// HealthReport is what the agent reports of its node; pointers are nil when
// the fact could not be read.
type HealthReport struct {
	Simulated  bool          `json:"simulated"`
	Address    string        `json:"address,omitempty" maxLength:"64" text:"clean"` // of the node on its way to the control plane
	CPUs       int           `json:"cpus,omitempty" minimum:"0" maximum:"1000000"`
	MemoryMiB  *int64        `json:"memory_mib,omitempty" minimum:"0" maximum:"1000000000000"`
	Driver     string        `json:"driver,omitempty" maxLength:"200" text:"clean"`
	GPUs       []GPUReport   `json:"gpus,omitempty" maxItems:"256"`
	GPUError   string        `json:"gpu_error,omitempty" maxLength:"2000" text:"clean"`
	NICs       []NICReport   `json:"nics,omitempty" maxItems:"4096"`
	Disks      []DiskReport  `json:"disks,omitempty" maxItems:"4096"`
	Mounts     []MountReport `json:"mounts,omitempty" maxItems:"4096"`
	DiskFreeMB *int64        `json:"disk_free_mb,omitempty" minimum:"0" maximum:"1000000000000"`
	Units      []UnitReport  `json:"units,omitempty" maxItems:"32"`
}

// UnitReport is a service of the node that watches or drives its GPUs. State is systemd's active,
// inactive, failed, activating, deactivating or reloading, absent where it is not installed, and
// unknown where it could not be read.
type UnitReport struct {
	Name  string `json:"name" maxLength:"200" text:"clean"`
	State string `json:"state" maxLength:"40" text:"clean"`
}

// GPUReport is one GPU; nil fields read N/A or could not be read.
type GPUReport struct {
	UUID           string `json:"uuid" maxLength:"200" text:"clean"`
	Model          string `json:"model" maxLength:"200" text:"clean"`
	Serial         string `json:"serial,omitempty" maxLength:"200" text:"clean"`
	MemoryMiB      *int64 `json:"memory_mib,omitempty" minimum:"0" maximum:"1000000000000"`
	ECCEnabled     *bool  `json:"ecc_enabled,omitempty"`
	UncorrectedECC *int   `json:"uncorrected_ecc,omitempty" minimum:"0" maximum:"2000000000"`
	MIGEnabled     *bool  `json:"mig_enabled,omitempty"`
	RemapPending   *bool  `json:"remap_pending,omitempty"`
	RemapFailed    *bool  `json:"remap_failed,omitempty"`
	Processes      int    `json:"processes" minimum:"0" maximum:"4194304"`
	// RecoveryAction is what the driver asks for, such as Reset or Reboot, or its error where it
	// cannot ask the GPU; "" for nothing, or where it does not tell.
	RecoveryAction string `json:"recovery_action,omitempty" maxLength:"200" text:"clean"`
}

// NICReport is one network interface; SpeedMbps 0 = unknown.
type NICReport struct {
	Name      string `json:"name" maxLength:"200" text:"clean"`
	MAC       string `json:"mac" maxLength:"64" text:"clean"`
	Up        bool   `json:"up"`
	SpeedMbps int    `json:"speed_mbps,omitempty" minimum:"-1" maximum:"100000000"`
	MTU       int    `json:"mtu,omitempty" minimum:"0" maximum:"1000000"`
}

// DiskReport is one block device, size in bytes.
type DiskReport struct {
	Name   string `json:"name" maxLength:"200" text:"clean"`
	Model  string `json:"model,omitempty" maxLength:"200" text:"clean"`
	Serial string `json:"serial,omitempty" maxLength:"200" text:"clean"`
	Bytes  int64  `json:"bytes" minimum:"0" maximum:"1000000000000000000"`
	Boot   bool   `json:"boot,omitempty"`
}

// MountReport is one mounted file system.
type MountReport struct {
	Source string `json:"source" maxLength:"4096" text:"clean"`
	Target string `json:"target" maxLength:"4096" text:"clean"`
	FSType string `json:"fstype" maxLength:"200" text:"clean"`
}

// RoCEPort is the wanted state of one RoCE port, kept per site and hostname.
type RoCEPort struct {
	Interface  string   `json:"interface" maxLength:"64"`                  // name or MAC
	MTU        int      `json:"mtu,omitempty" minimum:"0" maximum:"65535"` // 0 leaves it; MAAS takes none below 552
	SubnetCIDR string   `json:"subnet_cidr,omitempty" maxLength:"64"`
	IP         string   `json:"ip,omitempty" maxLength:"64"`
	Tags       []string `json:"tags,omitempty" maxItems:"16" itemMaxLength:"64"`
}
