package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/internal/sender"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// PXEToken is a token that a boot script handed out, as stored: its SHA-256.
type PXEToken = gen.PXEToken

// tokenLife is how long a boot token may be used; it ends with its attempt.
const tokenLife = 24 * time.Hour

const maxInstallError = 2000 // characters

// installFacts is where an installation stands.
func installFacts(n Node, p PXENode) lifecycle.InstallFacts {
	f := lifecycle.InstallFacts{Status: n.Status, Round: p.Round, Attempts: n.InstallAttempts, Started: p.StartedAt != nil, Progress: p.Progress}
	if Armed(p) {
		f.Netboot, f.Warnings = p.NetbootPurpose, len(p.Warned)
	}
	return f
}

// said is a report as it is checked: a token is as old as the boot that it was
// handed out to.
func (r InstallReport) said(t PXEToken, p PXENode) lifecycle.Report {
	return lifecycle.Report{
		Status: r.Status, InstallAttempt: lifecycle.InstallAttempt{Round: t.Round, Attempt: t.Attempt}, Progress: r.Progress,
		Stale: p.BegunBy != nil && t.CreatedAt.Before(*p.BegunBy),
		Fresh: p.WarnedAt == nil || t.CreatedAt.After(*p.WarnedAt),
		Said:  slices.Contains(p.Warned, r.warning(t)),
	}
}

// warning tells an error of one boot from others, and is of a bounded length.
func (r InstallReport) warning(t PXEToken) string {
	sum := sha256.Sum256(append(bytes.Clone(t.TokenHash), installError(r.Error)...))
	return hex.EncodeToString(sum[:8])
}

// AddPXEToken stores the hash of a token for the node's running or next attempt, which goes to an
// address. The caller holds the node's lock and knows that it may install.
func (tx *Tx) AddPXEToken(ctx context.Context, n Node, hash []byte, source string) (lifecycle.InstallAttempt, error) {
	p, err := tx.PXENode(ctx, n.ID)
	if err != nil {
		return lifecycle.InstallAttempt{}, err
	}
	t := installFacts(n, p).InstallAttempt()
	err = tx.q.InsertPXEToken(ctx, gen.InsertPXETokenParams{
		TokenHash: hash, NodeID: n.ID, Round: t.Round, Attempt: t.Attempt, Source: source, TtlSeconds: tokenLife.Seconds(), KnownSources: knownSources(p),
	})
	return t, MapError("boot token of node "+n.ID, err)
}

// knownSources returns the networks that a node is known from: where it was discovered, and the
// address that it named until its approval. Both stay as they were then.
func knownSources(p PXENode) []string {
	known := []string{}
	for _, source := range []string{p.SourceNetwork, sender.NetworkText(p.Facts.IPAddress)} {
		if source != "" {
			known = append(known, source)
		}
	}
	return known
}

// PXETokenByHash finds a token that is not expired, or ErrNotFound. Whether its
// attempt still counts is TicketHolds'.
func (s statements) PXETokenByHash(ctx context.Context, hash []byte) (PXEToken, error) {
	t, err := s.q.PXEToken(ctx, hash)
	return t, MapError("boot token", err)
}

// UsePXEToken notes that somebody works with the token: it is kept when the
// node fetches more of them.
func (s statements) UsePXEToken(ctx context.Context, hash []byte) error {
	return MapError("boot token", s.q.UsePXEToken(ctx, hash))
}

// TicketHolds says whether a token is for the attempt that the node is at.
func TicketHolds(t PXEToken, n Node, p PXENode) bool {
	f := installFacts(n, p)
	return f.Runs() && lifecycle.InstallAttempt{Round: t.Round, Attempt: t.Attempt} == f.InstallAttempt()
}

// InstallReport is a report that came with a boot token.
type InstallReport struct {
	TokenHash []byte
	MAC       string // normalised
	Source    string
	Facts     PXEFacts
	Status    lifecycle.InstallStatus // "" says nothing of an installation
	Progress  int                     // percent
	Error     string                  // of a failed one
	// Drives are those that an installer has found; none says nothing of them.
	Drives []spec.ExpectedDrive
}

