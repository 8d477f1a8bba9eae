package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// The exit statuses of the script of a join that are not kubeadm's.
const (
	exitNoJoinFile = 66
	exitForeign    = 67
)

// JoinCluster has a machine join the cluster of a step. Each attempt has a token of its own; a
// repeated call of an attempt that has begun makes none, and reads what became of it. The token and
// its file are deleted at every end that is known.
func (a *Activities) JoinCluster(ctx context.Context, in CommandIn) (StepFacts, error) {
	s, err := a.open(ctx, in.StepIn)
	if err != nil {
		return StepFacts{}, unsentFirst(ctx, in.StepIn, err)
	}
	if s.step.Join == nil {
		return StepFacts{}, s.lacks(runplan.CapClusterJoin)
	}
	timeout := s.step.Timeout()
	limited, cancel := context.WithTimeout(ctx, timeout+endGrace)
	defer cancel()
	m, err := s.openMember(limited, s.step.Join.ClusterRef)
	if err != nil {
		return StepFacts{}, unsentFirst(ctx, in.StepIn, err)
	}
	endsBy := time.Now().Add(timeout)
	if !in.EndsBy.IsZero() && in.EndsBy.Before(endsBy) {
		endsBy = in.EndsBy
	}
	if !m.facts.Begun && !m.facts.HasFile {
		is, err := m.prepare(limited)
		if err == nil && is {
			if err := clusterdb.NoteJoined(ctx, a.Store, m.machine.ID); err != nil {
				return StepFacts{}, fault.Internal(ctx, err)
			}
			return m.joined("the machine is node %s of cluster %s already", m.node, m.row.Ref)
		}
		if err != nil {
			m.clean(ctx)
			return StepFacts{}, unsentFirst(ctx, in.StepIn, err)
		}
	}
	// Before kubeadm begins: it may make the machine a node of the cluster and then fail, or be
	// ended.
	if err := clusterdb.NoteJoined(ctx, a.Store, m.machine.ID); err != nil {
		return StepFacts{}, unsentFirst(ctx, in.StepIn, fault.Internal(ctx, err))
	}
	res, err := m.exec(limited, m.adapter.JoinHost.JoinScript(m.opID(""), m.row.Ref), endsBy)
	switch {
	case ctx.Err() != nil:
		return StepFacts{}, ctx.Err()
	case err != nil:
		return StepFacts{}, m.failureOf(ctx, err) // it may run: its undo deletes the token
	case res.ExitCode != 0:
		m.clean(ctx)
		return StepFacts{}, fault.WithDid(MarkEnd(m.refused(res.ExitCode), CommandEnded), m.exitMetadata(res.ExitCode))
	}
	deleted := m.clean(ctx)
	if err := clusterdb.NoteJoined(ctx, a.Store, m.machine.ID); err != nil {
		return StepFacts{}, fault.Internal(ctx, err)
	}
	left := "its bootstrap token is deleted"
	if !deleted {
		left = "its bootstrap token could not be deleted yet"
	}
	out, err := m.joined("the machine joined cluster %s as node %s; %s", m.row.Ref, m.node, left)
	out.Did = m.exitMetadata(res.ExitCode)
	return out, err
}

// unsentFirst marks the failure of a call before which nothing was sent.
func unsentFirst(ctx context.Context, in StepIn, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isRepeated(ctx, in) {
		return err
	}
	return MarkEnd(err, CommandUnsent)
}

func (m *member) joined(format string, args ...any) (StepFacts, error) {
	f := m.session.facts(format, args...)
	f.Simulated = f.Simulated || isStandIn(m.facts.KubeadmVersion)
	if f.Simulated {
		f.Note += " (simulated)"
	}
	return f, nil
}

// refused is the failure of a join that ended.
func (m *member) refused(exit int) error {
	switch exit {
	case exitNoJoinFile:
		return fault.New(lifecycle.FailClusterJoin, "the join file was gone before kubeadm read it; the machine may have restarted")
	case exitForeign:
		return m.foreignFiles()
	case exitTimedOut:
		return fault.New(lifecycle.FailClusterJoin, "kubeadm did not end within %s, and was ended", m.step.Timeout())
	}
	return fault.New(lifecycle.FailClusterJoin, "kubeadm join ended with exit status %d; the output of the run says why", exit)
}

