// Package evidence is what Slipway says, and signs, about a node that was taken
// back: which device was erased how, what was checked, and what could not be
// verified (NIST SP 800-88 Rev. 2: method, tool, serial, verification).
// The certificates of a node are a chain, so that neither a change nor a missing
// link goes unseen. All of it can be checked offline with a public key.
package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Schema is the version of Certificate's shape.
const Schema = 1

// Verdict is what a certificate says in a word.
type Verdict string

// The verdicts. Clean is never said when any device is unverified or any step
// failed.
const (
	VerdictClean       Verdict = "clean"
	VerdictNotVerified Verdict = "not_verified"
)

// Subject is the node as it was at the time.
type Subject struct {
	NodeID   string `json:"node_id"`
	SiteID   string `json:"site_id"`
	Hostname string `json:"hostname"`
	Serial   string `json:"serial,omitempty"`
	// SerialSource names who told the serial number: "BMC: system System_0", "MAAS", or the
	// firmware. "" is not known.
	SerialSource string `json:"serial_source,omitempty"`
}

// Run is the run that the certificate is about.
type Run struct {
	ID         string    `json:"id"`   // the job
	Kind       string    `json:"kind"` // decommission, ...
	Mode       string    `json:"mode,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	BootBefore string    `json:"boot_before,omitempty"`
	BootAfter  string    `json:"boot_after,omitempty"`
}

// Certificate is the signed statement. Sequence counts the certificates of a
// node from 1; PreviousHash is the hash of the one before, "" for the first.
type Certificate struct {
	Schema    int                      `json:"schema"`
	ID        string                   `json:"id"`
	Subject   Subject                  `json:"subject"`
	Run       Run                      `json:"run"`
	Verdict   Verdict                  `json:"verdict"`
	Failures  []string                 `json:"failures,omitempty"`
	Steps     []lifecycle.StepResult   `json:"steps"`
	Devices   []lifecycle.DeviceResult `json:"devices"`
	Simulated bool                     `json:"simulated"`
	// SanitizedSince says that nothing of a tenant who left before is on the node. A run that keeps
	// the installed system proves that without a verdict of clean.
	SanitizedSince *time.Time `json:"sanitized_since,omitempty"`
	IssuedAt       time.Time  `json:"issued_at"`
	Sequence       int64      `json:"sequence"`
	PreviousHash   string     `json:"previous_hash"`
}

// SetVerdict sets the verdict and the failures from steps and devices. Without any device nothing
// was verified.
func (c *Certificate) SetVerdict() {
	c.Failures = nil
	for _, s := range c.Steps {
		if !s.OK && s.Skipped == "" {
			c.Failures = append(c.Failures, fmt.Sprintf("step %s: %s", s.Name, orUnsaid(s.Detail)))
		}
	}
	for _, d := range c.Devices {
		if !d.Verified {
			c.Failures = append(c.Failures, fmt.Sprintf("%s %s %s: %s", d.Kind, d.Name, d.Serial, orUnsaid(d.Detail)))
		}
	}
	if len(c.Devices) == 0 {
		c.Failures = append(c.Failures, "no device was verified")
	}
	c.Verdict = VerdictClean
	if len(c.Failures) > 0 {
		c.Verdict = VerdictNotVerified
	}
}

func orUnsaid(s string) string {
	if s == "" {
		return "not verified"
	}
	return s
}

// Envelope is a certificate as it was signed: Payload is its JSON, byte for
// byte; Signature is ed25519 over CertificateContext and Payload.
type Envelope struct {
	Payload   []byte `json:"payload"`
	KeyID     string `json:"key_id"`
	Signature []byte `json:"signature"`
}

// Head is the signed end of a chain at a moment, so that a chain whose newest
// links were cut off shows as well.
type Head struct {
	NodeID   string    `json:"node_id"`
	Count    int64     `json:"count"`
	LastHash string    `json:"last_hash"` // "" when there is none
	At       time.Time `json:"at"`
}

// Bundle is all that there is about one node: what GET nodes/{id}/certificates
// answers and what `slipway certificate verify` reads.
type Bundle struct {
	NodeID       string     `json:"node_id"`
	Certificates []Envelope `json:"certificates"`
	Head         Envelope   `json:"head"`
	Keys         []Key      `json:"keys"`
}

// Key is a public key that signed some of it. A verifier that does not trust the
// bundle compares it with a key that it got another way.
type Key struct {
	ID     string `json:"id"`
	Public []byte `json:"public"`
}

// Every signed message begins with one of these, so that a signature for one thing is never one for
// another.
const (
	CertificateContext = "slipway-certificate-v1\n"
	HeadContext        = "slipway-certificate-head-v1\n"
)

// Message is what is signed for a payload.
func Message(context string, payload []byte) []byte { return append([]byte(context), payload...) }

// Hash of a certificate's payload, in hex.
func Hash(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

// Problem is one thing that is wrong with a bundle.
type Problem struct {
	Sequence int64  `json:"sequence"` // 0 for the bundle as a whole
	Message  string `json:"message"`
}

// Verify checks every signature, every link and the head. It returns the
// certificates that it could read and what is wrong; nothing wrong means that
// the chain is whole up to Head.At and every word in it is Slipway's.
func Verify(b Bundle, trusted []Key) ([]Certificate, []Problem) {
	v := verifier{keys: map[string]ed25519.PublicKey{}}
	for _, k := range trusted {
		if len(k.Public) == ed25519.PublicKeySize {
			v.keys[k.ID] = k.Public
		}
	}
	var out []Certificate
	previous := ""
	for i, e := range b.Certificates {
		at := int64(i + 1)
		v.signed(at, CertificateContext, e)
		var c Certificate
		if err := spec.DecodeStrict(e.Payload, &c); err != nil {
			v.wrong(at, "the certificate cannot be read: %v", err)
			previous = Hash(e.Payload)
			continue
		}
		v.link(at, b.NodeID, previous, c)
		previous = Hash(e.Payload)
		out = append(out, c)
	}
	v.head(b, previous)
	return out, v.problems
}

type verifier struct {
	keys     map[string]ed25519.PublicKey
	problems []Problem
}

func (v *verifier) wrong(at int64, format string, args ...any) {
	v.problems = append(v.problems, Problem{at, fmt.Sprintf(format, args...)})
}

func (v *verifier) signed(at int64, context string, e Envelope) {
	key, ok := v.keys[e.KeyID]
	switch {
	case !ok:
		v.wrong(at, "it is signed with key %q, which is not trusted", e.KeyID)
	case !ed25519.Verify(key, Message(context, e.Payload), e.Signature):
		v.wrong(at, "the signature does not fit: it was changed after it was signed")
	}
}

func (v *verifier) link(at int64, nodeID, previous string, c Certificate) {
	if c.Schema != Schema {
		v.wrong(at, "schema %d is unknown here; use a newer slipway", c.Schema)
	}
	if c.Subject.NodeID != nodeID {
		v.wrong(at, "it is about node %s, not %s", c.Subject.NodeID, nodeID)
	}
	if c.Sequence != at {
		v.wrong(at, "it has number %d: one is missing, doubled or out of order", c.Sequence)
	}
	if c.PreviousHash != previous {
		v.wrong(at, "it does not follow the one before it: one was removed or exchanged")
	}
	said := c.Verdict
	c.SetVerdict()
	if said != c.Verdict {
		v.wrong(at, "it says %s, but its own steps and devices say %s", said, c.Verdict)
	}
}

func (v *verifier) head(b Bundle, last string) {
	v.signed(0, HeadContext, b.Head)
	var h Head
	if err := spec.DecodeStrict(b.Head.Payload, &h); err != nil {
		v.wrong(0, "the head cannot be read: %v", err)
		return
	}
	if h.NodeID != b.NodeID {
		v.wrong(0, "the head is of node %s, not %s", h.NodeID, b.NodeID)
	}
	if h.Count != int64(len(b.Certificates)) || h.LastHash != last {
		v.wrong(0, "the head names %d certificates and another end than the %d that are here: some were removed", h.Count, len(b.Certificates))
	}
}