// ReportInstall applies a report by the table in docs/pxe.md. ErrNotFound: the
// token is unknown, expired or of a node without this address. A report that
// is repeated, late or out of order changes nothing.
func (tx *Tx) ReportInstall(ctx context.Context, r InstallReport) (Node, lifecycle.ReportEffect, error) {
	token, err := tx.PXETokenByHash(ctx, r.TokenHash)
	if err != nil {
		return Node{}, "", err
	}
	there, err := tx.q.HasPXEMAC(ctx, gen.HasPXEMACParams{MAC: r.MAC, NodeID: token.NodeID})
	if err == nil && !there {
		err = ErrNotFound
	}
	if err != nil {
		return Node{}, "", MapError("MAC of the boot token", err)
	}
	n, err := tx.LockNode(ctx, token.NodeID)
	if err != nil {
		return Node{}, "", err
	}
	p, err := tx.PXENode(ctx, n.ID)
	if err != nil {
		return Node{}, "", err
	}
	effect := lifecycle.ClassifyReport(installFacts(n, p), r.said(token, p))
	if effect == lifecycle.ReportIgnored {
		return n, effect, nil
	}
	if err := tx.noteReport(ctx, n, r); err != nil {
		return Node{}, "", err
	}
	if !Armed(p) || p.NetbootPurpose != lifecycle.NetbootErase { // what erases a node does not say what it may erase
		if err := tx.RecordDrives(ctx, n.ID, r.Drives, DrivesBooted, Actor{Owner: lifecycle.OwnerNodeReport}); err != nil {
			return Node{}, "", err
		}
	}
	n, err = tx.applyReport(ctx, n, p, token, r, effect)
	return n, effect, err
}

// noteReport keeps what a node with a token says of itself.
func (tx *Tx) noteReport(ctx context.Context, n Node, r InstallReport) error {
	if err := tx.UsePXEToken(ctx, r.TokenHash); err != nil {
		return err
	}
	if err := tx.SeePXENode(ctx, n.ID, r.Source, r.Facts); err != nil {
		return err
	}
	if r.Facts.IPAddress == "" {
		return nil
	}
	return tx.SetNodeAddresses(ctx, n.ID, NodeAddresses{Source: lifecycle.AddressesOfInstaller, IPs: []string{r.Facts.IPAddress}})
}

func (tx *Tx) applyReport(ctx context.Context, n Node, p PXENode, token PXEToken, r InstallReport, effect lifecycle.ReportEffect) (Node, error) {
	n, err := tx.Node(ctx, n.ID) // what it said of itself may have raised the version
	if err != nil {
		return n, err
	}
	by := Actor{Owner: lifecycle.OwnerNodeReport, Metadata: map[string]any{"attempt": n.InstallAttempts + 1}}
	switch effect {
	case lifecycle.ReportStarts:
		var proof lifecycle.Proof
		if p.InstallWorkflowID != nil {
			proof = lifecycle.Proof{lifecycle.NeedWorkflow}
		}
		if n, err = tx.setAttempts(ctx, n, 0, ""); err != nil {
			return n, err
		}
		return tx.moveNode(ctx, n, lifecycle.PXEStart, proof, by)
	case lifecycle.ReportRestarts:
		return n, tx.runAttempt(ctx, n.ID, true)
	case lifecycle.ReportBegins, lifecycle.ReportWarns, lifecycle.ReportLeaves:
		return tx.applyNetboot(ctx, n, p, token, r, effect)
	case lifecycle.ReportHeard:
		return n, tx.keepInstall(ctx, n)
	case lifecycle.ReportAdvances:
		if Armed(p) {
			err := tx.q.AdvanceNetboot(ctx, gen.AdvanceNetbootParams{NodeID: n.ID, Progress: r.Progress})
			return n, MapError("progress of node "+n.ID, err)
		}
		deadline, err := tx.installDeadline(ctx, n.ID)
		if err != nil {
			return n, err
		}
		err = tx.q.AdvanceInstall(ctx, gen.AdvanceInstallParams{NodeID: n.ID, Progress: r.Progress, DeadlineSeconds: deadline.Seconds()})
		return n, MapError("progress of node "+n.ID, err)
	case lifecycle.ReportFinishes:
		if n, err = tx.setAttempts(ctx, n, 0, ""); err != nil {
			return n, err
		}
		if n, err = tx.moveNode(ctx, n, lifecycle.PXEComplete, nil, by); err != nil {
			return n, err
		}
		return tx.promote(ctx, n)
	case lifecycle.ReportFails, lifecycle.ReportExhausts:
		return tx.failAttempt(ctx, n, effect, r.Error, by)
	case lifecycle.ReportIgnored:
	}
	return n, fmt.Errorf("a report has the effect %q, which nothing is known of", effect)
}

