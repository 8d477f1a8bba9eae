// Package node holds the activities about a node itself: what it is given at
// its first boot, what Slipway does on it by SSH, and what its agent proves.
package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	SSH     providers.SSHRunner
	// AgentURL and AgentCAPEM are what a node's agent is told, unless its
	// profile says otherwise.
	AgentURL   string
	AgentCAPEM string
}

// RenderIn is the input of RenderCloudInit.
type RenderIn struct {
	contract.JobRef
	Hostname string           `json:"hostname"`
	Profile  spec.ProfileSpec `json:"profile"`
	Site     spec.SiteSpec    `json:"site"`
	// Attempt counts deployments; each gets a token and a host key of its own.
	Attempt int `json:"attempt"`
	// InUse is set when the machine was deployed with Known: then its token and
	// host key are what they are, and nothing is made again.
	InUse    bool              `json:"in_use,omitempty"`
	Existing contract.UserData `json:"existing"`
}

// tokenMargin is how much life a token must still have to be handed out again.
const tokenMargin = 5 * time.Minute

// RenderCloudInit issues a one-time enrolment token bound to the node, makes
// the host key that the control plane will pin, renders the user-data, and
// seals it in the secret store. A repetition for the same attempt returns what
// was sealed before while its token lives, because the node may have booted
// with it.
func (a *Activities) RenderCloudInit(ctx context.Context, in RenderIn) (contract.UserData, error) {
	if in.InUse && in.Existing.Ref != "" {
		return in.Existing, nil
	}
	name := cloudinit.SecretName(in.JobID, in.Attempt)
	sealed, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(name))
	if err != nil && !providers.IsKind(err, providers.KindNotFound) {
		return contract.UserData{}, fault.Secret(ctx, err)
	}
	var conflict *db.ConflictError
	if err == nil && time.Until(sealed.ExpiresAt) >= tokenMargin && !a.used(ctx, sealed.TokenHash) {
		err := a.issue(ctx, in, sealed)
		if !errors.As(err, &conflict) { // revoked meanwhile: render again
			return sealedFacts(name, sealed), fault.Internal(ctx, err)
		}
	}
	if sealed, err = a.render(ctx, in); err != nil {
		return contract.UserData{}, err
	}
	if _, err := cloudinit.Seal(ctx, a.Secrets, name, sealed); err != nil {
		return contract.UserData{}, fault.Secret(ctx, err)
	}
	return sealedFacts(name, sealed), fault.Internal(ctx, a.issue(ctx, in, sealed))
}

func sealedFacts(name string, s cloudinit.Sealed) contract.UserData {
	return contract.UserData{Ref: name, SHA256: s.Digest(), IssuedAt: &s.IssuedAt}
}

// used reports whether an agent has enrolled with the token: a machine that is
// deployed again needs another.
func (a *Activities) used(ctx context.Context, hash []byte) bool {
	t, err := a.Store.EnrollmentToken(ctx, hash)
	return err == nil && t.UsedAt != nil
}

// issue makes the token good and pins the host key; repeating it is harmless. A
// new token is for a system that replaces the one before, whose identity ends.
func (a *Activities) issue(ctx context.Context, in RenderIn, s cloudinit.Sealed) error {
	return a.Store.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.EnrollmentToken(ctx, s.TokenHash)
		if errors.Is(err, db.ErrNotFound) {
			err = tx.EndAgentIdentity(ctx, in.NodeID, "job "+in.JobID+" installs another system; its agent enrols again")
		}
		if err != nil {
			return err
		}
		if err := tx.IssueEnrollmentToken(ctx, in.NodeID, in.JobID, s.TokenHash, s.ExpiresAt); err != nil {
			return err
		}
		return tx.SetNodeHostKey(ctx, in.NodeID, s.HostKey)
	})
}

