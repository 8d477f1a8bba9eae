package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

// Certificates is everything that was signed about a node, ready to be checked
// offline, and the same in plain words.
type Certificates struct {
	evidence.Bundle
	Data []evidence.Certificate `json:"data" nullable:"false" doc:"The certificates as they read, oldest first; what counts is the signed payload"`
}

func (s *server) registerCertificates() {
	op.Add(s.api, huma.Operation{
		OperationID: "node-certificates", Method: http.MethodGet, Path: "/nodes/{id}/certificates", Tags: []string{"nodes"},
		Summary: "The signed certificates of a node",
		Description: "One for each time that the node was taken back: which device was erased how and what could not be verified. They are a chain with a signed end; " +
			"`slipway certificate verify` checks it offline and finds a change and a missing link.",
	}, s.certificates)
}

func (s *server) certificates(ctx context.Context, in *NodePath) (*struct{ Body Certificates }, error) {
	if _, err := s.store.Node(ctx, in.ID); err != nil {
		return nil, err
	}
	ring := &signing.Ring{Store: s.store, Secrets: s.cfg.Secrets}
	b, err := ring.Bundle(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &struct{ Body Certificates }{Certificates{Bundle: b, Data: []evidence.Certificate{}}}
	for _, e := range b.Certificates {
		var c evidence.Certificate
		if err := json.Unmarshal(e.Payload, &c); err != nil {
			return nil, fmt.Errorf("a certificate of node %s: %w", in.ID, err)
		}
		out.Body.Data = append(out.Body.Data, c)
	}
	return out, nil
}
