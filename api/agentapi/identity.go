package agentapi

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// attempts bounds how often a call starts over because another call changed the identity between
// its read and its write.
const attempts = 3

// enroll exchanges a one-time token for a certificate. The same key gets the same certificate
// again, so that an agent may repeat a request whose answer was lost. It refuses another key and
// raises an alarm.
func (s *Server) enroll(r *http.Request) (any, error) {
	address := ratelimit.RemoteAddress(r)
	if ok, wait := s.limit.Allow(address); !ok {
		return nil, refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited",
			"Too many enrolments from this address; wait.").after(wait)
	}
	var in protocol.EnrollRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Token == "" || len(in.Token) > 512 {
		return nil, invalid("token must be the enrolment token that was issued for this node.")
	}
	if in.AfterGeneration < 0 || in.AfterGeneration > 1<<40 {
		return nil, invalid("after_generation must be the generation of the node's last certificate.")
	}
	pub, spki, err := requestedKey(in.CSRPEM)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256([]byte(in.Token))
	for range attempts {
		var out Issued
		var nodeID string
		nodeID, out, err = s.redeem(r.Context(), hash, pub, spki, in.AfterGeneration, address)
		if err == nil {
			s.cfg.Log.InfoContext(r.Context(), "node enrolled", "node", nodeID, "generation", out.Generation, "address", address)
			return s.certificate(r.Context(), nodeID, out), nil
		}
		if !errors.Is(err, ErrGenerationMoved) {
			return nil, err
		}
	}
	return nil, err
}

// redeem issues the certificate of the node's next enrolment. Its generation is later than the last
// one of the node's system, also when a restored database does not have that one: the privileged
// half of the agent refuses tasks of an older generation.
func (s *Server) redeem(ctx context.Context, hash [32]byte, pub crypto.PublicKey, spki [32]byte, after int64, address string) (string, Issued, error) {
	tok, err := s.cfg.Store.Token(ctx, hash)
	if errors.Is(err, ErrNoToken) {
		return "", Issued{}, refuse(http.StatusUnauthorized, protocol.ProblemTokenUnknown, "token_unknown",
			"This enrolment token is not known; issue a new one.")
	}
	if err != nil {
		return "", Issued{}, err
	}
	now := s.cfg.Now()
	if tok.Revoked {
		return "", Issued{}, refuse(http.StatusUnauthorized, protocol.ProblemTokenRevoked, "token_revoked",
			"This enrolment token was revoked; issue a new one.")
	}
	node, err := s.node(ctx, tok.NodeID)
	if err != nil {
		return "", Issued{}, err
	}
	if tok.Redeemed != nil {
		if tok.Redeemed.SPKI == spki {
			return tok.NodeID, *tok.Redeemed, nil
		}
		return "", Issued{}, s.tokenReused(ctx, tok.NodeID, address)
	}
	if !now.Before(tok.ExpiresAt) {
		return "", Issued{}, tokenExpired()
	}
	after = max(node.Current.Generation, min(after, node.Current.Generation+db.MaxGenerationsAhead-1))
	fresh, err := s.issue(pub, nodeca.Identity{NodeID: tok.NodeID, Generation: after + 1, Enrolment: node.Current.Enrolment + 1})
	if err != nil {
		return "", Issued{}, err
	}
	out, err := s.cfg.Store.Redeem(ctx, Redemption{TokenHash: hash, NodeID: tok.NodeID, Certificate: fresh, Address: address, At: now})
	switch {
	case errors.Is(err, ErrTokenUsed):
		return "", Issued{}, s.tokenReused(ctx, tok.NodeID, address)
	case errors.Is(err, ErrTokenEnded), errors.Is(err, ErrNoToken):
		return "", Issued{}, tokenExpired()
	}
	return tok.NodeID, out, err
}

func tokenExpired() *refusal {
	return refuse(http.StatusUnauthorized, protocol.ProblemTokenExpired, "token_expired",
		"This enrolment token has expired; issue a new one.")
}

func (s *Server) tokenReused(ctx context.Context, nodeID, address string) error {
	err := s.cfg.Store.Alarm(ctx, Alarm{Kind: AlarmTokenReused, NodeID: nodeID, Address: address, At: s.cfg.Now(),
		Detail: "an enrolment token that was already used was presented with another key"})
	if err != nil {
		return fmt.Errorf("record the alarm about node %s: %w", nodeID, err)
	}
	return refuse(http.StatusConflict, protocol.ProblemTokenUsed, "token_used",
		"This enrolment token was used by another key. If that was not this node, its token was stolen; an operator has been alarmed.")
}

