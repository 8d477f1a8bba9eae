package cloudinit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/providers"
)

// DefaultUser is the login that Ubuntu's images come with.
const DefaultUser = "ubuntu"

// The paths of what is written on the node; they are those of
// deploy/agent/install.sh and its units.
const (
	AgentConfigPath = "/etc/slipway/agent.yaml"
	// TokenPath lies where the process that faces the network may remove it.
	TokenPath = StateDir + "/token"
	// AgentPath is where an image may hold the agent.
	AgentPath    = "/usr/local/bin/slipway-agent"
	StateDir     = "/var/lib/slipway-agent"
	HelperSocket = "/run/slipway/helper.sock"
)

// Input is what a node's first boot is made of.
type Input struct {
	Hostname string
	// User is the site's login for Slipway; "" means DefaultUser, another one is
	// made with sudo and without a password.
	User           string
	AuthorizedKeys []string // public keys in authorized_keys form, without options
	// HostKey is the node's ed25519 host key as NewHostKey makes it; its public
	// half is pinned in the node record.
	HostKey providers.Secret
	Agent   Agent
	// Bundle is the site's own bootstrap: a #cloud-config document or a script
	// that starts with #!. It becomes a part of its own, after Slipway's.
	Bundle []byte
}

// Agent is how the node's agent is set up.
type Agent struct {
	ServerURL         string
	CAPEM             string
	NodeID            string
	Token             providers.Secret
	Simulated         bool
	HeartbeatInterval time.Duration // 0: the agent's default
	// PlatformUsers are accounts that no task ends or removes; Render adds the
	// site's login.
	PlatformUsers []string
	UpdateKey     string // signs new versions of the agent, base64; "" takes none
	// BinaryURL is where the agent is fetched from; "" means that the image
	// holds it at AgentPath. BinarySHA256 is required with it.
	BinaryURL    string
	BinarySHA256 string
}

// NewHostKey makes an ed25519 host key: the private half in OpenSSH's PEM form
// and the public half in authorized_keys form.
func NewHostKey() (private providers.Secret, public string, err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return providers.Secret{}, "", fmt.Errorf("make a host key: %w", err)
	}
	blk, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return providers.Secret{}, "", fmt.Errorf("encode a host key: %w", err)
	}
	private = providers.NewSecret(string(pem.EncodeToMemory(blk)))
	public, err = PublicKey(private)
	return private, public, err
}

// PublicKey gives the public half of a private key in authorized_keys form.
func PublicKey(private providers.Secret) (string, error) {
	s, err := ssh.ParsePrivateKey([]byte(private.Reveal()))
	if err != nil {
		return "", errors.New("the private key is not a PEM key without a passphrase")
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey()))), nil
}

var (
	userPattern = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	sumPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// check returns the keys in their bare form, or all that is wrong.
func (in Input) check() (keys []string, hostPublic string, err error) {
	var errs []error
	if in.Hostname == "" || len(in.Hostname) > 253 {
		errs = append(errs, errors.New("hostname must be 1 to 253 characters"))
	}
	if in.User != "" && !userPattern.MatchString(in.User) {
		errs = append(errs, fmt.Errorf("ssh user %q is no login name", in.User))
	}
	for i, k := range in.AuthorizedKeys {
		pub, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(k))
		if err != nil || len(options) > 0 || strings.TrimSpace(string(rest)) != "" {
			errs = append(errs, fmt.Errorf("authorized key %d must be one public key without options", i+1))
			continue
		}
		keys = append(keys, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(pub))))
	}
	if hostPublic, err = PublicKey(in.HostKey); err != nil || !strings.HasPrefix(hostPublic, ssh.KeyAlgoED25519+" ") {
		errs = append(errs, errors.New("the host key must be an ed25519 key"))
	}
	errs = append(errs, in.Agent.check())
	return keys, hostPublic, errors.Join(errs...)
}

func (a Agent) check() error {
	var errs []error
	if err := a.config().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("agent: %w", err))
	}
	if a.Token.IsZero() {
		errs = append(errs, errors.New("agent: an enrolment token is needed"))
	}
	if a.BinaryURL == "" {
		return errors.Join(errs...)
	}
	u, err := url.Parse(a.BinaryURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.ContainsAny(a.BinaryURL, " \t\r\n") {
		errs = append(errs, errors.New("agent: the binary's URL must be an http or https URL"))
	}
	if !sumPattern.MatchString(a.BinarySHA256) {
		errs = append(errs, errors.New("agent: the binary's sha256 must be 64 lower-case hex digits"))
	}
	return errors.Join(errs...)
}

// config returns the agent's file with all fields written out, so that an operator can read it on
// the node. A simulated node does its tasks in one process.
func (a Agent) config() agentconfig.Config {
	c := agentconfig.Config{ServerURL: a.ServerURL, CAPEM: a.CAPEM, NodeID: a.NodeID, TokenFile: TokenPath, StateDir: StateDir,
		Simulated: a.Simulated, Root: "/", HeartbeatInterval: a.HeartbeatInterval, ReportInterval: agentconfig.DefaultReportInterval, ToolTimeout: agentconfig.DefaultToolTimeout,
		PlatformUsers: a.PlatformUsers, UpdateKey: a.UpdateKey}
	if !a.Simulated {
		c.HelperSocket = HelperSocket
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = agentconfig.DefaultHeartbeatInterval
	}
	return c
}
