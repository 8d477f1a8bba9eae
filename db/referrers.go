package db

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// referrers says for each table that keeps a row from being deleted what its rows are, and what an
// operator can do about them.
var referrers = map[string]struct{ are, remedy string }{
	"nodes":               {"nodes", "the record of a node keeps it also after the node is deleted, so change it instead, or leave it unused"},
	"profiles":            {"profiles", "delete those first"},
	"roce_assignments":    {"RoCE assignments", "delete those first"},
	"rack_devices":        {"rack devices", "delete those first"},
	"machines":            {"machines", "give those another site first"},
	"clusters":            {"clusters", "delete those first, or give them another project"},
	"cluster_tokens":      {"a bootstrap token that may still be good in the cluster", "it is removed once the API of the cluster answers; delete the cluster after that"},
	"device_groups":       {"device groups", "give those another workflow first"},
	"pxe_nodes":           {"nodes", "give those another workflow first"},
	"catalogue_items":     {"the catalogue", "offer the item with another profile first"},
	"sku_reserves":        {"reserves of SKUs", "remove those first"},
	"projects":            {"projects", "delete those first"},
	"project_ssh_keys":    {"SSH keys of the project", "delete those first"},
	"project_tokens":      {"tokens of the project", "revoke those first"},
	"allocations":         {"allocations", "what was allocated stays on record, so change it instead, or leave it unused"},
	"prices":              {"prices", "what was charged stays on record, so withdraw it from the catalogue instead"},
	"usage_records":       {"records of usage", "what was charged stays on record, so leave it unused"},
	"instances":           {"instances", "what was charged stays on record, so leave it unused"},
	"ledger_accounts":     {"accounts of the ledger", "what was booked stays on record, so leave it unused"},
	"ledger_transactions": {"transactions of the ledger", "what was booked stays on record, so leave it unused"},
	"balance_holds":       {"reserved money", "what was reserved stays on record, so leave it unused"},
	"payment_disputes":    {"disputes of payments", "those stay on record, so leave it unused"},
	"payment_sessions":    {"payments", "what was paid stays on record, so leave it unused"},
	"jobs":                {"jobs", "wait until those that ended are deleted (--retention-jobs), or leave it unused"},
	"batches":             {"batches of jobs", "what was onboarded stays on record, so leave it unused"},
	"bmc_rotations":       {"changes of its password", "those stay on record, so leave it unused"},
	"certificates":        {"certificates", "those stay on record, so leave it unused"},
}

// inUse returns why what cannot be deleted: err names the table whose rows refer to it.
func inUse(what string, err error) *ConflictError {
	var pg *pgconn.PgError
	_ = errors.As(err, &pg)
	by, ok := referrers[pg.TableName]
	if !ok {
		by.are, by.remedy = "rows of "+pg.TableName, "remove those first"
	}
	return &ConflictError{What: "reference", Message: fmt.Sprintf("%s cannot be deleted: it is used by %s; %s", what, by.are, by.remedy)}
}
