package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// updating is a node whose agent takes the releases of a server.
type updating struct {
	*rotator
	releases *stack.ReleaseServer
	node     string
	root     string
}

func newUpdating(t *testing.T) *updating {
	t.Helper()
	releases, err := stack.NewReleaseServer(t.Context())
	require.NoError(t, err)
	t.Cleanup(releases.Close)
	w := newWorld(t, stack.Options{Count: 1}, func(p *spec.ProfileSpec) { p.AgentUpdateKey = releases.PublicKey() })
	u := &updating{rotator: newRotator(t, w), releases: releases}
	m := u.Sims.Fleet.All()[0]
	job := u.ends(t, u.onboard(t, m).ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, job.Status, job.Message)
	u.node, u.root = *job.NodeID, u.Sims.Nodes[m.Spec().ID].Root()
	return u
}

// built returns the real agent as a version, in whole.
func (u *updating) built(t *testing.T, version string) []byte {
	t.Helper()
	file, err := stack.BuildAgent(t.Context(), version)
	require.NoError(t, err)
	program, err := os.ReadFile(file)
	require.NoError(t, err)
	return program
}

// add signs a program and stores the release by the command line.
func (u *updating) add(t *testing.T, version string, program []byte) {
	t.Helper()
	r, err := u.releases.Add(version, program)
	require.NoError(t, err)
	dir := t.TempDir()
	manifest, signature := filepath.Join(dir, "manifest.json"), filepath.Join(dir, "manifest.sig")
	require.NoError(t, os.WriteFile(manifest, r.Manifest, 0o600))
	require.NoError(t, os.WriteFile(signature, r.Signature, 0o600))
	commandLine{u.world, u.token}.run(t, cli.ExitOK, "agent-release", "add", manifest, signature, r.URL)
}

// request asks for a release by the API and returns the id of the job.
func (u *updating) request(t *testing.T, version string) string {
	t.Helper()
	job, err := client.Value(u.api.UpdateAgent(t.Context(), u.node, client.UpdateAgentRequest{Version: version, Reason: "test"}))
	require.NoError(t, err)
	return job.ID
}

// parks waits until the job is parked because the agent did not take the release.
func (u *updating) parks(t *testing.T, job, says string) {
	t.Helper()
	j := u.ends(t, job, 3*time.Minute)
	require.True(t, j.Status.Parked(), "%s at %s", j.Status, j.Stage)
	require.Equal(t, lifecycle.FailNodeTask, j.FailureClass, j.Message)
	require.Contains(t, j.Message, says)
}

// runs waits until the agent reports a version, and finds it installed.
func (u *updating) runs(t *testing.T, version string, program []byte) {
	t.Helper()
	since := time.Now()
	require.Eventually(t, func() bool {
		last, err := u.App.Store.LatestHeartbeat(t.Context(), u.node)
		return err == nil && last.ReceivedAt.After(since) && last.AgentVersion == version
	}, runenv.Patience(time.Minute), 100*time.Millisecond, "no heartbeat of %s", version)
	installed, err := os.ReadFile(filepath.Join(u.root, "opt/slipway-agent/current/slipway-agent"))
	require.NoError(t, err)
	require.Equal(t, program, installed)
}

// TestUpdateAgent_InstallsOrGoesBack updates the real agent of a node twice. A program that is not
// the manifest's, and one that answers for its version and dies when it is started, leave the
// version before in service. The identity is the same all the time.
func TestUpdateAgent_InstallsOrGoesBack(t *testing.T) {
	t.Parallel()
	u := newUpdating(t)
	before, err := u.App.Store.AgentIdentity(t.Context(), u.node)
	require.NoError(t, err)

	older, newer := u.built(t, "v1.0.1"), u.built(t, "v1.0.2")
	u.add(t, "v1.0.1", older)
	commandLine{u.world, u.token}.run(t, cli.ExitOK, "node", "update-agent", u.node, "--version", "v1.0.1", "--reason", "test",
		"--watch", "--watch-timeout", "4m", "--interval", "200ms")
	u.runs(t, "v1.0.1", older)

	u.add(t, "v1.0.2", newer)
	u.releases.Serve("v1.0.2", append(newer[:len(newer)-1:len(newer)-1], newer[len(newer)-1]+1))
	job := u.request(t, "v1.0.2")
	u.parks(t, job, "sha256")
	u.runs(t, "v1.0.1", older)
	u.releases.Serve("v1.0.2", newer)
	u.act(t, job, lifecycle.ActionRetryStage)
	require.Eventually(t, func() bool { return !u.job(t, job).Status.Parked() }, runenv.Patience(time.Minute), 20*time.Millisecond)
	done := u.ends(t, job, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, done.Status, done.Message)
	u.runs(t, "v1.0.2", newer)

	u.add(t, "v1.0.3", []byte("#!/bin/sh\n[ \"$1\" = version ] && echo v1.0.3 && exit\nexit 1\n"))
	job = u.request(t, "v1.0.3")
	u.parks(t, job, "did not prove itself")
	u.runs(t, "v1.0.2", newer)
	u.act(t, job, lifecycle.ActionCancel)
	require.Eventually(t, func() bool { return u.job(t, job).Status == lifecycle.JobCancelled }, runenv.Patience(time.Minute), 100*time.Millisecond)

	after, err := u.App.Store.AgentIdentity(t.Context(), u.node)
	require.NoError(t, err)
	require.Equal(t, before.Generation, after.Generation)
	require.Nil(t, after.LockedAt)
}
