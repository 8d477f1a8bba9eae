package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// reissuedTokenLife is how long the token of a reissue is good after it was issued, and after each
// time that it is delivered.
const reissuedTokenLife = time.Hour

// IssueAgentToken issues a one-time enrolment token for a node that has an agent already, and seals
// it in the secret store. It ends every other token of the node. A repetition returns the token
// that the job sealed before, while it can be used or was used.
func (a *Activities) IssueAgentToken(ctx context.Context, in contract.JobRef) (contract.AgentTokenFacts, error) {
	name := cloudinit.SecretName(in.JobID, 1)
	now, err := a.Store.Clock(ctx)
	if err != nil {
		return contract.AgentTokenFacts{}, fault.Internal(ctx, err)
	}
	sealed, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(name))
	if err != nil && !providers.IsKind(err, providers.KindNotFound) {
		return contract.AgentTokenFacts{}, fault.Secret(ctx, err)
	}
	if err == nil {
		used := a.used(ctx, sealed.TokenHash)
		if !used && sealed.ExpiresAt.Sub(now) >= tokenMargin {
			err = a.issueAgain(ctx, in, sealed)
		}
		var conflict *db.ConflictError // it was revoked since: another one is made
		if used || sealed.ExpiresAt.Sub(now) >= tokenMargin && !errors.As(err, &conflict) {
			return contract.AgentTokenFacts{Ref: name, IssuedAt: sealed.IssuedAt, Used: used}, fault.Internal(ctx, err)
		}
	}
	token, err := newEnrollmentToken()
	if err != nil {
		return contract.AgentTokenFacts{}, fault.Internal(ctx, err)
	}
	sealed = cloudinit.Sealed{Document: []byte(token + "\n"), TokenHash: hashToken(token), IssuedAt: now.UTC(), ExpiresAt: now.UTC().Add(reissuedTokenLife)}
	if _, err := cloudinit.Seal(ctx, a.Secrets, name, sealed); err != nil {
		return contract.AgentTokenFacts{}, fault.Secret(ctx, err)
	}
	if err := a.issueAgain(ctx, in, sealed); err != nil {
		return contract.AgentTokenFacts{}, fault.Internal(ctx, err)
	}
	// Another execution of this activity may have sealed its own token in between: what is sealed
	// and what is good would be two tokens.
	stored, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(name))
	switch {
	case err != nil:
		return contract.AgentTokenFacts{}, fault.Secret(ctx, err)
	case !bytes.Equal(stored.TokenHash, sealed.TokenHash):
		return a.IssueAgentToken(ctx, in)
	}
	return contract.AgentTokenFacts{Ref: name, IssuedAt: sealed.IssuedAt}, nil
}

// issueAgain makes a token usable. It leaves the pinned host key as it is.
func (a *Activities) issueAgain(ctx context.Context, in contract.JobRef, s cloudinit.Sealed) error {
	return a.Store.Tx(ctx, func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(ctx, in.NodeID, in.JobID, s.TokenHash, s.ExpiresAt)
	})
}

// DeliverTokenIn is the input of DeliverAgentToken.
type DeliverTokenIn struct {
	contract.JobRef
	TokenRef string `json:"token_ref"`
	// IPs are the addresses of the node as MAAS names them.
	IPs []string `json:"ips,omitempty"`
}

// writeToken runs as the agent's user, so that a link which that user left in its directory leads
// to no file of another user. The token comes by stdin and is never in an argument. Each execution
// has a file of its own, named by the shell's process: two at once would move away each other's.
const writeToken = "umask 077 && cat > " + cloudinit.TokenPath + ".$$ && mv -f " + cloudinit.TokenPath + ".$$ " + cloudinit.TokenPath