func (m *member) foreignFiles() error {
	return fault.New(lifecycle.FailStateDisagreement, "the machine has the files of a cluster that no run had it join as %s; repave it, or run kubeadm reset on it", m.row.Ref)
}

// prepare makes a token and puts the join file on the machine. It reports whether the machine is a
// node of the cluster already, so that nothing was done.
func (m *member) prepare(ctx context.Context) (is bool, err error) {
	if m.facts.Joined && m.facts.JoinedBy != m.row.Ref {
		return false, m.foreignFiles()
	}
	if got := release(m.facts.KubeadmVersion); got != m.row.Spec.KubernetesVersion {
		return false, fault.New(lifecycle.FailConfiguration, "the machine has kubeadm %q, and cluster %s wants %s; install that release in its image", got, m.row.Ref, m.row.Spec.KubernetesVersion)
	}
	err = clusterdb.PutMember(ctx, m.a.Store, clusterdb.Member{MachineID: m.machine.ID, ClusterRef: &m.row.Ref, NodeName: m.node, SystemUUID: m.uuid})
	var conflict *db.ConflictError
	if errors.As(err, &conflict) {
		return false, fault.New(lifecycle.FailClusterJoin, "%s", conflict.Message)
	}
	if err != nil {
		return false, fault.Internal(ctx, err)
	}
	if is, err := m.clearOldNode(ctx); err != nil || is {
		return is, err
	}
	// A token that an earlier worker made for this attempt and did not deliver is revoked.
	if err := m.a.revoke(ctx, m.in, m.adapter.ClusterJoin, m.cluster); err != nil {
		return false, err
	}
	token, err := m.mint(ctx)
	if err != nil {
		return false, err
	}
	file, err := m.file(token)
	if err != nil {
		return false, fault.Internal(ctx, err)
	}
	err = m.again(ctx, func() error {
		err := m.adapter.JoinHost.PutJoinFile(ctx, m.target, m.opID(""), file)
		m.record(ctx, err)
		return err
	})
	switch {
	case providers.IsKind(err, providers.KindUnsupported), providers.IsKind(err, providers.KindStateConflict):
		return false, fault.New(lifecycle.FailClusterJoin, "%s", err.Error())
	case err != nil:
		return false, m.failureOf(ctx, err)
	}
	return false, nil
}

// clearOldNode deletes what an earlier life of the machine has left in the cluster. Only a Node
// with the machine's own system UUID is touched, when it is not Ready any more. It reports whether
// the machine is a Ready node by its present boot.
func (m *member) clearOldNode(ctx context.Context) (is bool, err error) {
	for {
		var nodes []providers.ClusterNode
		err := m.again(ctx, func() (err error) {
			nodes, err = m.adapter.ClusterJoin.Nodes(ctx, m.cluster)
			return err
		})
		if err != nil {
			return false, m.failure(ctx, err)
		}
		old, err := m.ownNode(nodes)
		if err != nil || old == nil {
			return false, err
		}
		switch {
		case old.Ready && m.facts.Joined && old.BootID == m.facts.BootID:
			return true, nil
		case !old.Ready:
			err := m.again(ctx, func() error { return m.adapter.ClusterJoin.DeleteNode(ctx, m.cluster, old.Name, old.UID) })
			if err == nil {
				return false, nil
			}
			if !providers.IsKind(err, providers.KindStateConflict) {
				return false, m.failure(ctx, err)
			}
		}
		// A machine that was switched off is Ready until the cluster misses its heartbeats.
		if poll.Sleep(ctx, m.a.poll()) != nil {
			return false, fault.New(lifecycle.FailClusterJoin, "node %s of the machine stays Ready in the cluster although this boot of the machine has not joined it", old.Name)
		}
	}
}

