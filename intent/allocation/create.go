// Package allocation accepts, releases and ends allocations. Every path that ends a tenancy goes
// through it.
package allocation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/tenancy"
)

// The limits of a request.
const (
	MaxWaitSeconds = 86400
	MaxName        = 100
	MaxSpendMinor  = 1_000_000_000_000_000
)

// Policy limits how fast one billing account may take and give back nodes.
type Policy struct {
	// MaxLaunches is how many allocations may be requested in LaunchWindow.
	MaxLaunches  int
	LaunchWindow time.Duration
	// MaxReleasing is how many allocations may be in releasing or release_failed while a new one is
	// requested.
	MaxReleasing int
	// MaxUnpaid is how many nodes may have been provisioned for nothing within the last hour: given
	// back before they were active, or failed after the keys were installed. Each was out of
	// service for a while, and who wants that pays nothing otherwise.
	MaxUnpaid int
}

// unpaidWindow is the time in which MaxUnpaid counts.
const unpaidWindow = time.Hour

// DefaultPolicy is used where the settings name no other.
var DefaultPolicy = Policy{MaxLaunches: 60, LaunchWindow: time.Minute, MaxReleasing: 20, MaxUnpaid: 5}

// Request asks for one node.
type Request struct {
	ProjectID   string
	SKUID       string
	SiteID      string // "" for any site
	Name        string
	Tags        map[string]string
	KeyIDs      []string // of the project's SSH keys; none stands for all of them
	WaitSeconds int      // how long it may wait for a node; 0 refuses at once when none is free
	ExpiresAt   *time.Time
	// MaxSpendMinor is what it may cost until it is released; nil is without limit.
	MaxSpendMinor *int64
	// ReadsMoney says that whoever asks may read the balance that pays.
	ReadsMoney bool
	Policy     Policy // the zero value is DefaultPolicy
	Actor      db.Actor
}

func (r Request) moneyClaim() tenancy.Claim {
	return tenancy.Claim{Item: ledgerdb.Item{SKUID: r.SKUID}, MaxSpendMinor: r.MaxSpendMinor, ReadsMoney: r.ReadsMoney}
}

// Accepted is an allocation that was accepted, with the job that provisions it.
type Accepted struct {
	Allocation allocationdb.Allocation
	Job        db.Job
}

// Create accepts an allocation: it checks the request, the limits of the project and of its billing
// account, takes a node when one is free, and writes the allocation with its keys, its job and the
// outbox row. Without a free node it refuses, or it waits when the request says so.
func Create(ctx context.Context, tx *db.Tx, r Request) (Accepted, error) {
	if err := check(r); err != nil {
		return Accepted{}, err
	}
	if err := requireOffered(ctx, tx, r); err != nil { // first: what does not exist has no quota and no price either
		return Accepted{}, err
	}
	hold, err := Admit(ctx, tx, r)
	if err != nil {
		return Accepted{}, err
	}
	keys, err := chooseKeys(ctx, tx, r)
	if err != nil {
		return Accepted{}, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return Accepted{}, err
	}
	if err := checkExpiry(r, now); err != nil {
		return Accepted{}, err
	}
	id := db.NewID("alc")
	node, found, err := allocationdb.TakeFreeNode(ctx, tx, id, r.SKUID, r.SiteID)
	if err != nil {
		return Accepted{}, err
	}
	deadline := now.Add(time.Duration(r.WaitSeconds) * time.Second)
	if !found && r.WaitSeconds == 0 {
		return Accepted{}, refuseCapacity(ctx, tx, r)
	}
	a, err := allocationdb.Create(ctx, tx, allocationdb.New{
		ID: id, ProjectID: r.ProjectID, SKUID: r.SKUID, SiteID: r.SiteID, Name: r.Name, Tags: r.Tags, Keys: keys, QueueDeadline: &deadline,
		ExpiresAt: r.ExpiresAt, RequestedBy: requestedBy(r.Actor), Actor: r.Actor,
	})
	if err != nil {
		return Accepted{}, err
	}
	if err := placeHold(ctx, tx, a, hold, r.MaxSpendMinor); err != nil {
		return Accepted{}, err
	}
	job, err := createJob(ctx, tx, contract.KindAllocationProvision, a, r.Actor)
	if err != nil {
		return Accepted{}, err
	}
	if found {
		if a, err = allocationdb.ClaimTaken(ctx, tx, a, node, r.Actor); err != nil {
			return Accepted{}, err
		}
		job, err = tx.Job(ctx, job.ID)
	}
	return Accepted{a, job}, err
}

