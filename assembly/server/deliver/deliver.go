// Package deliver sends the events of projects to their webhooks and their notices by e-mail. Any
// number of deliverers may run; a webhook's queue belongs to one of them at a time, and what a
// crash leaves is sent again with the same id. New webhooks, and those that are slow or fail, have
// workers of their own, so that they delay no other.
package deliver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/webhook"
)

// Deliverer is one deliverer; Name tells the claims of several apart.
type Deliverer struct {
	Store   *db.Store
	Secrets providers.Secrets
	Name    string
	Log     *slog.Logger
	// Options returns how to connect, with the networks that are refused now.
	Options func(context.Context) (webhook.Options, error)
	// RetryFor is how long a delivery is tried.
	RetryFor time.Duration
	// Keep and KeepNotices are how long ended deliveries and notices stay.
	Keep, KeepNotices time.Duration
	// Mail sends notices by e-mail; nil sends none.
	Mail Mailer
	// Domain ends the Message-ID of notices.
	Domain string
	// Poll is how long a deliverer sleeps when nobody wakes it; 0 is 2 s.
	Poll time.Duration
	// Fast, New and Slow are how many webhooks of each lane are worked on at a time; 0 is 24, 8 and
	// 8.
	Fast, New, Slow int
	// Backoff is the pause after the first failure; 0 is 5 s.
	Backoff time.Duration
	// StopFor is how long attempts under way may take when the deliverer stops; 0 is 5 s.
	StopFor time.Duration
}

const (
	fanOutSize = 1000
	// A claim ends long before its lease: no attempt begins after batchLimit, and each has its own.
	lease      = 2 * time.Minute
	batchLimit = 3 * time.Second
	finishFor  = 10 * time.Second
	batchSize  = 32
	inFlight   = 2
	quick      = time.Second // a webhook that answers in this time is not slow

	// A billing account that has share claims under way leaves one worker in reservePart to others.
	reservePart = 4
	share       = 2

	pollDefault    = 2 * time.Second
	backoffDefault = 5 * time.Second
	stopDefault    = 5 * time.Second
	backoffMost    = time.Hour
	breakerMost    = 10 * time.Minute
	pruneEvery     = 10 * time.Minute
)

// wakers wake the pools of the lanes.
type wakers map[webhookdb.Lane]chan struct{}

// wake wakes the pools of the lanes named.
func (w wakers) wake(lanes ...webhookdb.Lane) {
	for _, l := range lanes {
		wake(w[l])
	}
}

// Run works until ctx ends. Then no attempt begins, and it waits for those under way, for StopFor
// at most, and stores what came of them. An attempt that was cut is made again by another
// deliverer.
func (d *Deliverer) Run(ctx context.Context) {
	fan := make(chan struct{}, 1)
	lanes := map[webhookdb.Lane]int{
		webhookdb.LaneFast: size(d.Fast, 24), webhookdb.LaneNew: size(d.New, 8), webhookdb.LaneSlow: size(d.Slow, 8),
	}
	pools := wakers{}
	for lane := range lanes {
		pools[lane] = make(chan struct{}, 1)
	}
	var all sync.WaitGroup
	all.Go(func() {
		_ = d.Store.Listen(ctx, db.ChannelEvents, func() { wake(fan) }) // ends with ctx
	})
	all.Go(func() {
		d.loop(ctx, fan, d.poll(), func() { d.fanOut(ctx, pools) })
	})
	for lane, workers := range lanes {
		all.Go(func() { d.pool(ctx, lane, workers, pools) })
	}
	if d.Mail != nil {
		all.Go(func() { d.loop(ctx, nil, d.poll(), func() { d.sendMails(ctx) }) })
	}
	all.Go(func() { d.loop(ctx, nil, pruneEvery, func() { d.prune(ctx) }) })
	all.Wait()
}

func wake(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}

func size(n, byDefault int) int {
	if n == 0 {
		return byDefault
	}
	return n
}

func (d *Deliverer) poll() time.Duration {
	if d.Poll == 0 {
		return pollDefault
	}
	return d.Poll
}

// loop runs work at once, when it is woken, and at every tick.
func (d *Deliverer) loop(ctx context.Context, woken <-chan struct{}, every time.Duration, work func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		work()
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-t.C:
		}
	}
}

