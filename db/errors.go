package db

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNotFound: there is no such row, or a row refers to one that is not there.
	ErrNotFound = errors.New("not found")
	// ErrStale: the row has another version than the caller expected; read it
	// again and repeat the change.
	ErrStale = errors.New("the resource was changed meanwhile; read it again and repeat the change")
	// ErrInvalid: the schema refuses a value (a check, a length, a text that
	// holds a zero byte). Repeating it does not help.
	ErrInvalid = errors.New("the database refuses a value")
)

// ErrRepeat: what a transaction read was changed before it could lock it. Store.Tx runs the
// transaction again.
var ErrRepeat = errors.New("the rows changed while the transaction ran")

// ErrLastOwner: the change would leave a project without an owner.
var ErrLastOwner = errors.New("a project keeps at least one owner; make another member an owner first")

// NotFound returns an ErrNotFound about what.
func NotFound(what string) error { return &NotFoundError{What: what} }

// NotFoundError is an ErrNotFound that names what is not there.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return e.What + ": " + ErrNotFound.Error() }

// Is says that it is an ErrNotFound.
func (*NotFoundError) Is(target error) bool { return target == ErrNotFound }

// ConflictError says what is in the way and, where known, the id of it.
type ConflictError struct {
	What     string // "hostname", "live_job", "name", "maas_machine", "bmc", "reference", "workflow"
	Existing string // id of the row in the way, "" when unknown
	Message  string // a sentence that says what to do
}

func (e *ConflictError) Error() string { return e.Message }