func checkExpiry(r Request, now time.Time) error {
	if r.ExpiresAt != nil && !r.ExpiresAt.After(now) {
		return invalid("expires_at", "must be in the future")
	}
	return nil
}

func requestedBy(a db.Actor) string {
	if a.ID == "" {
		return string(a.Owner)
	}
	return a.ID
}

func invalid(field, message string) error {
	return &intent.Refusal{Kind: intent.Invalid, Fields: []intent.Field{{Name: field, Message: message}}}
}

func check(r Request) error {
	var bad []intent.Field
	if len([]rune(r.Name)) > MaxName {
		bad = append(bad, intent.Field{Name: "name", Message: fmt.Sprintf("must be at most %d characters", MaxName)})
	}
	if why := tenancy.CheckTags(r.Tags); why != "" {
		bad = append(bad, intent.Field{Name: "tags", Message: why})
	}
	if r.WaitSeconds < 0 || r.WaitSeconds > MaxWaitSeconds {
		bad = append(bad, intent.Field{Name: "wait_seconds", Message: fmt.Sprintf("must be 0 to %d", MaxWaitSeconds)})
	}
	if r.MaxSpendMinor != nil && (*r.MaxSpendMinor < 1 || *r.MaxSpendMinor > MaxSpendMinor) {
		bad = append(bad, intent.Field{Name: "max_spend_minor", Message: fmt.Sprintf("must be 1 to %d", int64(MaxSpendMinor))})
	}
	if len(r.KeyIDs) > tenancy.MaxSSHKeys {
		bad = append(bad, intent.Field{Name: "ssh_key_ids", Message: fmt.Sprintf("must be at most %d keys", tenancy.MaxSSHKeys)})
	}
	return intent.InvalidIf(bad)
}

// Admit decides in the transaction of a claim whether the project may have one more node: the rates
// of its billing account, its quota, and its balance. It locks them, so that requests of one
// account decide one after the other. It returns what is to be held back of the balance, nil for
// nothing.
func Admit(ctx context.Context, tx *db.Tx, r Request) (*int64, error) {
	p, err := tenancydb.ReadProject(ctx, tx, r.ProjectID)
	if err != nil {
		return nil, err
	}
	if _, err := tenancydb.LockAccount(ctx, tx, p.BillingAccountID); err != nil {
		return nil, err
	}
	if err := admitChurn(ctx, tx, p.BillingAccountID, r.Policy); err != nil {
		return nil, err
	}
	err = tenancy.AdmitNodes(ctx, tx, r.ProjectID, map[string]int{r.SKUID: 1}, func(ctx context.Context) (map[string]int, error) {
		return allocationdb.CountLive(ctx, tx, r.ProjectID)
	})
	if err != nil {
		return nil, err
	}
	if err := tenancy.RequireUndisputed(ctx, tx, p.BillingAccountID, "allocation"); err != nil {
		return nil, err
	}
	return tenancy.AdmitMoney(ctx, tx, p.BillingAccountID, r.moneyClaim())
}

// placeHold stores what an accepted allocation holds back and may cost.
func placeHold(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, holdMinor, maxSpendMinor *int64) error {
	if holdMinor != nil {
		if err := ledgerdb.PlaceHold(ctx, tx, a.ProjectID, a.ID, *holdMinor); err != nil {
			return err
		}
	}
	if maxSpendMinor == nil {
		return nil
	}
	return ledgerdb.SetMaxSpend(ctx, tx, a.ProjectID, a.ID, maxSpendMinor)
}

// admitChurn refuses an account that requests nodes too fast, or that has too many in releasing:
// each of these keeps a node out of service until it is clean.
func admitChurn(ctx context.Context, tx *db.Tx, accountID string, policy Policy) error {
	if policy == (Policy{}) {
		policy = DefaultPolicy
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	churn, err := allocationdb.CountChurn(ctx, tx, accountID, now.Add(-policy.LaunchWindow), now.Add(-unpaidWindow))
	switch {
	case err != nil:
		return err
	case churn.Launched >= policy.MaxLaunches:
		return &intent.Refusal{Kind: intent.RateLimited, Detail: fmt.Sprintf(
			"the billing account has requested %d nodes within %s, and may request %d; try again later", churn.Launched, policy.LaunchWindow, policy.MaxLaunches)}
	case churn.Unpaid >= policy.MaxUnpaid:
		return &intent.Refusal{Kind: intent.RateLimited, Detail: fmt.Sprintf(
			"%d nodes of the billing account were given back within %s before they were active, or failed after its keys were installed, and %d may be; try again later, or ask the operators",
			churn.Unpaid, unpaidWindow, policy.MaxUnpaid)}
	case churn.Releasing >= policy.MaxReleasing:
		return &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
			"%d nodes of the billing account are being released, and %d may be at a time; wait until some of them are clean", churn.Releasing, policy.MaxReleasing)}
	}
	return nil
}

