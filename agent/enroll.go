package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
)

// ErrNotEnrolled means that there is neither an identity nor a token.
var ErrNotEnrolled = errors.New("this node has not enrolled and there is no enrolment token; ask for one and write it to the token file")

// tokenProblems end the use of a token.
var tokenProblems = []string{protocol.ProblemTokenUnknown, protocol.ProblemTokenExpired, protocol.ProblemTokenRevoked, protocol.ProblemTokenUsed}

// Enroll makes sure that this node has an identity. If there is a new token in the token file, it
// exchanges the token for an identity. Otherwise it uses the stored one. It can be repeated, and
// removes a token that was used.
func (a *Agent) Enroll(ctx context.Context) error {
	tokenPath := a.cfg.Path(a.cfg.TokenFile)
	token, sum, err := readToken(tokenPath)
	if err != nil {
		return err
	}
	id, err := a.state.identity()
	if err != nil && token == "" {
		return err
	}
	if id != nil && (token == "" || id.TokenSHA256 == sum) {
		a.use(id)
		if token != "" { // a crash came after the identity was stored and before the token was removed
			return remove(tokenPath)
		}
		return nil
	}
	if token == "" {
		return ErrNotEnrolled
	}
	if id != nil { // a new token for a node that has an identity, which stays valid until the exchange is done
		a.use(id)
		if sum == a.refusedToken {
			return nil
		}
	}
	key, p, err := a.state.pendingKey(sum)
	if err != nil {
		return err
	}
	anonymous, err := newClient(a.cfg, nil, a.now)
	if err != nil {
		return err
	}
	defer anonymous.close()
	req, err := request(key)
	if err != nil {
		return err
	}
	in := protocol.EnrollRequest{Token: token, CSRPEM: req}
	if id != nil {
		in.AfterGeneration = id.Generation
	}
	var out protocol.CertificateResponse
	if err := anonymous.post(ctx, protocol.PathEnroll, in, &out); err != nil {
		if id != nil && isProblem(err, tokenProblems...) {
			a.refusedToken = sum
			a.log.Warn("the new enrolment token was refused; the node keeps its identity", "error", err)
			return nil
		}
		return err
	}
	if err := a.adopt(out, p); err != nil {
		return err
	}
	a.log.Info("enrolled", "node", out.NodeID, "generation", out.Generation, "until", out.NotAfter)
	return remove(tokenPath)
}

// renew requests the certificate of the next generation. It keeps the present one when the server
// answers with it, since renewal is not due.
func (a *Agent) renew(ctx context.Context) error {
	key, p, err := a.state.pendingKey("")
	if err != nil {
		return err
	}
	req, err := request(key)
	if err != nil {
		return err
	}
	var out protocol.CertificateResponse
	if err := a.client.post(ctx, protocol.PathRenew, protocol.RenewRequest{CSRPEM: req}, &out); err != nil {
		return err
	}
	if out.CertificatePEM == a.id.Certificate {
		a.adopted = a.now() // this node's clock is ahead: ask again after a quarter of the life
		a.log.Warn("the server says that the certificate is not due for renewal; the clock of this node may be ahead")
		return remove(filepath.Join(a.state.dir, pendingFile))
	}
	p.TokenSHA256 = a.id.TokenSHA256
	if err := a.adopt(out, p); err != nil {
		return err
	}
	a.log.Info("certificate renewed", "generation", out.Generation, "until", out.NotAfter)
	return nil
}

// renewalDue reports whether the certificate is to be renewed: at half of its life, once the server
// says that it has expired, and while an earlier renewal is in the journal. To a clock that is
// ahead each new certificate looks old. So this process renews none before it has had it for a
// quarter of its life.
func (a *Agent) renewalDue() bool {
	var p pending
	found, err := a.state.load(pendingFile, &p)
	if a.ended || err == nil && found && p.TokenSHA256 == "" {
		return true
	}
	at := a.id.renewAt()
	if !a.adopted.IsZero() && a.now().Sub(a.adopted) < at.Sub(a.id.leaf.NotBefore)/2 {
		return false
	}
	return !a.now().Before(at)
}

// adopt checks that the answer is for this node and this key, stores it, and uses the new identity
// from then on.
func (a *Agent) adopt(out protocol.CertificateResponse, p pending) error {
	if out.NodeID != a.cfg.NodeID {
		return fmt.Errorf("the token belongs to node %q, but this is node %q; ask for a token for this node", task.Clip(out.NodeID, 64), a.cfg.NodeID)
	}
	keys := out.TaskKeys
	if len(keys) == 0 && a.id != nil {
		keys = a.id.TaskKeys
	}
	id, err := parseIdentity(identity{NodeID: out.NodeID, Generation: out.Generation,
		Certificate: out.CertificatePEM, Key: p.Key, TokenSHA256: p.TokenSHA256, TaskKeys: keys})
	if err != nil {
		return fmt.Errorf("the server's certificate is not right: %w", err)
	}
	if err := a.state.adopt(id); err != nil {
		return err
	}
	a.adopted, a.ended = a.now(), false
	a.setInterval(out.HeartbeatIntervalSeconds)
	a.use(id)
	return nil
}

func (a *Agent) use(id *identity) {
	if a.id != nil && a.id.Certificate == id.Certificate {
		return
	}
	c, err := newClient(a.cfg, id, a.now)
	if err != nil { // it cannot fail: New has made one with the same CA
		a.log.Error("the client could not be made", "error", err)
		return
	}
	if a.client != nil {
		a.client.close()
	}
	a.id, a.client = id, c
	a.session.set(id, c)
}

// learn stores the keys of tasks that came with the answer to a heartbeat.
func (a *Agent) learn(keys []protocol.TaskKey) {
	if len(keys) == 0 || reflect.DeepEqual(keys, a.id.TaskKeys) {
		return
	}
	next := *a.id
	next.TaskKeys = keys
	if err := a.state.save(identityFile, &next); err != nil {
		a.log.Warn("new task keys could not be stored yet", "error", err)
		return
	}
	a.id = &next
	a.session.set(a.id, a.client)
	a.log.Info("the keys of tasks have changed", "keys", keyIDs(keys))
}

func keyIDs(keys []protocol.TaskKey) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.KeyID)
	}
	return out
}

func request(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return "", fmt.Errorf("make a certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

func (a *Agent) setInterval(seconds float64) {
	d := time.Duration(seconds * float64(time.Second))
	if d >= agentconfig.MinInterval && d <= agentconfig.MaxInterval {
		a.interval = d
	}
}
