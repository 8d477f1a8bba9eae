// Package agentconfig is the configuration file of the node agent: what it holds, its defaults and
// its checks. The control plane renders it for a new node and the agent loads it, so the package
// imports nothing else of the agent.
package agentconfig

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"
)

// DefaultToolsPath is where the programs of a real node are, such as nvidia-smi.
const DefaultToolsPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Defaults of intervals.
const (
	DefaultHeartbeatInterval = 10 * time.Second
	DefaultReportInterval    = time.Minute
	DefaultToolTimeout       = 30 * time.Second
)

// The bounds of every interval, also of those that the server asks for.
const (
	MinInterval = 20 * time.Millisecond
	MaxInterval = 5 * time.Minute
)

const maxSize = 256 << 10

// maxTaskWait leaves time for the answer within the deadline of a request.
const maxTaskWait = 25 * time.Second

// Config is the agent's configuration file. Paths are paths of the node: where
// Root is not "/", they lie below it. Durations are written as 10s or 1m.
type Config struct {
	ServerURL string `yaml:"server_url"`
	// CAPEM is the certificate of the server's CA; no other is trusted.
	CAPEM     string `yaml:"ca_pem"`
	NodeID    string `yaml:"node_id"`
	TokenFile string `yaml:"token_file"`
	StateDir  string `yaml:"state_dir"`
	// Simulated marks a simulated node. Every report carries it. A Root other than
	// "/" is refused without it.
	Simulated bool   `yaml:"simulated,omitempty"`
	Root      string `yaml:"root,omitempty"`
	ToolsPath string `yaml:"tools_path,omitempty"` // directories joined by ":"
	// HeartbeatInterval is used until the server sets another one; default 10s.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval,omitempty"`
	// ReportInterval is how often the agent reads the hardware; default 1m.
	ReportInterval time.Duration `yaml:"report_interval,omitempty"`
	// ToolTimeout is the limit of each program that the agent runs; default 30s.
	ToolTimeout time.Duration `yaml:"tool_timeout,omitempty"`

	// HelperSocket is the socket of the privileged process, which does the tasks and
	// has its state in HelperStateDir. Without it a simulated node does the tasks in
	// the agent's process, and a real one refuses them.
	HelperSocket   string `yaml:"helper_socket,omitempty"`
	HelperStateDir string `yaml:"helper_state_dir,omitempty"`
	// TaskKeysFile holds the task keys that the privileged process accepts.
	TaskKeysFile string `yaml:"task_keys_file,omitempty"`
	// UpdateKey is the public half of the offline key that signs new versions of
	// the agent: ed25519, in base64. Without it the agent refuses updates.
	UpdateKey string `yaml:"update_key,omitempty"`
	// InstallDir is where the versions of the agent are installed.
	InstallDir string `yaml:"install_dir,omitempty"`
	// PlatformUsers are accounts that no task ends or removes, such as the login of
	// the site.
	PlatformUsers []string `yaml:"platform_users,omitempty"`
	// TaskWait is how long a claim waits for a task; default 20s.
	TaskWait time.Duration `yaml:"task_wait,omitempty"`
	// MetadataListen is where a simulated node serves the metadata of its allocation, host:port of
	// the loopback interface; "" serves none. A real node serves it on the socket that systemd
	// passes.
	MetadataListen string `yaml:"metadata_listen,omitempty"`
	// UpdateTrial is the time in which a heartbeat of a new version must be
	// accepted; default 1m.
	UpdateTrial time.Duration `yaml:"update_trial,omitempty"`
}

// Load reads a configuration file, fills in the defaults and checks the result. It refuses unknown
// fields, because a misspelt one would otherwise be ignored silently. change may be nil; it edits
// the configuration before the check.
func Load(path string, change func(*Config)) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	if len(raw) > maxSize {
		return Config{}, fmt.Errorf("the configuration is over %d bytes", maxSize)
	}
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("the configuration %s is not right: %w", path, err)
	}
	if change != nil {
		change(&c)
	}
	c = c.WithDefaults()
	return c, c.Validate()
}

