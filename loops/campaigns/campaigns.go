// Package campaigns drives campaigns: it starts the runs of their machines, as many at a time as
// each allows, and notes how they end. It decides from the rows alone, so any number of workers run
// it, and one that dies leaves nothing half done.
package campaigns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-cloud/slipway/db"
	campaigndb "github.com/slipway-cloud/slipway/db/campaign"
	"github.com/slipway-cloud/slipway/intent/campaign"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

const (
	defaultEvery = time.Second
	// busyFor is for how many looks a machine on which something else runs is left alone.
	busyFor = 10
	// afterError is for how many looks the driver waits after one that failed.
	afterError = 5
)

// Driver drives the campaigns of an installation.
type Driver struct {
	Store *db.Store
	// Offers returns the capabilities of a provider, nothing of one that does not exist.
	Offers func(provider string) []runplan.Capability
	// LogsIn reports whether a provider logs in to its machines by SSH. Nil is for providers that
	// never do.
	LogsIn func(provider string) bool
	Log    *slog.Logger
	// Every is how often a campaign is looked at; 0 is 1 s.
	Every time.Duration
}

func (d *Driver) every() time.Duration {
	if d.Every == 0 {
		return defaultEvery
	}
	return d.Every
}

// Run drives campaigns until ctx ends.
func (d *Driver) Run(ctx context.Context) {
	for {
		wait := d.every()
		if err := d.Look(ctx); err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "not every campaign was driven; will try again", "error", err)
			wait *= afterError
		}
		if poll.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// Look looks once at each campaign that is due. A campaign that cannot be driven keeps no other
// from its look.
func (d *Driver) Look(ctx context.Context) error {
	var errs []error
	for until := time.Now().Add(d.every()); ctx.Err() == nil; {
		var due []campaigndb.Member
		found := false
		err := d.Store.Tx(ctx, func(tx *db.Tx) (err error) {
			due, found, err = campaign.Begin(ctx, tx, d.every())
			return err
		})
		if err != nil {
			return errors.Join(append(errs, err)...) // its look is still due
		}
		if !found {
			break
		}
		errs = append(errs, d.start(ctx, due))
		if time.Now().After(until) {
			break
		}
	}
	return errors.Join(errs...)
}

// start starts the runs of machines until their campaign has no room.
func (d *Driver) start(ctx context.Context, due []campaigndb.Member) error {
	var errs []error
	for _, m := range due {
		ok := false
		err := d.Store.Tx(ctx, func(tx *db.Tx) (err error) {
			ok, err = campaign.StartMember(ctx, tx, m, d.Offers, d.LogsIn)
			return err
		})
		if ctx.Err() != nil {
			break // this process ends: the machine has no part in it
		}
		if err != nil {
			errs = append(errs, d.note(ctx, m, err))
			continue
		}
		if !ok {
			break
		}
	}
	return errors.Join(errs...)
}

// note writes down why a machine got no run, and returns the error where that is none of the
// machine.
func (d *Driver) note(ctx context.Context, m campaigndb.Member, cause error) error {
	outcome, text := campaign.Outcome(cause)
	if outcome == campaign.Refused {
		return d.Store.Tx(ctx, func(tx *db.Tx) error { return campaign.SkipMember(ctx, tx, m, text) })
	}
	err := campaigndb.PutOff(ctx, d.Store, m, text, busyFor*d.every())
	if outcome == campaign.Unknown {
		err = errors.Join(fmt.Errorf("campaign %s: machine %s: %w", m.CampaignID, m.MachineID, cause), err)
	}
	return err
}
