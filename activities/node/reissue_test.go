package node_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// stdinShell is a shell that keeps what each command got by stdin.
type stdinShell struct {
	*shell
	stdin []string
}

func (s *stdinShell) RunSSH(ctx context.Context, t providers.SSHTarget, c providers.SSHCommand) (providers.SSHResult, error) {
	s.stdin = append(s.stdin, string(c.Stdin))
	return s.shell.RunSSH(ctx, t, c)
}

// reissuing is a nodeFixture whose node is about to get a token.
type reissuing struct {
	*nodeFixture
	shell *stdinShell
	job   contract.JobRef
}

func newReissuing(t *testing.T, answers map[string][]any) *reissuing {
	t.Helper()
	store, sec := stores(t)
	b := newNodeFixture(t, store, sec, answers)
	_, err := sec.Put(t.Context(), "ssh/key", providers.NewSecret("key"))
	require.NoError(t, err)
	dbtest.StateUse(t, store, spec.SecretSSHKey, "ssh/key")
	site := dbtest.Site(t, store, func(p *dbtest.Params) { p.Site.SSHKeyRef = "ssh/key" })
	job := dbtest.Job(t, store, dbtest.On(b.in.NodeID), dbtest.Kind("agent_reissue"))
	r := &reissuing{nodeFixture: b, shell: &stdinShell{shell: b.shell}, job: contract.JobRef{JobID: job.ID, NodeID: b.in.NodeID, SiteID: site.ID}}
	b.acts.SSH, b.acts.AgentCAPEM = r.shell, "the CA"
	require.NoError(t, store.SetNodeAddresses(t.Context(), r.job.NodeID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: nil, SSH: "127.0.0.1:22"}))
	return r
}

func (r *reissuing) issue() contract.AgentTokenFacts {
	r.t.Helper()
	v, err := r.env.ExecuteActivity(r.acts.IssueAgentToken, r.job)
	require.NoError(r.t, err)
	var out contract.AgentTokenFacts
	require.NoError(r.t, v.Get(&out))
	return out
}

func (r *reissuing) deliver(ref string) error {
	_, err := r.env.ExecuteActivity(r.acts.DeliverAgentToken, nodeact.DeliverTokenIn{JobRef: r.job, TokenRef: ref})
	return err
}

// redeem uses the token that was delivered last.
func (r *reissuing) redeem() (got db.TokenOutcome) {
	r.t.Helper()
	require.NoError(r.t, r.acts.Store.Tx(r.t.Context(), func(tx *db.Tx) error {
		var err error
		_, got, err = tx.RedeemEnrollmentToken(r.t.Context(), nodeact.HashToken(strings.TrimSpace(r.shell.stdin[0])), []byte("key"), 7)
		return err
	}))
	return got
}

func TestDeliverAgentToken(t *testing.T) {
	t.Parallel()
	r := newReissuing(t, map[string][]any{"systemctl restart": {sshFails(providers.KindUncertain)}})
	ref := r.issue().Ref
	require.Equal(t, ref, r.issue().Ref)
	require.NoError(t, r.deliver(ref))
	require.Len(t, strings.TrimSpace(r.shell.stdin[0]), 43)
	require.NotContains(t, strings.Join(r.shell.ran, "\n"), strings.TrimSpace(r.shell.stdin[0]), "the token is in no argument")
	require.Equal(t, "the CA", r.shell.stdin[1])
	require.Equal(t, 2, r.shell.times("systemctl restart"), "a restart whose answer was lost is sent again")
	seen := func() (out contract.AgentSeen) {
		v, err := r.env.ExecuteActivity(r.acts.WaitForNewIdentity, nodeact.WaitIdentityIn{JobRef: contract.JobRef{NodeID: r.job.NodeID, ObserveOnly: true}, TokenRef: ref})
		require.NoError(t, err)
		require.NoError(t, v.Get(&out))
		return out
	}
	heartbeat := func(generation int64) {
		require.NoError(t, r.acts.Store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: r.job.NodeID, BootID: "b", Generation: generation, ReceivedAt: time.Now().Add(time.Second)}}))
	}
	require.False(t, seen().Done)
	require.Equal(t, db.TokenFirst, r.redeem())
	heartbeat(6)
	require.False(t, seen().Done, "a heartbeat of the identity before")
	heartbeat(7)
	require.True(t, seen().Done)
	ran := len(r.shell.ran)
	require.NoError(t, r.deliver(ref))
	require.Len(t, r.shell.ran, ran, "a token that was used is not written again")
	require.True(t, r.issue().Used)
}