// ownNode returns the Node of the machine, nil for none. It refuses one of its name that is another
// machine, or not provably this one, and one of the machine under another name.
func (m *member) ownNode(nodes []providers.ClusterNode) (*providers.ClusterNode, error) {
	var own *providers.ClusterNode
	for i, n := range nodes {
		same := spec.SameUUID(n.SystemUUID, m.uuid)
		switch {
		case n.Name == m.node && !same:
			return nil, fault.New(lifecycle.FailStateDisagreement, "node %s of the cluster is another machine: its system UUID is %q and this machine's %q; nothing was changed", n.Name, clip(n.SystemUUID), m.uuid)
		case n.Name != m.node && same:
			return nil, fault.New(lifecycle.FailStateDisagreement, "the machine is node %s of the cluster, under a name that no run gave it; delete that node first", clip(n.Name))
		case same:
			own = &nodes[i]
		}
	}
	return own, nil
}

// clip bounds what a cluster says.
func clip(text string) string {
	const limit = 100
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// clean deletes the join file and the token of an attempt that has ended, and reports whether the
// token is gone. A cluster or machine that does not answer changes nothing of how the attempt
// ended: the pass of the clusters deletes the token, which expires by itself, and the file is in
// memory.
func (m *member) clean(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, cleanLimit)
	defer cancel()
	err := m.adapter.JoinHost.RemoveJoinFile(ctx, m.target, m.opID(""))
	m.record(ctx, err)
	return m.a.revoke(ctx, m.in, m.adapter.ClusterJoin, m.cluster) == nil
}

// cleanLimit bounds the end of an attempt.
const cleanLimit = time.Minute

// UndoJoin deletes the tokens of a join, stops the join that may still run, and deletes its file.
// The node stays: it is the next join that proves whose it is. The tokens come first, whatever the
// machine does: a file of a token that is deleted is worth nothing, so it may stay on a machine
// that refuses the login.
func (a *Activities) UndoJoin(ctx context.Context, in StopIn) (StepFacts, error) {
	s, err := a.readToUndo(ctx, in.StepIn)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.Join == nil || !s.adapter.JoinsClusters() {
		return StepFacts{}, s.lacks(runplan.CapClusterJoin)
	}
	note, unrevoked := a.revokeStep(ctx, in.StepIn, s)
	if facts, err := a.StopCommand(ctx, in); err != nil {
		return facts, err
	}
	if s, err = a.openToUndo(ctx, in.StepIn); err != nil {
		return StepFacts{}, err
	}
	err = s.adapter.JoinHost.RemoveJoinFile(ctx, s.target, s.opID(""))
	s.record(ctx, err)
	kind := providers.KindOf(err)
	if err != nil && kind != providers.KindUnreachable && kind != providers.KindUncertain && !refusesLogin(kind) {
		return StepFacts{}, s.failureOf(ctx, err)
	}
	if unrevoked != nil {
		return StepFacts{}, unrevoked
	}
	if refusesLogin(kind) {
		note += fmt.Sprintf("; the machine refuses the login, and may keep the join file (%s)", err)
	}
	return s.facts("%s", note), nil
}

// revokeStep deletes the tokens of the step of s, and says so.
func (a *Activities) revokeStep(ctx context.Context, in StepIn, s *session) (string, error) {
	tokens, err := clusterdb.TokensOfStep(ctx, a.Store, in.RunID, in.Step)
	if err != nil || len(tokens) == 0 {
		return "no bootstrap token of the step is left", fault.Internal(ctx, err)
	}
	_, cluster, err := a.openCluster(ctx, s.step.Join.ClusterRef)
	if err != nil {
		return "", err
	}
	return "the bootstrap token of the step is deleted", a.revoke(ctx, in, s.adapter.ClusterJoin, cluster)
}

// ReadJoin says in its note what a join has left of its tokens, "" for nothing.
func (a *Activities) ReadJoin(ctx context.Context, in StepIn) (StepFacts, error) {
	tokens, err := clusterdb.TokensOfStep(ctx, a.Store, in.RunID, in.Step)
	if err != nil || len(tokens) == 0 {
		return StepFacts{}, fault.Internal(ctx, err)
	}
	return StepFacts{Note: fmt.Sprintf("%d bootstrap tokens of the step may be valid until they expire", len(tokens))}, nil
}
