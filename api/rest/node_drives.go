package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
)

// NodeDrives are the drives that a node is expected to have, and those that its agent reports.
type NodeDrives struct {
	NodeID         string               `json:"node_id"`
	Expected       []contract.PlanDrive `json:"expected" nullable:"false" doc:"Those that a job erases, but for protected ones; a drive besides parks the job"`
	Source         string               `json:"source,omitempty" doc:"Who named them: maas_commissioning, boot_report, agent_report or accepted; absent where nothing names any"`
	RecordedAt     *time.Time           `json:"recorded_at,omitempty"`
	Reported       []contract.PlanDrive `json:"reported" nullable:"false" doc:"Those of the agent's last report"`
	ReportedAt     *time.Time           `json:"reported_at,omitempty"`
	ReportedDigest string               `json:"reported_digest,omitempty" doc:"Names the reported list; accept-node-drives takes it"`
	ProtectSerials []string             `json:"protect_serials" nullable:"false"`
}

// AcceptDrivesRequest accepts the drives that were read.
type AcceptDrivesRequest struct {
	ReportedDigest string `json:"reported_digest" required:"true" maxLength:"64" pattern:"^[0-9a-f]{64}$" doc:"Of the list that you have compared with the machine"`
	Reason         string `json:"reason" required:"true" minLength:"1" maxLength:"2000" doc:"Why the drives differ; it stands in the history"`
}

func (s *server) registerNodeDrives() {
	tags := []string{"nodes"}
	op.Add(s.api, huma.Operation{
		OperationID: "get-node-drives", Method: http.MethodGet, Path: "/nodes/{id}/drives", Tags: tags,
		Summary: "Read the drives that a node is expected to have, and those that its agent reports",
	}, s.getNodeDrives)
	op.Add(s.api, huma.Operation{
		OperationID: "accept-node-drives", Method: http.MethodPost, Path: "/nodes/{id}/drives/accept", Tags: tags,
		Summary:     "Expect the drives that the agent reports",
		Description: "From then on a job erases these drives, but for protected ones. A parked job goes by them once its stage is retried. 409 when the agent reports other drives by now.",
	}, s.acceptNodeDrives)
}

func (s *server) getNodeDrives(ctx context.Context, in *NodePath) (*struct{ Body NodeDrives }, error) {
	var out NodeDrives
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		reported, err := tx.ReportedDrives(ctx, in.ID)
		if err == nil {
			out, err = nodeDrives(ctx, tx, in.ID, reported)
		}
		return err
	})
	return &struct{ Body NodeDrives }{out}, err
}

// nodeDrives returns what is expected of a node beside what its agent reports, which is read once.
func nodeDrives(ctx context.Context, tx *db.Tx, nodeID string, reported db.NodeDrives) (NodeDrives, error) {
	protected, err := tx.ProtectedSerials(ctx, nodeID)
	if err != nil {
		return NodeDrives{}, err
	}
	expected, err := tx.ExpectedDrives(ctx, nodeID)
	if err != nil {
		return NodeDrives{}, err
	}
	view := func(d db.NodeDrives) ([]contract.PlanDrive, *time.Time) {
		if d.Source == "" {
			return []contract.PlanDrive{}, nil
		}
		return contract.PlanDrives(d.Drives, protected), utc(&d.At)
	}
	out := NodeDrives{NodeID: nodeID, Source: string(expected.Source), ProtectSerials: list(protected)}
	out.Expected, out.RecordedAt = view(expected)
	if out.Reported, out.ReportedAt = view(reported); reported.Source != "" {
		out.ReportedDigest = reported.Digest()
	}
	return out, nil
}

func (s *server) acceptNodeDrives(ctx context.Context, in *struct {
	NodePath
	Body AcceptDrivesRequest
}) (*struct{ Body NodeDrives }, error) {
	var out NodeDrives
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.LockNode(ctx, in.ID); err != nil {
			return err
		}
		reported, err := tx.ReportedDrives(ctx, in.ID)
		switch {
		case err != nil:
			return err
		case reported.Source == "":
			return problem.New(problem.Conflict, "no report of the node's agent names its drives; bring the agent back, or boot the node's live system, then read the drives again")
		case reported.Digest() != in.Body.ReportedDigest:
			return problem.New(problem.Conflict, "the agent reports other drives by now; read them again, compare them with the machine, and accept those")
		}
		actor := op.Actor(ctx)
		actor.Comment = in.Body.Reason
		if err := tx.RecordDrives(ctx, in.ID, reported.Drives, db.DrivesAccepted, actor); err != nil {
			return err
		}
		out, err = nodeDrives(ctx, tx, in.ID, reported)
		return err
	})
	return &struct{ Body NodeDrives }{out}, err
}
