package agentapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/db/record"
)

// InstanceStore stores what the workers of instances say. The error for an unknown token, instance
// or key is db.ErrNotFound.
type InstanceStore interface {
	EnrollWorker(ctx context.Context, tokenHash, keyHash []byte) (instanceID string, err error)
	StoreHeartbeat(ctx context.Context, instanceID string, keyHash []byte, seq int64, h record.WorkerHeartbeat) error
}

// NewInstanceStore returns an InstanceStore over the database.
func NewInstanceStore(d *db.Store) InstanceStore { return instanceStore{d} }

type instanceStore struct{ db *db.Store }

func (s instanceStore) EnrollWorker(ctx context.Context, tokenHash, keyHash []byte) (string, error) {
	return instancedb.EnrollWorker(ctx, s.db, tokenHash, keyHash)
}

func (s instanceStore) StoreHeartbeat(ctx context.Context, id string, keyHash []byte, seq int64, h record.WorkerHeartbeat) error {
	_, err := instancedb.StoreHeartbeat(ctx, s.db, id, keyHash, seq, h)
	return err
}

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// leastKey is the least length of the key of a worker.
const leastKey = 32

// enrollWorker binds the key of a worker to its instance, by the one-time token of that.
func (s *Server) enrollWorker(r *http.Request) (any, error) {
	if ok, wait := s.limit.Allow(ratelimit.RemoteAddress(r)); !ok {
		return nil, refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited", "Too many enrolments from this address; wait.").after(wait)
	}
	var in protocol.InstanceEnroll
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Token == "" || len(in.Key) < leastKey {
		return nil, invalid("token must be that of the instance, and key at least %d characters.", leastKey)
	}
	id, err := s.cfg.Instances.EnrollWorker(r.Context(), hashOf(in.Token), hashOf(in.Key))
	if errors.Is(err, db.ErrNotFound) {
		return nil, refuse(http.StatusUnauthorized, protocol.ProblemTokenUnknown, "token_unknown",
			"This token is not known, was used with another key, or its instance does not boot any more; retry the installation of the worker.")
	}
	if err != nil {
		return nil, err
	}
	s.cfg.Log.InfoContext(r.Context(), "worker enrolled", "instance", id, "address", ratelimit.RemoteAddress(r))
	return protocol.InstanceAnswer{InstanceID: id}, nil
}

// limitWorker returns a refusal when a worker sends too many heartbeats. A worker whose key was
// accepted has a limit of its own: many workers are behind one NAT. All other keys of an address
// share one.
func (s *Server) limitWorker(r *http.Request, key [sha256.Size]byte) error {
	if s.workerKeys.has(key) {
		if ok, wait := s.workers.AllowName(string(key[:])); !ok {
			return refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited", "Too many heartbeats of this worker; wait.").after(wait)
		}
		return nil
	}
	if ok, wait := s.workers.Allow(ratelimit.RemoteAddress(r)); !ok {
		return refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited", "Too many heartbeats from this address; wait.").after(wait)
	}
	return nil
}

// maxAcceptedKeys bounds the memory. All are forgotten when there are more: their workers share the
// limit of their address until their next heartbeat is accepted.
const maxAcceptedKeys = 16384

// acceptedKeys are the keys of workers whose last heartbeat at this process was accepted.
type acceptedKeys struct {
	mu   sync.Mutex
	keys map[[sha256.Size]byte]struct{}
}

func (a *acceptedKeys) has(key [sha256.Size]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.keys[key]
	return ok
}

func (a *acceptedKeys) set(key [sha256.Size]byte, accepted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys == nil || len(a.keys) >= maxAcceptedKeys {
		a.keys = map[[sha256.Size]byte]struct{}{}
	}
	if accepted {
		a.keys[key] = struct{}{}
	} else {
		delete(a.keys, key)
	}
}

// receiveWorkerHeartbeat stores a heartbeat. A key of another instance, an older number, a checksum
// that is not that of the installed agent, and an instance that ends are refused alike: a worker
// learns nothing of instances that are not its own.
func (s *Server) receiveWorkerHeartbeat(r *http.Request) (any, error) {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	hash := sha256.Sum256([]byte(key))
	if err := s.limitWorker(r, hash); err != nil {
		return nil, err
	}
	var in protocol.InstanceHeartbeat
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	refused := refuse(http.StatusUnauthorized, protocol.ProblemDenied, "denied",
		"The heartbeat is not taken: its key, its number or its checksum is not that of the instance's worker, or the instance ends.")
	if !ok || len(key) < leastKey {
		return nil, refused
	}
	err := s.cfg.Instances.StoreHeartbeat(r.Context(), in.InstanceID, hashOf(key), in.Sequence, record.WorkerHeartbeat{
		Ready: in.Ready, Model: in.Model, Checksum: in.Checksum, Version: in.Version, Active: in.Active, SentAt: in.SentAt,
	})
	if err == nil || errors.Is(err, db.ErrNotFound) {
		s.workerKeys.set(hash, err == nil)
	}
	if errors.Is(err, db.ErrNotFound) {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	return protocol.InstanceAnswer{InstanceID: in.InstanceID}, nil
}
