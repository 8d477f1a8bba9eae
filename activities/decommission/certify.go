package decommission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// CertifyIn is the input of CertifyNode.
type CertifyIn struct {
	contract.JobRef
	Kind      contract.JobKind           `json:"kind"`
	Mode      lifecycle.DecommissionMode `json:"mode"`
	StartedAt time.Time                  `json:"started_at"`
	// Release is what MAAS did with the disks; nil where it was not asked.
	Release *contract.ReleaseFacts `json:"release,omitempty"`
	// Dark says why nothing could be asked of the node's agent; the node was
	// drained by switching it off.
	Dark string `json:"dark,omitempty"`
	// Netboot is the live system that the node was erased from, and what the
	// installed one had said of its disks before; nil where there was none.
	Netboot *contract.NetbootFacts `json:"netboot,omitempty"`
	// Known are the disks that the node's agent had listed when the job began.
	Known []lifecycle.DeviceResult `json:"known,omitempty"`
}

// CertifyNode gathers what the job's tasks and MAAS proved, judges it, and signs
// it as the next link of the node's chain. One that proves the node clean takes
// the mark of a tenant from it in the same transaction. Repeated with the same
// evidence it returns the link that is there; later evidence of the same job is a
// new link. Nothing is read but what is stored: a certificate says what was
// reported.
func (a *Activities) CertifyNode(ctx context.Context, in CertifyIn) (contract.CertificateFacts, error) {
	n, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return contract.CertificateFacts{}, fault.Internal(ctx, err)
	}
	g, err := a.gather(ctx, in, n)
	if err != nil {
		return contract.CertificateFacts{}, err
	}
	c := g.certificate(n)
	c.Judge()
	out := contract.CertificateFacts{Verdict: string(c.Verdict), Unproven: g.unproven()}
	same, err := a.standsLast(ctx, c)
	if err != nil {
		return out, err
	}
	if same != "" {
		out.CertificateID = same
		return out, nil
	}
	row, err := a.Ring.Certify(ctx, c, func(tx *db.Tx) error {
		if since, clean := g.cleanSince(c.Verdict, out.Unproven); clean {
			return tx.ProvenClean(ctx, in.NodeID, since)
		}
		return nil
	})
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.CertificateID, out.Verdict = row.ID, row.Verdict
	return out, nil
}

// standsLast is the id of the node's last certificate where it says the same of
// the same run; "" otherwise.
func (a *Activities) standsLast(ctx context.Context, c evidence.Certificate) (string, error) {
	rows, err := a.Store.CertificatesOfNode(ctx, c.Subject.NodeID)
	if err != nil {
		return "", fault.Internal(ctx, err)
	}
	if len(rows) == 0 || rows[len(rows)-1].RunID != c.Run.ID {
		return "", nil
	}
	last := rows[len(rows)-1]
	var there evidence.Certificate
	if err := json.Unmarshal(last.Payload, &there); err != nil {
		return "", fault.Internal(ctx, fmt.Errorf("certificate %s: %w", last.ID, err))
	}
	there.Schema, there.ID, there.Sequence, there.PreviousHash, there.IssuedAt = 0, "", 0, "", time.Time{}
	x, xerr := json.Marshal(there)
	y, yerr := json.Marshal(c)
	if xerr != nil || yerr != nil || string(x) != string(y) {
		return "", nil
	}
	return last.ID, nil
}

// gathered is the evidence of one run.
type gathered struct {
	in       CertifyIn
	steps    []lifecycle.StepResult
	devices  []lifecycle.DeviceResult
	boots    []string // serials of disks that a system ran from
	guarded  []string // serials that the task protected
	scrub    *db.NodeTask
	validate *db.NodeTask
	ended    time.Time
	// simulated: some of it comes from recorded tools.
	simulated bool
}