func requireOffered(ctx context.Context, tx *db.Tx, r Request) error {
	if _, err := tenancydb.ReadOffer(ctx, tx, r.SKUID); errors.Is(err, db.ErrNotFound) {
		return invalid("sku_id", "is not offered; choose one of the catalogue")
	} else if err != nil {
		return err
	}
	if r.SiteID == "" {
		return nil
	}
	_, err := tx.Site(ctx, r.SiteID)
	if errors.Is(err, db.ErrNotFound) {
		return invalid("site_id", "is no site; give the id, site_..., or leave it out for any site")
	}
	return err
}

// chooseKeys returns the keys of the request, parsed and written again.
func chooseKeys(ctx context.Context, tx *db.Tx, r Request) ([]allocationdb.PublicKey, error) {
	rows, err := tenancydb.ListKeysOf(ctx, tx, r.ProjectID)
	if err != nil {
		return nil, err
	}
	var out []allocationdb.PublicKey
	found := map[string]bool{}
	for _, k := range rows {
		if len(r.KeyIDs) > 0 && !slices.Contains(r.KeyIDs, k.ID) {
			continue
		}
		found[k.ID] = true
		parsed, err := tenancy.ParseSSHKey(k.PublicKey)
		if err != nil {
			return nil, invalid("ssh_key_ids", fmt.Sprintf("key %s %s", k.ID, err))
		}
		out = append(out, allocationdb.PublicKey{Fingerprint: parsed.Fingerprint, PublicKey: parsed.PublicKey})
	}
	for _, id := range r.KeyIDs {
		if !found[id] {
			return nil, invalid("ssh_key_ids", "names a key that the project does not have; give ids of its SSH keys, key_...")
		}
	}
	switch {
	case len(out) == 0:
		return nil, &intent.Refusal{Kind: intent.Conflict, Detail: "the project has no SSH key, so nobody could log in; add one first"}
	case len(out) > tenancy.MaxSSHKeys:
		return nil, invalid("ssh_key_ids", fmt.Sprintf("must choose at most %d keys", tenancy.MaxSSHKeys))
	}
	return out, nil
}

// refuseCapacity says how many nodes are free. A node that is kept back counts as none.
func refuseCapacity(ctx context.Context, tx *db.Tx, r Request) error {
	offer, err := tenancydb.ReadOffer(ctx, tx, r.SKUID)
	if err != nil {
		return err
	}
	where := "at any site"
	if r.SiteID != "" {
		where = "at site " + r.SiteID
	}
	return &intent.Refusal{Kind: intent.NoCapacity, Detail: fmt.Sprintf(
		"it asks for 1 node of %s (%s) and 0 are free %s; try again later, choose another SKU or site, or wait with wait_seconds (up to %d)",
		offer.Title, r.SKUID, where, MaxWaitSeconds)}
}

// createJob writes a job of an allocation. The job has the node as its own unless another live job
// works on it; then allocationdb.TakeNode gives it the node later.
func createJob(ctx context.Context, tx *db.Tx, kind contract.JobKind, a allocationdb.Allocation, actor db.Actor) (db.Job, error) {
	in, err := json.Marshal(map[string]string{"allocation_id": a.ID})
	if err != nil {
		return db.Job{}, err
	}
	job, err := tx.CreateJob(ctx, db.NewJob{
		Kind: string(kind), ResourceKind: allocationdb.Resource, ResourceID: a.ID, SiteID: a.SiteID, Input: in, Actor: actor,
	})
	if err != nil || a.NodeID == nil {
		return job, err
	}
	if _, err := allocationdb.TakeNode(ctx, tx, job.ID, *a.NodeID, *a.SiteID); err != nil {
		return job, err
	}
	return tx.Job(ctx, job.ID)
}
