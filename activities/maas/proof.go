package maas

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// annotationProof proves that this installation wrote the other annotations of a deployment.
// Whoever may write annotations in MAAS could name any job, and after a restore the database may
// lack the job.
const annotationProof = "slipway-proof"

// markKeyName is the secret of the key. Version 1 is the key for ever: a backup that has it can
// check whatever was signed after the backup.
const markKeyName = spec.ReservedSecrets + "maas-mark-key"

// proof returns the proof of a deployment of a node's machine by a job. It makes the key when there
// is none.
func (a *Activities) proof(ctx context.Context, systemID, nodeID, jobID, attempt string) (string, error) {
	const first = providers.SecretRef(markKeyName + "@1")
	key, err := a.Secrets.Resolve(ctx, first, providers.OwnUse())
	if providers.IsKind(err, providers.KindNotFound) {
		// Of two that do this at once, both read the key of the first.
		if _, err = a.Secrets.Put(ctx, markKeyName, providers.NewSecret(rand.Text()+rand.Text())); err == nil {
			key, err = a.Secrets.Resolve(ctx, first, providers.OwnUse())
		}
	}
	if err != nil {
		return "", fault.Secret(ctx, err)
	}
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte(strings.Join([]string{"deployment mark 1", systemID, nodeID, jobID, attempt}, "\x00")))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// mark returns the annotations of a deployment. A plan signs none, since it makes no key.
func (a *Activities) mark(ctx context.Context, in DeployIn, attempt string) (map[string]string, error) {
	kv := map[string]string{annotationJob: in.JobID, annotationAttempt: attempt}
	if a.plan {
		return kv, nil
	}
	var err error
	kv[annotationProof], err = a.proof(ctx, in.SystemID, in.NodeID, in.JobID, attempt)
	return kv, err
}

// adoptLost reports whether a machine was deployed for its node by a job of this installation that
// a restore of the database has lost. It needs a restore, the proof, and that the machine belongs
// to Slipway's own user of MAAS. The audit log tells of it once a day.
func (a *Activities) adoptLost(ctx context.Context, m providers.MAAS, in MachineIn, got providers.MAASMachine) (bool, error) {
	restored, err := a.Store.IsRestored(ctx)
	if err != nil || !restored || got.Annotations[annotationProof] == "" {
		return false, fault.Internal(ctx, err)
	}
	job := got.Annotations[annotationJob]
	want, err := a.proof(ctx, got.SystemID, in.NodeID, job, got.Annotations[annotationAttempt])
	if err != nil || !hmac.Equal([]byte(want), []byte(got.Annotations[annotationProof])) {
		return false, err
	}
	info, err := m.Probe(ctx)
	if err != nil {
		return false, fault.MAAS(ctx, err)
	}
	if got.Owner != "" && got.Owner != info.User {
		return false, nil
	}
	actor := db.Actor{Owner: lifecycle.OwnerJob, ID: in.JobID, Metadata: map[string]any{"system_id": got.SystemID, "lost_job_id": job, "status": got.Status.String()},
		Comment: "the restored database lacks the job that deployed the machine; its annotation proves that it is ours"}
	return true, fault.Internal(ctx, a.Store.AppendAuditDaily(ctx, db.Entry{
		ResourceKind: "node", ResourceID: in.NodeID, NodeID: &in.NodeID, Kind: db.EntryAction, Name: "adopt_deployment", To: job, Actor: actor,
	}))
}

// checkMark fails when the job that a machine is annotated with is none of its node.
func (a *Activities) checkMark(ctx context.Context, m providers.MAAS, in MachineIn, got providers.MAASMachine) error {
	mark := got.Annotations[annotationJob]
	job, err := a.Store.Job(ctx, mark)
	switch {
	case errors.Is(err, db.ErrNotFound):
		if ours, err := a.adoptLost(ctx, m, in, got); err != nil || ours {
			return err
		}
	case err != nil:
		return fault.Internal(ctx, err)
	case job.NodeID != nil && *job.NodeID == in.NodeID:
		return nil
	}
	return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s for job %s, which is not one of this node; it is left alone", in.SystemID, got.Status, mark)
}
