package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/drift/gen"
)

// Pass is how a site's last pass of the reconciler went. ListedAt is when
// this pass asked for the region's list, nil until that was read whole;
// FinishedAt is of the last pass that looked at everything.
type Pass = gen.Pass

// SitePass is a Pass with its site's name.
type SitePass = gen.ListPassesRow

// HasNodesWithoutSite returns whether there are nodes of no site, which have a pass of their own.
func HasNodesWithoutSite(ctx context.Context, c db.Conn) (bool, error) {
	has, err := queries(c).HasNodesWithoutSite(ctx)
	return has, db.MapError("nodes without a site", err)
}

// BeginPass begins a pass of a site, or with the id "" of the nodes without one. A site without a
// whole pass for due needs an operator. db.ErrNotFound when there is no such site, or no such node.
// Not idempotent: a repetition is another pass, and what is left of the one before comes too late.
func BeginPass(ctx context.Context, c db.Conn, siteID string, due time.Duration) (Pass, error) {
	row, err := queries(c).BeginPass(ctx, gen.BeginPassParams{SiteID: siteID, DueSeconds: int(due.Seconds())})
	return row, db.MapError("begin the drift pass of site "+siteID, err)
}

// Pass reads how a site's last pass went, or db.ErrNotFound before the first.
func PassOfSite(ctx context.Context, c db.Conn, siteID string) (Pass, error) {
	row, err := queries(c).PassOfSite(ctx, siteID)
	return row, db.MapError("drift pass of site "+siteID, err)
}

