package agent

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"
)

// DefaultToolsPath is where programs such as nvidia-smi are looked for.
const DefaultToolsPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const maxConfig = 256 << 10

// mostTaskWait leaves time for the answer within a request's deadline.
const mostTaskWait = 25 * time.Second

// Config is the agent's configuration file. Paths are paths of the node: where
// Root is not "/", they lie below it. Durations are written as 10s or 1m.
type Config struct {
	ServerURL string `yaml:"server_url"`
	// CAPEM is the certificate by which the server is known; no other is trusted.
	CAPEM     string `yaml:"ca_pem"`
	NodeID    string `yaml:"node_id"`
	TokenFile string `yaml:"token_file"`
	StateDir  string `yaml:"state_dir"`
	// Simulated says that this node is made up. Every report carries it. A Root
	// other than "/" is refused without it.
	Simulated bool   `yaml:"simulated,omitempty"`
	Root      string `yaml:"root,omitempty"`
	ToolsPath string `yaml:"tools_path,omitempty"` // directories joined by ":"
	// HeartbeatInterval holds until the server names another; default 10s.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval,omitempty"`
	// ReportInterval is how often the hardware is looked at; default 1m.
	ReportInterval time.Duration `yaml:"report_interval,omitempty"`
	// ToolTimeout bounds each program that is run; default 30s.
	ToolTimeout time.Duration `yaml:"tool_timeout,omitempty"`

	// HelperSocket is where the privileged process listens that does the tasks,
	// with its state in HelperStateDir. Without it a simulated node does them in
	// this process, and a real one refuses them.
	HelperSocket   string `yaml:"helper_socket,omitempty"`
	HelperStateDir string `yaml:"helper_state_dir,omitempty"`
	// TaskKeysFile holds the keys that the privileged process believes.
	TaskKeysFile string `yaml:"task_keys_file,omitempty"`
	// UpdateKey is the public half of the offline key that signs new versions of
	// the agent: ed25519, in base64. Without it no update is taken.
	UpdateKey string `yaml:"update_key,omitempty"`
	// InstallDir holds the versions of the agent.
	InstallDir string `yaml:"install_dir,omitempty"`
	// PlatformUsers are accounts that no task ends or removes, such as the site's
	// login.
	PlatformUsers []string `yaml:"platform_users,omitempty"`
	// TaskWait is how long a claim waits for a task; default 20s.
	TaskWait time.Duration `yaml:"task_wait,omitempty"`
	// UpdateTrial is how long a new version has until its heartbeat must have been
	// accepted; default 1m.
	UpdateTrial time.Duration `yaml:"update_trial,omitempty"`
}

// LoadConfig reads a configuration file. Unknown fields are refused, since a
// misspelt one would otherwise be lost silently. change, which may be nil,
// edits it before it is checked.
func LoadConfig(path string, change func(*Config)) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	if len(raw) > maxConfig {
		return Config{}, fmt.Errorf("the configuration is over %d bytes", maxConfig)
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
	c = c.withDefaults()
	return c, c.Validate()
}

func (c Config) withDefaults() Config {
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
		c.HeartbeatInterval = 10 * time.Second
	}
	if c.ReportInterval == 0 {
		c.ReportInterval = time.Minute
	}
	if c.ToolTimeout == 0 {
		c.ToolTimeout = 30 * time.Second
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

// Validate says what is wrong with a configuration.
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
	if c.HeartbeatInterval < minInterval || c.HeartbeatInterval > maxInterval {
		errs = append(errs, fmt.Errorf("heartbeat_interval must be %s to %s", minInterval, maxInterval))
	}
	if c.ReportInterval < minInterval || c.ToolTimeout < minInterval {
		errs = append(errs, fmt.Errorf("report_interval and tool_timeout must be at least %s", minInterval))
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
	if _, err := c.updateKey(); err != nil {
		errs = append(errs, err)
	}
	if c.TaskWait < 0 || c.TaskWait > mostTaskWait {
		errs = append(errs, fmt.Errorf("task_wait must be at most %s", mostTaskWait))
	}
	if c.UpdateTrial < 0 {
		errs = append(errs, errors.New("update_trial must not be negative"))
	}
	return errors.Join(errs...)
}

// updateKey is nil when there is none.
func (c Config) updateKey() (ed25519.PublicKey, error) {
	if c.UpdateKey == "" {
		return nil, nil
	}
	raw, err := base64.StdEncoding.DecodeString(c.UpdateKey)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("update_key must be the 32 bytes of an ed25519 public key in base64")
	}
	return raw, nil
}

// path is where a path of the node lies.
func (c Config) path(p string) string { return filepath.Join(c.Root, p) }
