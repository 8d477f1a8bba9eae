// Package tenantaccess holds the activities that prove, from outside and over SSH, who may log in
// to the account of an allocation on its node. They hold no key of a tenant: a public key is
// offered without a signature, and the node says whether it would take one.
package tenantaccess

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Prober is what the activities need of SSH.
type Prober interface {
	providers.KeyProbe
	providers.SSHRunner
}

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	SSH     Prober
}

// Account names the account of an allocation on its node.
type Account struct {
	AllocationID string        `json:"allocation_id"`
	Site         spec.SiteSpec `json:"site"`
	// IPs are the addresses of the node as MAAS names them. An address of the node's record goes
	// first.
	IPs []string `json:"ips,omitempty"`
}

// Connection is where the account is reached, as the node's record and the proof say.
type Connection struct {
	Address       string `json:"address,omitempty"` // host:port
	User          string `json:"user,omitempty"`
	HostKey       string `json:"host_key,omitempty"` // in authorized_keys form
	HostKeySHA256 string `json:"host_key_sha256,omitempty"`
}

// oneTime is what the audit log names instead of a stored login.
const oneTime = "a one-time key"

// target returns how the account is reached, after the address was checked. The login has no key
// yet.
func (a *Activities) target(ctx context.Context, ref contract.JobRef, in Account) (providers.SSHTarget, Connection, error) {
	fail := func(err error) (providers.SSHTarget, Connection, error) {
		return providers.SSHTarget{}, Connection{}, err
	}
	if in.AllocationID == "" {
		return fail(fault.New(lifecycle.FailInternal, "no allocation is named"))
	}
	node, err := a.Store.Node(ctx, ref.NodeID)
	if err != nil {
		return fail(fault.Internal(ctx, err))
	}
	to := Connection{Address: nodeact.SSHAddress(node, in.Site, in.IPs), User: lifecycle.TenantAccount(in.AllocationID), HostKey: node.SSHHostKey}
	if to.Address == "" {
		return fail(fault.New(lifecycle.FailSSHSeed, "MAAS shows no address for the node yet"))
	}
	if to.HostKeySHA256, err = fingerprint(to.HostKey); err != nil {
		return fail(fault.New(lifecycle.FailStateDisagreement, "the node's record has no SSH host key that can be read; nothing could tell the node from another machine"))
	}
	use := providers.Use{Kind: spec.SecretSSHKey, Site: node.SiteID, Node: node.ID, Address: to.Address}
	rule, err := a.Secrets.AddressRule(ctx, "", use)
	if err != nil {
		return fail(cmp.Or(a.attempt(ref, to).RecordRefusal(ctx, a.Store, err), fault.Login(ctx, err, fault.SSH)))
	}
	return providers.SSHTarget{Address: to.Address, Rule: rule, User: to.User, HostKey: to.HostKey}, to, nil
}

func (a *Activities) attempt(ref contract.JobRef, to Connection) login.Attempt {
	return login.Attempt{Job: ref, Ref: oneTime, Address: to.Address, Protocol: "ssh"}
}

// fingerprint returns the SHA-256 fingerprint of a public key in authorized_keys form.
func fingerprint(key string) (string, error) {
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		return "", err
	}
	return ssh.FingerprintSHA256(public), nil
}

// OfferKeysIn is the input of OfferKeys.
type OfferKeysIn struct {
	contract.JobRef
	Account
	// Keys are public keys, one "type base64" each. With none there is nothing to offer, and the
	// activity fails: it would prove nothing.
	Keys []string `json:"keys"`
	// Accepted is what each key must be: accepted, or refused.
	Accepted bool `json:"accepted"`
	// Until is how long a node that does not answer, or answers otherwise, is asked again, every
	// Poll; zero asks once. It comes from the workflow's clock.
	Until time.Time     `json:"until,omitzero"`
	Poll  spec.Duration `json:"poll,omitempty"`
}

// OfferedKey is what the node said of a key.
type OfferedKey struct {
	Fingerprint string `json:"fingerprint"`
	Accepted    bool   `json:"accepted"`
}

// OfferedKeys is what the node said of all keys. Done is true when each is as wanted.
type OfferedKeys struct {
	Done       bool         `json:"done,omitempty"`
	Connection Connection   `json:"connection"`
	Keys       []OfferedKey `json:"keys,omitempty"`
	Note       string       `json:"note,omitempty"`
}

// TimelineNote returns what the node's timeline says of the answer.
func (f OfferedKeys) TimelineNote() string { return f.Note }

const offerPoll = 2 * time.Second

// OfferKeys offers each public key to the node, in a connection of its own and without a signature,
// as the tenant's client would. It ends when the node accepts, or refuses, all of them as wanted.
// It fails with node_task_failed when the node still says otherwise at Until, and as a login by SSH
// fails when the node does not answer: an answer that is missing is never a refusal. With
// ObserveOnly it asks once and returns what the node said. It changes nothing.
func (a *Activities) OfferKeys(ctx context.Context, in OfferKeysIn) (OfferedKeys, error) {
	if len(in.Keys) == 0 || len(in.Keys) > spec.MaxTenantKeys {
		return OfferedKeys{}, fault.New(lifecycle.FailInternal, "%d keys are to be offered; it must be 1 to %d", len(in.Keys), spec.MaxTenantKeys)
	}
	t, to, err := a.target(ctx, in.JobRef, in.Account)
	if err != nil {
		return OfferedKeys{}, err
	}
	for {
		out, err := a.offerAll(ctx, t, in)
		out.Connection = to
		switch final := !time.Now().Add(pollOr(in.Poll, offerPoll)).Before(in.Until); {
		case err == nil && (out.Done || in.ObserveOnly):
			return out, nil
		case err != nil && (final || in.ObserveOnly || !passes(err)):
			return out, fault.SSH(ctx, err)
		case err == nil && final:
			return out, fault.New(lifecycle.FailNodeTask, "%s", out.Note)
		}
		activity.RecordHeartbeat(ctx, "not as wanted yet")
		if err := poll.Sleep(ctx, pollOr(in.Poll, offerPoll)); err != nil {
			return out, err
		}
	}
}

// passes reports whether an error of a node may go away by itself, such as a restart of its sshd.
func passes(err error) bool {
	kind := providers.KindOf(err)
	return kind == providers.KindUnreachable || kind == providers.KindProtocol
}

func (a *Activities) offerAll(ctx context.Context, t providers.SSHTarget, in OfferKeysIn) (OfferedKeys, error) {
	var out OfferedKeys
	var wrong []string
	for _, key := range in.Keys {
		digest, err := fingerprint(key)
		if err != nil {
			return out, fault.New(lifecycle.FailInternal, "a key that is to be offered cannot be read")
		}
		accepted, err := a.SSH.OfferKey(ctx, t, key)
		if err != nil {
			return out, err
		}
		activity.RecordHeartbeat(ctx, digest)
		out.Keys = append(out.Keys, OfferedKey{digest, accepted})
		if accepted != in.Accepted {
			wrong = append(wrong, digest)
		}
	}
	words := map[bool]string{true: "accepts", false: "refuses"}
	out.Done = len(wrong) == 0
	out.Note = fmt.Sprintf("the node %s all %d keys of account %s", words[in.Accepted], len(in.Keys), t.User)
	if !out.Done {
		out.Note = fmt.Sprintf("the node %s the key %s of account %s", words[!in.Accepted], strings.Join(wrong, ", "), t.User)
	}
	return out, nil
}

func pollOr(d spec.Duration, dflt time.Duration) time.Duration {
	if d.D() > 0 {
		return d.D()
	}
	return dflt
}
