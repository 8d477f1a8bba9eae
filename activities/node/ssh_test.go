package node_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// shell answers commands by what their line holds; each answer is used up.
type shell struct {
	answers map[string][]any // a providers.SSHResult or an error
	ran     []string
	to      providers.SSHTarget // of the last command
}

func (s *shell) RunSSH(_ context.Context, t providers.SSHTarget, c providers.SSHCommand) (providers.SSHResult, error) {
	s.to = t
	line := strings.Join(c.Argv, " ")
	s.ran = append(s.ran, line)
	for part, queue := range s.answers {
		if !strings.Contains(line, part) || len(queue) == 0 {
			continue
		}
		s.answers[part] = queue[1:]
		if err, bad := queue[0].(error); bad {
			return providers.SSHResult{}, err
		}
		return queue[0].(providers.SSHResult), nil
	}
	return providers.SSHResult{}, nil
}

func (s *shell) times(part string) int {
	n := 0
	for _, line := range s.ran {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// fails makes a provider error of a kind.
func sshFails(k providers.Kind) error {
	return &providers.Error{Kind: k, Op: "ssh.run", Message: "simulated " + string(k)}
}

func exits(code int, stdout string) providers.SSHResult {
	return providers.SSHResult{ExitCode: code, Stdout: []byte(stdout), Stderr: []byte("as the node says")}
}

const token = "a-token-that-no-message-may-hold"

// nodeFixture is one node, and the activities with a shell that is scripted.
type nodeFixture struct {
	t     *testing.T
	env   *testsuite.TestActivityEnvironment
	acts  *nodeact.Activities
	shell *shell
	in    nodeact.SSHIn
}

func stores(t *testing.T) (*db.Store, *secrets.Secrets) {
	t.Helper()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	return store, sec
}

func newNodeFixture(t *testing.T, store *db.Store, sec *secrets.Secrets, answers map[string][]any) *nodeFixture {
	t.Helper()
	node := dbtest.Node(t, store)
	dbtest.StateUse(t, store, spec.SecretSSHKey, "ssh/"+node.ID)
	for name, value := range map[string]string{"ssh/" + node.ID: "key", "userdata/token/" + node.ID: token} {
		_, err := sec.Put(t.Context(), name, providers.NewSecret(value))
		require.NoError(t, err)
	}
	b := &nodeFixture{t: t, shell: &shell{answers: answers}}
	b.acts = &nodeact.Activities{Store: store, Secrets: sec, SSH: b.shell}
	var suite testsuite.WorkflowTestSuite
	b.env = suite.NewTestActivityEnvironment()
	b.env.RegisterActivity(b.acts)
	b.in = nodeact.SSHIn{
		JobRef: contract.JobRef{NodeID: node.ID, SiteID: node.SiteID}, Site: spec.SiteSpec{SSHKeyRef: "ssh/" + node.ID}, IPs: []string{"127.0.0.1"},
		Poll: spec.Duration(5 * time.Millisecond), Until: time.Now().Add(150 * time.Millisecond),
	}
	return b
}

// allowTime leaves what is to end well all the time it needs; only what never ends
// well waits for its limit.
func (b *nodeFixture) allowTime(class lifecycle.FailureClass) {
	if class == "" {
		b.in.Until = time.Now().Add(time.Minute)
	}
}

// ends checks the class and message of an activity's failure; "" is success.
func (b *nodeFixture) ends(err error, class lifecycle.FailureClass, says string) {
	b.t.Helper()
	if class == "" {
		require.NoError(b.t, err)
		return
	}
	var app *temporal.ApplicationError
	require.True(b.t, errors.As(err, &app), "%v", err)
	require.Equal(b.t, string(class), app.Type(), app.Message())
	require.Contains(b.t, app.Message(), says)
	require.NotContains(b.t, err.Error(), token)
}

func TestSSHSeedFailures(t *testing.T) {
	t.Parallel()
	store, sec := stores(t)
	done := exits(0, `{"status": "done"}`)
	always := func(k providers.Kind) []any { return slices.Repeat([]any{sshFails(k)}, 1000) }
	for name, c := range map[string]struct {
		answers []any
		class   lifecycle.FailureClass
		says    string
	}{
		"sshd is not up yet":              {[]any{sshFails(providers.KindUnreachable), sshFails(providers.KindUnreachable), done}, "", ""},
		"the key is not there yet":        {[]any{sshFails(providers.KindUnauthorized), done}, "", ""},
		"the login broke off":             {[]any{sshFails(providers.KindUncertain), done}, "", ""},
		"done with recoverable errors":    {[]any{exits(2, `{"status": "degraded done"}`)}, "", ""},
		"the key never comes":             {always(providers.KindUnauthorized), lifecycle.FailSSHSeed, "simulated unauthorized"},
		"the node never answers":          {always(providers.KindUnreachable), lifecycle.FailSSHSeed, "simulated unreachable"},
		"a read leaves nothing uncertain": {always(providers.KindUncertain), lifecycle.FailSSHSeed, "simulated uncertain"},
		"cloud-init failed":               {[]any{exits(1, `{"status": "error", "errors": ["no space left"]}`)}, lifecycle.FailSSHSeed, `ended "error" (exit 1) no space left`},
		"cloud-init hangs":                {[]any{exits(124, "")}, lifecycle.FailSSHSeed, "did not end within 5m0s"},
		"another host key":                {[]any{sshFails(providers.KindPinMismatch)}, lifecycle.FailStateDisagreement, "simulated pin_mismatch"},
		"no login key that can be read":   {[]any{sshFails(providers.KindInvalid)}, lifecycle.FailConfiguration, "simulated invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNodeFixture(t, store, sec, map[string][]any{"cloud-init": c.answers})
			b.allowTime(c.class)
			_, err := b.env.ExecuteActivity(b.acts.CheckSSHSeed, b.in)
			b.ends(err, c.class, c.says)
		})
	}
}

// TestRepairOfHardwareSync: a command whose answer is lost is looked at before
// it is sent again, and what cannot be looked at is an operator's.
func TestRepairOfHardwareSync(t *testing.T) {
	t.Parallel()
	store, sec := stores(t)
	lost, gone, no := sshFails(providers.KindUncertain), sshFails(providers.KindUnreachable), exits(1, "")
	for name, c := range map[string]struct {
		answers map[string][]any
		class   lifecycle.FailureClass
		says    string
		sent    map[string]int // how often a command was sent
	}{
		"all is well":                          {nil, "", "", map[string]int{"install": 3, "enable --now": 1, "cmp": 0}},
		"an answer is lost, the file is there": {map[string][]any{"install": {lost}}, "", "", map[string]int{"install": 3, "cmp": 1}},
		"an answer is lost, the file is not":   {map[string][]any{"install": {lost}, "cmp": {no}}, "", "", map[string]int{"install": 4, "cmp": 1}},
		"the look has to be repeated":          {map[string][]any{"enable --now": {lost}, "is-active": {gone, lost}}, "", "", map[string]int{"enable --now": 1, "is-active": 3}},
		"what nothing shows is repeated":       {map[string][]any{"daemon-reload": {lost}}, "", "", map[string]int{"daemon-reload": 2}},
		"sent twice, and still not there": {map[string][]any{"install": {lost, lost}, "cmp": {no, no}}, lifecycle.FailNodeTaskUncertain,
			"it is not known whether install -D -m 0600 /dev/stdin /etc/maas/maas-machine-creds.yml was carried out, sent 2 times", map[string]int{"install": 2}},
		"the node is gone after the command": {map[string][]any{"enable --now": {lost}, "is-active": slices.Repeat([]any{gone}, 1000)}, lifecycle.FailNodeTaskUncertain,
			"and the node could not be looked at: ssh.run: simulated unreachable", map[string]int{"enable --now": 1}},
		"the command fails": {map[string][]any{"install": {no}}, lifecycle.FailHWSyncUnhealthy, "ended with status 1: as the node says", map[string]int{"install": 1}},
		"nothing was sent":  {map[string][]any{"install": {gone}}, lifecycle.FailSSHSeed, "simulated unreachable", map[string]int{"install": 1, "cmp": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNodeFixture(t, store, sec, c.answers)
			b.allowTime(c.class)
			in := nodeact.RepairSyncIn{SSHIn: b.in, TokenRef: "userdata/token/" + b.in.NodeID, Interval: spec.Duration(time.Minute)}
			_, err := b.env.ExecuteActivity(b.acts.RepairHardwareSync, in)
			b.ends(err, c.class, c.says)
			for part, n := range c.sent {
				require.Equal(t, n, b.shell.times(part), "%s in %q", part, b.shell.ran)
			}
		})
	}
}
