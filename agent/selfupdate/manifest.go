package selfupdate

import (
	"crypto/ed25519"
	"fmt"
	"regexp"
	"runtime"
	"strconv"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Context goes before a manifest when it is signed.
const Context = spec.AgentManifestContext

// MaxSize is the largest program that is taken, in bytes.
const MaxSize = spec.MaxAgentSize

// Manifest says what an agent's program is.
type Manifest = spec.AgentManifest

var hexSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

func refused(format string, args ...any) error {
	return &task.Refusal{Code: task.CodeRefused, Reason: fmt.Sprintf(format, args...)}
}

// open checks the signature of a manifest and whether it is for this machine and
// newer than what runs and than what ever ran.
func (u *Updater) open(raw, signature []byte, highest version) (Manifest, error) {
	var m Manifest
	if len(u.Key) != ed25519.PublicKeySize {
		return m, refused("this node's configuration has no update_key, so it takes no updates")
	}
	if spec.VerifyAgentManifest(u.Key, raw, signature) != nil {
		return m, refused("the manifest is not signed with this node's update key")
	}
	if err := spec.DecodeStrict(raw, &m); err != nil {
		return m, refused("the manifest cannot be read: %v", err)
	}
	next, plain := parseVersion(m.Version)
	least, minOK := parseVersion(m.MinVersion)
	running, _ := parseVersion(u.Version)
	switch {
	case !plain:
		return m, refused("the manifest's version %q is not of the form v1.2.3", m.Version)
	case !hexSum.MatchString(m.SHA256) || m.Size <= 0 || m.Size > MaxSize:
		return m, refused("the manifest's sha256 or size is not right; a program has 1 to %d bytes", MaxSize)
	case m.OS != runtime.GOOS || m.Arch != runtime.GOARCH:
		return m, refused("the manifest is for %s/%s, this is %s/%s", m.OS, m.Arch, runtime.GOOS, runtime.GOARCH)
	case m.MinVersion != "" && !minOK:
		return m, refused("the manifest's min_version %q is not of the form v1.2.3", m.MinVersion)
	case m.MinVersion != "" && running.less(least):
		return m, refused("%s can be installed over %s or newer only, and %s runs; update to one in between first", m.Version, m.MinVersion, u.Version)
	case !running.less(next) || !highest.less(next):
		return m, refused("%s is not newer than %s, which runs, and %s, the newest that ran here; an agent never goes back by an update", m.Version, u.Version, highest)
	}
	return m, nil
}

// version is major, minor, patch.
type version [3]int

var versionForm = regexp.MustCompile(`^v(\d{1,6})\.(\d{1,6})\.(\d{1,6})(.*)$`)

// parseVersion reads v1.2.3. A suffix is ignored, but then the version is not
// plain; anything else is v0.0.0.
func parseVersion(s string) (v version, plain bool) {
	f := versionForm.FindStringSubmatch(s)
	if f == nil {
		return v, false
	}
	for i := range v {
		v[i], _ = strconv.Atoi(f[i+1])
	}
	return v, f[4] == ""
}

func (v version) less(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

func (v version) String() string { return fmt.Sprintf("v%d.%d.%d", v[0], v[1], v[2]) }
