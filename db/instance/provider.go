package instancedb

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/instance/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// one turns a statement that must have met its row into an error when it has not.
func one(id string, n int64, err error) error {
	if err == nil && n == 0 {
		return db.NotFound(what(id))
	}
	return db.MapError(what(id), err)
}

// StoreServerAsk stores, before it is sent, that a server is ordered, and how often it was. asks 0
// begins to count again.
func StoreServerAsk(ctx context.Context, c db.Conn, i Instance, asks int, within time.Duration) error {
	n, err := queries(c).StoreServerAsk(ctx, gen.StoreServerAskParams{ID: i.ID, Before: i.ServerAsks, ServerAsks: asks, WithinSeconds: int(within.Round(time.Second).Seconds())})
	return one(i.ID, n, err)
}

// StoreServer stores the server of an instance. It can be repeated; another server than the stored
// one is db.ErrNotFound.
func StoreServer(ctx context.Context, c db.Conn, id, serverID string, createdAt time.Time, all []record.CloudResource) error {
	n, err := queries(c).StoreServer(ctx, gen.StoreServerParams{ID: id, ServerID: serverID, ServerCreatedAt: &createdAt, Resources: resources(all)})
	return one(id, n, err)
}

// StoreResources stores what the provider has made for an instance.
func StoreResources(ctx context.Context, c db.Conn, id string, all []record.CloudResource) error {
	n, err := queries(c).StoreResources(ctx, gen.StoreResourcesParams{ID: id, Resources: resources(all)})
	return one(id, n, err)
}

// StoreAddress stores the public address of an instance.
func StoreAddress(ctx context.Context, c db.Conn, id, address string) error {
	n, err := queries(c).StoreAddress(ctx, gen.StoreAddressParams{ID: id, IPAddress: address})
	return one(id, n, err)
}

// StoreCredentials stores the pinned host key and the hash of the one-time token of a new set of
// credentials. The stored state of an earlier worker is cleared.
func StoreCredentials(ctx context.Context, c db.Conn, id, hostKey string, tokenHash []byte) error {
	n, err := queries(c).StoreCredentials(ctx, gen.StoreCredentialsParams{ID: id, HostKey: hostKey, EnrollHash: tokenHash})
	return one(id, n, err)
}

// StoreInstalledAgent stores the checksum of the agent that was installed.
func StoreInstalledAgent(ctx context.Context, c db.Conn, id, checksum string) error {
	n, err := queries(c).StoreInstalledAgent(ctx, gen.StoreInstalledAgentParams{ID: id, AgentChecksum: checksum})
	return one(id, n, err)
}

// StoreAgentVerified stores that the agent itself said the checksum that was installed.
func StoreAgentVerified(ctx context.Context, c db.Conn, id, checksum string) error {
	n, err := queries(c).StoreAgentVerified(ctx, gen.StoreAgentVerifiedParams{ID: id, AgentChecksum: checksum})
	return one(id, n, err)
}

// EnrollWorker binds the key that a worker has made to its instance, by the one-time token; both
// come as hashes. It returns the instance. A token that is unknown, or was used with another key,
// is db.ErrNotFound.
func EnrollWorker(ctx context.Context, c db.Conn, tokenHash, keyHash []byte) (string, error) {
	id, err := queries(c).EnrollWorker(ctx, gen.EnrollWorkerParams{EnrollHash: tokenHash, WorkerHash: keyHash})
	return id, db.MapError("enrolment of a worker", err)
}

// HeartbeatResult is the instance of a heartbeat.
type HeartbeatResult = gen.StoreHeartbeatRow

// StoreHeartbeat stores a heartbeat. It is db.ErrNotFound when the key is not that of the
// instance's worker, the number is not higher than the last one, the checksum is not that of the
// installed agent, or the instance takes none any more.
func StoreHeartbeat(ctx context.Context, c db.Conn, id string, keyHash []byte, seq int64, h record.WorkerHeartbeat) (HeartbeatResult, error) {
	r, err := queries(c).StoreHeartbeat(ctx, gen.StoreHeartbeatParams{ID: id, WorkerHash: keyHash, HeartbeatSeq: seq, Heartbeat: h, AgentChecksum: h.Checksum})
	return r, db.MapError("heartbeat of "+what(id), err)
}

// CountRecovery counts that a late heartbeat takes an instance back, and reports false when
// somebody else has counted it.
func CountRecovery(ctx context.Context, c db.Conn, i Instance) (bool, error) {
	n, err := queries(c).CountRecovery(ctx, gen.CountRecoveryParams{ID: i.ID, Recoveries: i.Recoveries})
	return n > 0, db.MapError(what(i.ID), err)
}

// EndDrain has an instance that drains wait no longer for its work.
func EndDrain(ctx context.Context, tx *db.Tx, id string) error {
	_, err := queries(tx).EndDrain(ctx, id)
	return db.MapError(what(id), err)
}