// writeCA replaces the value of ca_pem in the agent's configuration by the certificate on stdin, so
// that the agent trusts a server whose CA was replaced. It changes nothing where the configuration
// names that CA, and fails where it names none.
const writeCA = `set -e; f=` + cloudinit.AgentConfigPath + `; n="$f.$$"; umask 077
awk 'NR == FNR { ca = ca "    " $0 "\n"; next }
/^[^ #]/ { skip = 0 }
/^ca_pem:/ { printf "ca_pem: |\n%s", ca; skip = 1; found = 1 }
!skip
END { exit !found }' - "$f" >"$n" || { rm -f "$n"; exit 1; }
chown --reference="$f" "$n"; chmod --reference="$f" "$n"
mv -f "$n" "$f"`

const agentUser, agentUnit = "slipway-agent", "slipway-agent.service"

// DeliverAgentToken writes the token and the present node CA on the node by SSH and restarts the
// agent, which enrols with it. The connection ends before a credential or the token is sent where
// the node does not show the host key that is pinned. Repeatable: a token that the agent has used
// is not written again.
func (a *Activities) DeliverAgentToken(ctx context.Context, in DeliverTokenIn) (SSHFacts, error) {
	sealed, used, err := a.openToken(ctx, in.TokenRef)
	if err != nil || used {
		return SSHFacts{Note: "the agent has used the token"}, err
	}
	site, err := a.Store.Site(ctx, in.SiteID)
	if err != nil {
		return SSHFacts{}, fault.Internal(ctx, err)
	}
	now, err := a.Store.Clock(ctx)
	if err != nil {
		return SSHFacts{}, fault.Internal(ctx, err)
	}
	good, err := a.Store.ExtendEnrollmentToken(ctx, in.NodeID, sealed.TokenHash, now.Add(reissuedTokenLife))
	if err != nil {
		return SSHFacts{}, fault.Internal(ctx, err)
	}
	if !good && !a.used(ctx, sealed.TokenHash) {
		return SSHFacts{}, fault.New(lifecycle.FailStateDisagreement, "the enrolment token was revoked since it was issued; rerun the job, which issues another")
	}
	to := SSHIn{JobRef: in.JobRef, Site: site.Spec, IPs: in.IPs}
	t, err := a.target(ctx, to)
	if err != nil {
		return SSHFacts{}, err
	}
	for _, step := range []change{
		{argv: []string{"runuser", "-u", agentUser, "--", "sh", "-c", writeToken}, stdin: sealed.Document,
			secrets: []providers.Secret{providers.NewSecret(strings.TrimSpace(string(sealed.Document)))}, class: lifecycle.FailNodeTask},
		{argv: []string{"sh", "-c", writeCA}, stdin: []byte(a.AgentCAPEM), class: lifecycle.FailNodeTask},
		{argv: []string{"systemctl", "restart", agentUnit}, class: lifecycle.FailNodeTask},
	} {
		if err := a.change(ctx, to, t, step); err != nil {
			return SSHFacts{}, err
		}
	}
	return SSHFacts{Address: t.Address, Note: "the enrolment token is on the node and its agent was restarted"}, nil
}

// openToken reads the sealed token of a reissue, and whether the agent has used it.
func (a *Activities) openToken(ctx context.Context, ref string) (cloudinit.Sealed, bool, error) {
	sealed, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(ref))
	if providers.IsKind(err, providers.KindNotFound) {
		return sealed, false, fault.New(lifecycle.FailStateDisagreement, "the enrolment token of the job is gone from the secret store; rerun the job, which issues another")
	}
	if err != nil {
		return sealed, false, fault.Secret(ctx, err)
	}
	t, err := a.Store.EnrollmentToken(ctx, sealed.TokenHash)
	return sealed, err == nil && t.UsedAt != nil, fault.Internal(ctx, err)
}

// WaitIdentityIn is the input of WaitForNewIdentity.
type WaitIdentityIn struct {
	contract.JobRef
	TokenRef string        `json:"token_ref"`
	Poll     spec.Duration `json:"poll,omitempty"`
}

const identityPoll = 2 * time.Second

