package agentapi

import (
	"net/http"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// caller is a node that showed a certificate and may still speak.
type caller struct {
	nodeca.Identity
	now Standing // what the database says
}

// caller reads the certificate and looks the node up. The certificate's end is
// checked again here, since a connection can outlive it.
func (s *Server) caller(r *http.Request) (caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return caller{}, refuse(http.StatusUnauthorized, protocol.ProblemCertificate, "no_certificate",
			"Show the client certificate that enrolment gave.")
	}
	leaf := r.TLS.VerifiedChains[0][0]
	id, err := nodeca.IdentityOf(leaf)
	if err != nil {
		return caller{}, refuse(http.StatusUnauthorized, protocol.ProblemCertificate, "no_certificate",
			"The client certificate names no node.")
	}
	if s.cfg.Now().After(leaf.NotAfter) {
		return caller{}, refuse(http.StatusUnauthorized, protocol.ProblemCertificateEnded, "expired",
			"The client certificate has expired; enrol again with a new token.")
	}
	now, err := s.standings.of(r.Context(), id.NodeID)
	if err != nil {
		return caller{}, err
	}
	if now.Locked {
		return caller{}, refuse(http.StatusForbidden, protocol.ProblemLocked, "locked",
			"This node's identity is locked: a copy of its certificate was used, or the node was given another system or other hardware. Who has a new enrolment token enrols anew.")
	}
	return caller{id, now}, nil
}

func superseded() *refusal {
	return refuse(http.StatusForbidden, protocol.ProblemSuperseded, "superseded",
		"A newer certificate of this node exists; use that one.")
}
