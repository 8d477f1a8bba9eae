package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// ReturnMachine records that a machine may leave for its vendor. The machine must be that of its
// record. The last certificate of its node must prove this machine clean, with no tenant since; an
// operator who has accepted the risk needs no certificate. The audit row says which of the two it
// was, and certificates are kept. Nothing is changed on the machine. A repetition writes one more
// audit row.
func (a *Activities) ReturnMachine(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.read(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.RMA == nil {
		return StepFacts{}, s.lacks(runplan.CapReturn)
	}
	meta := map[string]any{"run_id": in.RunID, "ticket": s.step.RMA.Ticket, "accept_risk": s.acceptRisk}
	note := "the simulated provider took the machine back"
	if s.adapter.Return != nil {
		if err := s.adapter.Return.ReturnMachine(ctx, s.target, s.step.RMA.Ticket); err != nil {
			return StepFacts{}, s.failureOf(ctx, err)
		}
		meta["simulated"] = s.adapter.Simulated
	} else if note, err = s.proveReturn(ctx, meta); err != nil {
		return StepFacts{}, err
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error {
		return tx.AppendAudit(ctx, db.Entry{
			ResourceKind: machinesdb.Resource, ResourceID: s.machine.ID, NodeID: s.machine.NodeID, Kind: db.EntryAction, Name: "return_machine",
			Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: in.JobID, Comment: note, Metadata: meta},
		})
	})
	if err != nil {
		return StepFacts{}, fault.Internal(ctx, err)
	}
	return s.facts("%s", note), nil
}

// proveReturn compares the machine with its record and looks for the certificate that proves it
// clean. It adds to meta what it has used.
func (s *session) proveReturn(ctx context.Context, meta map[string]any) (string, error) {
	f, err := s.compareNode(ctx)
	if err != nil {
		return "", err
	}
	meta["serial"] = f.Serial
	id, why, err := s.cleanCertificate(ctx, f.Serial)
	switch {
	case err != nil:
		return "", err
	case why == "":
		meta["certificate_id"] = id
		return "the machine may leave: certificate " + id, nil
	case s.acceptRisk:
		meta["unproven"] = why
		return "the machine may leave at an operator's risk: " + why, nil
	}
	return "", fault.New(lifecycle.FailScrubUnverified, "%s; decommission the node in a mode that erases it, or start the run again with accept_risk and a reason", why)
}

// joinedAt returns when a run last made the machine join a cluster, or nil.
func (s *session) joinedAt(ctx context.Context) (*time.Time, error) {
	member, err := clusterdb.GetMember(ctx, s.a.Store, s.machine.ID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return member.JoinedAt, fault.Internal(ctx, err)
}

// cleanCertificate returns the certificate that proves the machine with this serial number clean,
// or the reason why there is none.
func (s *session) cleanCertificate(ctx context.Context, serial string) (id, why string, err error) {
	if s.node.AllocationID != nil || s.node.TenantLeftAt != nil {
		return "", "a tenant is on node " + s.node.ID + ", or has left it and nothing has proven it clean since", nil
	}
	rows, err := evidencedb.CertificatesOfNode(ctx, s.a.Store, s.node.ID)
	if err != nil {
		return "", "", fault.Internal(ctx, err)
	}
	if len(rows) == 0 {
		return "", "node " + s.node.ID + " has no erase certificate", nil
	}
	last := rows[len(rows)-1]
	joined, err := s.joinedAt(ctx)
	if err != nil {
		return "", "", err
	}
	var c evidence.Certificate
	if err := json.Unmarshal(last.Payload, &c); err != nil {
		return "", "", fault.Internal(ctx, fmt.Errorf("certificate %s: %w", last.ID, err))
	}
	switch {
	case joined != nil && !last.IssuedAt.After(*joined):
		return "", fmt.Sprintf("a run had the machine join its cluster at %s, after certificate %s", joined.UTC().Format(time.RFC3339), last.ID), nil
	case c.Verdict != evidence.VerdictClean:
		return "", fmt.Sprintf("the last certificate of node %s, %s, says %s and not %s", s.node.ID, last.ID, c.Verdict, evidence.VerdictClean), nil
	case serial == "" || c.Subject.Serial != serial:
		return "", fmt.Sprintf("certificate %s is of a machine with serial number %q, and this one has %q", last.ID, c.Subject.Serial, serial), nil
	}
	return last.ID, "", nil
}
