package db

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// DriftPass is how a site's last pass of the reconciler went. ListedAt is when
// this pass asked for the region's list, nil until that was read whole;
// FinishedAt is of the last pass that looked at everything.
type DriftPass = gen.DriftPass

// DriftPassOfSite is a DriftPass with its site's name.
type DriftPassOfSite = gen.ListDriftPassesRow

// BeginDriftPass begins a pass of a site. A site without a whole pass for due
// needs a person. ErrNotFound when there is no such site. Not idempotent: a
// repetition is another pass, and what is left of the one before comes too late.
func (s statements) BeginDriftPass(ctx context.Context, siteID string, due time.Duration) (DriftPass, error) {
	row, err := s.q.BeginDriftPass(ctx, gen.BeginDriftPassParams{SiteID: siteID, DueSeconds: int(due.Seconds())})
	return row, MapError("begin the drift pass of site "+siteID, err)
}

// DriftPass reads how a site's last pass went, or ErrNotFound before the first.
func (s statements) DriftPass(ctx context.Context, siteID string) (DriftPass, error) {
	row, err := s.q.DriftPass(ctx, siteID)
	return row, MapError("drift pass of site "+siteID, err)
}

// ListDriftPasses lists sites that were looked at, by id, from the one after.
func (s statements) ListDriftPasses(ctx context.Context, after string, limit int) ([]DriftPassOfSite, error) {
	rows, err := s.q.ListDriftPasses(ctx, gen.ListDriftPassesParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list drift passes", err)
}

// ListedDriftPass notes that the region's list, asked for at, has been read
// whole as that user. ErrStale when another pass has begun since.
func (s statements) ListedDriftPass(ctx context.Context, p DriftPass, at time.Time, user string) error {
	n, err := s.q.ListedDriftPass(ctx, gen.ListedDriftPassParams{SiteID: p.SiteID, Pass: p.Pass, ListedAt: at, MAASUser: user})
	return currentPass(p, n, err)
}

// FinishDriftPass notes that a pass ended; problem says what kept it from
// looking at everything, "" when nothing did. ErrStale as above.
func (s statements) FinishDriftPass(ctx context.Context, p DriftPass, problem string, report json.RawMessage) error {
	n, err := s.q.FinishDriftPass(ctx, gen.FinishDriftPassParams{SiteID: p.SiteID, Pass: p.Pass, Problem: ClipText(problem, MaxMessage), Report: CleanJSON(report)})
	return currentPass(p, n, err)
}

func currentPass(p DriftPass, rows int64, err error) error {
	if err == nil && rows == 0 {
		return fmt.Errorf("drift pass %d of site %s: %w", p.Pass, p.SiteID, ErrStale)
	}
	return MapError("drift pass of site "+p.SiteID, err)
}

// DriftMachine is a machine of a region's list. Facts is a document of whoever
// reads it back.
type DriftMachine struct {
	SystemID string          `json:"system_id"`
	Hostname string          `json:"hostname"`
	Serial   string          `json:"serial"`
	MACs     []string        `json:"macs"`
	Facts    json.RawMessage `json:"facts"`
}

// PutDriftMachines stores machines of a site's list, in one statement; what has
// not changed is not written again. Repeatable.
func (s statements) PutDriftMachines(ctx context.Context, siteID string, machines []DriftMachine) error {
	doc, err := json.Marshal(machines)
	if err != nil {
		return fmt.Errorf("machines of site %s: %w: %w", siteID, ErrInvalid, err)
	}
	_, err = s.q.PutDriftMachines(ctx, gen.PutDriftMachinesParams{SiteID: siteID, Machines: CleanJSON(doc)})
	return MapError("machines of site "+siteID, err)
}

// DropDriftMachines forgets machines that a whole list did not name.
func (s statements) DropDriftMachines(ctx context.Context, siteID string, seen []string) (int64, error) {
	n, err := s.q.DropDriftMachines(ctx, gen.DropDriftMachinesParams{SiteID: siteID, Seen: EmptyIfNil(seen)})
	return n, MapError("machines of site "+siteID, err)
}

// TiedDriftMachines lists system ids of machines that are nodes with a BMC.
func (s statements) TiedDriftMachines(ctx context.Context, siteID, after string, limit int) ([]string, error) {
	ids, err := s.q.TiedDriftMachines(ctx, gen.TiedDriftMachinesParams{SiteID: siteID, After: after, MaxRows: PageLimit(limit)})
	return ids, MapError("machines of site "+siteID, err)
}

// SetDriftPowerAddresses stores where MAAS reaches machines' BMCs, by system id.
func (s statements) SetDriftPowerAddresses(ctx context.Context, siteID string, addresses map[string]string) error {
	type row struct {
		SystemID string `json:"system_id"`
		Address  string `json:"address"`
	}
	rows := make([]row, 0, len(addresses))
	for id, a := range addresses {
		rows = append(rows, row{id, ClipText(a, MaxMessage)})
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("BMC addresses of site %s: %w: %w", siteID, ErrInvalid, err)
	}
	_, err = s.q.SetDriftPowerAddresses(ctx, gen.SetDriftPowerAddressesParams{SiteID: siteID, Addresses: doc})
	return MapError("BMC addresses of site "+siteID, err)
}

// DriftNode is all that the detectors are told of one node, as one document.
type DriftNode = gen.DriftNodesRow

// DriftNodes lists a site's nodes of lifecycle maas that are not deleted, by
// id, from the one after.
func (s statements) DriftNodes(ctx context.Context, siteID, after string, limit int) ([]DriftNode, error) {
	rows, err := s.q.DriftNodes(ctx, gen.DriftNodesParams{SiteID: siteID, After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("nodes of site "+siteID, err)
}

// DriftMark is what of a node is accounted for: a document of whoever reads it
// back.
type DriftMark struct {
	NodeID string          `json:"node_id"`
	Facts  json.RawMessage `json:"facts"`
}

// PutDriftMarks stores marks, in one statement. Repeatable.
func (s statements) PutDriftMarks(ctx context.Context, marks []DriftMark) error {
	doc, err := json.Marshal(marks)
	if err != nil {
		return fmt.Errorf("marks: %w: %w", ErrInvalid, err)
	}
	_, err = s.q.PutDriftMarks(ctx, CleanJSON(doc))
	return MapError("store what is accounted for", err)
}

// DriftBMCsDue lists BMCs of a site's nodes that were not looked at since, the
// longest ago first.
func (s statements) DriftBMCsDue(ctx context.Context, siteID string, since time.Time, limit int) ([]BMC, error) {
	rows, err := s.q.DriftBMCsDue(ctx, gen.DriftBMCsDueParams{SiteID: siteID, Before: since, MaxRows: int32(limit)})
	return rows, MapError("BMCs of site "+siteID, err)
}

// DriftPowerDoubts lists ids of BMCs whose machine's power is in doubt and that
// were not asked for it since.
func (s statements) DriftPowerDoubts(ctx context.Context, siteID string, since time.Time, limit int) ([]string, error) {
	ids, err := s.q.DriftPowerDoubts(ctx, gen.DriftPowerDoubtsParams{SiteID: siteID, Before: since, MaxRows: PageLimit(limit)})
	return ids, MapError("BMCs of site "+siteID, err)
}

// DriftProbe is one look at a BMC without a login.
type DriftProbe struct {
	BMCID, Address string
	At             time.Time
	Answered       bool
	PinSHA256      string // "" without a certificate
	Problem        string // free of secrets
}

// NoteDriftProbe stores a look.
func (s statements) NoteDriftProbe(ctx context.Context, p DriftProbe) error {
	return MapError("look at BMC "+p.BMCID, s.q.NoteDriftProbe(ctx, gen.NoteDriftProbeParams{
		BMCID: p.BMCID, Address: p.Address, At: p.At, Answered: p.Answered, PinSHA256: p.PinSHA256, Problem: ClipText(p.Problem, MaxMessage),
	}))
}

// NoteDriftPower stores the power that a BMC told, "" when it did not.
func (s statements) NoteDriftPower(ctx context.Context, bmcID, power string, at time.Time) error {
	return MapError("power of BMC "+bmcID, s.q.NoteDriftPower(ctx, gen.NoteDriftPowerParams{BMCID: bmcID, Power: power, At: at}))
}

// DriftDuplicate is a value that several machines or nodes have.
type DriftDuplicate struct {
	Value           string
	Machines, Nodes []string
}

// DriftDuplicates lists, by detector, what several records of a site share; at
// most limit of each.
func (s statements) DriftDuplicates(ctx context.Context, siteID string, limit int) (macs, serials, bmcs, boots []DriftDuplicate, err error) {
	m, err := s.q.DriftDuplicateMACs(ctx, gen.DriftDuplicateMACsParams{SiteID: siteID, MaxRows: PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, MapError("duplicate MAC addresses", err)
	}
	n, err := s.q.DriftDuplicateSerials(ctx, gen.DriftDuplicateSerialsParams{SiteID: siteID, MaxRows: PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, MapError("duplicate serials", err)
	}
	b, err := s.q.DriftDuplicateBMCs(ctx, gen.DriftDuplicateBMCsParams{SiteID: siteID, MaxRows: PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, MapError("duplicate BMC addresses", err)
	}
	o, err := s.q.DriftDuplicateBoots(ctx, gen.DriftDuplicateBootsParams{SiteID: siteID, MaxRows: PageLimit(limit)})
	if err != nil {
		return nil, nil, nil, nil, MapError("duplicate boots", err)
	}
	for _, r := range m {
		macs = append(macs, DriftDuplicate(r))
	}
	for _, r := range n {
		serials = append(serials, DriftDuplicate(r))
	}
	for _, r := range b {
		bmcs = append(bmcs, DriftDuplicate(r))
	}
	for _, r := range o {
		boots = append(boots, DriftDuplicate(r))
	}
	return macs, serials, bmcs, boots, nil
}

// DriftStranger is a machine of the region that is no node's; DeletedNode is
// the deleted node whose network cards it has, "" for none.
type DriftStranger = gen.DriftStrangersRow

// DriftStrangers lists them by system id, of a pool where one is given.
func (s statements) DriftStrangers(ctx context.Context, siteID, pool, after string, limit int) ([]DriftStranger, error) {
	rows, err := s.q.DriftStrangers(ctx, gen.DriftStrangersParams{SiteID: siteID, Pool: pool, After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("machines of site "+siteID+" that are no node's", err)
}