// renew issues the next generation for a new key, once renewal is due; before, it returns the
// present certificate. It answers a repeated request with the same new key alike. Any other use of
// an older generation of the same enrolment means that the certificate was copied. An expired
// certificate is accepted for this call only.
func (s *Server) renew(r *http.Request) (any, error) {
	c, err := s.renewer(r)
	if err != nil {
		return nil, err
	}
	var in protocol.RenewRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	pub, spki, err := requestedKey(in.CSRPEM)
	if err != nil {
		return nil, err
	}
	for range attempts {
		out, nerr := s.nextGeneration(r, c, pub, spki)
		if nerr == nil {
			return s.certificate(r.Context(), c.NodeID, out), nil
		}
		if !errors.Is(nerr, ErrGenerationMoved) {
			return nil, nerr
		}
		if c, err = s.renewer(r); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("renew node %s: %w", c.NodeID, ErrGenerationMoved)
}

func (s *Server) nextGeneration(r *http.Request, c caller, pub crypto.PublicKey, spki [32]byte) (Issued, error) {
	ctx := r.Context()
	id, err := s.node(ctx, c.NodeID)
	if err != nil {
		return Issued{}, err
	}
	cur := id.Current
	switch {
	case cur.Generation != c.now.Generation || cur.Enrolment != c.now.Enrolment:
		return Issued{}, ErrGenerationMoved
	case spki == cur.SPKI && (c.rank == rankPresent || c.rank == rankOlder && c.Generation == cur.Generation-1):
		return cur, nil
	case c.rank != rankPresent:
		return Issued{}, s.refuseCopy(ctx, c)
	case s.cfg.Now().Before(renewableFrom(cur)):
		return cur, nil
	}
	fresh, err := s.issue(pub, nodeca.Identity{NodeID: c.NodeID, Generation: cur.Generation + 1, Enrolment: cur.Enrolment})
	if err != nil {
		return Issued{}, err
	}
	return fresh, s.cfg.Store.Renew(ctx, Renewal{NodeID: c.NodeID, Certificate: fresh})
}

// renewableFrom is when a certificate may be replaced: at two fifths of its life. An agent asks at
// half of it, by its own clock. So whoever holds the key gets a few certificates a life, however
// often he asks.
func renewableFrom(c Issued) time.Time { return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 5) }

// refuseCopy refuses a renewal with an older certificate of the present enrolment and another key.
// One of the two agents has a stolen certificate, and the server cannot know which. So it locks the
// identity until the node enrols again. It only reports a certificate that has expired: otherwise
// the owner of an old copy could lock the node at any time. It writes the lock before the alarm, so
// that a failed alarm cannot let a second request through.
func (s *Server) refuseCopy(ctx context.Context, c caller) error {
	detail := fmt.Sprintf("a renewal came with generation %d while generation %d is the present one", c.Generation, c.now.Generation)
	if c.expired {
		s.report(ctx, c, RefusalExpiredCopy, detail+"; its certificate has expired")
		return superseded()
	}
	if err := s.cfg.Store.Lock(ctx, c.NodeID, detail, s.cfg.Now()); err != nil {
		return fmt.Errorf("lock the identity of node %s: %w", c.NodeID, err)
	}
	err := s.cfg.Store.Alarm(ctx, Alarm{Kind: AlarmGenerationReused, NodeID: c.NodeID, Address: c.address, Detail: detail, At: s.cfg.Now()})
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "the alarm about a copied certificate could not be stored", "node", c.NodeID, "error", err)
	}
	s.cfg.Log.WarnContext(ctx, "node identity locked", "node", c.NodeID, "detail", detail)
	return superseded()
}

func requestedKey(csrPEM string) (crypto.PublicKey, [32]byte, error) {
	if len(csrPEM) > 16<<10 {
		return nil, [32]byte{}, invalid("csr_pem is too long.")
	}
	pub, err := nodeca.ParseRequest([]byte(csrPEM))
	if err != nil {
		return nil, [32]byte{}, invalid("csr_pem: %s.", err)
	}
	spki, err := nodeca.SPKI(pub)
	if err != nil {
		return nil, [32]byte{}, invalid("csr_pem: %s.", err)
	}
	return pub, spki, nil
}

func (s *Server) issue(pub crypto.PublicKey, id nodeca.Identity) (Issued, error) {
	c, err := s.cfg.CA.IssueNode(pub, id)
	if err != nil {
		return Issued{}, err
	}
	return Issued{Generation: id.Generation, Enrolment: id.Enrolment, SPKI: c.SPKI, Serial: c.Serial, PEM: string(c.PEM), NotBefore: c.NotBefore, NotAfter: c.NotAfter}, nil
}

func (s *Server) certificate(ctx context.Context, nodeID string, c Issued) protocol.CertificateResponse {
	return protocol.CertificateResponse{NodeID: nodeID, Generation: c.Generation, CertificatePEM: c.PEM,
		NotAfter: c.NotAfter.UTC(), HeartbeatIntervalSeconds: s.cfg.HeartbeatInterval.Seconds(), TaskKeys: s.taskKeys(ctx)}
}
