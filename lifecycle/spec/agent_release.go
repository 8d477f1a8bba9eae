package spec

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// AgentManifestContext goes before a manifest when it is signed, so that a signature for something
// else is never one for a manifest.
const AgentManifestContext = "slipway-agent-manifest-v1\n"

// MaxAgentSize is the largest program of the agent that is taken, in bytes.
const MaxAgentSize = 256 << 20

// AgentManifest says what an agent's program is.
type AgentManifest struct {
	Version string `json:"version"` // v1.2.3
	SHA256  string `json:"sha256"`  // of the program, 64 hex digits
	Size    int64  `json:"size"`    // bytes
	OS      string `json:"os"`      // as GOOS
	Arch    string `json:"arch"`    // as GOARCH
	// MinVersion is the oldest version that may be replaced by this one; "" is any.
	MinVersion string `json:"min_version,omitempty"`
}

// The bounds of a release.
const (
	maxManifest  = 4 << 10
	maxBinaryURL = 2048
)

var (
	agentVersion = regexp.MustCompile(`^v\d{1,6}\.\d{1,6}\.\d{1,6}$`)
	agentSum     = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// CheckAgentRelease reads the manifest of a release and returns an *InvalidError that names what is
// wrong. It does not check the signature: VerifyAgentManifest does.
func CheckAgentRelease(manifest, signature []byte, binaryURL string) (AgentManifest, error) {
	var bad problems
	var m AgentManifest
	err := errors.New("it is too long")
	if len(manifest) <= maxManifest {
		err = DecodeStrict(manifest, &m)
	}
	switch {
	case err != nil:
		bad.add("manifest", "is not the manifest of a release: %v", err)
	case !agentVersion.MatchString(m.Version) || m.MinVersion != "" && !agentVersion.MatchString(m.MinVersion):
		bad.add("manifest", "names a version that is not of the form v1.2.3")
	case !agentSum.MatchString(m.SHA256) || m.Size <= 0 || m.Size > MaxAgentSize:
		bad.add("manifest", "must name the sha256 (64 lower-case hex digits) and the size (1 to %d bytes) of the program", MaxAgentSize)
	case m.OS == "" || m.Arch == "":
		bad.add("manifest", "must name os and arch")
	}
	if len(signature) != ed25519.SignatureSize {
		bad.add("signature", "must be an ed25519 signature of %d bytes", ed25519.SignatureSize)
	}
	u, err := url.Parse(binaryURL)
	if err != nil || len(binaryURL) > maxBinaryURL || u.Host == "" || u.User != nil || u.Fragment != "" ||
		(u.Scheme != "https" && u.Scheme != "http") || strings.ContainsAny(binaryURL, " \t\r\n") {
		bad.add("binary_url", "must be an http or https URL without a login, of at most %d bytes", maxBinaryURL)
	} else if err := downloads().CheckURL(binaryURL); err != nil {
		bad.add("binary_url", "%v", err)
	}
	return m, bad.err()
}

// VerifyAgentManifest returns an error where a manifest is not signed with the key.
func VerifyAgentManifest(key ed25519.PublicKey, manifest, signature []byte) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, append([]byte(AgentManifestContext), manifest...), signature) {
		return fmt.Errorf("the manifest is not signed with the update key")
	}
	return nil
}