func TestDeliverAgentToken_Failures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer any
		class  lifecycle.FailureClass
		says   string
	}{
		"another host key": {sshFails(providers.KindPinMismatch), lifecycle.FailStateDisagreement, ""},
		"no agent there":   {exits(1, ""), lifecycle.FailNodeTask, "runuser"},
		"no login":         {sshFails(providers.KindUnauthorized), lifecycle.FailSSHSeed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReissuing(t, map[string][]any{"runuser": {tc.answer}})
			r.ends(r.deliver(r.issue().Ref), tc.class, tc.says)
			require.Zero(t, r.shell.times("systemctl"))
		})
	}
}

func TestRevokeAgentToken(t *testing.T) {
	t.Parallel()
	r := newReissuing(t, nil)
	ref := r.issue().Ref
	left := func() string {
		v, err := r.env.ExecuteActivity(r.acts.CheckAgentTokenRevoked, r.job)
		require.NoError(t, err)
		var out contract.AgentTokenFacts
		require.NoError(t, v.Get(&out))
		return out.Note
	}
	require.NoError(t, r.deliver(ref))
	require.NotEmpty(t, left())
	for range 2 {
		_, err := r.env.ExecuteActivity(r.acts.RevokeAgentToken, r.job)
		require.NoError(t, err)
	}
	require.Empty(t, left())
	require.Equal(t, db.TokenRevoked, r.redeem())
	r.ends(r.deliver(ref), lifecycle.FailStateDisagreement, "rerun")
}

// TestWriteToken_IsWholeAndPrivate runs the command that is sent, below another directory.
func TestWriteToken_IsWholeAndPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := nodeact.RunWriteToken(t, dir, "secret\n")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "secret\n", string(raw))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}

// TestWriteCA_ChangesNothingElse runs the command that is sent on configurations of both writers:
// that of the control plane, and an operator's.
func TestWriteCA_ChangesNothingElse(t *testing.T) {
	t.Parallel()
	const before, after = "-----BEGIN CERTIFICATE-----\nb2xk\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nbmV3\n-----END CERTIFICATE-----\n"
	marshalled, err := yaml.Marshal(map[string]any{"ca_pem": before, "node_id": "node_1", "server_url": "https://127.0.0.1:1", "platform_users": []string{"ubuntu"}})
	require.NoError(t, err)
	for name, text := range map[string]string{
		"written by Slipway": string(marshalled),
		"quoted, and last":   "# ours\nnode_id: node_1\nserver_url: https://127.0.0.1:1\nplatform_users:\n- ubuntu\nca_pem: \"-----BEGIN CERTIFICATE-----\\nb2xk\\n-----END CERTIFICATE-----\\n\"\n",
	} {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o640))
		for range 2 {
			require.NoError(t, nodeact.RunWriteCA(t, path, after), name)
		}
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, yaml.Unmarshal(raw, &got), string(raw))
		require.Equal(t, map[string]any{"ca_pem": after, "node_id": "node_1", "server_url": "https://127.0.0.1:1", "platform_users": []any{"ubuntu"}}, got, name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o640), info.Mode())
	}
	path := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(path, []byte("node_id: node_1\n"), 0o600))
	require.Error(t, nodeact.RunWriteCA(t, path, after), "no agent's configuration")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "node_id: node_1\n", string(raw))
}

// overtaken has another execution seal and issue its token when the first token was sealed.
type overtaken struct {
	providers.Secrets
	other func()
}

func (s *overtaken) Put(ctx context.Context, name string, value providers.Secret) (providers.SecretRef, error) {
	ref, err := s.Secrets.Put(ctx, name, value)
	if other := s.other; other != nil {
		s.other = nil
		other()
	}
	return ref, err
}

// TestIssueAgentToken_TwiceAtOnce: after two executions at a time the token that is sealed is the
// one that is good.
func TestIssueAgentToken_TwiceAtOnce(t *testing.T) {
	t.Parallel()
	r := newReissuing(t, nil)
	inner := r.acts.Secrets
	r.acts.Secrets = &overtaken{Secrets: inner, other: func() {
		now := time.Now().UTC()
		hash := nodeact.HashToken("another")
		_, err := cloudinit.Seal(t.Context(), inner, cloudinit.SecretName(r.job.JobID, 1),
			cloudinit.Sealed{Document: []byte("another\n"), TokenHash: hash, IssuedAt: now, ExpiresAt: now.Add(time.Hour)})
		require.NoError(t, err)
		require.NoError(t, r.acts.Store.Tx(t.Context(), func(tx *db.Tx) error {
			return tx.IssueEnrollmentToken(t.Context(), r.job.NodeID, r.job.JobID, hash, now.Add(time.Hour))
		}))
	}}
	require.NoError(t, r.deliver(r.issue().Ref))
	require.Equal(t, db.TokenFirst, r.redeem())
}