// fanOut queues new events and wakes the pools.
func (d *Deliverer) fanOut(ctx context.Context, pools wakers) {
	for ctx.Err() == nil {
		n, err := webhookdb.FanOut(ctx, d.Store, fanOutSize)
		if err != nil {
			d.complain(ctx, "events not queued for webhooks", err)
			return
		}
		if n == 0 {
			return
		}
		pools.wake(webhookdb.LaneFast, webhookdb.LaneNew, webhookdb.LaneSlow)
	}
}

// pool works on webhooks of one lane, at most size at a time.
func (d *Deliverer) pool(ctx context.Context, lane webhookdb.Lane, size int, pools wakers) {
	var all sync.WaitGroup
	defer all.Wait()
	busy := make(chan struct{}, size)
	d.loop(ctx, pools[lane], d.poll(), func() {
		if ctx.Err() != nil {
			return
		}
		want := webhookdb.Wanted{Lane: lane, Free: size - len(busy), Reserve: size / reservePart, Share: share}
		// A stop does not cut the claim: a webhook that the database has claimed, and nobody here
		// knows of, would wait for the end of its lease. A claimed webhook is then given back
		// without an attempt.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishFor)
		claimed, err := webhookdb.Claim(whole, d.Store, d.Name, want, lease)
		cancel()
		if err != nil {
			d.complain(ctx, "webhooks not claimed", err)
			return
		}
		for _, w := range claimed {
			busy <- struct{}{}
			all.Go(func() {
				next := d.deliver(ctx, w, lane)
				<-busy
				pools.wake(lane, next)
			})
		}
	})
}

// deliver sends what is due for one webhook and gives it back. It returns the lane in which the
// webhook is now.
func (d *Deliverer) deliver(ctx context.Context, w webhookdb.Claimed, lane webhookdb.Lane) webhookdb.Lane {
	limit := batchSize
	switch {
	case w.Failures >= webhookdb.Breaker:
		limit = 1
	case lane != webhookdb.LaneFast:
		limit = inFlight
	}
	f := webhookdb.Finished{Failures: w.Failures, Slow: lane != webhookdb.LaneFast}
	due, err := webhookdb.ListDue(ctx, d.Store, w, limit)
	if err == nil {
		err = d.send(ctx, w, due, &f)
	}
	if err != nil && ctx.Err() == nil {
		d.complain(ctx, "webhook "+w.ID+" not served", err)
		f.Pause = d.backoff(1)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishFor)
	defer cancel()
	err = d.Store.Tx(ctx, func(tx *db.Tx) error { return d.finish(ctx, tx, w, f) })
	if err != nil {
		d.complain(ctx, "deliveries of webhook "+w.ID+" not stored; they will be repeated", err)
	}
	switch {
	case !f.Slow:
		return webhookdb.LaneFast
	case f.Tried:
		return webhookdb.LaneSlow
	default:
		return lane
	}
}

func (d *Deliverer) finish(ctx context.Context, tx *db.Tx, w webhookdb.Claimed, f webhookdb.Finished) error {
	if held, err := webhookdb.Finish(ctx, tx, w, f); err != nil || !held {
		return err
	}
	n := webhookdb.Notice{ProjectID: w.ProjectID, Episode: w.ID + "/" + time.Now().UTC().Format(time.DateOnly)}
	switch {
	case f.Gone:
		n.Kind, n.Message = lifecycle.NoticeWebhookDisabled, "Webhook "+w.Name+" was disabled: its endpoint answered 410 Gone. Enable it when the endpoint is back."
	case w.Failures < webhookdb.Breaker && f.Failures >= webhookdb.Breaker:
		n.Kind, n.Message = lifecycle.NoticeWebhookFailing, "Webhook "+w.Name+" fails: "+f.LastReason+". Its events wait, and are sent again when it answers."
	default:
		return nil
	}
	_, err := webhookdb.AddNotice(ctx, tx, n, d.Domain)
	return err
}