func (a *Activities) render(ctx context.Context, in RenderIn) (cloudinit.Sealed, error) {
	token, err := newEnrollmentToken()
	if err != nil {
		return cloudinit.Sealed{}, fault.Internal(ctx, err)
	}
	hostKey, public, err := cloudinit.NewHostKey()
	if err != nil {
		return cloudinit.Sealed{}, fault.Internal(ctx, err)
	}
	doc := cloudinit.Input{
		Hostname: in.Hostname, User: in.Site.SSHUser, HostKey: hostKey,
		Agent: cloudinit.Agent{
			ServerURL: in.Profile.AgentURL, CAPEM: a.AgentCAPEM, NodeID: in.NodeID, Token: providers.NewSecret(token),
			Simulated: in.Site.Simulated, HeartbeatInterval: in.Profile.AgentHeartbeatInterval.D(),
			BinaryURL: in.Profile.AgentBinaryURL, BinarySHA256: in.Profile.AgentBinarySHA256, UpdateKey: in.Profile.AgentUpdateKey,
		},
	}
	if doc.Agent.ServerURL == "" {
		doc.Agent.ServerURL = a.AgentURL
	}
	if doc.AuthorizedKeys, err = a.authorizedKeys(ctx, in); err != nil {
		return cloudinit.Sealed{}, err
	}
	if ref := in.Profile.SiteBootstrapBundleRef; ref != "" {
		bundle, err := a.Secrets.Resolve(ctx, providers.SecretRef(ref), providers.Use{Kind: spec.SecretBootstrap, Site: in.SiteID, Node: in.NodeID})
		if err != nil {
			return cloudinit.Sealed{}, fault.Secret(ctx, err)
		}
		doc.Bundle = []byte(bundle.Reveal())
	}
	out, err := cloudinit.Render(doc)
	if err != nil {
		return cloudinit.Sealed{}, fault.New(lifecycle.FailConfiguration, "the user-data cannot be rendered: %v", err)
	}
	// The database's time: the agent's first heartbeat is compared with it.
	now, err := a.Store.Clock(ctx)
	if err != nil {
		return cloudinit.Sealed{}, fault.Internal(ctx, err)
	}
	now = now.UTC()
	return cloudinit.Sealed{
		Document: out, TokenHash: hashToken(token), HostKey: public, IssuedAt: now,
		ExpiresAt: now.Add(time.Duration(in.Profile.EnrollmentTokenTTLSeconds) * time.Second),
	}, nil
}

// authorizedKeys is the public half of the site's SSH login, if it has one.
func (a *Activities) authorizedKeys(ctx context.Context, in RenderIn) ([]string, error) {
	site := in.Site
	if site.SSHKeyRef == "" {
		return nil, nil
	}
	key, err := a.Secrets.Resolve(ctx, providers.SecretRef(site.SSHKeyRef), sshUse(in.SiteID, in.NodeID, ""))
	if err != nil {
		return nil, fault.Secret(ctx, err)
	}
	public, err := cloudinit.PublicKey(key)
	if err != nil {
		return nil, fault.New(lifecycle.FailConfiguration, "secret %s: %v", site.SSHKeyRef, err)
	}
	return []string{public}, nil
}

// sshUse is what a site's SSH login is opened for: to log in at an address, or "" to derive its
// public key. The private key is sent nowhere.
func sshUse(siteID, nodeID, address string) providers.Use {
	return providers.Use{Kind: spec.SecretSSHKey, Site: siteID, Node: nodeID, Address: address}
}

const tokenBytes = 32

// newEnrollmentToken is 256 random bits in URL-safe text. Only its hash is
// stored.
func newEnrollmentToken() (string, error) {
	b := make([]byte, tokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// hashToken is the SHA-256 under which a token is stored.
func hashToken(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// DiscardUserData deletes the sealed documents of a job, and the machine's MAAS
// token where a repair left it; absent is success.
func (a *Activities) DiscardUserData(ctx context.Context, in contract.JobRef) (contract.UserData, error) {
	if err := cloudinit.DeleteSealed(ctx, a.Secrets, in.JobID); err != nil {
		return contract.UserData{}, fault.Secret(ctx, err)
	}
	return contract.UserData{}, fault.Secret(ctx, a.Secrets.Delete(ctx, cloudinit.MachineTokenName(in.NodeID)))
}

// RevokeBootstrap is the compensation of render_cloud_init: the token is revoked,
// an agent that has used it is shut out, and the sealed documents are deleted. A
// node enrols when it has booted, which may be before the job comes to wait for
// that.
func (a *Activities) RevokeBootstrap(ctx context.Context, in contract.JobRef) (contract.UserData, error) {
	if err := a.Store.RevokeEnrollmentTokens(ctx, in.NodeID); err != nil {
		return contract.UserData{}, fault.Internal(ctx, err)
	}
	if _, err := a.LockAgentIdentity(ctx, in); err != nil {
		return contract.UserData{}, err
	}
	return a.DiscardUserData(ctx, in)
}

// LockAgentIdentity is the compensation of wait_for_agent_enrollment: an agent
// that enrolled is shut out. No identity is success.
func (a *Activities) LockAgentIdentity(ctx context.Context, in contract.JobRef) (contract.AgentFacts, error) {
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		return tx.EndAgentIdentity(ctx, in.NodeID, "onboarding "+in.JobID+" was undone")
	})
	return contract.AgentFacts{}, fault.Internal(ctx, err)
}

// RetireCredentials ends what the node's disk may hold that is good elsewhere: every enrolment
// token that is not used, and the documents that its installation was given. The agent's identity
// stays: it speaks for this node alone. It can be repeated.
func (a *Activities) RetireCredentials(ctx context.Context, in contract.JobRef) (contract.UserData, error) {
	if err := a.Store.RevokeEnrollmentTokens(ctx, in.NodeID); err != nil {
		return contract.UserData{}, fault.Internal(ctx, err)
	}
	return a.DiscardUserData(ctx, in)
}