// applyNetboot notes what the system that a job booted says of itself. The job
// reads it; the node's state and counters are not touched.
func (tx *Tx) applyNetboot(ctx context.Context, n Node, p PXENode, token PXEToken, r InstallReport, effect lifecycle.ReportEffect) (Node, error) {
	what := "netboot of node " + n.ID
	switch effect {
	case lifecycle.ReportBegins:
		return n, MapError(what, tx.q.BeginNetboot(ctx, gen.BeginNetbootParams{NodeID: n.ID, BegunBy: token.CreatedAt}))
	case lifecycle.ReportLeaves:
		n, err := tx.setAttempts(ctx, n, n.InstallAttempts, "")
		if err != nil {
			return n, err
		}
		return n, MapError(what, tx.q.FinishNetboot(ctx, n.ID))
	default:
	}
	message := installError(r.Error)
	n, err := tx.setAttempts(ctx, n, n.InstallAttempts, message)
	if err != nil {
		return n, err
	}
	if err := tx.q.WarnNetboot(ctx, gen.WarnNetbootParams{NodeID: n.ID, Warning: r.warning(token)}); err != nil {
		return n, MapError(what, err)
	}
	by := Actor{Owner: lifecycle.OwnerNodeReport, Metadata: map[string]any{"error": message, "purpose": p.NetbootPurpose, "job_id": p.NetbootJobID}}
	return n, tx.AppendAudit(ctx, Entry{
		ResourceKind: "node", ResourceID: n.ID, NodeID: &n.ID, Kind: EntryObservation, Name: "netboot_failed", From: string(n.Status), To: string(n.Status), Actor: by,
	})
}

func installError(message string) string {
	if message == "" {
		message = "the node named no error"
	}
	return ClipText(message, maxInstallError)
}

// failAttempt counts a failed attempt; the third ends the installation.
func (tx *Tx) failAttempt(ctx context.Context, n Node, effect lifecycle.ReportEffect, message string, by Actor) (Node, error) {
	message = installError(message)
	attempt := n.InstallAttempts + 1
	by.Metadata = map[string]any{"error": message, "attempt": attempt}
	n, err := tx.setAttempts(ctx, n, attempt, message)
	if err != nil {
		return n, err
	}
	// A token that the failed system fetched and did not use is good no more.
	if err := tx.q.RevokeUnusedEnrollmentTokens(ctx, n.ID); err != nil {
		return n, MapError("enrolment tokens of node "+n.ID, err)
	}
	if effect == lifecycle.ReportExhausts {
		return tx.moveNode(ctx, n, lifecycle.PXEFail, nil, by)
	}
	if err := tx.runAttempt(ctx, n.ID, false); err != nil {
		return n, err
	}
	err = tx.AppendAudit(ctx, Entry{
		ResourceKind: "node", ResourceID: n.ID, NodeID: &n.ID, Kind: EntryObservation, Name: "install_attempt_failed", From: string(n.Status), To: string(n.Status), Actor: by,
	})
	if err != nil {
		return n, err
	}
	payload, err := json.Marshal(map[string]any{"node_id": n.ID, "hostname": n.Hostname, "status": n.Status, "install_attempts": attempt, "last_install_error": message})
	if err != nil {
		return n, fmt.Errorf("event of node %s: %w", n.ID, err)
	}
	err = tx.q.AppendEvent(ctx, gen.AppendEventParams{ResourceKind: "node", ResourceID: n.ID, NodeID: &n.ID, Type: "node.install_attempt_failed", Payload: payload})
	return n, MapError("event of node "+n.ID, err)
}

