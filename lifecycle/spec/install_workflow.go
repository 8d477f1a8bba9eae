package spec

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// InstallWorkflowSpec is how a PXE node is installed: what its firmware loads, and the
// configuration of its installer.
type InstallWorkflowSpec struct {
	Kernel  BootImage   `json:"kernel"`
	Initrds []BootImage `json:"initrds" maxItems:"4" nullable:"false"`
	// CommandLine is the kernel's. It may name {{ .SeedURL }}, {{ .MAC }},
	// {{ .Hostname }} and {{ .NodeID }}.
	CommandLine string `json:"command_line" maxLength:"2048"`
	// UserData is a template for the installer's answers, such as an autoinstall
	// document; docs/pxe.md lists what it may use.
	UserData string `json:"user_data" maxLength:"32768"`
	// DeadlineMinutes is how long an attempt may be silent before it counts as
	// failed; 0 means 60.
	DeadlineMinutes int `json:"deadline_minutes,omitempty" minimum:"0" maximum:"1440"`
	// Agent says which agent the installer puts on the node; without it the
	// node gets none, and user-data must not use {{ install_agent }}.
	Agent *InstallAgent `json:"agent,omitempty"`
}

// InstallAgent is the agent of a PXE node.
type InstallAgent struct {
	// BinaryURL is where it is fetched from; "" means that the image holds it at
	// cloudinit.AgentPath.
	BinaryURL    string `json:"binary_url,omitempty" maxLength:"1024" doc:"http or https; empty: the image already holds the agent"`
	BinarySHA256 string `json:"binary_sha256,omitempty" maxLength:"64" doc:"64 lower-case hex digits; required with binary_url"`
	// HeartbeatSeconds is how often it reports; 0 is its default.
	HeartbeatSeconds int `json:"heartbeat_seconds,omitempty" minimum:"0" maximum:"30"`
	// PlatformUsers are accounts of the installed system that no task ends or
	// removes, such as operators' logins.
	PlatformUsers []string `json:"platform_users,omitempty" itemMaxLength:"32" maxItems:"16" doc:"Accounts that a drain leaves alone"`
	// UpdateKey is the public half of the offline key that signs new versions of
	// the agent; without it the agent takes none.
	UpdateKey string `json:"update_key,omitempty" maxLength:"64" doc:"Ed25519, base64"`
	// AllowOverwrite lets it overwrite a disk that has no purge command of its own,
	// where the workflow is one that erases; the certificate then says clear.
	AllowOverwrite bool `json:"allow_overwrite,omitempty" doc:"Of an erase workflow: overwrite disks that cannot purge themselves"`
	// Simulated: its tools are recorded ones, and everything says so.
	Simulated bool `json:"simulated,omitempty"`
}

// BootImage is a file that the firmware loads.
type BootImage struct {
	URL string `json:"url" maxLength:"1024" doc:"http or https"`
	// SHA256 makes the image go through Slipway, which ends the transfer short
	// when the bytes are others. Without it the firmware loads from URL itself.
	SHA256 string `json:"sha256,omitempty" maxLength:"64" doc:"64 lower-case hex digits"`
}

// The bounds of an install workflow.
const (
	MaxInitrds         = 4
	MaxCommandLine     = 2048     // bytes, also when rendered
	MaxUserData        = 32 << 10 // bytes of template
	defaultDeadline    = time.Hour
	maxDeadlineMinutes = 24 * 60
	maxImageURL        = 1024
	// Three heartbeats are to fit into what counts as a sign of life.
	maxHeartbeatSeconds = 30 // what is heard less often would count as silent
	maxPlatformUsers    = 16
)

// Deadline is how long an attempt may be silent.
func (s InstallWorkflowSpec) Deadline() time.Duration {
	if s.DeadlineMinutes == 0 {
		return defaultDeadline
	}
	return time.Duration(s.DeadlineMinutes) * time.Minute
}

var (
	sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	loginPattern  = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
)

