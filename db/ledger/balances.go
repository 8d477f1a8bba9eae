package ledgerdb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/ledger/gen"
)

// Balance is the balance of a billing account. BalanceMinor is what was posted; HeldMinor is held
// back for allocations. State follows the posted balance. Charging says whether the installation
// has a price in force; where it has none, the state means nothing.
type Balance struct{ gen.BalanceRow }

// AvailableMinor is what a claim may still hold back. A credit line, which is a negative threshold
// of depleted, counts to it.
func (b Balance) AvailableMinor() int64 {
	return b.BalanceMinor - b.HeldMinor - min(b.DepletedMinor, 0)
}

// IsDepleted reports whether the balance is at the threshold of depleted or below.
func (b Balance) IsDepleted() bool { return b.BalanceMinor <= b.DepletedMinor }

// IsUsedUp reports whether the balance is depleted and something was posted to it. An account to
// which nothing was posted has no balance to use up.
func (b Balance) IsUsedUp() bool { return b.IsDepleted() && b.Depletions > 0 }

// GraceEndsAt is when the allocations of a depleted account are released, nil when it is not
// depleted or nothing was posted to it yet.
func (b Balance) GraceEndsAt() *time.Time {
	if b.State != "depleted" || b.Depletions == 0 {
		return nil
	}
	at := b.Since.Add(time.Duration(b.GraceSeconds) * time.Second)
	return &at
}

// ReadBalance returns the balance of a billing account, or db.ErrNotFound.
func ReadBalance(ctx context.Context, c Conn, accountID string) (Balance, error) {
	row, err := queries(c).Balance(ctx, accountID)
	return Balance{row}, db.MapError("balance of billing account "+accountID, err)
}

// Thresholds are the thresholds of a billing account in minor units. nil is that of the policy: 10,
// 0 and 12 whole units. Low is at least Depleted, and Rearm at least Low.
type Thresholds struct {
	LowMinor, DepletedMinor, RearmMinor *int64
	GraceSeconds                        int
}

// SetThresholds replaces the thresholds of the version given, or returns db.ErrStale. They count at
// once.
func SetThresholds(ctx context.Context, tx *db.Tx, accountID string, version int64, t Thresholds) error {
	n, err := queries(tx).SetThresholds(ctx, gen.SetThresholdsParams{
		LowMinor: t.LowMinor, DepletedMinor: t.DepletedMinor, RearmMinor: t.RearmMinor, GraceSeconds: t.GraceSeconds, BillingAccountID: accountID, Version: version,
	})
	return db.CheckGuarded("thresholds of billing account "+accountID, n, err)
}

// PlaceHold holds back an amount for an allocation or an instance until its charge ends. It can be
// repeated; the first amount stays.
func PlaceHold(ctx context.Context, tx *db.Tx, projectID, subjectID string, amountMinor int64) error {
	err := queries(tx).InsertHold(ctx, gen.InsertHoldParams{AmountMinor: amountMinor, ProjectID: projectID, Subject: subjectID})
	return db.MapError("hold of "+subjectID, err)
}

// ListDepleted lists allocations that are to be released since their account is depleted and its
// grace is over.
func ListDepleted(ctx context.Context, c Conn, limit int) ([]string, error) {
	ids, err := queries(c).DepletedAllocations(ctx, db.PageLimit(limit))
	return ids, db.MapError("list allocations of depleted accounts", err)
}

// IsStillDepleted reads under its lock whether the account of an allocation is depleted and its
// grace is over. Lock the allocation first.
func IsStillDepleted(ctx context.Context, tx *db.Tx, allocationID string) (bool, error) {
	account, err := queries(tx).LockAccountOfAllocation(ctx, allocationID)
	if err != nil {
		return false, db.MapError("account of allocation "+allocationID, err)
	}
	depleted, err := queries(tx).StillDepleted(ctx, account)
	return depleted, db.MapError("balance of the account of allocation "+allocationID, err)
}

// ListDepletedInstances lists instances that are to end since their account is depleted and its
// grace is over: those that are charged, and do not end at once already.
func ListDepletedInstances(ctx context.Context, c Conn, limit int) ([]string, error) {
	ids, err := queries(c).DepletedInstances(ctx, db.PageLimit(limit))
	return ids, db.MapError("list instances of depleted accounts", err)
}

// IsInstanceStillDue is IsStillDepleted for an instance. Lock the instance first.
func IsInstanceStillDue(ctx context.Context, tx *db.Tx, instanceID string) (bool, error) {
	account, err := queries(tx).LockAccountOfInstance(ctx, instanceID)
	if err != nil {
		return false, db.MapError("account of instance "+instanceID, err)
	}
	depleted, err := queries(tx).StillDepleted(ctx, account)
	return depleted, db.MapError("balance of the account of instance "+instanceID, err)
}

// Notice is a notice of a balance that its projects were not told of yet.
type Notice = gen.UntoldNoticesRow

// ListUntold lists notices of balances that were not sent to their projects yet, oldest first.
func ListUntold(ctx context.Context, c Conn, limit int) ([]Notice, error) {
	rows, err := queries(c).UntoldNotices(ctx, db.PageLimit(limit))
	return rows, db.MapError("list notices of balances", err)
}

// MarkTold stores that a notice was sent to its projects. It can be repeated.
func MarkTold(ctx context.Context, tx *db.Tx, n Notice) error {
	err := queries(tx).NoticeTold(ctx, gen.NoticeToldParams{BillingAccountID: n.BillingAccountID, Episode: n.Episode, Kind: n.Kind})
	return db.MapError("notice of billing account "+n.BillingAccountID, err)
}

// ListProjects lists the projects of a billing account that are not closed.
func ListProjects(ctx context.Context, c Conn, accountID string) ([]string, error) {
	ids, err := queries(c).ProjectsOf(ctx, accountID)
	return ids, db.MapError("projects of billing account "+accountID, err)
}

// Budget is what a project may cost in a calendar month (UTC) until it is told, with what it has
// cost in this one.
type Budget = gen.BudgetRow

// ReadBudget returns the budget of a project, or db.ErrNotFound.
func ReadBudget(ctx context.Context, c Conn, projectID string) (Budget, error) {
	b, err := queries(c).Budget(ctx, projectID)
	return b, db.MapError("budget of project "+projectID, err)
}

// PutBudget sets the budget of a project. The warnings of another one than before are given again.
func PutBudget(ctx context.Context, c Conn, projectID string, limitMinor int64, warnPercent int) (Budget, error) {
	err := queries(c).PutBudget(ctx, gen.PutBudgetParams{ProjectID: projectID, LimitMinor: limitMinor, WarnPercent: warnPercent})
	if err != nil {
		return Budget{}, db.MapError("budget of project "+projectID, err)
	}
	return ReadBudget(ctx, c, projectID)
}

// DeleteBudget deletes the budget of a project, or returns db.ErrNotFound.
func DeleteBudget(ctx context.Context, c Conn, projectID string) error {
	n, err := queries(c).DeleteBudget(ctx, projectID)
	return db.CheckRepeatable("budget of project "+projectID, n, err, func() error { return db.NotFound("budget of project " + projectID) })
}

// OverBudget is a budget of which a part is spent that its project was not told of.
type OverBudget = gen.BudgetsOverRow

// ListOverBudget lists the budgets of which a part is spent in this month.
func ListOverBudget(ctx context.Context, c Conn, limit int) ([]OverBudget, error) {
	rows, err := queries(c).BudgetsOver(ctx, db.PageLimit(limit))
	return rows, db.MapError("list budgets", err)
}
