// Package onboarding accepts the onboarding of a server: its node, its BMC and the job that takes
// it into service. It also creates the job of a node that an operator installs.
package onboarding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Request asks for a bare server to become an active node.
type Request struct {
	SiteID, ProfileID, SKUID, Hostname string
	BMC                                intent.BMC // empty for a manual onboarding; Protocol "" stands for the profile's power type
	Manual                             bool       // an operator installs the node: without MAAS
}

// Checked is a request whose references Check has found to be valid.
type Checked struct {
	Request
	Site    db.Site
	Profile db.Profile
	BatchID *string
	JobID   string // "" makes one
}

// Check reads what the request refers to. Its refusal names everything that is wrong.
func Check(ctx context.Context, store *db.Store, r Request) (Checked, error) {
	c := Checked{Request: r}
	var bad []intent.Field
	found := func(field, what string, err error) (bool, error) {
		if errors.Is(err, db.ErrNotFound) {
			bad = append(bad, intent.Field{Name: field, Message: "there is no such " + what})
			return false, nil
		}
		return err == nil, err
	}
	var err error
	c.Site, err = store.Site(ctx, r.SiteID)
	siteFound, err := found("site_id", "site", err)
	if err != nil {
		return c, err
	}
	c.Profile, err = store.Profile(ctx, r.ProfileID)
	profileFound, err := found("profile_id", "profile", err)
	if err != nil {
		return c, err
	}
	if siteFound && profileFound && c.Profile.SiteID != c.Site.ID {
		bad = append(bad, intent.Field{Name: "profile_id", Message: "is a profile of another site"})
	}
	_, err = store.SKU(ctx, r.SKUID)
	if _, err := found("sku_id", "SKU", err); err != nil {
		return c, err
	}
	if !spec.ValidHostname(r.Hostname) {
		bad = append(bad, intent.Field{Name: "hostname", Message: "must be one DNS label in lower case: letters, digits and dashes, at most 63"})
	}
	if !r.Manual {
		if c.BMC.Protocol == "" {
			c.BMC.Protocol = c.Profile.Spec.WithDefaults().PowerType
		}
		if siteFound {
			c.BMC.Site = &c.Site
			if c.BMC.NodeID, err = nodeOfHost(ctx, store, c); err != nil {
				return c, err
			}
		}
		fields, err := intent.CheckBMC(ctx, store, c.BMC)
		if err != nil {
			return c, err
		}
		bad = append(bad, intent.Under("bmc", fields)...)
	}
	return c, intent.InvalidIf(bad)
}

// nodeOfHost returns the existing node that an onboarding uses, or "" when it creates one.
func nodeOfHost(ctx context.Context, store *db.Store, c Checked) (string, error) {
	if !spec.ValidHostname(c.Hostname) {
		return "", nil
	}
	node, err := store.LiveNodeOfHost(ctx, c.Site.ID, c.Hostname)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return node.ID, err
}

// Accept writes node, BMC, job and outbox row, with their audit rows. If a node of this hostname
// exists that an earlier onboarding left in quarantine or never started, it uses that node.
func Accept(ctx context.Context, tx *db.Tx, c Checked, actor db.Actor) (db.Job, db.Node, error) {
	if err := checkBMCFree(ctx, tx, c); err != nil {
		return db.Job{}, db.Node{}, err
	}
	node, err := takeNode(ctx, tx, c, actor)
	if err != nil {
		return db.Job{}, db.Node{}, err
	}
	in := contract.OnboardingInput{Manual: c.Manual, SiteID: c.SiteID, ProfileID: c.ProfileID, SKUID: c.SKUID, Hostname: c.Hostname}
	if !c.Manual {
		if in.BMCID, err = takeBMC(ctx, tx, node.ID, c.BMC, actor); err != nil {
			return db.Job{}, db.Node{}, err
		}
	}
	job, err := Start(ctx, tx, db.NewJob{ID: c.JobID, NodeID: &node.ID, BatchID: c.BatchID, Actor: actor}, in)
	return job, node, err
}

// checkBMCFree refuses a BMC that another node has, because each node's jobs would switch and erase
// the machine of the other. It writes nothing, since a batch continues after a refusal.
func checkBMCFree(ctx context.Context, tx *db.Tx, c Checked) error {
	if c.Manual {
		return nil
	}
	old, err := tx.LiveNodeOfHost(ctx, c.SiteID, c.Hostname)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return err
	}
	return tx.BMCFree(ctx, c.BMC.Address, c.BMC.Protocol, c.BMC.SystemID, old.ID)
}

// Start creates the job of an onboarding. The row names its node and its actor.
func Start(ctx context.Context, tx *db.Tx, row db.NewJob, in contract.OnboardingInput) (db.Job, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return db.Job{}, fmt.Errorf("onboarding input: %w", err)
	}
	row.Kind, row.SiteID, row.ProfileID, row.Input = string(contract.KindOnboarding), &in.SiteID, &in.ProfileID, raw
	return tx.CreateJob(ctx, row)
}