// Validate checks everything but the templates, which api/boot does.
func (s InstallWorkflowSpec) Validate() error {
	var p problems
	s.Kernel.check(&p, "kernel")
	if len(s.Initrds) > MaxInitrds {
		p.add("initrds", "must be at most %d", MaxInitrds)
	}
	for i, img := range s.Initrds {
		img.check(&p, fmt.Sprintf("initrds[%d]", i))
	}
	if len(s.CommandLine) > MaxCommandLine {
		p.add("command_line", "must have at most %d bytes", MaxCommandLine)
	}
	if len(s.UserData) > MaxUserData {
		p.add("user_data", "must have at most %d bytes", MaxUserData)
	}
	if s.DeadlineMinutes < 0 || s.DeadlineMinutes > maxDeadlineMinutes {
		p.add("deadline_minutes", "must be 1 to %d, or 0 for 60", maxDeadlineMinutes)
	}
	if s.Agent != nil {
		s.Agent.check(&p, "agent")
	}
	return p.err()
}

func (a InstallAgent) check(p *problems, field string) {
	if a.BinaryURL != "" {
		checkURL(p, field+".binary_url", a.BinaryURL) // it stands in a shell command
		if !sha256Pattern.MatchString(a.BinarySHA256) {
			p.add(field+".binary_sha256", "is required with binary_url: 64 lower-case hex digits")
		}
	} else if a.BinarySHA256 != "" {
		p.add(field+".binary_sha256", "is of no use without binary_url")
	}
	if len(a.PlatformUsers) > maxPlatformUsers {
		p.add(field+".platform_users", "must be at most %d", maxPlatformUsers)
	}
	for i, u := range a.PlatformUsers {
		if !loginPattern.MatchString(u) {
			p.add(fmt.Sprintf("%s.platform_users[%d]", field, i), "must be a login name: lower-case letters, digits, _ and -, at most 32")
		}
	}
	if key, err := base64.StdEncoding.DecodeString(a.UpdateKey); a.UpdateKey != "" && (err != nil || len(key) != ed25519.PublicKeySize) {
		p.add(field+".update_key", "must be an Ed25519 public key in base64, as the one that signs new versions of the agent")
	}
	if a.HeartbeatSeconds < 0 || a.HeartbeatSeconds > maxHeartbeatSeconds {
		p.add(field+".heartbeat_seconds", "must be 1 to %d, or 0 for the agent's own", maxHeartbeatSeconds)
	}
}

func (i BootImage) check(p *problems, field string) {
	checkURL(p, field+".url", i.URL)
	if i.SHA256 != "" && !sha256Pattern.MatchString(i.SHA256) {
		p.add(field+".sha256", "must be 64 lower-case hex digits")
	}
}

func checkURL(p *problems, field, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		p.add(field, "must be an http or https URL")
	case u.User != nil:
		p.add(field, "must not hold a user or password")
	case downloads().CheckURL(text) != nil:
		p.add(field, "%v", downloads().CheckURL(text))
	case u.Fragment != "" || len(text) > maxImageURL || !plainURL(text):
		// iPXE expands ${...}, splits at spaces and reads ## as form data.
		p.add(field, "must be visible ASCII without spaces, quotes, backslashes, $, { or #, at most %d characters", maxImageURL)
	}
}

// downloads returns the rule of what machines load: from a simulator too, which is on loopback.
func downloads() AddressRule { return AddressRule{Anywhere: true, Loopback: true, PlainHTTP: true} }

func plainURL(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' || strings.ContainsRune("\"'\\$`{}<>#", r) {
			return false
		}
	}
	return true
}

// NormalMAC is an Ethernet address as Slipway writes it (52:54:00:12:34:56);
// colons, dashes, Cisco's dots and bare hex digits are read. False for anything
// else, and for group and all-zero addresses, which no network card has.
func NormalMAC(s string) (string, bool) {
	if len(s) == 12 {
		s = s[0:2] + ":" + s[2:4] + ":" + s[4:6] + ":" + s[6:8] + ":" + s[8:10] + ":" + s[10:12]
	}
	m, err := net.ParseMAC(s)
	if err != nil || len(m) != 6 || m[0]&1 == 1 || m.String() == "00:00:00:00:00:00" {
		return "", false
	}
	return m.String(), true
}
