// Package clusterdb stores the Kubernetes clusters that machines join, the bootstrap tokens that
// were made in them, and which of their nodes a machine is. It is a package below db.
package clusterdb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/cluster/gen"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The rows.
type (
	Cluster = gen.Cluster
	Token   = gen.ClusterToken
	Member  = gen.MachineCluster
)

// Resource is the kind of clusters in the audit log.
const Resource = "cluster"

func queries(c db.Conn) *gen.Queries { return gen.New(c.DBTX()) }

var what = db.Named("cluster")

// Create writes a cluster. project is "" for one of the platform's own machines. It returns a
// *db.ConflictError when there is a cluster with its reference.
func Create(ctx context.Context, c db.Conn, ref, project string, s spec.ClusterSpec) (Cluster, error) {
	row, err := queries(c).InsertCluster(ctx, gen.InsertClusterParams{Ref: ref, ProjectID: db.OrNil(project), Spec: s})
	return row, db.MapError(what(ref), err)
}

// Get returns one cluster, or db.ErrNotFound.
func Get(ctx context.Context, c db.Conn, ref string) (Cluster, error) {
	row, err := queries(c).Cluster(ctx, ref)
	return row, db.MapError(what(ref), err)
}

// List returns clusters by their references, from the one after the reference given.
func List(ctx context.Context, c db.Conn, after string, limit int) ([]Cluster, error) {
	rows, err := queries(c).ListClusters(ctx, gen.ListClustersParams{After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list clusters", err)
}

// Update replaces project and specification of the version given, or db.ErrStale. The cluster is
// looked at again at once.
func Update(ctx context.Context, c db.Conn, ref string, version int64, project string, s spec.ClusterSpec) (Cluster, error) {
	row, err := queries(c).UpdateCluster(ctx, gen.UpdateClusterParams{Ref: ref, Version: version, ProjectID: db.OrNil(project), Spec: s})
	return db.CheckUpdate(what(ref), row, err, exists(ctx, c, ref))
}

// Delete deletes the version given, or db.ErrStale. It returns a *db.ConflictError while a
// bootstrap token may be left in the cluster.
func Delete(ctx context.Context, c db.Conn, ref string, version int64) error {
	n, err := queries(c).DeleteCluster(ctx, gen.DeleteClusterParams{Ref: ref, Version: version})
	return db.CheckDelete(what(ref), n, err, exists(ctx, c, ref))
}

func exists(ctx context.Context, c db.Conn, ref string) func() error {
	return func() error {
		_, err := Get(ctx, c, ref)
		return err
	}
}

// ForceDelete deletes the version given, or returns db.ErrStale, although bootstrap tokens may be
// left in the cluster: they expire by themselves, and nothing waits for their deletion any more. It
// returns their ids.
func ForceDelete(ctx context.Context, tx *db.Tx, ref string, version int64) (tokens []string, err error) {
	if tokens, err = queries(tx).ForgetTokens(ctx, ref); err != nil {
		return nil, db.MapError("bootstrap tokens of "+what(ref), err)
	}
	return tokens, Delete(ctx, tx, ref, version)
}

// ClaimLook returns a cluster whose look is due, and keeps others from it for a while: one that
// gave no answer last where troubled is true, else one that gave one or was not asked yet. found is
// false when none is due.
func ClaimLook(ctx context.Context, c db.Conn, every time.Duration, troubled bool) (row Cluster, found bool, err error) {
	row, err = queries(c).ClaimLook(ctx, gen.ClaimLookParams{EverySeconds: every.Seconds(), Troubled: troubled})
	err = db.MapError("clusters to look at", err)
	if errors.Is(err, db.ErrNotFound) {
		return row, false, nil
	}
	return row, err == nil, err
}

const maxProblem = 2000

// StoreLook stores how a look at a cluster ended. problem is "" for one that was answered.
func StoreLook(ctx context.Context, c db.Conn, ref, problem string) error {
	return db.MapError(what(ref), queries(c).StoreLook(ctx, gen.StoreLookParams{Ref: ref, Problem: db.ClipText(problem, maxProblem)}))
}

// AddToken writes a token that is about to be made in its cluster. ExpiresAt is ignored: it expires
// after lifetime by the clock of the database.
func AddToken(ctx context.Context, c db.Conn, t Token, lifetime time.Duration) error {
	return db.MapError("bootstrap token of run "+t.RunID, queries(c).InsertToken(ctx, gen.InsertTokenParams{
		ClusterRef: t.ClusterRef, ID: t.ID, RunID: t.RunID, Step: t.Step, Attempt: t.Attempt, LifetimeSeconds: lifetime.Seconds(),
	}))
}

// TokensOfStep returns the tokens of a step of a run that may be left in their clusters.
func TokensOfStep(ctx context.Context, c db.Conn, runID, step string) ([]Token, error) {
	rows, err := queries(c).TokensOfStep(ctx, gen.TokensOfStepParams{RunID: runID, Step: step})
	return rows, db.MapError("bootstrap tokens of run "+runID, err)
}

// SpentTokens returns tokens that may be left in a cluster and that nothing needs: they have
// expired, or their run has ended.
func SpentTokens(ctx context.Context, c db.Conn, ref string, limit int) ([]Token, error) {
	rows, err := queries(c).SpentTokens(ctx, gen.SpentTokensParams{ClusterRef: ref, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("bootstrap tokens of "+what(ref), err)
}

// ForgetToken deletes the row of a token that is not in its cluster any more.
func ForgetToken(ctx context.Context, c db.Conn, t Token) error {
	return db.MapError("bootstrap token "+t.ID, queries(c).DeleteToken(ctx, gen.DeleteTokenParams{ClusterRef: t.ClusterRef, ID: t.ID}))
}

// PutMember writes which node of a cluster a machine is to be. It returns a *db.ConflictError when
// another machine has the node's name or says the same system UUID.
func PutMember(ctx context.Context, c db.Conn, m Member) error {
	return db.MapError("node of machine "+m.MachineID, queries(c).PutMember(ctx, gen.PutMemberParams{
		MachineID: m.MachineID, ClusterRef: m.ClusterRef, NodeName: m.NodeName, SystemUUID: m.SystemUUID,
	}))
}

// NoteJoined stores that a run has had the machine join its cluster until now, or may have.
func NoteJoined(ctx context.Context, c db.Conn, machineID string) error {
	return db.MapError("node of machine "+machineID, queries(c).NoteJoined(ctx, machineID))
}

// IsInCluster reports whether a run had the machine join a cluster and nothing proves that it has
// left since.
func IsInCluster(ctx context.Context, c db.Conn, machineID string) (bool, error) {
	is, err := queries(c).IsInCluster(ctx, machineID)
	return is, db.MapError("node of machine "+machineID, err)
}

// ForgetMember deletes which node a machine is, and what its cluster said of it.
func ForgetMember(ctx context.Context, c db.Conn, machineID string) error {
	err := queries(c).DeleteMember(ctx, machineID)
	if err == nil {
		types := []string{string(lifecycle.InCustomerClusterCondition), string(lifecycle.DrainedCondition)}
		err = queries(c).ForgetConditions(ctx, gen.ForgetConditionsParams{ID: machineID, Types: types})
	}
	return db.MapError("node of machine "+machineID, err)
}

// GetMember returns which node a machine is, or db.ErrNotFound.
func GetMember(ctx context.Context, c db.Conn, machineID string) (Member, error) {
	m, err := queries(c).Member(ctx, machineID)
	return m, db.MapError("node of machine "+machineID, err)
}

// Members returns the machines of a cluster by their ids, without RETIRED ones.
func Members(ctx context.Context, c db.Conn, ref, after string, limit int) ([]Member, error) {
	rows, err := queries(c).MembersOfCluster(ctx, gen.MembersOfClusterParams{ClusterRef: ref, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("machines of "+what(ref), err)
}

// ListSilent returns machines whose conditions claim to know their cluster although its last answer
// is older than fresh, or the cluster was deleted.
func ListSilent(ctx context.Context, c db.Conn, fresh time.Duration, limit int) ([]string, error) {
	stale, err := queries(c).StaleMembers(ctx, gen.StaleMembersParams{FreshSeconds: fresh.Seconds(), MaxRows: db.PageLimit(limit)})
	if err != nil {
		return nil, db.MapError("machines of silent clusters", err)
	}
	gone, err := queries(c).MachinesWithoutCluster(ctx, db.PageLimit(limit))
	return append(stale, gone...), db.MapError("machines without a cluster", err)
}

// Observe changes the conditions of a machine under its lock. A change that changes nothing writes
// nothing.
func Observe(ctx context.Context, tx *db.Tx, machineID string, change func(lifecycle.Conditions) lifecycle.Conditions) error {
	m, err := machinesdb.Lock(ctx, tx, machineID)
	if err != nil || m.Status == lifecycle.MachineRetired {
		return err
	}
	next := change(m.Conditions)
	if slices.Equal(next, m.Conditions) {
		return nil
	}
	return db.MapError("machine "+machineID, queries(tx).SetConditions(ctx, gen.SetConditionsParams{ID: machineID, Conditions: next}))
}
