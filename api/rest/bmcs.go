package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
)

// BMC is the management controller of a node; its login is a reference.
type BMC struct {
	ID                string     `json:"id"`
	NodeID            string     `json:"node_id,omitempty"`
	Address           string     `json:"address"`
	Protocol          string     `json:"protocol"`
	IPMICipherSuite   int        `json:"ipmi_cipher_suite,omitempty" doc:"Over IPMI only: 17, or 3 for a device that has nothing better"`
	CredentialRef     string     `json:"credential_ref"`
	CandidateRef      string     `json:"candidate_ref,omitempty" doc:"The login that is being rotated to"`
	RotationState     string     `json:"rotation_state,omitempty" enum:"prepared,applying,applied,verified" doc:"How far a rotation is: prepared, the BMC takes the login; applied or verified, it takes the candidate; applying, either"`
	PreviousRef       string     `json:"previous_ref,omitempty" doc:"The login before the last rotation"`
	RotatedAt         *time.Time `json:"rotated_at,omitempty"`
	PinSHA256         string     `json:"pin_sha256,omitempty" doc:"Approved pin of its certificate's public key, 64 hex digits"`
	PinPending        string     `json:"pin_pending,omitempty" doc:"Seen on the wire and approved by nobody"`
	Vendor            string     `json:"vendor,omitempty"`
	SystemID          string     `json:"system_id,omitempty"`
	AuthBlockedAt     *time.Time `json:"auth_blocked_at,omitempty" doc:"Since then no login is tried, so that the account is not locked"`
	AuthBlockedReason string     `json:"auth_blocked_reason,omitempty"`
	Version           int64      `json:"version"`
	CreatedAt         time.Time  `json:"created_at"`
	UpdatedAt         time.Time  `json:"updated_at"`
}

func bmcView(r db.BMC) BMC {
	suite := 0
	if r.Protocol == intent.ProtocolIPMI {
		suite = r.IPMICipherSuite
	}
	return BMC{
		ID: r.ID, NodeID: text(r.NodeID), Address: r.Address, Protocol: r.Protocol, IPMICipherSuite: suite, CredentialRef: r.CredentialRef,
		CandidateRef: r.CandidateRef, RotationState: string(r.RotationState), PreviousRef: r.PreviousRef, RotatedAt: utc(r.RotatedAt), PinSHA256: r.PinSHA256,
		PinPending: r.PinPending, Vendor: r.Vendor, SystemID: r.SystemID, AuthBlockedAt: utc(r.AuthBlockedAt), AuthBlockedReason: r.AuthBlockedReason,
		Version: r.Version, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
}

// BMCPath is the path of one.
type BMCPath struct {
	ID string `path:"id" maxLength:"200" doc:"bmc_..."`
}

func (s *server) registerBMCs() {
	tags := []string{"bmcs"}
	op.Add(s.api, huma.Operation{OperationID: "list-bmcs", Method: http.MethodGet, Path: "/admin/bmcs", Tags: tags, Summary: "List BMCs"}, s.listBMCs)
	op.Add(s.api, huma.Operation{OperationID: "get-bmc", Method: http.MethodGet, Path: "/admin/bmcs/{id}", Tags: tags, Summary: "Read a BMC"}, s.getBMC)
	op.Add(s.api, huma.Operation{
		OperationID: "approve-bmc-pin", Method: http.MethodPost, Path: "/admin/bmcs/{id}/actions/approve-pin", Tags: tags,
		Summary: "Approve the certificate pin that waits", Description: "Compare the pin with what the BMC itself shows before you approve it.",
	}, s.approvePin)
	op.Add(s.api, huma.Operation{
		OperationID: "clear-bmc-auth-block", Method: http.MethodPost, Path: "/admin/bmcs/{id}/actions/clear-auth-block", Tags: tags,
		Summary: "Allow logins again after a rejected one",
	}, s.clearAuthBlock)
}

func (s *server) listBMCs(ctx context.Context, in *op.Page) (*op.Listed[BMC], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListBMCs(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.BMC) string { return r.ID }, bmcView), nil
}

func (s *server) getBMC(ctx context.Context, in *BMCPath) (*op.Versioned[BMC], error) {
	row, err := s.store.BMC(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, bmcView(row)), nil
}

func (s *server) approvePin(ctx context.Context, in *struct {
	BMCPath
	Body struct {
		PinSHA256 string `json:"pin_sha256" required:"true" maxLength:"64" pattern:"^[0-9a-f]{64}$" doc:"The pin that you compared: that which waits"`
	}
}) (*op.Versioned[BMC], error) {
	return s.changeBMC(ctx, in.ID, "approve_pin", map[string]any{"pin_sha256": in.Body.PinSHA256}, func(tx *db.Tx, b db.BMC) error {
		if b.PinSHA256 == in.Body.PinSHA256 && b.PinPending == "" {
			return nil
		}
		if b.PinPending != in.Body.PinSHA256 {
			return problem.New(problem.Conflict, "this is not the pin that waits for approval; read the BMC and compare its pin_pending").With(b.PinPending)
		}
		return tx.SetBMCPin(ctx, b.ID, in.Body.PinSHA256)
	})
}

func (s *server) clearAuthBlock(ctx context.Context, in *struct {
	BMCPath
	Body *struct {
		Reason string `json:"reason,omitempty" maxLength:"2000"`
	}
}) (*op.Versioned[BMC], error) {
	meta := map[string]any{}
	if in.Body != nil && in.Body.Reason != "" {
		meta["reason"] = in.Body.Reason
	}
	return s.changeBMC(ctx, in.ID, "clear_auth_block", meta, func(tx *db.Tx, b db.BMC) error { return tx.ClearBMCBlock(ctx, b.ID) })
}

// changeBMC changes a BMC with its audit row in the timeline of its node.
func (s *server) changeBMC(ctx context.Context, id, name string, meta map[string]any, change func(*db.Tx, db.BMC) error) (*op.Versioned[BMC], error) {
	var row db.BMC
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		b, err := tx.BMC(ctx, id)
		if err != nil {
			return err
		}
		if err := change(tx, b); err != nil {
			return err
		}
		if err := op.Audit(ctx, tx, "bmc", id, b.NodeID, name, meta); err != nil {
			return err
		}
		row, err = tx.BMC(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, bmcView(row)), nil
}
