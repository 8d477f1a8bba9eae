package agentapi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// settleTime is how long after an enrolment requests with the former certificate are expected, and
// are not reported.
const settleTime = 5 * time.Minute

// caller is a node that presented a valid certificate.
type caller struct {
	nodeca.Identity
	leaf    *x509.Certificate
	key     [32]byte // SHA-256 of its public key
	address string
	expired bool
	rank    rank
	now     Standing // what the database says
}

// caller returns the node that sent a request. It refuses a certificate that has expired or is not
// the node's newest. The expiry is checked for each request, since a connection can outlive it.
func (s *Server) caller(r *http.Request) (caller, error) {
	c, err := s.shown(r)
	if err != nil {
		return caller{}, err
	}
	if c.expired {
		return caller{}, refuse(http.StatusUnauthorized, protocol.ProblemCertificateEnded, "expired",
			"The client certificate has expired; renew it, which is possible until %s.", c.leaf.NotAfter.Add(s.cfg.RenewGrace).UTC().Format(time.RFC3339))
	}
	c, err = s.admitted(r.Context(), c)
	if err == nil && c.rank != rankPresent {
		err = superseded()
	}
	return c, err
}

// renewer returns the node that requests a renewal. It accepts a certificate that has expired, and
// an older one of the same enrolment: its agent may have lost the answer to a renewal.
func (s *Server) renewer(r *http.Request) (caller, error) {
	c, err := s.shown(r)
	if err != nil {
		return caller{}, err
	}
	if s.cfg.Now().After(c.leaf.NotAfter.Add(s.cfg.RenewGrace)) {
		return caller{}, refuse(http.StatusForbidden, protocol.ProblemGraceOver, "grace_over",
			"The client certificate expired at %s, which is too long ago to renew it; the node needs a new enrolment token.", c.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return s.admitted(r.Context(), c)
}

// shown returns the identity in the certificate of a request. The certificate was verified before.
func (s *Server) shown(r *http.Request) (caller, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return caller{}, refuse(http.StatusUnauthorized, protocol.ProblemCertificate, "no_certificate",
			"Show the client certificate that enrolment gave.")
	}
	leaf := r.TLS.PeerCertificates[0]
	id, err := nodeca.IdentityOf(leaf)
	if err != nil {
		return caller{}, refuse(http.StatusUnauthorized, protocol.ProblemCertificate, "no_certificate",
			"The client certificate names no node.")
	}
	return caller{Identity: id, leaf: leaf, key: sha256.Sum256(leaf.RawSubjectPublicKeyInfo), address: ratelimit.RemoteAddress(r),
		expired: s.cfg.Now().After(leaf.NotAfter)}, nil
}

// verified wraps the API for a TLS server that has asked for client certificates and verified none.
func (s *Server) verified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			if err := s.cfg.CA.VerifyNode(r.TLS.PeerCertificates[0], s.cfg.Now()); err != nil {
				writeProblem(w, refuse(http.StatusUnauthorized, protocol.ProblemCertificate, "no_certificate", "The client certificate does not count: %s.", err))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// admitted compares the certificate with the node's row in the database. It adopts a newer
// certificate that the database does not have. It refuses every other one that is not of the
// present enrolment, and reports the refusal for operators.
func (s *Server) admitted(ctx context.Context, c caller) (caller, error) {
	var err error
	for range attempts {
		if c.now, err = s.identities.standing(ctx, c.NodeID); err != nil {
			return caller{}, err
		}
		c.rank = c.compare()
		if at := c.now.LockedAt; at != nil && (c.rank != rankEnrolledLater || !c.issuedAt().After(*at)) {
			return caller{}, locked()
		}
		switch c.rank {
		case rankNewer, rankEnrolledLater:
			err = s.adopt(ctx, c)
			if err != nil && !errors.Is(err, ErrGenerationMoved) {
				return caller{}, err
			}
			continue
		case rankPresent, rankOlder:
			return c, nil
		case rankForked:
			s.report(ctx, c, RefusalForked, fmt.Sprintf("two certificates of generation %d were issued, and the node's newest has the other key", c.Generation))
			return c, nil
		case rankDenied, rankAbsurd, rankFormer:
		}
		return caller{}, s.refusedCertificate(ctx, c)
	}
	return caller{}, fmt.Errorf("certificate of node %s: %w", c.NodeID, ErrGenerationMoved)
}

func (s *Server) refusedCertificate(ctx context.Context, c caller) error {
	what := fmt.Sprintf("generation %d, issued at %s", c.Generation, c.issuedAt().UTC().Format(time.RFC3339))
	switch c.rank { //nolint:exhaustive // the others are no refusals
	case rankDenied:
		s.report(ctx, c, RefusalDenied, "a certificate of an identity that has ended was shown ("+what+")")
		return refuse(http.StatusForbidden, protocol.ProblemDenied, "denied", "The identity of this certificate has ended.")
	case rankAbsurd:
		s.report(ctx, c, RefusalAbsurd, "a certificate was shown that is too far ahead of the database to have been issued ("+what+")")
		return refuse(http.StatusForbidden, protocol.ProblemDenied, "absurd",
			"The certificate is too far ahead of what this installation has issued; the node needs a new enrolment token.")
	}
	// The agent that has just enrolled again may still have requests under way.
	if s.cfg.Now().Sub(c.now.EnrolledFrom.Add(nodeca.SkewAllowance)) > settleTime {
		s.report(ctx, c, RefusalFormer, "a certificate from before the node's last enrolment was shown ("+what+")")
	}
	return refuse(http.StatusForbidden, protocol.ProblemFormer, "former",
		"The node has enrolled again since this certificate was issued. If that was not this system, the node needs a new enrolment token.")
}

// adopt stores a newer certificate that the database lost, as the node's identity.
func (s *Server) adopt(ctx context.Context, c caller) error {
	out := Issued{Generation: c.Generation, Enrolment: max(c.Enrolment, c.now.Enrolment), SPKI: c.key, Serial: c.leaf.SerialNumber.Text(16),
		PEM:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.leaf.Raw})),
		NotBefore: c.leaf.NotBefore, NotAfter: c.leaf.NotAfter}
	if err := s.cfg.Store.Adopt(ctx, Adoption{NodeID: c.NodeID, Certificate: out, IssuedAt: c.issuedAt(), Address: c.address}); err != nil {
		return err
	}
	s.cfg.Log.WarnContext(ctx, "the database did not know an agent's certificate and has adopted it: it was restored, or failed over", "node", c.NodeID,
		"generation", c.Generation, "known", c.now.Generation, "address", c.address)
	return nil
}

// report records a refused certificate without locking the identity. Records are limited for each
// address, so that repeated requests do not fill the log. It only logs a failed write.
func (s *Server) report(ctx context.Context, c caller, kind RefusalKind, detail string) {
	if ok, _ := s.reports.Allow(c.address); !ok {
		return
	}
	err := s.cfg.Store.Report(ctx, Refusal{Kind: kind, NodeID: c.NodeID, Address: c.address, Detail: detail})
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "a refused certificate could not be recorded", "node", c.NodeID, "kind", kind, "error", err)
	}
}

func locked() *refusal {
	return refuse(http.StatusForbidden, protocol.ProblemLocked, "locked",
		"This node's identity is locked: a copy of its certificate was used, or the node was given another system or other hardware. Who has a new enrolment token enrols again.")
}

func superseded() *refusal {
	return refuse(http.StatusForbidden, protocol.ProblemSuperseded, "superseded",
		"A newer certificate of this node exists; use that one.")
}
