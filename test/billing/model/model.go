// Package model computes what an allocation costs and what state a balance is in. It was written
// from the specification before the code that bills, and imports none of it: it knows no database
// and no tick, and all its amounts are big integers. The tests of test/billing compare the ledger
// with it.
package model

import (
	"errors"
	"math/big"
	"slices"
	"time"
)

// Keep is the time for which a running allocation keeps a lower rate after a price was raised.
const Keep = 7 * 24 * time.Hour

// Minimum is the shortest time for which an allocation that was active is charged.
const Minimum = 10 * time.Minute

// hour is the unit of a rate, in the microseconds that PostgreSQL counts.
var hour = big.NewInt(time.Hour.Microseconds())

// ErrNoPrice says that a SKU had no price at the time an allocation started.
var ErrNoPrice = errors.New("no price is valid at the start")

// Price is a rate in minor units per hour, valid from a time until the next price begins.
type Price struct {
	From time.Time
	Rate *big.Int
}

// Segment is a part of an allocation's time in which one rate holds: From inclusive, To exclusive.
type Segment struct {
	From, To time.Time
	Rate     *big.Int
}

// Charge returns what a rate costs over a time, in whole minor units. A started minor unit is not
// charged. It returns zero for a time that is not positive.
func Charge(rate *big.Int, elapsed time.Duration) *big.Int {
	if elapsed <= 0 {
		return new(big.Int)
	}
	c := new(big.Int).Mul(rate, big.NewInt(elapsed.Microseconds()))
	return c.Div(c, hour)
}

// Cost returns what the segments cost through a time. Each segment is rounded once, whatever the
// number of ticks that charged it.
func Cost(segments []Segment, through time.Time) *big.Int {
	sum := new(big.Int)
	for _, s := range segments {
		to := s.To
		if through.Before(to) {
			to = through
		}
		sum.Add(sum, Charge(s.Rate, to.Sub(s.From)))
	}
	return sum
}

// Segments returns the segments of an allocation that is charged from start to end. The rate at a
// time is the lowest that was valid since the start in the last keep: a lower price holds at once,
// a higher one keep later. Equal rates that follow each other are one segment.
// It returns ErrNoPrice when no price is valid at the start.
func Segments(prices []Price, start, end time.Time, keep time.Duration) ([]Segment, error) {
	prices = slices.SortedFunc(slices.Values(prices), func(a, b Price) int { return a.From.Compare(b.From) })
	if len(prices) == 0 || prices[0].From.After(start) {
		return nil, ErrNoPrice
	}
	cuts := []time.Time{start, end}
	for _, p := range prices {
		for _, at := range []time.Time{p.From, p.From.Add(keep)} {
			if at.After(start) && at.Before(end) {
				cuts = append(cuts, at)
			}
		}
	}
	slices.SortFunc(cuts, time.Time.Compare)
	cuts = slices.CompactFunc(cuts, time.Time.Equal)

	var out []Segment
	for i := range len(cuts) - 1 {
		rate := rateAt(prices, start, cuts[i], keep)
		if n := len(out); n > 0 && out[n-1].Rate.Cmp(rate) == 0 {
			out[n-1].To = cuts[i+1]
			continue
		}
		out = append(out, Segment{From: cuts[i], To: cuts[i+1], Rate: rate})
	}
	return out, nil
}

// rateAt returns the lowest rate that was valid between max(start, at-keep) and at. prices is
// sorted.
func rateAt(prices []Price, start, at time.Time, keep time.Duration) *big.Int {
	since := at.Add(-keep)
	if since.Before(start) {
		since = start
	}
	var lowest *big.Int
	for i, p := range prices {
		began := !p.From.After(at)
		over := i+1 < len(prices) && !prices[i+1].From.After(since)
		if began && !over && (lowest == nil || p.Rate.Cmp(lowest) < 0) {
			lowest = p.Rate
		}
	}
	return lowest
}

// NotBefore returns the end of a charge that began at start and is to end at end.
func NotBefore(start, end time.Time) time.Time {
	if least := start.Add(Minimum); !start.IsZero() && end.Before(least) {
		return least
	}
	return end
}

// End returns when the charge of an allocation ends: at the earliest of the times that end it, and
// at most limit after an accepted release. A zero time has not happened. It returns false while
// nothing ends the charge.
func End(released time.Time, limit time.Duration, ends ...time.Time) (time.Time, bool) {
	if !released.IsZero() {
		ends = append(slices.Clone(ends), released.Add(limit))
	}
	var first time.Time
	for _, at := range ends {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, !first.IsZero()
}
