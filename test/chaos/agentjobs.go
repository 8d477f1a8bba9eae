package chaos

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/agentjob"
	"github.com/slipway-cloud/slipway/lifecycle"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/stack"
)

// AgentJobs are the sets of the jobs of a node's agent: a new identity, and a new version. The node
// stays in service.
func AgentJobs() []*ScenarioSet { return []*ScenarioSet{agentReissue(), agentUpdate()} }

func agentReissue() *ScenarioSet {
	kind := contract.KindAgentReissue
	wait := Point{Stage: lifecycle.StageWaitNewIdentity, Activity: "WaitForNewIdentity"}
	straight := remote(lifecycle.StageIssueAgentToken, "IssueAgentToken", lifecycle.StageDeliverAgentToken, "ObserveMachine",
		lifecycle.StageDeliverAgentToken, "DeliverAgentToken", wait.Stage, wait.Activity, wait.Stage, "DiscardUserData")
	undone := remote(lifecycle.StageIssueAgentToken, "RevokeAgentToken", lifecycle.StageIssueAgentToken, "CheckAgentTokenRevoked",
		lifecycle.StageDeliverAgentToken, "RevokeAgentToken")
	return &ScenarioSet{
		Name: "agent_reissue", Kind: kind, Stages: contract.Stages(kind), Start: startReissue,
		Paths: []Path{
			agentPath("plain", kind, straight, reissued),
			undoneAgentPath("undone_waiting", wait, undone, reissued),
		},
	}
}

func agentUpdate() *ScenarioSet {
	kind := contract.KindAgentUpdate
	install := Point{Stage: lifecycle.StageUpdateAgent, Activity: runTask}
	straight := append(remote(lifecycle.StageWaitAgentVersion, "WaitForAgentVersion"), install)
	undone := remote(install.Stage, "RevokeTasks", install.Stage, "WaitForTasks")
	return &ScenarioSet{
		Name: "agent_update", Kind: kind, Stages: contract.Stages(kind), Start: startUpdate,
		Paths: []Path{
			agentPath("plain", kind, straight, updated).preparedBy(prepareUpdate),
			undoneAgentPath("undone_updating", install, undone, updated).preparedBy(prepareUpdate),
		},
	}
}

type agentCheck func(context.Context, *findings, *Target, effects, lifecycle.JobStatus)

// agentPath is a job without incident. It leaves the node in service for another case.
func agentPath(name string, kind contract.JobKind, points []Point, check agentCheck) Path {
	points = append(points, Point{Stage: "load", Activity: "TakeJob", Local: true})
	for _, s := range contract.Stages(kind) {
		points = append(points, project(s))
	}
	return Path{
		Name: name, From: lifecycle.NodeActive, Keeps: lifecycle.NodeActive, Points: append(points, project(string(lifecycle.JobCompleted))),
		Prepare: countEffects, Check: checkAgentJob(check),
	}
}

// undoneAgentPath is a job that is cancelled at a point; its compensation gets the faults.
func undoneAgentPath(name string, at Point, points []Point, check agentCheck) Path {
	return Path{
		Name: name, From: lifecycle.NodeActive, NoCancel: true, First: []Fault{{Point: at, Kind: Cancel, Variant: "before"}},
		Points:  append(points, project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
		Prepare: countEffects, Check: checkAgentJob(check),
	}
}

func (p Path) preparedBy(f func(context.Context, *Target) error) Path { p.Prepare = f; return p }

func countEffects(ctx context.Context, t *Target) error {
	var err error
	t.before, err = t.effects(ctx)
	return err
}

func startReissue(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	job, _, err := agentjob.Reissue(ctx, tx, t.NodeID, "chaos", nil, bootedBy)
	return job, err
}

// release is the version to which the case updates the node's agent.
func (t *Target) release() string { return fmt.Sprintf("v2.0.%d", t.updates) }

// prepareUpdate stores the release that follows on what the node has.
func prepareUpdate(ctx context.Context, t *Target) error {
	t.updates++
	program, err := stack.BuildAgent(ctx, t.release())
	if err != nil {
		return err
	}
	r, err := t.releases.Add(t.release(), simnode.StandIn(program))
	if err != nil {
		return err
	}
	if err := t.Store.Tx(ctx, func(tx *db.Tx) error {
		_, err := agentjob.AddRelease(ctx, tx, agentjob.Release{Version: r.Version, Manifest: r.Manifest, Signature: r.Signature, BinaryURL: r.URL}, bootedBy)
		return err
	}); err != nil {
		return err
	}
	return countEffects(ctx, t)
}

func startUpdate(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	job, _, err := agentjob.Update(ctx, tx, t.NodeID, t.release(), "chaos", bootedBy)
	return job, err
}
