package tenancy

import (
	"context"
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Statement is what was posted for a project in a month, by allocation or instance and kind. It is
// summed from the ledger and from nothing else.
type Statement struct {
	ProjectID        string          `json:"project_id"`
	BillingAccountID string          `json:"billing_account_id"`
	Month            string          `json:"month" example:"2026-11"`
	Currency         string          `json:"currency"`
	Exponent         int             `json:"exponent" doc:"Digits of the minor unit"`
	Since            time.Time       `json:"since"`
	Until            time.Time       `json:"until" doc:"What is posted at this time or later is in the next statement"`
	Final            bool            `json:"final" doc:"false until ten minutes after the end of the month: the same call may answer more later"`
	Lines            []StatementLine `json:"lines" nullable:"false"`
	TotalMinor       int64           `json:"total_minor" doc:"The sum of the lines: negative when the project was charged more than it was credited"`
	Complete         bool            `json:"complete" doc:"true, and the last member: a statement without it was cut short"`
}

// StatementLine is the sum of what was posted for an allocation or an instance in one kind.
type StatementLine struct {
	AllocationID string    `json:"allocation_id,omitempty" doc:"Left out for what is of an instance, or belongs to the project as a whole"`
	InstanceID   string    `json:"instance_id,omitempty"`
	Kind         string    `json:"kind" doc:"usage, adjustment and others"`
	FirstAt      time.Time `json:"first_at" doc:"Of its first transaction: the end of the time that it is for"`
	LastAt       time.Time `json:"last_at"`
	Transactions int64     `json:"transactions" doc:"How often something was posted; of usage, how many times were charged"`
	AmountMinor  int64     `json:"amount_minor" doc:"A charge is negative"`
}

func statementLine(l ledgerdb.StatementLine) StatementLine {
	allocation, instance := subjectOf(l)
	return StatementLine{allocation, instance, l.Kind, l.FirstAt.UTC(), l.LastAt.UTC(), l.Transactions, l.AmountMinor}
}

// subjectOf returns the allocation or the instance of a line.
func subjectOf(l ledgerdb.StatementLine) (allocation, instance string) {
	if strings.HasPrefix(l.Subject, "inst_") {
		return "", l.Subject
	}
	return l.Subject, ""
}

// StatementPath names a statement.
type StatementPath struct {
	ProjectPath
	Month  string `path:"month" maxLength:"7" pattern:"^[0-9]{4}-[0-9]{2}$" doc:"As 2026-11; months are in UTC"`
	Format string `query:"format" enum:"json,csv" default:"json" maxLength:"4"`
}

func (s *server) registerStatements() {
	s.api.Unbounded(func(path string) bool {
		rest, ok := strings.CutPrefix(path, op.Prefix+"/projects/")
		return ok && strings.Contains(rest, "/statements/") && strings.Count(rest, "/") == 2
	})
	op.Add(s.api, huma.Operation{
		OperationID: "get-statement", Method: http.MethodGet, Path: "/projects/{id}/statements/{month}", Tags: []string{"billing"},
		Summary: "What a project was charged and credited in a month",
		Description: "Summed from the ledger by allocation or instance and kind, without a limit of size. What is posted in a month belongs to it: a charge for its last minute " +
			"that is posted in the next month is in the next statement. As JSON it ends with the member complete; as CSV with the row total. An answer without it was cut short.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The statement",
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: op.Schema[Statement](s.api, "Statement")}, "text/csv": {Schema: &huma.Schema{Type: huma.TypeString}},
			},
		}},
	}, s.getStatement)
}

// finalAfter is how long after its month a statement may still change: what is posted has the time
// at which its transaction began, and no transaction takes that long.
const finalAfter = 10 * time.Minute

// isFinal reports whether nothing is added any more to the statement of a month that ends at a
// time.
func isFinal(end, now time.Time) bool { return !now.Before(end.Add(finalAfter)) }

