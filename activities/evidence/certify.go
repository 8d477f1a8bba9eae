// Package evidence holds the activity that gathers what the tasks of a job and MAAS have proven of
// a node, and signs a certificate of it.
package evidence

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

// Activities is what these activities need.
type Activities struct {
	Store *db.Store
	Ring  *signing.Ring
}

// CertifyIn is the input of CertifyNode.
type CertifyIn struct {
	contract.JobRef
	Kind      contract.JobKind           `json:"kind"`
	Mode      lifecycle.DecommissionMode `json:"mode"`
	StartedAt time.Time                  `json:"started_at"`
	// Release is what MAAS did with the disks. It is nil when MAAS was not asked.
	Release *contract.ReleaseFacts `json:"release,omitempty"`
	// AgentUnreachable is why the node's agent could not be given a task. The node was drained by
	// switching it off.
	AgentUnreachable string `json:"agent_unreachable,omitempty"`
	// NotVerified names what of the BMC could not be compared; the certificate says so.
	NotVerified []string `json:"not_verified,omitempty"`
	// BMCChecked says that the BMC was compared with what it was before a root tenant, and got
	// another password.
	BMCChecked bool `json:"bmc_checked,omitempty"`
	// Netboot is the live system that erased the node, with the disks that the installed system had
	// reported before. It is nil when no live system was booted.
	Netboot *contract.NetbootFacts `json:"netboot,omitempty"`
	// InitialDisks are the disks that the node's agent had reported when the job began. With
	// DisksRecorded they are the drives of the node's record, without names: the agent's reports
	// prove nothing then, and are not read.
	InitialDisks  []lifecycle.DeviceResult `json:"initial_disks,omitempty"`
	DisksRecorded bool                     `json:"disks_recorded,omitempty"`
}

// CertifyNode gathers what the job's tasks and MAAS proved, sets the verdict, and signs the result
// as the next link of the node's chain. A certificate that proves what its mode requires also ends
// that the node must be sanitized, in the same transaction. It reads stored results only.
//
// A repetition with the same evidence returns the existing link. Later evidence of the same job is
// a new link.
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
	if c.Subject.SerialSource, err = serialSource(ctx, a.Store, n); err != nil {
		return contract.CertificateFacts{}, fault.Internal(ctx, err)
	}
	c.SetVerdict()
	out := contract.CertificateFacts{Verdict: string(c.Verdict), Unproven: g.unproven()}
	c.SanitizedSince = sanitizedSince(g, c.Verdict, out.Unproven)
	row, err := a.Ring.Certify(ctx, c, func(tx *db.Tx) error {
		if c.SanitizedSince == nil {
			return nil
		}
		return tx.MarkSanitized(ctx, in.NodeID, *c.SanitizedSince)
	})
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.CertificateID, out.Verdict = row.ID, row.Verdict
	return out, nil
}

// serialSource returns who named a node's serial number. That of a PXE node is what its boot
// reported.
func serialSource(ctx context.Context, c db.Conn, n db.Node) (string, error) {
	if n.Serial == "" {
		return "", nil
	}
	source, err := hardwaredb.SerialSource(ctx, c, n.ID)
	if source == "" && err == nil && n.Lifecycle == lifecycle.NodePXE.Lifecycle {
		source = hardwaredb.SerialOfBoot
	}
	return source, err
}

// sanitizedSince returns the start of the scrub when everything that the mode requires is proven:
// no data is left of a tenant whose allocation ended before. A mode that keeps the installed system
// is never called clean, but its scrub has removed the tenant's data from that system. Of the
// system on which a tenant was root the word proves nothing, and of his BMC neither. It returns nil
// in every other case.
func sanitizedSince(g *gathered, v evidence.Verdict, unproven []string) *time.Time {
	if len(unproven) > 0 || g.scrub == nil || g.scrub.DispatchedAt == nil || g.bmcUnchecked {
		return nil
	}
	keeps := g.in.Mode.KeepsSystem()
	if keeps && g.root || !keeps && v != evidence.VerdictClean {
		return nil
	}
	since := g.scrub.DispatchedAt.UTC()
	return &since
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
	if g.scrub != nil {
		c.Run.BootBefore = g.scrub.Result.BootID
	}
	if g.validate != nil {
		c.Run.BootAfter = g.validate.Result.BootID
	}
	return c
}
