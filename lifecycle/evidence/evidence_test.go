package evidence_test

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

type signer struct {
	key ed25519.PrivateKey
	id  string
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return signer{key, id}
}

func (s signer) public() evidence.Key {
	return evidence.Key{ID: s.id, Public: s.key.Public().(ed25519.PublicKey)}
}

func (s signer) sign(t *testing.T, context string, v any) evidence.Envelope {
	t.Helper()
	payload, err := json.Marshal(v)
	require.NoError(t, err)
	return evidence.Envelope{Payload: payload, KeyID: s.id, Signature: ed25519.Sign(s.key, evidence.Message(context, payload))}
}

func certificate(seq int64, previous string) evidence.Certificate {
	c := evidence.Certificate{
		Schema: evidence.Schema, ID: "cert_1", Subject: evidence.Subject{NodeID: "node_1", SiteID: "site_1", Hostname: "gpu-1"},
		Run:      evidence.Run{ID: "job_1", Kind: "decommission", Mode: "soft_reset"},
		Steps:    []lifecycle.StepResult{{Name: "disks", OK: true}},
		Devices:  []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Serial: "S1", Method: lifecycle.SanitizePurge, Verified: true}},
		IssuedAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Sequence: seq, PreviousHash: previous,
	}
	c.SetVerdict()
	return c
}

func bundle(t *testing.T, s signer, n int64) evidence.Bundle {
	t.Helper()
	b := evidence.Bundle{NodeID: "node_1", Keys: []evidence.Key{s.public()}}
	last := ""
	for i := range n {
		e := s.sign(t, evidence.CertificateContext, certificate(i+1, last))
		b.Certificates = append(b.Certificates, e)
		last = evidence.Hash(e.Payload)
	}
	b.Head = s.sign(t, evidence.HeadContext, evidence.Head{NodeID: "node_1", Count: n, LastHash: last})
	return b
}

func TestAWholeChainIsVerified(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "key_1")
	for _, n := range []int64{0, 1, 3} {
		certs, problems := evidence.Verify(bundle(t, s, n), []evidence.Key{s.public()})
		require.Empty(t, problems)
		require.Len(t, certs, int(n))
	}
}

func TestWhateverIsTouchedShows(t *testing.T) {
	t.Parallel()
	s, other := newSigner(t, "key_1"), newSigner(t, "key_1")
	cases := map[string]struct {
		touch func(*evidence.Bundle)
		says  string
	}{
		"a word changed": {func(b *evidence.Bundle) {
			b.Certificates[1].Payload = []byte(strings.Replace(string(b.Certificates[1].Payload), "nvme0n1", "nvme1n1", 1))
		}, "changed after it was signed"},
		"the first removed": {func(b *evidence.Bundle) { b.Certificates = b.Certificates[1:] }, "one is missing"},
		"one in the middle": {func(b *evidence.Bundle) { b.Certificates = append(b.Certificates[:1], b.Certificates[2:]...) }, "was removed or exchanged"},
		"the last removed":  {func(b *evidence.Bundle) { b.Certificates = b.Certificates[:2] }, "some were removed"},
		"all removed":       {func(b *evidence.Bundle) { b.Certificates = nil }, "some were removed"},
		"two exchanged":     {func(b *evidence.Bundle) { b.Certificates[0], b.Certificates[1] = b.Certificates[1], b.Certificates[0] }, "out of order"},
		"one doubled":       {func(b *evidence.Bundle) { b.Certificates = append(b.Certificates, b.Certificates[2]) }, "doubled"},
		"another's head": {func(b *evidence.Bundle) {
			b.Head = other.sign(t, evidence.HeadContext, evidence.Head{NodeID: "node_1"})
		}, "does not fit"},
		"a head as a link":   {func(b *evidence.Bundle) { b.Certificates[0] = b.Head }, "does not fit"},
		"another node":       {func(b *evidence.Bundle) { b.NodeID = "node_2" }, "is about node node_1"},
		"unreadable payload": {func(b *evidence.Bundle) { b.Certificates[0].Payload = []byte("{}x") }, "cannot be read"},
		"an unknown key":     {func(b *evidence.Bundle) { b.Certificates[0].KeyID = "key_9" }, "not trusted"},
		"clean without cause": {func(b *evidence.Bundle) {
			c := certificate(1, "")
			c.Devices[0].Verified = false
			b.Certificates[0] = s.sign(t, evidence.CertificateContext, c)
		}, "its own steps and devices say not_verified"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bundle(t, s, 3)
			c.touch(&b)
			_, problems := evidence.Verify(b, []evidence.Key{s.public()})
			require.NotEmpty(t, problems)
			var all []string
			for _, p := range problems {
				all = append(all, p.Message)
			}
			require.Contains(t, strings.Join(all, "\n"), c.says)
		})
	}
}

func TestTheVerdictFailsClosed(t *testing.T) {
	t.Parallel()
	for name, touch := range map[string]func(*evidence.Certificate){
		"no device":           func(c *evidence.Certificate) { c.Devices = nil },
		"unverified device":   func(c *evidence.Certificate) { c.Devices[0].Verified = false },
		"failed step":         func(c *evidence.Certificate) { c.Steps[0].OK = false },
		"one of two verified": func(c *evidence.Certificate) { c.Devices = append(c.Devices, lifecycle.DeviceResult{Kind: "gpu"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := certificate(1, "")
			touch(&c)
			c.SetVerdict()
			require.Equal(t, evidence.VerdictNotVerified, c.Verdict)
			require.NotEmpty(t, c.Failures)
		})
	}
	c := certificate(1, "")
	c.Steps = append(c.Steps, lifecycle.StepResult{Name: "gpus", Skipped: "the node has none"})
	c.SetVerdict()
	require.Equal(t, evidence.VerdictClean, c.Verdict, "a step that does not apply is no failure")
}