func (a *Activities) gather(ctx context.Context, in CertifyIn, n db.Node) (*gathered, error) {
	g := &gathered{in: in, simulated: n.Simulated}
	tasks, err := a.Store.ListTasks(ctx, db.TaskFilter{NodeID: in.NodeID, JobID: in.JobID}, "", pageSize)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	slices.Reverse(tasks) // oldest first: the newest result of a kind counts
	for i := range tasks {
		if tasks[i].Result == nil {
			continue
		}
		switch tasks[i].Kind { //nolint:exhaustive // the others erase and prove nothing
		case lifecycle.TaskKindScrub:
			g.scrub, g.validate = &tasks[i], nil // what was seen before it is proof no more
		case lifecycle.TaskKindValidate:
			g.validate = &tasks[i]
		}
	}
	g.take(g.scrub)
	g.take(g.validate)
	g.unasked()
	if in.Dark != "" {
		if err := a.dark(ctx, g); err != nil {
			return nil, err
		}
	}
	if in.Release != nil {
		g.release(*in.Release)
	}
	g.unseen()
	g.kept()
	slices.SortStableFunc(g.devices, func(x, y lifecycle.DeviceResult) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	return g, nil
}

// dark is what is said of a node whose agent could not be asked: that nothing
// was looked at, device by device as the last report listed them.
func (a *Activities) dark(ctx context.Context, g *gathered) error {
	g.steps = append(g.steps, lifecycle.StepResult{Name: string(lifecycle.TaskKindScrub), Detail: "not done: " + g.in.Dark})
	beat, err := a.Store.LatestHeartbeat(ctx, g.in.NodeID)
	if errors.Is(err, db.ErrNotFound) || err == nil && beat.Report == nil {
		return nil // nothing is known of its devices
	}
	if err != nil {
		return fault.Internal(ctx, err)
	}
	var listed []lifecycle.DeviceResult
	for _, u := range beat.Report.GPUs {
		listed = append(listed, lifecycle.DeviceResult{Kind: "gpu", Name: u.UUID, Serial: u.Serial, Model: u.Model, Method: lifecycle.SanitizeNone,
			Detail: "not looked at; the machine's power was confirmed off"})
	}
	for _, d := range beat.Report.Disks {
		listed = append(listed, lifecycle.DeviceResult{Kind: "disk", Name: d.Name, Serial: d.Serial, Model: d.Model, Method: lifecycle.SanitizeNone, Detail: "not looked at"})
	}
	for _, d := range listed {
		g.add(d, listed)
	}
	return nil
}

// cleanSince tells whether all that the mode is asked for is proven: then nothing
// of a tenant that left before the scrub was begun is there any more. A mode that
// keeps the system says so of its disk, and is never called clean; its scrub has
// taken what is a tenant's from there.
func (g *gathered) cleanSince(v evidence.Verdict, unproven []string) (since time.Time, clean bool) {
	if len(unproven) > 0 || g.scrub == nil || g.scrub.DispatchedAt == nil {
		return since, false
	}
	return *g.scrub.DispatchedAt, v == evidence.VerdictClean || keepsSystem(g.in.Mode)
}

// certificate puts the evidence in the shape that is signed.
func (g *gathered) certificate(n db.Node) evidence.Certificate {
	c := evidence.Certificate{
		Subject: evidence.Subject{NodeID: n.ID, SiteID: n.SiteID, Hostname: n.Hostname, Serial: n.Serial},
		Run: evidence.Run{
			ID: g.in.JobID, Kind: string(g.in.Kind), Mode: string(g.in.Mode), StartedAt: g.in.StartedAt.UTC(), EndedAt: g.ended.UTC(),
		},
		Steps: g.steps, Devices: g.devices, Simulated: g.simulated,
	}
	if c.Run.EndedAt.IsZero() {
		c.Run.EndedAt = c.Run.StartedAt
	}
	if g.scrub != nil {
		c.Run.BootBefore = g.scrub.Result.BootID
	}
	if g.validate != nil {
		c.Run.BootAfter = g.validate.Result.BootID
	}
	return c
}