// WaitForNewIdentity waits until the agent has used the token and sent a heartbeat under the
// identity that it got. The stage's deadline bounds it. With ObserveOnly it reads once.
func (a *Activities) WaitForNewIdentity(ctx context.Context, in WaitIdentityIn) (contract.AgentSeen, error) {
	out := contract.AgentSeen{}
	sealed, _, err := a.openToken(ctx, in.TokenRef)
	if err != nil {
		return out, err
	}
	err = fault.PollStore(ctx, pollOr(in.Poll, identityPoll), func() (bool, error) {
		out = contract.AgentSeen{Note: "the agent has not used the token yet"}
		t, err := a.Store.EnrollmentToken(ctx, sealed.TokenHash)
		if err != nil || t.UsedGeneration == nil {
			return in.ObserveOnly, err
		}
		out.Note = fmt.Sprintf("the agent enrolled with generation %d and has sent no heartbeat yet", *t.UsedGeneration)
		heartbeat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
		if errors.Is(err, db.ErrNotFound) {
			return in.ObserveOnly, nil
		}
		if err == nil && heartbeat.Generation >= *t.UsedGeneration && !heartbeat.ReceivedAt.Before(*t.UsedAt) {
			out = contract.AgentSeen{Done: true, Generation: heartbeat.Generation, Version: heartbeat.AgentVersion,
				Note: fmt.Sprintf("the agent sends heartbeats with generation %d", heartbeat.Generation)}
		}
		return out.Done || in.ObserveOnly, err
	})
	return out, fault.Internal(ctx, err)
}

func pollOr(d spec.Duration, dflt time.Duration) time.Duration {
	if d.D() > 0 {
		return d.D()
	}
	return dflt
}

// RevokeAgentToken is the compensation of a reissue: the token of the job that no agent has used
// ends, and its sealed copy is deleted. An identity that the agent has got by it stays, because the
// one before ended with that. Repeatable.
func (a *Activities) RevokeAgentToken(ctx context.Context, in contract.JobRef) (contract.AgentTokenFacts, error) {
	if err := a.Store.RevokeTokensOfJob(ctx, in.JobID); err != nil {
		return contract.AgentTokenFacts{}, fault.Internal(ctx, err)
	}
	_, err := a.DiscardUserData(ctx, in)
	return contract.AgentTokenFacts{}, err
}

// CheckAgentTokenRevoked proves RevokeAgentToken: Note names what is left, "" is nothing.
func (a *Activities) CheckAgentTokenRevoked(ctx context.Context, in contract.JobRef) (contract.AgentTokenFacts, error) {
	n, err := a.Store.OpenTokensOfJob(ctx, in.JobID)
	if err == nil && n > 0 {
		return contract.AgentTokenFacts{Note: "an enrolment token of the job can still be used"}, nil
	}
	return contract.AgentTokenFacts{}, fault.Internal(ctx, err)
}

// WaitVersionIn is the input of WaitForAgentVersion.
type WaitVersionIn struct {
	contract.JobRef
	Version string        `json:"version"`
	Poll    spec.Duration `json:"poll,omitempty"`
}

// WaitForAgentVersion waits until a heartbeat that is not old names the version. The stage's
// deadline bounds it. With ObserveOnly it reads once.
func (a *Activities) WaitForAgentVersion(ctx context.Context, in WaitVersionIn) (contract.AgentSeen, error) {
	out := contract.AgentSeen{}
	err := fault.PollStore(ctx, pollOr(in.Poll, identityPoll), func() (bool, error) {
		out = contract.AgentSeen{Note: "the agent has sent no heartbeat"}
		heartbeat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
		if errors.Is(err, db.ErrNotFound) {
			return in.ObserveOnly, nil
		}
		if err != nil {
			return false, err
		}
		now, err := a.Store.Clock(ctx)
		if err != nil {
			return false, err
		}
		out = contract.AgentSeen{Generation: heartbeat.Generation, Version: heartbeat.AgentVersion, Note: "the agent reports version " + heartbeat.AgentVersion}
		out.Done = heartbeat.AgentVersion == in.Version && now.Sub(heartbeat.ReceivedAt) <= staleAfter
		return out.Done || in.ObserveOnly, nil
	})
	return out, fault.Internal(ctx, err)
}
