package e2e_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// commandLine is a signed-in user of the stack.
type commandLine struct {
	*world
	token string
}

// run runs a command. A command that got no plan, since the workers of a loaded machine are busy,
// is repeated, as its error says.
func (c commandLine) run(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"SLIPWAY_SERVER": c.Config.API.PublicURL, "SLIPWAY_TOKEN": c.token}
	code := -1
	for ends := time.Now().Add(runenv.Patience(2 * time.Minute)); code < 0 || code != want && time.Now().Before(ends) && strings.Contains(errs.String(), "nothing was changed; the workers are busy"); {
		out.Reset()
		errs.Reset()
		code = cli.Run(t.Context(), cli.Env{
			In: strings.NewReader(""), Out: &out, Err: &errs, ConfigPath: t.TempDir() + "/config.yaml", Getenv: func(k string) string { return env[k] },
		}, args)
	}
	require.Equal(t, want, code, "slipway %s\n%s\n%s\n%s", strings.Join(args, " "), out.String(), errs.String(), failures.linesAbout(errs.String()))
	return out.String() + errs.String()
}

func (c commandLine) is(t *testing.T, node string, want lifecycle.NodeStatus) {
	t.Helper()
	require.Eventually(t, func() bool { return c.node(t, node).Status == want }, runenv.Patience(time.Minute), 100*time.Millisecond, "the node is not %s", want)
}

// TestCLI_NodeLifecycle runs every action of a node and a decommission with its plan from the
// command line, through API, relay, workflows and agent.
func TestCLI_NodeLifecycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	token, err := op.CreateToken(t.Context(), w.App.Store, "leaver", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	c := commandLine{w, token}
	m := w.Sims.Fleet.All()[0]
	name, id := host(m), w.activeNodes(t)[m]
	watch := []string{"--watch", "--watch-timeout", "4m", "--interval", "200ms"}
	node := func(want int, args ...string) string { return c.run(t, want, append([]string{"node"}, args...)...) }

	node(cli.ExitOK, append([]string{"drain", name, "--reason", "new fans"}, watch...)...)
	require.Equal(t, lifecycle.NodeRetired, c.node(t, id).Status)
	require.Contains(t, node(cli.ExitOK, "drain", name), "nothing to do")
	require.Contains(t, node(cli.ExitOK, "reactivate", name), "the node is offline")
	c.is(t, id, lifecycle.NodeActive)
	node(cli.ExitOK, "quarantine", name, "--reason", "a look inside")
	c.healthy(t, id)
	require.Contains(t, node(cli.ExitOK, "unquarantine", name), "the node is active")

	plan := func(mode string) string {
		var p struct {
			Hash string `json:"plan_hash"`
		}
		raw := []byte(node(cli.ExitOK, "decommission", name, "--mode", mode, "--plan", "-o", "json"))
		require.False(t, ranOutOfTime(raw), runenv.Deadline+"a plan had no time left to look: %s", raw)
		require.NoError(t, json.Unmarshal(raw, &p))
		require.Len(t, p.Hash, 64)
		return p.Hash
	}
	soft := plan("soft_reset")
	require.Equal(t, soft, plan("soft_reset"), "while nothing changes a plan is the same")
	require.NotEqual(t, soft, plan("full_decommission"))
	node(cli.ExitOK, append([]string{"decommission", name, "--mode", "soft_reset", "--yes", "--reason", "the tenant left"}, watch...)...)
	c.is(t, id, lifecycle.NodeActive)
	require.Contains(t, c.run(t, cli.ExitOK, "decommission", "list", "--node", name), "completed")

	node(cli.ExitOK, append([]string{"retire", name}, watch...)...)
	node(cli.ExitOK, append([]string{"remove", name}, watch...)...)
	require.Equal(t, lifecycle.NodeDeleted, c.node(t, id).Status)
	for _, action := range []string{"reactivate", "resume", "drain", "unquarantine"} {
		require.Contains(t, node(cli.ExitRefused, action, id), "never comes back")
	}
	history := node(cli.ExitOK, "history", id)
	for _, reason := range []string{"new fans", "a look inside", "the tenant left"} {
		require.Contains(t, history, reason)
	}
	again := w.ends(t, w.onboard(t, m).ID, 3*time.Minute)
	require.NotEqual(t, id, *again.NodeID, "onboarded again it is a new node")
}

// healthy waits until the node's agent has reported well.
func (c commandLine) healthy(t *testing.T, node string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var missing []string
		err := c.App.Store.ReadTx(t.Context(), func(tx *db.Tx) error {
			n, err := tx.Node(t.Context(), node)
			if err == nil {
				missing, err = tx.NodeHealth(t.Context(), n)
			}
			return err
		})
		return err == nil && len(missing) == 0
	}, runenv.Patience(time.Minute), 100*time.Millisecond)
}
