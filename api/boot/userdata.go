package boot

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/pxetemplate"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// attempt is what a boot token stands for.
type attempt struct {
	token    string
	node     db.Node
	pxe      db.PXENode
	ticket   db.PXEToken
	workflow db.InstallWorkflow
}

// attemptOf reads what a token stands for, or db.ErrNotFound when it is
// unknown, expired, or its attempt is over.
func (s *Server) attemptOf(ctx context.Context, token string) (attempt, error) {
	hash, ok := tokenHash(token)
	if !ok {
		return attempt{}, db.ErrNotFound
	}
	a := attempt{token: token}
	err := s.cfg.Store.ReadTx(ctx, func(tx *db.Tx) (err error) {
		if a.ticket, err = tx.PXETokenByHash(ctx, hash); err != nil {
			return err
		}
		if a.node, err = tx.Node(ctx, a.ticket.NodeID); err != nil {
			return err
		}
		if a.pxe, err = tx.PXENode(ctx, a.ticket.NodeID); err != nil {
			return err
		}
		workflow, boots := db.BootWorkflow(a.node, a.pxe)
		if !boots || !db.TicketHolds(a.ticket, a.node, a.pxe) || len(a.node.MACs) == 0 {
			return db.ErrNotFound
		}
		a.workflow, err = tx.InstallWorkflow(ctx, workflow)
		return err
	})
	return a, err
}

// answerAttempt sends a text about what the token of a request stands for.
func (s *Server) answerAttempt(w http.ResponseWriter, r *http.Request, do func(attempt) (string, error)) {
	s.answer(w, r, func() (string, error) {
		a, err := s.attemptOf(r.Context(), chi.URLParam(r, "token"))
		if err != nil {
			return "", err
		}
		return do(a)
	})
}

// userData answers the installer's first question, by the template of the
// workflow that the node boots. It may be asked again.
func (s *Server) userData(w http.ResponseWriter, r *http.Request) {
	s.answerAttempt(w, r, func(a attempt) (string, error) {
		base, ok := s.base(r)
		if !ok {
			return "", errNoHost
		}
		text, err := a.data(base).Render(a.workflow.Spec.UserData)
		if err == nil {
			err = s.cfg.Store.UsePXEToken(r.Context(), a.ticket.TokenHash)
		}
		if err != nil {
			err = fmt.Errorf("user-data of node %s by install workflow %s: %w", a.node.ID, a.workflow.ID, err)
		}
		return text, err
	})
}

func (a attempt) data(base string) pxetemplate.UserData {
	f := a.pxe.Facts
	labels := make(map[string]pxetemplate.Quoted, len(a.node.Labels))
	for k, v := range a.node.Labels {
		labels[k] = pxetemplate.Quoted(v)
	}
	return pxetemplate.UserData{
		NodeID: pxetemplate.Plain(a.node.ID), Hostname: pxetemplate.Plain(a.node.Hostname), MAC: pxetemplate.Plain(a.node.MACs[0]), Token: pxetemplate.Plain(a.token), SeedURL: pxetemplate.Plain(base + Prefix + "/" + a.token + "/"),
		ReportURL: pxetemplate.Plain(base + reportPath), Attempt: a.ticket.Attempt, Vendor: pxetemplate.Quoted(f.Vendor), Model: pxetemplate.Quoted(f.Model), SerialNumber: pxetemplate.Quoted(f.SerialNumber),
		SystemUUID: pxetemplate.Quoted(f.SystemUUID), IPAddress: pxetemplate.Plain(f.IPAddress), Labels: labels,
	}
}

// metaData is what cloud-init's NoCloud source asks for beside user-data. The
// instance is another one for each attempt, so that nothing is taken as done.
func (s *Server) metaData(w http.ResponseWriter, r *http.Request) {
	s.answerAttempt(w, r, func(a attempt) (string, error) {
		return fmt.Sprintf("instance-id: %s-%d-%d\nlocal-hostname: %s\n", a.node.ID, a.ticket.Round, a.ticket.Attempt, a.node.Hostname), nil
	})
}

// vendorData is asked for by NoCloud and is empty.
func (s *Server) vendorData(w http.ResponseWriter, r *http.Request) {
	s.answerAttempt(w, r, func(attempt) (string, error) { return "", nil })
}

// imageURL is where the firmware loads an image from: its own place, or this
// server where its bytes are checked.
func imageURL(i spec.BootImage, own string, number int) string {
	if i.SHA256 == "" {
		return i.URL
	}
	return fmt.Sprintf("%s/image/%d", own, number)
}