// StoreHealthCheck stores that the health of an instance was checked, and whether that was logged.
func StoreHealthCheck(ctx context.Context, c db.Conn, id string, at time.Time, ok, logged bool) error {
	_, err := queries(c).StoreHealthCheck(ctx, gen.StoreHealthCheckParams{ID: id, CheckedAt: &at, HealthOk: ok, Logged: logged})
	return db.MapError(what(id), err)
}

// StoreAbsence counts a look in which the provider had no such server.
func StoreAbsence(ctx context.Context, c db.Conn, id string, at time.Time) error {
	n, err := queries(c).StoreAbsence(ctx, gen.StoreAbsenceParams{ID: id, SeenAt: &at})
	return one(id, n, err)
}

// ClearAbsence stores that the provider has the server.
func ClearAbsence(ctx context.Context, c db.Conn, id string) error {
	_, err := queries(c).ClearAbsence(ctx, id)
	return db.MapError(what(id), err)
}

// StoreOrphans replaces what a zone of a provider has with our tag and belongs to no live instance.
func StoreOrphans(ctx context.Context, tx *db.Tx, provider, zone string, all []Orphan) error {
	kept := []string{}
	for _, o := range all {
		kept = append(kept, o.Kind+":"+o.ResourceID)
		if err := queries(tx).PutOrphan(ctx, gen.PutOrphanParams{
			Provider: provider, Zone: zone, Kind: o.Kind, ResourceID: o.ResourceID, Name: db.ClipText(o.Name, 255), InstanceID: db.ClipText(o.InstanceID, 128),
			HourlyMicro: o.HourlyMicro, Currency: o.Currency,
		}); err != nil {
			return db.MapError("orphan "+o.ResourceID, err)
		}
	}
	_, err := queries(tx).DropOrphans(ctx, gen.DropOrphansParams{Provider: provider, Zone: zone, Kept: kept})
	return db.MapError("orphans", err)
}

// ListOrphans lists what is at providers and belongs to no live instance.
func ListOrphans(ctx context.Context, c db.Conn, limit int) ([]Orphan, error) {
	rows, err := queries(c).ListOrphans(ctx, db.PageLimit(limit))
	return rows, db.MapError("list orphans", err)
}

// StoreLook stores how a look at a zone of a provider went: problem says why nothing was decided,
// "" for none.
func StoreLook(ctx context.Context, c db.Conn, provider, zone, problem string) error {
	return db.MapError("look at "+provider, queries(c).PutLook(ctx, gen.PutLookParams{Provider: provider, Zone: zone, Problem: db.ClipText(problem, db.MaxMessage)}))
}

// DropLooks drops what is stored of zones that are looked at no more: of all but the given ones,
// each as provider and zone.
func DropLooks(ctx context.Context, c db.Conn, visited [][2]string) error {
	kept := []string{}
	for _, place := range visited {
		kept = append(kept, place[0]+":"+place[1])
	}
	_, err := queries(c).DropLooks(ctx, kept)
	return db.MapError("looks at providers", err)
}

// JobStep is what a projection of a job says of its instance.
type JobStep struct {
	Creates        bool
	Status         lifecycle.JobStatus
	Class          lifecycle.FailureClass // why it is parked, or gave up
	Stage, Message string
	Shown, Reached int
	Actor          db.Actor
}

// Project brings a locked instance up to its job.
func Project(ctx context.Context, tx *db.Tx, i Instance, s JobStep) (Instance, error) {
	t, moves := lifecycle.InstanceMoveFor(s.Creates, i.Status, s.Status, s.Class)
	if s.Creates && (lifecycle.InstancePercent(i.Status, 1) == 1 || t.To == lifecycle.InstanceReady) {
		failed := ""
		if s.Class != "" {
			failed = s.Stage
		}
		if err := SetProgress(ctx, tx, i, s.Shown, max(s.Reached, i.ReachedPercent), failed); err != nil {
			return i, err
		}
		var err error
		if i, err = Get(ctx, tx, i.ID); err != nil {
			return i, err
		}
	}
	if !moves {
		return i, nil
	}
	m := Move{To: t, Actor: s.Actor}
	m.Actor.Owner = lifecycle.OwnerJob
	if m.Actor.Comment == "" {
		m.Actor.Comment = t.Doc // the reason in the history
	}
	if t.To.Failed() {
		m.Class, m.Code, m.Message, m.Stage = s.Class, lifecycle.InstanceErrorCode(s.Class), s.Message, s.Stage
		if m.Code == "" {
			m.Code, m.Message = lifecycle.InstanceCancelled, "the creation was cancelled"
		}
		m.Actor.Comment = m.Code + ": " + m.Message
	}
	return MoveTo(ctx, tx, i, m)
}

// IsMissing reports whether an instance, or what a statement names, is not there.
func IsMissing(err error) bool { return errors.Is(err, db.ErrNotFound) }