func (s *server) getStatement(ctx context.Context, in *StatementPath) (*huma.StreamResponse, error) {
	month, err := time.Parse("2006-01", in.Month)
	if err != nil {
		return nil, problem.NewInvalid(problem.Field{Location: "path.month", Message: "is not a month; write it as 2026-11"})
	}
	account, err := s.accountOf(ctx) // with the audit row of an operator
	if err != nil {
		return nil, err
	}
	b, err := ledgerdb.ReadBalance(ctx, s.api.Store(), account)
	if err != nil {
		return nil, err
	}
	now, err := s.api.Store().Clock(ctx)
	if err != nil {
		return nil, err
	}
	head := Statement{
		ProjectID: op.ProjectAccessOf(ctx).Project, BillingAccountID: account, Month: in.Month, Currency: b.Currency, Exponent: int(b.Exponent),
		Since: month, Until: month.AddDate(0, 1, 0), Final: isFinal(month.AddDate(0, 1, 0), now),
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		if in.Format == "csv" {
			s.api.StreamCSV(c, func(ctx context.Context, rows *csv.Writer) error { return s.writeStatementCSV(ctx, rows, head) })
			return
		}
		s.api.StreamDocument(c, func(ctx context.Context, d *op.Document) error { return s.writeStatement(ctx, d, head) })
	}}, nil
}

func (s *server) writeStatement(ctx context.Context, d *op.Document, head Statement) error {
	for _, m := range []struct {
		name  string
		value any
	}{
		{"project_id", head.ProjectID}, {"billing_account_id", head.BillingAccountID}, {"month", head.Month}, {"currency", head.Currency},
		{"exponent", head.Exponent}, {"since", head.Since}, {"until", head.Until}, {"final", head.Final},
	} {
		if err := d.Member(m.name, m.value); err != nil {
			return err
		}
	}
	total := int64(0)
	err := d.List("lines", func(add func(any) error) error {
		return s.statementLines(ctx, head, func(l ledgerdb.StatementLine) error {
			total += l.AmountMinor
			return add(statementLine(l))
		})
	})
	if err != nil {
		return err
	}
	return d.Member("total_minor", total)
}

// writeStatementCSV writes a header, the lines and a row with the total. All its texts are ids,
// kinds, times and numbers: none of them is one that a customer chose, which a spreadsheet might
// run.
func (s *server) writeStatementCSV(ctx context.Context, rows *csv.Writer, head Statement) error {
	if err := rows.Write([]string{"allocation_id", "kind", "first_at", "last_at", "transactions", "amount", "currency", "instance_id"}); err != nil {
		return err
	}
	total, transactions := int64(0), int64(0)
	err := s.statementLines(ctx, head, func(l ledgerdb.StatementLine) error {
		total, transactions = total+l.AmountMinor, transactions+l.Transactions
		allocation, instance := subjectOf(l)
		return rows.Write([]string{
			allocation, l.Kind, l.FirstAt.UTC().Format(time.RFC3339), l.LastAt.UTC().Format(time.RFC3339), strconv.FormatInt(l.Transactions, 10),
			lifecycle.FormatMinor(l.AmountMinor, head.Exponent), head.Currency, instance,
		})
	})
	if err != nil {
		return err
	}
	return rows.Write([]string{
		"", "total", head.Since.Format(time.RFC3339), head.Until.Format(time.RFC3339), strconv.FormatInt(transactions, 10),
		lifecycle.FormatMinor(total, head.Exponent), head.Currency, "",
	})
}

// statementLines reads the lines page by page, and before each page whether the reader still has
// the role: a statement may be read slowly.
func (s *server) statementLines(ctx context.Context, head Statement, write func(ledgerdb.StatementLine) error) error {
	for place := (ledgerdb.StatementPlace{}); ; {
		ctx, access, err := op.AccessAgain(ctx)
		if err != nil {
			return err
		}
		if !access.Allows(lifecycle.RoleProjectBilling) {
			return problem.New(problem.Forbidden, "the reader has role billing no more")
		}
		rows, err := ledgerdb.ListStatement(ctx, s.api.Store(), head.ProjectID, head.Since, head.Until, place, exportPage)
		if err != nil {
			return err
		}
		for _, l := range rows {
			if err := write(l); err != nil {
				return err
			}
		}
		if len(rows) < exportPage {
			return nil
		}
		last := rows[len(rows)-1]
		place = ledgerdb.StatementPlace{Subject: last.Subject, Kind: last.Kind}
	}
}
