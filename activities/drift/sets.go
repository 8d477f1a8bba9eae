package drift

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// maxDuplicates is the highest number of duplicate values of one kind in a pass. With more, no
// finding of the kind closes.
const maxDuplicates = 500

// CompareSets finds values that several records share (MAC addresses, serial numbers, BMC
// addresses, boots), machines of the region that have no node, and rack devices that are not well.
// It closes the findings that it does not observe any more. It does nothing without the region's
// list.
func (a *Activities) CompareSets(ctx context.Context, p Pass) (PassCounts, error) {
	var t PassCounts
	if _, err := a.row(ctx, p); err != nil || !p.Listed {
		return t, err
	}
	site, err := a.siteOf(ctx, p)
	if err != nil {
		return t, fault.Internal(ctx, err)
	}
	whole, err := a.duplicates(ctx, p, &t)
	if err != nil {
		return t, fault.Internal(ctx, err)
	}
	if err := a.observeIdentities(ctx, p, &t); err != nil {
		return t, fault.Internal(ctx, err)
	}
	if err := a.observeUnknownMachines(ctx, p, site.Spec.Pool, &t); err != nil {
		return t, fault.Internal(ctx, err)
	}
	if err := a.compareDevices(ctx, p, &t); err != nil {
		return t, fault.Internal(ctx, err)
	}
	whole = append(whole, lifecycle.DriftUnknownMachine, lifecycle.DriftGhost, lifecycle.DriftIdentityConflict)
	return t, fault.Internal(ctx, a.closeUnseen(ctx, p, whole, &t))
}

// closeUnseen closes the live findings of detectors that this pass has not observed.
func (a *Activities) closeUnseen(ctx context.Context, p Pass, detectors []string, t *PassCounts) error {
	return a.closeAll(ctx, p.SiteID, "the fault is gone", func() ([]driftdb.Ref, error) {
		refs, err := driftdb.FindingsNotSeen(ctx, a.Store, p.SiteID, detectors, p.StartedAt, pageSize)
		t.Closed += len(refs)
		return refs, err
	})
}

// duplicates opens the findings of duplicate values. It returns the detectors that observed all
// values, whose other findings may close.
func (a *Activities) duplicates(ctx context.Context, p Pass, t *PassCounts) (whole []string, err error) {
	macs, serials, bmcs, boots, err := driftdb.Duplicates(ctx, a.Store, p.SiteID, maxDuplicates)
	if err != nil {
		return nil, err
	}
	names, err := a.hostnames(ctx, slices.Concat(macs, serials, bmcs, boots))
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		detector, field, words string
		found                  []driftdb.Duplicate
	}{
		{lifecycle.DriftDuplicateMAC, "mac", "MAC address %s belongs to %s", macs},
		{lifecycle.DriftDuplicateSerial, "serial", "serial number %s belongs to %s", serials},
		{lifecycle.DriftDuplicateBMC, "address", "BMC address %s belongs to %s", bmcs},
		{lifecycle.DriftDuplicateBoot, "boot_id", "boot %s is reported by %s", boots},
	} {
		d, _ := lifecycle.DriftDetectorOf(s.detector)
		seen := make([]driftdb.Observation, 0, len(s.found))
		for _, f := range s.found {
			who := append(append([]string{}, f.Machines...), f.Nodes...)
			seen = append(seen, driftdb.Observation{
				Detector: d, Subject: f.Value, Key: strings.Join(who, " "), Message: fmt.Sprintf(s.words, f.Value, named(f, names)),
				Evidence: map[string]any{s.field: f.Value, "machines": f.Machines, "nodes": f.Nodes},
			})
		}
		opened, err := driftdb.ObserveFindings(ctx, a.Store, p.SiteID, seen)
		if err != nil {
			return nil, err
		}
		t.Add(PassCounts{Findings: len(seen), Opened: opened})
		if len(s.found) < maxDuplicates {
			whole = append(whole, s.detector)
		}
	}
	return whole, nil
}

// hostnames returns the hostnames of the nodes of duplicates, by their ids.
func (a *Activities) hostnames(ctx context.Context, found []driftdb.Duplicate) (map[string]string, error) {
	var ids []string
	for _, f := range found {
		ids = append(ids, f.Nodes...)
	}
	slices.Sort(ids)
	names := map[string]string{}
	for chunk := range slices.Chunk(slices.Compact(ids), maxDuplicates) {
		nodes, err := a.Store.ListNodes(ctx, db.NodeFilter{IDs: chunk}, "", len(chunk))
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			names[n.ID] = n.Hostname
		}
	}
	return names, nil
}

// named lists what shares a value for operators: nodes by their hostnames, machines by their ids.
func named(f driftdb.Duplicate, names map[string]string) string {
	var who []string
	for _, id := range f.Machines {
		who = append(who, "machine "+id)
	}
	for _, id := range f.Nodes {
		who = append(who, "node "+cmp.Or(names[id], id))
	}
	return strings.Join(who, " and ")
}

// observeUnknownMachines opens a finding for each machine that has no node. A machine with the
// network cards of a deleted node and another id has enlisted again. One with the same id stayed in
// MAAS when its node was deleted.
func (a *Activities) observeUnknownMachines(ctx context.Context, p Pass, pool string, t *PassCounts) error {
	plain, _ := lifecycle.DriftDetectorOf(lifecycle.DriftUnknownMachine)
	ghost, _ := lifecycle.DriftDetectorOf(lifecycle.DriftGhost)
	for after := ""; ; {
		rows, err := driftdb.ListUnknownMachines(ctx, a.Store, p.SiteID, pool, after, pageSize)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1].SystemID
		seen := make([]driftdb.Observation, 0, len(rows))
		for _, r := range rows {
			var m Machine
			if err := json.Unmarshal(r.Facts, &m); err != nil {
				return fmt.Errorf("facts of machine %s: %w", r.SystemID, err)
			}
			s := driftdb.Observation{
				Detector: plain, Subject: r.SystemID, SystemID: r.SystemID, Key: r.SystemID,
				Message:  fmt.Sprintf("machine %s (%s) is %s in MAAS and no node's", r.Hostname, r.SystemID, m.Status),
				Evidence: map[string]any{"system_id": r.SystemID, "hostname": r.Hostname, "maas_status": m.Status.String(), "macs": r.MACs},
			}
			if r.DeletedNode != "" && r.DeletedSystemID != r.SystemID {
				s.Detector = ghost
				s.Message = fmt.Sprintf("machine %s (%s) has the network cards of the deleted node %s: it has enlisted again", r.Hostname, r.SystemID, r.DeletedNode)
				s.Evidence["deleted_node"] = r.DeletedNode
			}
			seen = append(seen, s)
		}
		opened, err := driftdb.ObserveFindings(ctx, a.Store, p.SiteID, seen)
		if err != nil {
			return err
		}
		t.Add(PassCounts{Findings: len(seen), Opened: opened})
	}
}
