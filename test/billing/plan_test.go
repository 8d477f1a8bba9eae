package billing_test

import (
	"time"

	"pgregory.net/rapid"
)

// The kinds of steps of a plan.
const (
	stepAdvance   = "advance"        // the clock moves on
	stepCreate    = "create"         // an allocation is requested and claimed
	stepActivate  = "activate"       // its charge begins
	stepRelease   = "release"        // its release is accepted
	stepEndAccess = "end access"     // the tenant's access is proven to have ended
	stepFail      = "release failed" // the release fails
	stepFree      = "free"           // the allocation ends
	stepMake      = "make"           // an instance is requested
	stepRun       = "run"            // it is ready, and its charge begins
	stepDrain     = "drain"          // its termination is accepted, and it may work for ten minutes more
	stepHurry     = "hurry"          // nobody waits for its work any longer
	stepEnd       = "end"            // it is terminating, or has failed
	stepPrice     = "price"          // a price is set that begins later
	stepTick      = "tick"           // a tick, which may be late
	stepRush      = "rush"           // several ticks at once, of which some are killed
	stepAdjust    = "adjust"         // an adjustment brings the balance to an amount
	stepRepeat    = "repeat"         // the last adjustment is sent again
	stepTamper    = "tamper"         // what is posted is edited
)

// worker is one tick of a rush.
type worker struct {
	Lag  int    // minutes before the clock
	Ends string // how it ends
}

// The ends of a worker.
const (
	endsWell      = "commits"
	endsRollback  = "rolls back"
	endsKilled    = "is killed before its commit"
	endsSomewhere = "is killed somewhere"
)

// step is one action. Indices are taken modulo what there is.
type step struct {
	Kind    string
	Account int
	Of      int // allocation, instance, SKU or type of instances
	Passes  time.Duration
	Rate    int64
	Target  int64
	Lag     int
	Workers []worker
}

// microseconds draws a time with all digits that the database stores.
func microseconds(r *rapid.T, name string, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(1, most.Microseconds()).Draw(r, name)) * time.Microsecond
}

// steps generates one step. Ticks, time, allocations and instances are frequent; the rest is there
// in each plan.
var steps = rapid.Custom(func(r *rapid.T) step {
	s := step{
		Kind: rapid.SampledFrom([]string{
			stepAdvance, stepAdvance, stepAdvance, stepAdvance, stepTick, stepTick, stepTick, stepTick, stepCreate, stepCreate, stepActivate, stepActivate,
			stepRelease, stepEndAccess, stepFail, stepFree, stepMake, stepMake, stepRun, stepRun, stepDrain, stepHurry, stepEnd, stepPrice, stepRush, stepAdjust, stepAdjust, stepAdjust, stepRepeat, stepTamper,
		}).Draw(r, "kind"),
		Account: rapid.IntRange(0, accounts-1).Draw(r, "account"),
		Of:      rapid.IntRange(0, 11).Draw(r, "of"),
	}
	switch s.Kind {
	case stepAdvance:
		most := rapid.SampledFrom([]time.Duration{2 * time.Second, 3 * time.Minute, 2 * time.Hour, 3 * 24 * time.Hour}).Draw(r, "most")
		s.Passes = microseconds(r, "passes", most)
	case stepPrice:
		s.Passes = time.Hour + microseconds(r, "after", 48*time.Hour)
		s.Rate = rapid.SampledFrom([]int64{0, 1, 59, 1993, 1994, 360_000, 1_000_000_007}).Draw(r, "rate")
	case stepTick:
		s.Lag = rapid.SampledFrom([]int{0, 0, 0, 1, 5, 600}).Draw(r, "lag")
	case stepRush:
		s.Workers = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) worker {
			return worker{
				rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(r, "lag"),
				rapid.SampledFrom([]string{endsWell, endsWell, endsRollback, endsKilled, endsSomewhere}).Draw(r, "ends"),
			}
		}), 2, 4).Draw(r, "workers")
	case stepAdjust:
		s.Target = rapid.SampledFrom([]int64{-1, 0, 1, 999, 1000, 1001, 1199, 1200, 1201, 50_000, 9_000_000}).Draw(r, "target")
	}
	return s
})

// plans generates a walk of 50 steps on average.
var plans = rapid.SliceOfN(steps, 40, 60)
