package agentapi

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// attempts bounds how often a call starts over because another one moved the
// identity between its read and its write.
const attempts = 3

// enroll trades a one-time token for a certificate (research bmc_agent 6.2).
// The token is single use a key: the same key gets the same certificate again,
// so that a lost answer costs nothing; another key is refused and alarmed.
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
	pub, spki, err := requestedKey(in.CSRPEM)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256([]byte(in.Token))
	for range attempts {
		var out Issued
		var nodeID string
		nodeID, out, err = s.redeem(r.Context(), hash, pub, spki, address)
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

func (s *Server) redeem(ctx context.Context, hash [32]byte, pub crypto.PublicKey, spki [32]byte, address string) (string, Issued, error) {
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
	fresh, err := s.issue(pub, nodeca.Identity{NodeID: tok.NodeID, Generation: node.Current.Generation + 1})
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

// renew gives the next generation under a new key. An answer that was lost is
// given again to the same new key; any other use of an older generation means
// that the certificate was copied, and locks the identity.
func (s *Server) renew(r *http.Request) (any, error) {
	c, err := s.caller(r)
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
		if c, err = s.caller(r); err != nil {
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
	case spki == cur.SPKI && (c.Generation == cur.Generation || c.Generation == cur.Generation-1):
		return cur, nil
	case c.Generation != cur.Generation:
		return Issued{}, s.copied(r, c)
	}
	fresh, err := s.issue(pub, nodeca.Identity{NodeID: c.NodeID, Generation: cur.Generation + 1})
	if err != nil {
		return Issued{}, err
	}
	return fresh, s.cfg.Store.Renew(ctx, Renewal{NodeID: c.NodeID, Certificate: fresh, Address: ratelimit.RemoteAddress(r), At: s.cfg.Now()})
}

// copied locks first and alarms second: a lock that is not yet written must
// not let a second try through because the alarm could not be stored.
func (s *Server) copied(r *http.Request, c caller) error {
	detail := fmt.Sprintf("a renewal came with generation %d while generation %d is the present one", c.Generation, c.now.Generation)
	if err := s.cfg.Store.Lock(r.Context(), c.NodeID, detail, s.cfg.Now()); err != nil {
		return fmt.Errorf("lock the identity of node %s: %w", c.NodeID, err)
	}
	err := s.cfg.Store.Alarm(r.Context(), Alarm{Kind: AlarmGenerationReused, NodeID: c.NodeID, Address: ratelimit.RemoteAddress(r), Detail: detail, At: s.cfg.Now()})
	if err != nil {
		s.cfg.Log.ErrorContext(r.Context(), "the alarm about a copied certificate could not be stored", "node", c.NodeID, "error", err)
	}
	s.cfg.Log.WarnContext(r.Context(), "node identity locked", "node", c.NodeID, "detail", detail)
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
	return Issued{Generation: id.Generation, SPKI: c.SPKI, Serial: c.Serial, PEM: string(c.PEM), NotBefore: c.NotBefore, NotAfter: c.NotAfter}, nil
}

func (s *Server) certificate(ctx context.Context, nodeID string, c Issued) protocol.CertificateResponse {
	return protocol.CertificateResponse{NodeID: nodeID, Generation: c.Generation, CertificatePEM: c.PEM,
		NotAfter: c.NotAfter.UTC(), HeartbeatIntervalSeconds: s.cfg.HeartbeatInterval.Seconds(), TaskKeys: s.taskKeys(ctx)}
}
