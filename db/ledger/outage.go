package ledgerdb

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/ledger/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// HostClock is what a host knows of its own clock. The zero value knows nothing.
type HostClock struct {
	Boot   string        // another one after each start of the host
	Uptime time.Duration // since that start; setting the clock does not change it
	// Synchronized says that the kernel's clock follows a time server.
	Synchronized bool
}

// stopOrAgree stops the forced releases when a tick is to charge a long time at once, and says why.
// After a plain outage each later tick counts that agrees, and one that does not calls for an
// operator. All this is stored with the boundary, so that a tick that breaks off leaves it too.
func stopOrAgree(ctx context.Context, tx *db.Tx, in TickInput, boundary time.Time, control Control, epoch string) (string, error) {
	if control.Boundary == nil {
		return "", nil
	}
	q, jump := queries(tx), boundary.Sub(*control.Boundary)
	uncertain := whyUncertain(in, control, epoch)
	if jump > longestTick {
		due, err := q.AccountsToBill(ctx, gen.AccountsToBillParams{Boundary: boundary, MaxRows: 1})
		if err != nil || len(due) == 0 {
			return "", db.MapError("list accounts to charge", err)
		}
		why := fmt.Sprintf("a tick charged %.4g hours at once", jump.Hours())
		if uncertain == "" {
			why += fmt.Sprintf("; the clocks agree, so the releases resume by themselves after %d more ticks", agreeingTicks)
			return why, db.MapError("billing control", q.StopForOutage(ctx, why))
		}
		why += ", and " + uncertain + "; nothing is released until an operator has looked at the clocks"
		return why, db.MapError("billing control", q.StopEnforcement(ctx, db.ClipText(why, maxReason)))
	}
	switch {
	case !control.ResumesItself || jump <= 0: // a tick that is repeated says nothing new
		return "", nil
	case uncertain != "":
		why := control.EnforcementStopped + "; but then " + uncertain + "; nothing is released until an operator has looked at the clocks"
		return why, db.MapError("billing control", q.StopEnforcement(ctx, db.ClipText(why, maxReason)))
	}
	return "", db.MapError("billing control", q.CountAgreedTick(ctx))
}

// whyUncertain says why the time since the last tick may not be a plain outage, "" when it is one.
// On one host all clocks are the same one and agree even when they are wrong. So the host's time
// since its start must have gone on as far as its clock did. A host that was started since, or
// another one, must follow a time server.
func whyUncertain(in TickInput, control Control, epoch string) string {
	switch {
	case control.Epoch == "" || control.WorkerAt == nil:
		return "the tick before stored no clock to compare with"
	case in.Worker.IsZero() || in.Scheduled.IsZero():
		return "not every clock was compared"
	case control.Epoch != epoch:
		return "the database is not the one of the tick before: it was restored, or another server took over"
	case in.Before.After(*control.Boundary):
		return fmt.Sprintf("the database has charged up to %s, and Temporal knows a tick up to %s: an older copy of the database runs",
			control.Boundary.UTC().Format(time.RFC3339), in.Before.UTC().Format(time.RFC3339))
	case in.Host.Boot != "" && in.Host.Boot == control.WorkerBoot:
		uptime := in.Host.Uptime - time.Duration(control.WorkerUptimeMs)*time.Millisecond
		if moved := in.Worker.Sub(*control.WorkerAt) - uptime; moved.Abs() > ClockTolerance {
			return fmt.Sprintf("the clock of the worker's host was moved by %s since the tick before", moved.Round(time.Second))
		}
	case !in.Host.Synchronized:
		return "the worker's host was started since the tick before, or is another one, and its clock follows no time server"
	}
	return ""
}

// resumeAfterOutage lets the forced releases go on when enough ticks after a plain outage have
// agreed.
func resumeAfterOutage(ctx context.Context, tx *db.Tx) error {
	control, err := ReadControl(ctx, tx)
	if err != nil || !control.ResumesItself || control.AgreedTicks < agreeingTicks {
		return err
	}
	if _, err := queries(tx).ResumeEnforcement(ctx); err != nil {
		return db.MapError("billing control", err)
	}
	return tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "billing", ResourceID: "enforcement", Kind: db.EntryAction, Name: "resume_enforcement",
		Actor: db.Actor{Owner: lifecycle.OwnerSystem, ID: "billing", Comment: control.EnforcementStopped},
	})
}
