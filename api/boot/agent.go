package boot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// enrolmentLife is how long the token of an agent may be used. It begins with
// the fetch, and the agent enrols as soon as it is installed.
const enrolmentLife = time.Hour

var (
	errEnrolled   = errors.New("no attempt whose agent has not enrolled")
	errNoAgent    = errors.New("the install workflow names no agent")
	errNoAgentURL = errors.New("agents cannot be handed out: this server was not told how nodes reach the agent API (agent-public-url)")
)

// installAgent answers the script that installs the node's agent, with an
// enrolment token of its own: each answer ends the token of the one before, so
// that an answer that was lost is made good by asking again.
func (s *Server) installAgent(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, func() (string, error) {
		script, node, err := s.agentScript(r)
		if errors.Is(err, db.ErrNotFound) {
			err = errEnrolled
		}
		if err == nil {
			s.cfg.Log.InfoContext(r.Context(), "agent handed out", "node", node, "source", ratelimit.RemoteAddress(r))
		}
		return string(script), err
	})
}

// agentScript makes the script and its token, or neither.
func (s *Server) agentScript(r *http.Request) (script []byte, node string, err error) {
	hash, ok := tokenHash(chi.URLParam(r, "token"))
	if !ok {
		return nil, "", db.ErrNotFound
	}
	if s.cfg.AgentURL == "" {
		return nil, "", errNoAgentURL
	}
	token, err := randomText()
	if err != nil {
		return nil, "", fmt.Errorf("make an enrolment token: %w", err)
	}
	enrolment := sha256.Sum256([]byte(token))
	err = s.cfg.Store.Tx(r.Context(), func(tx *db.Tx) error {
		g, err := tx.GrantAgent(r.Context(), hash, enrolment[:], enrolmentLife)
		if err != nil {
			return err
		}
		a := g.Workflow.Spec.Agent
		if a == nil {
			return errNoAgent
		}
		node = g.Node.ID
		script, err = cloudinit.InstallScript(cloudinit.Agent{
			ServerURL: s.cfg.AgentURL, CAPEM: s.cfg.AgentCAPEM, NodeID: g.Node.ID, Token: providers.NewSecret(token), Simulated: a.Simulated,
			HeartbeatInterval: time.Duration(a.HeartbeatSeconds) * time.Second, BinaryURL: a.BinaryURL, BinarySHA256: a.BinarySHA256,
			PlatformUsers: a.PlatformUsers, UpdateKey: a.UpdateKey,
		})
		return err
	})
	return script, node, err
}