// send makes at most one attempt for each delivery, two at a time, until the webhook fails too
// often or answers slowly.
func (d *Deliverer) send(ctx context.Context, w webhookdb.Claimed, due []webhookdb.Due, f *webhookdb.Finished) error {
	if len(due) == 0 {
		return nil
	}
	secrets, err := d.secrets(ctx, w)
	if err != nil {
		return err
	}
	options, err := d.Options(ctx)
	if err != nil {
		return err
	}
	session := webhook.NewSession(options)
	defer session.Close()
	var all sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	next, began := 0, time.Now()
	take := func() (webhookdb.Due, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(due) || f.Gone || ctx.Err() != nil || time.Since(began) > batchLimit || slowest > quick || f.Failures >= webhookdb.Breaker && next > 0 {
			return webhookdb.Due{}, false
		}
		next++
		return due[next-1], true
	}
	attempts, cut := d.outlive(ctx)
	defer cut()
	for range inFlight {
		all.Go(func() {
			for row, ok := take(); ok; row, ok = take() {
				start := time.Now()
				event := webhook.NewEvent(w.ProjectID, row.EventID, row.Type, row.Subject, row.OccurredAt, row.EventCursor, row.Data)
				result, sendErr := session.Send(attempts, webhook.Message{URL: w.URL, Event: event, Secrets: secrets})
				mu.Lock()
				slowest = max(slowest, time.Since(start))
				switch {
				case attempts.Err() != nil && !result.Delivered(): // this process stops: that is no failure of the endpoint
				case sendErr != nil:
					err = sendErr
				default:
					d.record(f, row, result)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if f.Tried = len(f.Outcomes) > 0; f.Tried {
		f.Slow = slowest > quick || !f.Succeeded
	}
	if f.Failures >= webhookdb.Breaker {
		f.Pause = min(d.backoff(f.Failures-webhookdb.Breaker+1), breakerMost)
	}
	return err
}

// outlive returns a context that ends StopFor after ctx, or when it is cut.
func (d *Deliverer) outlive(ctx context.Context) (out context.Context, cut context.CancelFunc) {
	by := d.StopFor
	if by == 0 {
		by = stopDefault
	}
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(by, cancel)
		context.AfterFunc(out, func() { timer.Stop() })
	})
	return out, func() { stop(); cancel() }
}

// record notes the outcome of one attempt.
func (d *Deliverer) record(f *webhookdb.Finished, row webhookdb.Due, result webhook.Result) {
	o := webhookdb.Outcome{EventID: row.EventID, Status: webhookdb.Delivered, Answer: result.Status, Reason: db.ClipText(result.Reason, 500)}
	switch {
	case result.Delivered():
		f.Failures, f.Succeeded = 0, true
	default:
		f.Failures++
		f.LastReason = o.Reason
		f.Gone = f.Gone || result.Gone()
		o.Status, o.Wait = webhookdb.Pending, max(d.backoff(row.Attempts+1), result.RetryAfter)
		if time.Duration(row.AgeSeconds*float64(time.Second))+o.Wait > d.RetryFor {
			o.Status = webhookdb.Dead
		}
	}
	f.Outcomes = append(f.Outcomes, o)
}

// backoff returns the pause after so many failures: twice as long each time, an hour at most.
func (d *Deliverer) backoff(failures int) time.Duration {
	first := d.Backoff
	if first == 0 {
		first = backoffDefault
	}
	return min(first<<min(failures-1, 16), backoffMost)
}

func (d *Deliverer) secrets(ctx context.Context, w webhookdb.Claimed) ([]providers.Secret, error) {
	var out []providers.Secret
	for _, ref := range []string{w.SecretRef, w.PreviousSecretRef} {
		if ref == "" {
			continue
		}
		s, err := d.Secrets.Resolve(ctx, providers.SecretRef(ref), providers.OwnUse())
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// prune gives up what is too old to be tried and deletes what is too old to be kept.
func (d *Deliverer) prune(ctx context.Context) {
	for _, work := range []func() (int64, error){
		func() (int64, error) { return webhookdb.Expire(ctx, d.Store, d.RetryFor) },
		func() (int64, error) { return webhookdb.PruneDeliveries(ctx, d.Store, d.Keep) },
		func() (int64, error) { return webhookdb.PruneNotices(ctx, d.Store, d.KeepNotices) },
	} {
		for n, err := int64(1), error(nil); n > 0 && ctx.Err() == nil; {
			if n, err = work(); err != nil {
				d.complain(ctx, "old deliveries not pruned", err)
				break
			}
		}
	}
}

func (d *Deliverer) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		d.Log.WarnContext(ctx, "deliver: "+what, "error", err)
	}
}