// ListPasses lists sites that were looked at, by id, from the one after. The nodes without a site
// come last.
func ListPasses(ctx context.Context, c db.Conn, after string, limit int) ([]SitePass, error) {
	rows, err := queries(c).ListPasses(ctx, gen.ListPassesParams{After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list drift passes", err)
}

// RecordListing notes that the region's list, asked for at, has been read
// whole as that user. db.ErrStale when another pass has begun since.
func RecordListing(ctx context.Context, c db.Conn, p Pass, at time.Time, user string) error {
	n, err := queries(c).RecordListing(ctx, gen.RecordListingParams{SiteID: p.SiteID, Pass: p.Pass, ListedAt: at, MAASUser: user})
	return currentPass(p, n, err)
}

// FinishPass notes that a pass ended; problem says what kept it from
// looking at everything, "" when nothing did. db.ErrStale as above.
func FinishPass(ctx context.Context, c db.Conn, p Pass, problem string, report json.RawMessage) error {
	n, err := queries(c).FinishPass(ctx, gen.FinishPassParams{SiteID: p.SiteID, Pass: p.Pass, Problem: db.ClipText(problem, db.MaxMessage), Report: db.CleanJSON(report)})
	return currentPass(p, n, err)
}

func currentPass(p Pass, rows int64, err error) error {
	return db.CheckGuarded(fmt.Sprintf("drift pass %d of site %s", p.Pass, p.SiteID), rows, err)
}

// Machine is a machine of a region's list. Facts is a document of whoever
// reads it back.
type Machine struct {
	SystemID string          `json:"system_id"`
	Hostname string          `json:"hostname"`
	Serial   string          `json:"serial"`
	MACs     []string        `json:"macs"`
	Facts    json.RawMessage `json:"facts"`
}

// PutMachines stores machines of a site's list, in one statement; what has
// not changed is not written again. Repeatable.
func PutMachines(ctx context.Context, c db.Conn, siteID string, machines []Machine) error {
	doc, err := json.Marshal(machines)
	if err != nil {
		return fmt.Errorf("machines of site %s: %w: %w", siteID, db.ErrInvalid, err)
	}
	_, err = queries(c).PutMachines(ctx, gen.PutMachinesParams{SiteID: siteID, Machines: db.CleanJSON(doc)})
	return db.MapError("machines of site "+siteID, err)
}

// DeleteUnlistedMachines forgets machines that a whole list did not name.
func DeleteUnlistedMachines(ctx context.Context, c db.Conn, siteID string, seen []string) (int64, error) {
	n, err := queries(c).DeleteUnlistedMachines(ctx, gen.DeleteUnlistedMachinesParams{SiteID: siteID, Seen: db.EmptyIfNil(seen)})
	return n, db.MapError("machines of site "+siteID, err)
}

// MachinesWithBMC lists system ids of machines that are nodes with a db.BMC.
func MachinesWithBMC(ctx context.Context, c db.Conn, siteID, after string, limit int) ([]string, error) {
	ids, err := queries(c).MachinesWithBMC(ctx, gen.MachinesWithBMCParams{SiteID: siteID, After: after, MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("machines of site "+siteID, err)
}

// SetPowerAddresses stores where MAAS reaches machines' BMCs, by system id.
func SetPowerAddresses(ctx context.Context, c db.Conn, siteID string, addresses map[string]string) error {
	type row struct {
		SystemID string `json:"system_id"`
		Address  string `json:"address"`
	}
	rows := make([]row, 0, len(addresses))
	for id, a := range addresses {
		rows = append(rows, row{id, db.ClipText(a, db.MaxMessage)})
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("BMC addresses of site %s: %w: %w", siteID, db.ErrInvalid, err)
	}
	_, err = queries(c).SetPowerAddresses(ctx, gen.SetPowerAddressesParams{SiteID: siteID, Addresses: doc})
	return db.MapError("BMC addresses of site "+siteID, err)
}

// NodeFacts is all that the detectors are told of one node, as one document.
type NodeFacts = gen.ListNodeFactsRow

// ListNodeFacts lists a site's nodes that are not deleted, by
// id, from the one after.
func ListNodeFacts(ctx context.Context, c db.Conn, siteID, after string, limit int) ([]NodeFacts, error) {
	rows, err := queries(c).ListNodeFacts(ctx, gen.ListNodeFactsParams{SiteID: siteID, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("nodes of site "+siteID, err)
}

// Mark is what of a node is accounted for: a document of whoever reads it
// back.
type Mark struct {
	NodeID string          `json:"node_id"`
	Facts  json.RawMessage `json:"facts"`
}

// RecordAgreements stores that the database, MAAS and the agents of these nodes agree about who is
// on them: claims take them again after the last restore. Repeatable.
func RecordAgreements(ctx context.Context, c db.Conn, nodeIDs []string) error {
	_, err := queries(c).RecordAgreements(ctx, db.EmptyIfNil(nodeIDs))
	return db.MapError("agreements of nodes", err)
}

// PutMarks stores marks, in one statement. Repeatable.
func PutMarks(ctx context.Context, c db.Conn, marks []Mark) error {
	doc, err := json.Marshal(marks)
	if err != nil {
		return fmt.Errorf("marks: %w: %w", db.ErrInvalid, err)
	}
	_, err = queries(c).PutMarks(ctx, db.CleanJSON(doc))
	return db.MapError("store what is accounted for", err)
}

// BMCsDue lists BMCs of a site's nodes that were not looked at since, the
// longest ago first.
func BMCsDue(ctx context.Context, c db.Conn, siteID string, since time.Time, limit int) ([]db.BMC, error) {
	rows, err := queries(c).BMCsDue(ctx, gen.BMCsDueParams{SiteID: siteID, Before: since, MaxRows: int32(limit)})
	out := make([]db.BMC, 0, len(rows))
	for _, r := range rows {
		out = append(out, db.BMC(r))
	}
	return out, db.MapError("BMCs of site "+siteID, err)
}

// BMCsOfUnknownPower lists ids of BMCs whose machine's power is uncertain and that
// were not asked for it since. The power of a node without MAAS is uncertain when its agent was not
// heard after silent.
func BMCsOfUnknownPower(ctx context.Context, c db.Conn, siteID string, since, silent time.Time, limit int) ([]string, error) {
	ids, err := queries(c).BMCsOfUnknownPower(ctx, gen.BMCsOfUnknownPowerParams{SiteID: siteID, Before: since, SilentSince: silent, MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("BMCs of site "+siteID, err)
}

// Probe is one look at a db.BMC without a login.
type Probe struct {
	BMCID, Address string
	At             time.Time
	Answered       bool
	PinSHA256      string // "" without a certificate
	Problem        string // free of secrets
}

// RecordProbe stores a look.
func RecordProbe(ctx context.Context, c db.Conn, p Probe) error {
	return db.MapError("look at db.BMC "+p.BMCID, queries(c).RecordProbe(ctx, gen.RecordProbeParams{
		BMCID: p.BMCID, Address: p.Address, At: p.At, Answered: p.Answered, PinSHA256: p.PinSHA256, Problem: db.ClipText(p.Problem, db.MaxMessage),
	}))
}

// RecordPower stores the power that a db.BMC told, "" when it did not.
func RecordPower(ctx context.Context, c db.Conn, bmcID, power string, at time.Time) error {
	return db.MapError("power of db.BMC "+bmcID, queries(c).RecordPower(ctx, gen.RecordPowerParams{BMCID: bmcID, Power: power, At: at}))
}

// OldHealth is a BMC whose parts were not read lately. Device says that it is a rack device's.
type OldHealth = gen.BMCsOfOldHealthRow

// BMCsOfOldHealth lists BMCs of nodes in service and of rack devices whose health was not read
// since.
func BMCsOfOldHealth(ctx context.Context, c db.Conn, siteID string, since time.Time, limit int) ([]OldHealth, error) {
	ids, err := queries(c).BMCsOfOldHealth(ctx, gen.BMCsOfOldHealthParams{SiteID: siteID, Before: since, MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("BMCs of site "+siteID, err)
}

// CountBMCs counts the BMCs of a site whose parts are read: of nodes in service and of rack
// devices.
func CountBMCs(ctx context.Context, c db.Conn, siteID string) (int, error) {
	n, err := queries(c).CountBMCs(ctx, siteID)
	return int(n), db.MapError("BMCs of site "+siteID, err)
}

// RecordHealth stores the health that a db.BMC told, "Unknown" when it did not, and the parts that
// are not well.
func RecordHealth(ctx context.Context, c db.Conn, bmcID, health string, problems []string, at time.Time) error {
	kept := make([]string, 0, len(problems))
	for _, p := range problems {
		kept = append(kept, db.ClipText(p, db.MaxMessage))
	}
	return db.MapError("health of db.BMC "+bmcID, queries(c).RecordHealth(ctx, gen.RecordHealthParams{BMCID: bmcID, Health: health, Problems: kept, At: at}))
}

// Duplicate is a value that several machines or nodes have.
type Duplicate struct {
	Value           string
	Machines, Nodes []string
}

// Duplicates lists, by detector, what several records of a site share; at
// most limit of each.
func Duplicates(ctx context.Context, c db.Conn, siteID string, limit int) (macs, serials, bmcs, boots []Duplicate, err error) {
	m, err := queries(c).DuplicateMACs(ctx, gen.DuplicateMACsParams{SiteID: siteID, MaxRows: db.PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, db.MapError("duplicate MAC addresses", err)
	}
	n, err := queries(c).DuplicateSerials(ctx, gen.DuplicateSerialsParams{SiteID: siteID, MaxRows: db.PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, db.MapError("duplicate serials", err)
	}
	b, err := queries(c).DuplicateBMCs(ctx, gen.DuplicateBMCsParams{SiteID: siteID, MaxRows: db.PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, db.MapError("duplicate db.BMC addresses", err)
	}
	o, err := queries(c).DuplicateBoots(ctx, gen.DuplicateBootsParams{SiteID: siteID, MaxRows: db.PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, db.MapError("duplicate boots", err)
	}
	for _, r := range m {
		macs = append(macs, Duplicate(r))
	}
	for _, r := range n {
		serials = append(serials, Duplicate(r))
	}
	for _, r := range b {
		bmcs = append(bmcs, Duplicate(r))
	}
	for _, r := range o {
		boots = append(boots, Duplicate(r))
	}
	return macs, serials, bmcs, boots, nil
}

// UnknownMachine is a machine of the region that is no node's; DeletedNode is
// the deleted node whose network cards it has, "" for none.
type UnknownMachine = gen.ListUnknownMachinesRow

// ListUnknownMachines lists them by system id, of a pool where one is given.
func ListUnknownMachines(ctx context.Context, c db.Conn, siteID, pool, after string, limit int) ([]UnknownMachine, error) {
	rows, err := queries(c).ListUnknownMachines(ctx, gen.ListUnknownMachinesParams{SiteID: siteID, Pool: pool, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("machines of site "+siteID+" that are no node's", err)
}