// WithDefaults returns the configuration with a value in every field that has a default.
func (c Config) WithDefaults() Config {
	if c.Root == "" {
		c.Root = "/"
	}
	if c.ToolsPath == "" {
		c.ToolsPath = DefaultToolsPath
	}
	if c.StateDir == "" {
		c.StateDir = "/var/lib/slipway-agent"
	}
	if c.TokenFile == "" {
		c.TokenFile = "/etc/slipway/token"
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if c.ReportInterval == 0 {
		c.ReportInterval = DefaultReportInterval
	}
	if c.ToolTimeout == 0 {
		c.ToolTimeout = DefaultToolTimeout
	}
	if c.HelperStateDir == "" {
		c.HelperStateDir = "/var/lib/slipway-agent-helper"
	}
	if c.TaskKeysFile == "" {
		c.TaskKeysFile = "/etc/slipway/task-keys.json"
	}
	if c.InstallDir == "" {
		c.InstallDir = "/opt/slipway-agent"
	}
	if c.TaskWait == 0 {
		c.TaskWait = 20 * time.Second
	}
	if c.UpdateTrial == 0 {
		c.UpdateTrial = time.Minute
	}
	return c
}

// Validate returns an error that names everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.ServerURL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		errs = append(errs, errors.New("server_url must be an https URL such as https://slipway.example:7443"))
	}
	if c.CAPEM == "" {
		errs = append(errs, errors.New("ca_pem must hold the certificate of the node CA"))
	}
	if c.NodeID == "" {
		errs = append(errs, errors.New("node_id must name this node"))
	}
	if !filepath.IsAbs(c.StateDir) || !filepath.IsAbs(c.TokenFile) || !filepath.IsAbs(c.Root) {
		errs = append(errs, errors.New("state_dir, token_file and root must be absolute paths"))
	}
	if filepath.Clean(c.Root) != "/" && !c.Simulated {
		errs = append(errs, errors.New("root is not / but simulated is not set: what is read there is not this machine's hardware"))
	}
	if c.HeartbeatInterval < MinInterval || c.HeartbeatInterval > MaxInterval {
		errs = append(errs, fmt.Errorf("heartbeat_interval must be %s to %s", MinInterval, MaxInterval))
	}
	if c.ReportInterval < MinInterval || c.ToolTimeout < MinInterval {
		errs = append(errs, fmt.Errorf("report_interval and tool_timeout must be at least %s", MinInterval))
	}
	return errors.Join(append(errs, c.validateTasks())...)
}

func (c Config) validateTasks() error {
	var errs []error
	for name, p := range map[string]string{"helper_socket": c.HelperSocket, "helper_state_dir": c.HelperStateDir, "task_keys_file": c.TaskKeysFile, "install_dir": c.InstallDir} {
		if p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) == "/") {
			errs = append(errs, fmt.Errorf("%s must be an absolute path and not /", name))
		}
	}
	if _, err := c.UpdatePublicKey(); err != nil {
		errs = append(errs, err)
	}
	if c.MetadataListen != "" {
		at, err := netip.ParseAddrPort(c.MetadataListen)
		if err != nil || !at.Addr().IsLoopback() || !c.Simulated {
			errs = append(errs, errors.New("metadata_listen is for simulated nodes, and must be an address of the loopback interface with a port, such as 127.0.0.1:8099"))
		}
	}
	if c.TaskWait < 0 || c.TaskWait > maxTaskWait {
		errs = append(errs, fmt.Errorf("task_wait must be at most %s", maxTaskWait))
	}
	if c.UpdateTrial < 0 {
		errs = append(errs, errors.New("update_trial must not be negative"))
	}
	return errors.Join(errs...)
}

// Render checks the configuration and returns it as a file.
func (c Config) Render() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return yaml.Marshal(c)
}

// UpdatePublicKey returns UpdateKey decoded. It returns nil when there is none.
func (c Config) UpdatePublicKey() (ed25519.PublicKey, error) {
	if c.UpdateKey == "" {
		return nil, nil
	}
	raw, err := base64.StdEncoding.DecodeString(c.UpdateKey)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("update_key must be the 32 bytes of an ed25519 public key in base64")
	}
	return raw, nil
}

// Path returns where a path of the node is on this machine: below Root.
func (c Config) Path(p string) string { return filepath.Join(c.Root, p) }
