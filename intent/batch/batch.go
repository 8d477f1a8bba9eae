// Package batch accepts the onboarding of many servers of one site. Each is accepted or rejected by
// itself.
package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/onboarding"
)

// Request onboards many servers. Profile and SKU of the batch hold for the items that name none;
// its profile says how many run at a time.
type Request struct {
	Name, SiteID, ProfileID, SKUID string
	Items                          []Item
}

// Item is one server of a batch.
type Item struct {
	Hostname, ProfileID, SKUID string
	BMC                        intent.BMC
}

// Checked is a request whose references were read. Check makes it.
type Checked struct {
	request Request
	profile db.Profile
	items   []candidate
}

// candidate is an item with why it is rejected, nil for one that may be accepted.
type candidate struct {
	onboarding.Checked
	rejected error
}

// Check refuses what would be wrong for every item, and checks each item.
func Check(ctx context.Context, store *db.Store, r Request) (Checked, error) {
	c := Checked{request: r}
	var bad []intent.Field
	if _, err := store.Site(ctx, r.SiteID); errors.Is(err, db.ErrNotFound) {
		bad = append(bad, intent.Field{Name: "site_id", Message: "there is no such site"})
	} else if err != nil {
		return c, err
	}
	var err error
	c.profile, err = store.Profile(ctx, r.ProfileID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return c, err
	}
	if err != nil || c.profile.SiteID != r.SiteID {
		bad = append(bad, intent.Field{Name: "profile_id", Message: "there is no such profile at the site"})
	}
	if err := intent.InvalidIf(bad); err != nil {
		return c, err
	}
	for _, item := range r.Items {
		one := onboarding.Request{SiteID: r.SiteID, ProfileID: item.ProfileID, SKUID: item.SKUID, Hostname: item.Hostname, BMC: item.BMC}
		if one.ProfileID == "" {
			one.ProfileID = r.ProfileID
		}
		if one.SKUID == "" {
			one.SKUID = r.SKUID
		}
		checked, err := onboarding.Check(ctx, store, one)
		if err != nil && intent.AsRefusal(err) == nil {
			return c, err
		}
		c.items = append(c.items, candidate{checked, err})
	}
	return c, nil
}

// Accept writes the batch with its items: for each its job, or why it was rejected, as describe
// renders it.
func Accept(ctx context.Context, tx *db.Tx, c Checked, describe func(error) string, actor db.Actor) (db.Batch, error) {
	b, err := tx.CreateBatch(ctx, db.NewBatch{
		SiteID: c.request.SiteID, Name: c.request.Name, MaxParallel: c.profile.Spec.WithDefaults().BatchMaxParallel, CreatedBy: actor.ID,
	})
	if err != nil {
		return b, err
	}
	for i, item := range c.items {
		if err := acceptItem(ctx, tx, b.ID, i, item, describe, actor); err != nil {
			return b, err
		}
	}
	return b, nil
}

const maxHostname = 255

func acceptItem(ctx context.Context, tx *db.Tx, batchID string, ordinal int, c candidate, describe func(error) string, actor db.Actor) error {
	hostname := c.Hostname[:min(len(c.Hostname), maxHostname)]
	why := c.rejected
	if why == nil {
		c.BatchID = &batchID
		job, _, err := onboarding.Accept(ctx, tx, c.Checked, actor)
		if err == nil {
			return tx.AddBatchItem(ctx, batchID, ordinal, hostname, &job.ID, nil)
		}
		var conflict *db.ConflictError
		if intent.AsRefusal(err) == nil && !errors.As(err, &conflict) {
			return fmt.Errorf("item %d: %w", ordinal, err)
		}
		why = err
	}
	text := describe(why)
	return tx.AddBatchItem(ctx, batchID, ordinal, hostname, nil, &text)
}
