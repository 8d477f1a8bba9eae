// Package ledgerdb stores money: the ledger, prices, usage, balances, holds and budgets. It is a
// package below db. Amounts are whole minor units of the currency of the billing account. Each
// posting to an account is made under the lock of its row in billing_accounts. Locks are taken in
// this order: billing accounts by id, usage records by id, ledger accounts.
package ledgerdb

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/ledger/gen"
)

// The rows.
type (
	Account       = gen.LedgerAccount
	Transaction   = gen.LedgerTransaction
	Line          = gen.ListLedgerRow
	StatementLine = gen.StatementLinesRow
	Currency      = gen.Currency
)

// Conn runs queries: a *db.Store, a *db.Tx or a *db.ProjectTx. Data of a billing account that its
// project may not see is read with one of the first two.
type Conn interface{ DBTX() db.DBTX }

func queries(c Conn) *gen.Queries { return gen.New(c.DBTX()) }

// The accounts of the ledger that each billing account has. A positive balance of CodePrepaid is
// what the customer may still use.
const (
	CodePrepaid       = "prepaid"
	CodeRevenue       = "revenue"
	CodeAdjustments   = "adjustments"
	CodeClearing      = "clearing"
	CodeSuspense      = "suspense"
	CodeDisputeHold   = "dispute_hold"
	CodeRefundPending = "refund_pending"
	CodeWriteOff      = "write_off"
	CodeFees          = "fees"
)

// The kinds of ledger transactions.
const (
	KindUsage           = "usage"
	KindAdjustment      = "adjustment"
	KindTopup           = "topup"
	KindRefund          = "refund"
	KindRefundReversal  = "refund_reversal"
	KindDispute         = "dispute"
	KindDisputeReversal = "dispute_reversal"
	KindSuspense        = "suspense"
	KindWriteOff        = "write_off"
)

// ErrKeyReused: a key was used for a posting with other contents.
var ErrKeyReused = errors.New("the key was used for another posting; use a new key")

// Leg is one line of a posting: what an account of the ledger gains, or loses when it is negative.
type Leg struct {
	Code        string
	AmountMinor int64
}

// Posting is a transaction that is to be booked. Key names the fact that it books. Its legs sum to
// zero and name each account once.
type Posting struct {
	Key, Kind               string
	BillingAccountID        string
	ProjectID, AllocationID string // "" for none
	Reason, Actor           string
	Legs                    []Leg
}

func (p Posting) hash() ([]byte, error) {
	b, err := json.Marshal(p)
	sum := sha256.Sum256(b)
	return sum[:], err
}

// Post books a transaction, in the currency of the account. It returns the transaction and whether
// it is new. A posting whose key was booked before changes nothing; it returns ErrKeyReused when
// its contents differ.
func Post(ctx context.Context, tx *db.Tx, p Posting) (Transaction, bool, error) {
	hash, err := p.hash()
	if err != nil {
		return Transaction{}, false, err
	}
	q, what := queries(tx), "ledger of billing account "+p.BillingAccountID
	account, err := q.LockAccountOf(ctx, p.BillingAccountID)
	if err != nil {
		return Transaction{}, false, db.MapError(what, err)
	}
	booked, err := FindTransaction(ctx, tx, p.Key)
	switch {
	case err == nil && !slices.Equal(booked.RequestHash, hash):
		return booked, false, fmt.Errorf("%s: %w", what, ErrKeyReused)
	case err == nil || !errors.Is(err, db.ErrNotFound):
		return booked, false, err
	}
	var codes []string
	var amounts []int64
	for _, l := range p.Legs {
		codes, amounts = append(codes, l.Code), append(amounts, l.AmountMinor)
	}
	if err := q.OpenLedgerAccounts(ctx, gen.OpenLedgerAccountsParams{Codes: codes, BillingAccountID: p.BillingAccountID}); err != nil {
		return Transaction{}, false, db.MapError(what, err)
	}
	t, err := q.InsertTransaction(ctx, gen.InsertTransactionParams{
		Key: p.Key, Kind: p.Kind, BillingAccountID: p.BillingAccountID, Currency: account.Currency, OfProject: db.OrNil(p.ProjectID),
		OfAllocation: db.OrNil(p.AllocationID), Reason: p.Reason, Actor: db.ClipText(p.Actor, maxActor), RequestHash: hash,
	})
	if err != nil {
		return Transaction{}, false, db.MapError(what, err)
	}
	err = q.InsertEntries(ctx, gen.InsertEntriesParams{TransactionID: t.ID, Codes: codes, Amounts: amounts, BillingAccountID: p.BillingAccountID})
	return t, err == nil, db.MapError(what, err)
}

const maxActor = 300

// FindTransaction returns the transaction of a key, or db.ErrNotFound.
func FindTransaction(ctx context.Context, c Conn, key string) (Transaction, error) {
	t, err := queries(c).TransactionByKey(ctx, key)
	return t, db.MapError("ledger transaction "+key, err)
}

// ListAccounts lists what a billing account has in the ledger, by code.
func ListAccounts(ctx context.Context, c Conn, accountID string) ([]Account, error) {
	rows, err := queries(c).LedgerAccounts(ctx, accountID)
	return rows, db.MapError("ledger of billing account "+accountID, err)
}

// ListLines lists the lines of the prepaid balance, newest first, from the one before the number
// given; 0 is the newest. projectID narrows it to what a project was charged and credited.
func ListLines(ctx context.Context, c Conn, accountID, projectID string, before int64, limit int) ([]Line, error) {
	rows, err := queries(c).ListLedger(ctx, gen.ListLedgerParams{
		BillingAccountID: accountID, OfProject: projectID, BeforeSeq: before, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("ledger of billing account "+accountID, err)
}

// StatementPlace is the last line of the page before; the zero value is the beginning.
type StatementPlace struct{ Subject, Kind string }

// ListStatement sums what was posted for a project in a time, by subject and kind. A subject is an
// allocation or an instance, or empty for what belongs to the project as a whole. Amounts are those
// of the prepaid balance: charges are negative.
func ListStatement(ctx context.Context, c Conn, projectID string, since, until time.Time, after StatementPlace, limit int) ([]StatementLine, error) {
	rows, err := queries(c).StatementLines(ctx, gen.StatementLinesParams{
		OfProject: projectID, Since: since, Until: until, AfterSubject: after.Subject, AfterKind: after.Kind, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("statement of project "+projectID, err)
}

// Verify walks the entries of an account of the ledger. It returns the number of the first one that
// is missing or was altered, 0 when all are as they were written.
func Verify(ctx context.Context, c Conn, accountID, code string) (firstBroken int64, err error) {
	firstBroken, err = queries(c).VerifyLedger(ctx, gen.VerifyLedgerParams{BillingAccountID: accountID, Code: code})
	return firstBroken, db.MapError("verify the ledger of billing account "+accountID, err)
}

// ListCurrencies lists the currencies that an account may have, with the digits of their minor
// units.
func ListCurrencies(ctx context.Context, c Conn) ([]Currency, error) {
	rows, err := queries(c).Currencies(ctx)
	return rows, db.MapError("list currencies", err)
}
