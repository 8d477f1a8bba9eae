package instance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// health is what one check of a worker found.
type health struct {
	SSH, HTTP, Model, Ready bool
	// Verified says that the agent itself said the checksum that was installed, once for each
	// installation.
	Verified bool
	// Heartbeat says that a heartbeat stood for the checks from our side.
	Heartbeat bool
	Problem   string
	// BrokenOff says that an error of the worker ended the check, and no error of our own.
	BrokenOff bool
}

func (h health) String() string {
	by := "checked by SSH"
	if h.Heartbeat {
		by = "by its heartbeat"
	}
	if h.Problem != "" {
		return h.Problem
	}
	return fmt.Sprintf("%s: vLLM %t, model %t, ready %t, agent verified %t", by, h.HTTP, h.Model, h.Ready, h.Verified)
}

// ok reports whether the worker serves.
func (h health) ok() bool { return h.Ready && h.Model && h.Verified }

// check looks at a worker. A heartbeat of the last 30 seconds stands for SSH, /readyz and
// /v1/models; otherwise they are asked. The result is logged, within the limits of the log.
func (t *target) check(ctx context.Context, now time.Time) (health, error) {
	i, err := instancedb.Get(ctx, t.a.Store, t.i.ID)
	if err != nil {
		return health{}, fault.Internal(ctx, err)
	}
	t.i = i
	began, h := time.Now(), health{Verified: i.AgentVerifiedAt != nil}
	clock, err := t.a.Store.Clock(ctx) // the database's, as the time of a heartbeat is
	if err != nil {
		return h, fault.Internal(ctx, err)
	}
	if hasHeartbeat(i, clock) {
		h.Heartbeat, h.SSH, h.HTTP = true, true, i.Heartbeat.Model != "" || i.Heartbeat.Ready
		h.Model, h.Ready = i.Heartbeat.Model == i.Model, i.Heartbeat.Ready
	}
	if !h.Heartbeat || !h.Verified {
		if err := t.checkActively(ctx, &h); err != nil {
			return h, err
		}
	}
	return h, t.log(ctx, h, now, time.Since(began))
}

// hasHeartbeat reports whether the last heartbeat of an instance still counts at a time of the
// database's clock.
func hasHeartbeat(i instancedb.Instance, now time.Time) bool {
	return i.HeartbeatAt != nil && now.Sub(*i.HeartbeatAt) < trusted
}

// checkActively asks the worker from our side.
func (t *target) checkActively(ctx context.Context, h *health) error {
	ofWorker := func(err error) error {
		h.BrokenOff = true
		return err
	}
	w, _, err := t.worker(ctx)
	if err != nil {
		return err
	}
	if !h.Heartbeat {
		if h.SSH, err = t.p.Worker.ReachSSH(ctx, w); err != nil && !passes(err) {
			return ofWorker(fault.SSH(ctx, err))
		}
		models, err := t.p.Worker.Models(ctx, w)
		if err := workerFailure(ctx, err); err != nil && !passes(err) {
			return ofWorker(err)
		}
		h.HTTP, h.Model = err == nil, slices.Contains(models, t.i.Model)
		ready, err := t.p.Worker.Readyz(ctx, w)
		if err := workerFailure(ctx, err); err != nil && !passes(err) {
			return ofWorker(err)
		}
		h.Ready = err == nil && ready
	}
	if h.Verified || !h.Ready {
		return nil
	}
	info, err := t.p.Worker.Info(ctx, w)
	if err != nil {
		h.Problem = "the agent does not answer"
		if err := workerFailure(ctx, err); !passes(err) {
			return ofWorker(err)
		}
		return nil
	}
	if info.Checksum != t.i.AgentChecksum || info.Checksum == "" {
		return ofWorker(fault.New(lifecycle.FailAgentChecksum, "the agent says checksum %.64q, and %s was installed", info.Checksum, t.i.AgentChecksum))
	}
	if err := instancedb.StoreAgentVerified(ctx, t.a.Store, t.i.ID, info.Checksum); err != nil {
		return fault.Internal(ctx, err)
	}
	h.Verified = true
	return nil
}

// workerFailure types an error of the way to a worker. A worker that gives no answer may give one
// later.
func workerFailure(ctx context.Context, err error) error {
	if err == nil || passes(err) {
		return err
	}
	if providers.IsKind(err, providers.KindExit) {
		return &providers.Error{Kind: providers.KindUnavailable, Op: "ssh.worker", Message: err.Error()}
	}
	return fault.SSH(ctx, err)
}

// The limits of the log for each instance and outcome.
const (
	logSuccessEvery = 5 * time.Minute
	logFailureEvery = time.Minute
	// logSlack is by how much a check may come early: a check each minute is logged each minute.
	logSlack = 5 * time.Second
)

// ShouldLog reports whether a health check is logged: the first one, every change of the outcome,
// and otherwise one every five minutes of success and one a minute of failure.
func ShouldLog(before *bool, loggedAt *time.Time, ok bool, now time.Time) bool {
	if before == nil || loggedAt == nil || *before != ok {
		return true
	}
	every := logFailureEvery
	if ok {
		every = logSuccessEvery
	}
	return now.Sub(*loggedAt) >= every-logSlack
}

// setHealthCode has a ready instance show whether it passes its health checks. A change is an
// event.
func (t *target) setHealthCode(ctx context.Context, h health) error {
	code, message := "", ""
	if !h.ok() {
		code, message = lifecycle.InstanceHealthFailed, h.String()
	}
	if code == t.i.ErrorCode {
		return nil
	}
	return fault.Internal(ctx, t.a.Store.Tx(ctx, func(tx *db.Tx) error {
		i, err := instancedb.Lock(ctx, tx, t.i.ID)
		if err != nil || i.Status != lifecycle.InstanceReady || i.ErrorCode == code {
			return err
		}
		return instancedb.SetError(ctx, tx, i.ID, code, message)
	}))
}

// log stores what a health check found, and how long it took, and writes it to the action log where
// its limits allow.
func (t *target) log(ctx context.Context, h health, now time.Time, took time.Duration) error {
	logs := ShouldLog(t.i.HealthOk, t.i.HealthLoggedAt, h.ok(), now)
	if logs {
		e := instancedb.Event{Stage: "health_check", Type: lifecycle.ActHealthCheck, Message: h.String(), Began: now, At: now.Add(took), Seq: -now.UnixMicro()}
		if !h.ok() {
			e.Class = lifecycle.FailNodeUnhealthy
		}
		if err := instancedb.LogEvent(ctx, t.a.Store, t.i, e); err != nil {
			return fault.Internal(ctx, err)
		}
	}
	return fault.Internal(ctx, instancedb.StoreHealthCheck(ctx, t.a.Store, t.i.ID, now, h.ok(), logs))
}
