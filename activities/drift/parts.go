package drift

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// partsLimit is how long a pass starts to read parts. Ten at a time that take 8 s each are 150 in
// it.
const partsLimit = 2 * time.Minute

// inventoriesOfPass is of how many nodes a pass keeps what their agents report.
const inventoriesOfPass = 200

// maxParts bounds how many BMCs a pass reads the parts of.
const maxParts = 1000

// partsOfPass returns how many BMCs a pass reads the parts of: so many that each of the site's is
// read as often as HealthEvery says, with a fifth to catch up, and never fewer than Logins. Logins
// for unknown power take nothing of it.
func (a *Activities) partsOfPass(ctx context.Context, p Pass) (int, error) {
	all, err := driftdb.CountBMCs(ctx, a.Store, p.SiteID)
	if err != nil || a.Policy.Every <= 0 {
		return a.Policy.Logins, err
	}
	return partsShare(all, a.Policy), nil
}

func partsShare(all int, p Policy) int {
	share := math.Ceil(1.2 * float64(all) * float64(p.Every) / float64(p.HealthEvery))
	return max(p.Logins, min(int(share), maxParts))
}

// readParts reads the parts of a few machines from their BMCs, some at a time. A BMC that does not
// tell their health is Unknown.
func (a *Activities) readParts(ctx context.Context, p Pass, now time.Time, r *BMCReport) error {
	if a.Logins == nil || a.Policy.HealthEvery <= 0 || a.Policy.Logins <= 0 {
		return nil
	}
	share, err := a.partsOfPass(ctx, p)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	site, err := a.siteOf(ctx, p)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	ids, err := driftdb.BMCsOfOldHealth(ctx, a.Store, p.SiteID, now.Add(-a.Policy.HealthEvery), share)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	due, devices := make([]db.BMC, 0, len(ids)), map[string]bool{}
	for _, b := range ids {
		due = append(due, db.BMC{ID: b.ID})
		devices[b.ID] = b.Device
	}
	until := time.Now().Add(partsLimit)
	var mu sync.Mutex
	return a.eachBMC(ctx, due, func(ctx context.Context, rec db.BMC) error {
		if time.Now().After(until) {
			return nil // the next pass begins with it
		}
		lctx, cancel := context.WithTimeout(ctx, bmc.LookLimit)
		got, err := a.Logins.LookAtParts(lctx, bmc.LookIn{BMCID: rec.ID, CAPEM: site.Spec.BMCCAPEM, Device: devices[rec.ID]})
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		added, rerr := a.recordParts(ctx, rec.ID, got, err)
		mu.Lock()
		defer mu.Unlock()
		r.Healths++
		r.LogEntries += added
		if err != nil {
			r.Refused++
		}
		return rerr
	})
}

// recordParts keeps what was read, or that nothing could be. It returns how many entries of logs
// are new.
func (a *Activities) recordParts(ctx context.Context, bmcID string, got bmc.PartsOut, failed error) (int64, error) {
	at, err := a.clock(ctx)
	if err != nil {
		return 0, err
	}
	survey := got.Survey
	if failed != nil {
		a.Log.WarnContext(ctx, "drift: a machine's parts could not be read", "bmc", bmcID, "error", failed)
		if survey.Health.Overall == "" {
			survey.Health = providers.BMCHealth{Overall: "Unknown"}
		}
	}
	if err := driftdb.RecordHealth(ctx, a.Store, bmcID, survey.Health.Overall, survey.Health.Problems, at); err != nil {
		return 0, fault.Internal(ctx, err)
	}
	if len(survey.Probes) > 0 {
		err := hardwaredb.RecordSurvey(ctx, a.Store, hardwaredb.Reading{
			BMCID: bmcID, At: at, Health: survey.Health.Overall, Probes: survey.Probes, LeftOut: survey.LeftOut,
			Parts: survey.Parts, Whole: survey.Whole, Partial: survey.Partial,
		})
		if err != nil {
			return 0, fault.Internal(ctx, err)
		}
	}
	if !got.LogsRead {
		return 0, nil
	}
	added, err := hardwaredb.RecordLogs(ctx, a.Store, hardwaredb.LogReading{
		BMCID: bmcID, At: at, Entries: got.Logs.Entries, Partial: got.Logs.Partial, Cursors: got.Logs.Cursors,
	})
	return added, fault.Internal(ctx, err)
}

// compareDevices opens, updates and closes the findings about rack devices, whose BMCs belong to no
// node.
func (a *Activities) compareDevices(ctx context.Context, p Pass, t *PassCounts) error {
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftBMCUnhealthy)
	for after := ""; ; {
		rows, err := hardwaredb.RackDeviceHealths(ctx, a.Store, p.SiteID, after, pageSize)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1].BMCID
		var seen []driftdb.Observation
		var gone []driftdb.Ref
		for _, r := range rows {
			switch r.Health {
			case "Warning", "Critical":
				problems, at := someProblems(r.HealthProblems), r.HealthAt.UTC().Format(time.RFC3339)
				seen = append(seen, driftdb.Observation{
					Detector: d, Subject: r.BMCID, BMCID: r.BMCID, Key: problemsKey(r.Health, r.HealthProblems), Message: fmt.Sprintf("the BMC of %s %s reports %s: %s", r.Kind, r.Name, r.Health, problems),
					Evidence: map[string]any{"health": r.Health, "problems": problems, "read_at": at},
				})
			case "OK":
				gone = append(gone, driftdb.Ref{Detector: d.Name, Subject: r.BMCID, Outcome: "the fault is gone"})
			}
		}
		opened, err := driftdb.ObserveFindings(ctx, a.Store, p.SiteID, seen)
		if err != nil {
			return err
		}
		closed, err := driftdb.CloseFindings(ctx, a.Store, p.SiteID, gone)
		if err != nil {
			return err
		}
		t.Add(PassCounts{Findings: len(seen), Opened: opened, Closed: closed})
	}
}

// keepInventories keeps the parts that the agents of some nodes report, longest not kept first.
func (a *Activities) keepInventories(ctx context.Context, p Pass, now time.Time, r *BMCReport) error {
	if a.Policy.HealthEvery <= 0 {
		return nil
	}
	var err error
	r.Inventories, err = hardwaredb.CopyAgentInventories(ctx, a.Store, p.SiteID, now.Add(-a.Policy.HealthEvery), inventoriesOfPass)
	return fault.Internal(ctx, err)
}