// StartEnrolled creates the job of a node that was bootstrapped by hand when its agent enrols and
// no job waits for it. Call it in the transaction that redeems the token, so that there is no
// enrolment without the job. The job skips the MAAS stages and ends when the node is healthy.
func StartEnrolled(ctx context.Context, tx *db.Tx, nodeID string) error {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return err
	}
	if n.Status != lifecycle.NodeBootstrapIssued || n.ProfileID == nil || n.SKUID == nil {
		return nil
	}
	if _, err := tx.LiveJobOfNode(ctx, nodeID); !errors.Is(err, db.ErrNotFound) {
		return err // a live job, or an error
	}
	actor := db.Actor{Owner: lifecycle.OwnerSystem, Comment: "the agent of a manually bootstrapped node enrolled"}
	_, err = Start(ctx, tx, db.NewJob{NodeID: &nodeID, Actor: actor},
		contract.OnboardingInput{Manual: true, SiteID: n.SiteID, ProfileID: *n.ProfileID, SKUID: *n.SKUID, Hostname: n.Hostname})
	return err
}

// IsManual reports whether the job onboards a node without MAAS.
func IsManual(j db.Job) bool {
	var in contract.OnboardingInput
	return j.Kind == string(contract.KindOnboarding) && json.Unmarshal(j.Input, &in) == nil && in.Manual
}

func takeNode(ctx context.Context, tx *db.Tx, c Checked, actor db.Actor) (db.Node, error) {
	old, err := tx.LiveNodeOfHost(ctx, c.SiteID, c.Hostname)
	if errors.Is(err, db.ErrNotFound) {
		return tx.CreateNode(ctx, db.NewNode{
			Hostname: c.Hostname, SiteID: c.SiteID, SKUID: &c.SKUID, ProfileID: &c.ProfileID, Simulated: c.Site.Spec.Simulated, Actor: actor,
		})
	}
	if err != nil {
		return db.Node{}, err
	}
	if old, err = tx.LockNode(ctx, old.ID); err != nil {
		return db.Node{}, err
	}
	live, err := tx.LiveJobOfNode(ctx, old.ID)
	if err == nil {
		return db.Node{}, &intent.Refusal{Kind: intent.LiveJob, Existing: live.ID,
			Detail: fmt.Sprintf("node %s is being worked on by job %s; wait for it to end, or cancel it", c.Hostname, live.ID)}
	}
	if !errors.Is(err, db.ErrNotFound) {
		return db.Node{}, err
	}
	// A node that is enrolling without a live job has lost its onboarding. A new onboarding is the
	// only way out.
	if old.Status != lifecycle.NodeQuarantined && old.Status != lifecycle.NodeBootstrapIssued && old.Status != lifecycle.NodeEnrolling {
		return db.Node{}, &intent.Refusal{Kind: intent.Conflict, Existing: old.ID, Detail: fmt.Sprintf(
			"node %s has the hostname %s already and is %s; only a quarantined node can be onboarded again; choose another hostname, or retire and remove that node",
			old.ID, c.Hostname, old.Status)}
	}
	// A new installation erases no disk but the system's own.
	if why := db.SanitizeRequired(old); why != "" {
		return db.Node{}, &intent.Refusal{Kind: intent.Conflict, Existing: old.ID, Detail: "it cannot be onboarded again as it is: " + why,
			Advice: intent.Advice{Reason: intent.ReasonSanitize, Hostname: old.Hostname}}
	}
	return tx.UpdateNode(ctx, old.ID, old.Version, db.NodePatch{SKUID: &c.SKUID, ProfileID: &c.ProfileID})
}

// takeBMC creates the node's BMC, or gives the existing one the login of the request. Another
// address means another BMC, which gets a record of its own. The old record is detached and kept
// unchanged: only it names the password that a rotation has set on that BMC, and it holds the count
// of failed logins.
func takeBMC(ctx context.Context, tx *db.Tx, nodeID string, want intent.BMC, actor db.Actor) (string, error) {
	given := db.NewBMC{
		NodeID: &nodeID, Address: want.Address, Protocol: want.Protocol, CredentialRef: want.CredentialRef, SystemID: want.SystemID, CipherSuite: want.CipherSuite,
	}
	old, err := tx.BMCOfNode(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		b, err := tx.CreateBMC(ctx, given)
		return b.ID, err
	}
	if err != nil {
		return "", err
	}
	if !db.IsSameBMCAddress(want.Address, old.Address) {
		b, err := tx.ExchangeBMC(ctx, nodeID, old, given, actor)
		return b.ID, err
	}
	old.Address, old.CredentialRef, old.Protocol = want.Address, want.CredentialRef, want.Protocol
	if want.CipherSuite != 0 {
		old.IPMICipherSuite = want.CipherSuite
	}
	if want.SystemID != "" {
		old.SystemID = want.SystemID
	}
	_, err = tx.UpdateBMC(ctx, old)
	return old.ID, err
}