// The SQLSTATEs that are told apart; those that begin with SW are raised by
// the triggers of the migrations.
const (
	stateUnique        = "23505"
	stateForeignKey    = "23503"
	stateCheck         = "23514"
	stateSerialization = "40001"
	stateDeadlock      = "40P01"
	stateCanceled      = "57014"
	stateAppendOnly    = "SW003"
	stateLastOwner     = "SW004"
	stateMoney         = "SW005"
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// IsUnavailable reports whether err says that the database is unavailable, so that it is worth
// retrying: a refused or broken connection, a server that starts, ends or fails over, or one
// without a free connection or space. The statement may have taken effect.
func IsUnavailable(err error) bool {
	if err == nil {
		return false
	}
	if s := sqlState(err); s != "" {
		class := s[:min(2, len(s))]
		// 08 connection, 53 resources, 57P an operator's intervention, 58 the
		// server's surroundings; 25006 is a primary that became a standby.
		return class == "08" || class == "53" || strings.HasPrefix(s, "57P") || class == "58" || s == "25006"
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.Is(err, ErrNoConnection) || errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, pgx.ErrTxClosed)
}

// unavailableError marks an error of the network as one of the database.
type unavailableError struct{ error }

// Unwrap returns the driver's error.
func (e *unavailableError) Unwrap() error { return e.error }

// IsOutage reports whether err certainly comes from an unavailable database. IsUnavailable alone
// holds for errors of the network to other systems, too.
func IsOutage(err error) bool {
	var marked *unavailableError
	return errors.As(err, &marked) || IsNotConnected(err) || sqlState(err) != "" && IsUnavailable(err)
}

// IsBusy reports whether err says that the database was too busy with other work: a statement or a
// lock took longer than it may, or a transaction was repeated as often as it may be. Nothing of the
// transaction was stored.
func IsBusy(err error) bool {
	s := sqlState(err)
	return s == stateLockTimeout || s == stateCanceled || retryable(err)
}

func retryable(err error) bool {
	s := sqlState(err)
	return s == stateSerialization || s == stateDeadlock || errors.Is(err, ErrRepeat)
}

// MapError turns an error of the driver about what (a resource and its id) into the errors of this
// package. It returns nil for nil. All packages below db use it.
func MapError(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrNoRows) || err == ErrNotFound { //nolint:errorlint // one that names something keeps its name
		return NotFound(what)
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if IsUnavailable(err) {
			err = &unavailableError{err}
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case pg.Code == stateUnique:
		return conflictOf(pg.ConstraintName)
	case pg.Code == stateForeignKey:
		return fmt.Errorf("%s refers to something that does not exist (%s): %w", what, pg.ConstraintName, ErrNotFound)
	case pg.Code == stateMoney:
		return fmt.Errorf("%s: %w: %s", what, ErrInvalid, pg.Message)
	case pg.Code == stateCheck:
		return fmt.Errorf("%s: %w (%s)", what, ErrInvalid, pg.ConstraintName)
	case strings.HasPrefix(pg.Code, "22"):
		return fmt.Errorf("%s: %w (%s)", what, ErrInvalid, pg.Message)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Named returns the name that errors give to a row of a kind, such as "webhook", by its id.
func Named(kind string) func(id string) string {
	return func(id string) string { return kind + " " + id }
}

func conflictOf(constraint string) *ConflictError {
	if known, ok := conflicts[constraint]; ok {
		return &known
	}
	return &ConflictError{What: constraint, Message: "the database already holds such a row (" + constraint + ")"}
}

var nameTaken = ConflictError{What: "name", Message: "the name is taken; choose another"}

// conflicts says for each unique constraint of the schema what is in the way. A constraint of a
// package below db belongs here too: its migration is in db/migrations.
var conflicts = map[string]ConflictError{
	"jobs_one_live_per_node":              {What: "live_job", Message: "the node already has a live job; wait for it to end, or cancel it"},
	"jobs_one_live_per_bmc":               {What: "live_job", Message: "the BMC already has a live job; wait for it to end, or cancel it"},
	"jobs_one_live_per_resource":          {What: "live_job", Message: "it already has a live job; wait for it to end, or cancel it"},
	"machines_node_unique":                {What: "node", Message: "another machine is linked to the node; end that link first"},
	"machines_serial_unique":              {What: "serial", Message: "another machine has this serial number; retire that one first"},
	"machine_macs_unique":                 {What: "mac_address", Message: "another machine has one of the MAC addresses; retire that one first"},
	"clusters_ref_unique":                 {What: "cluster", Message: "there is a cluster with this reference; choose another, or change that one"},
	"machine_clusters_uuid_unique":        {What: "system_uuid", Message: "another machine of the cluster says that it has this system UUID, so that nothing is identified by it; retire that machine, or have its vendor set the UUID"},
	"machine_clusters_node_unique":        {What: "node_name", Message: "another machine has this name as a node of the cluster; choose another machine id"},
	"plans_unique":                        {What: "plan", Message: "there is a plan with this id, and plans do not change; choose another id"},
	"runs_one_active":                     {What: "active_run", Message: "a run is active on the machine; wait for it, or cancel it"},
	"runs_request_unique":                 {What: "request_id", Message: "the request was sent twice at the same time; send it again"},
	"instances_name_unique":               {What: "name", Message: "a live instance of the project has this name; choose another"},
	"instances_server_unique":             {What: "server", Message: "another instance has this server"},
	"allocations_one_occupant":            {What: "allocation", Message: "another allocation occupies the node; end that one first"},
	"nodes_live_hostname_unique":          {What: "hostname", Message: "a live node of this site already has this hostname; choose another, or remove that node first"},
	"nodes_live_maas_unique":              {What: "maas_machine", Message: "another live node of this site already is this MAAS machine"},
	"bmcs_node_unique":                    {What: "bmc", Message: "the node already has a BMC; change that one"},
	"sites_name_unique":                   nameTaken,
	"rack_devices_name_unique":            nameTaken,
	"profiles_name_unique":                nameTaken,
	"skus_name_unique":                    nameTaken,
	"install_workflows_name_unique":       nameTaken,
	"roce_assignments_host_unique":        {What: "hostname", Message: "this hostname already has a RoCE assignment at the site; change that one"},
	"billing_accounts_name_unique":        nameTaken,
	"project_members_subject_unique":      {What: "member", Message: "this identity is a member of the project already; change its role"},
	"project_invitations_one_pending":     {What: "invitation", Message: "this identity has a pending invitation already; revoke that one first"},
	"project_ssh_keys_name_unique":        nameTaken,
	"project_ssh_keys_fingerprint_unique": {What: "ssh_key", Message: "the project has this key already"},
	"project_tokens_name_unique":          nameTaken,
	"webhooks_name_unique":                nameTaken,
	"ledger_transactions_key_unique":      {What: "ledger_key", Message: "this was booked already; read the transaction of that key"},
	"prices_overlap":                      {What: "price", Message: "another price of the SKU in this currency is valid then; read the prices again"},
	"jobs_workflow_unique":                {What: "workflow", Message: "another job already has this workflow id"},
}

// conflictWith names the row in the way.
func conflictWith(constraint, existing string) error {
	c := conflictOf(constraint)
	c.Existing = existing
	return c
}

// CheckUpdate returns the row and the error of an update that expected a version. When the update
// found no row, the error is ErrStale if read finds the row, and otherwise the error of read.
func CheckUpdate[T any](what string, row T, err error, read func() error) (T, error) {
	if !errors.Is(err, pgx.ErrNoRows) {
		return row, MapError(what, err)
	}
	if rerr := read(); rerr != nil {
		return row, rerr
	}
	return row, fmt.Errorf("%s: %w", what, ErrStale)
}

// CheckDelete is CheckUpdate for a delete that expected a version. It returns a *ConflictError that
// names what refers to the row, and what to do.
func CheckDelete(what string, rows int64, err error, read func() error) error {
	if sqlState(err) == stateForeignKey {
		return inUse(what, err)
	}
	if err != nil {
		return MapError(what, err)
	}
	if rows > 0 {
		return nil
	}
	if rerr := read(); rerr != nil {
		return rerr
	}
	return fmt.Errorf("%s: %w", what, ErrStale)
}

// CheckRepeatable returns the error of an update that changes nothing when it is repeated. When the
// update found no row, that is the error of read.
func CheckRepeatable(what string, rows int64, err error, read func() error) error {
	if err != nil {
		return MapError(what, err)
	}
	if rows > 0 {
		return nil
	}
	return read()
}

// CheckGuarded returns the error of an update that names the state it expects: ErrStale when it
// found no row.
func CheckGuarded(what string, rows int64, err error) error {
	if err == nil && rows == 0 {
		return fmt.Errorf("%s: %w", what, ErrStale)
	}
	return MapError(what, err)
}