func (tx *Tx) setAttempts(ctx context.Context, n Node, attempts int, message string) (Node, error) {
	if n.InstallAttempts == attempts && n.LastInstallError == message {
		return n, nil
	}
	row, err := tx.q.SetInstallAttempts(ctx, gen.SetInstallAttemptsParams{ID: n.ID, InstallAttempts: attempts, LastInstallError: message})
	return row, MapError("install attempts of node "+n.ID, err)
}

func (tx *Tx) runAttempt(ctx context.Context, id string, started bool) error {
	deadline, err := tx.installDeadline(ctx, id)
	if err != nil {
		return err
	}
	err = tx.q.RunInstallAttempt(ctx, gen.RunInstallAttemptParams{NodeID: id, Started: started, DeadlineSeconds: deadline.Seconds()})
	return MapError("attempt of node "+id, err)
}

// stalledAfter is how many times the silence limit an attempt may go on
// reporting and get no further.
const stalledAfter = 4

// keepInstall moves the deadline of an attempt that shows itself.
func (tx *Tx) keepInstall(ctx context.Context, n Node) error {
	if n.Status != lifecycle.NodeInstalling {
		return nil
	}
	limit, err := tx.installDeadline(ctx, n.ID)
	if err != nil {
		return err
	}
	err = tx.q.KeepInstall(ctx, gen.KeepInstallParams{NodeID: n.ID, DeadlineSeconds: limit.Seconds(), StalledSeconds: stalledAfter * limit.Seconds()})
	return MapError("deadline of node "+n.ID, err)
}

// installDeadline is how long the node's workflow lets an attempt be silent.
func (tx *Tx) installDeadline(ctx context.Context, id string) (time.Duration, error) {
	p, err := tx.PXENode(ctx, id)
	if err != nil {
		return 0, err
	}
	if p.InstallWorkflowID == nil {
		return spec.InstallWorkflowSpec{}.Deadline(), nil
	}
	w, err := tx.InstallWorkflow(ctx, *p.InstallWorkflowID)
	return w.Spec.Deadline(), err
}

// SilentInstalls lists nodes whose attempt was silent past its deadline, as of
// ahead from now (0, but for tests).
func (s statements) SilentInstalls(ctx context.Context, ahead time.Duration, limit int) ([]string, error) {
	ids, err := s.q.SilentInstalls(ctx, gen.SilentInstallsParams{AheadSeconds: ahead.Seconds(), MaxRows: PageLimit(limit)})
	return ids, MapError("list silent installations", err)
}

// FailSilentInstall counts the attempt of a node that was silent past its
// deadline as failed. It reads the node again under its lock and does nothing,
// and says so, when it has spoken or left the state meanwhile.
func (s *Store) FailSilentInstall(ctx context.Context, id string, now time.Time, a Actor) (failed bool, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		failed = false
		n, err := tx.LockNode(ctx, id)
		if err != nil {
			return err
		}
		p, err := tx.PXENode(ctx, id)
		if err != nil {
			return err
		}
		if n.Status != lifecycle.NodeInstalling || p.DeadlineAt == nil || !p.DeadlineAt.Before(now) {
			return nil
		}
		message := fmt.Sprintf("the installer was silent past its deadline of %s", p.DeadlineAt.UTC().Format(time.RFC3339))
		if p.Stalled && p.GrownAt != nil {
			message = fmt.Sprintf("the installer went on reporting, and got no further than %d %% since %s", p.Progress, p.GrownAt.UTC().Format(time.RFC3339))
		}
		_, err = tx.failAttempt(ctx, n, lifecycle.FailedAttempt(installFacts(n, p)), message, a)
		failed = err == nil
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return failed, err
}
