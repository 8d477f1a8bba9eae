package model_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/test/billing/model"
)

var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func minor(n int64) *big.Int { return big.NewInt(n) }

func after(d time.Duration) time.Time { return start.Add(d) }

func TestCharge_WorkedExamples(t *testing.T) {
	month := 30 * 24 * time.Hour
	for _, c := range []struct {
		name string
		rate int64
		time time.Duration
		want int64
	}{
		{"one hour is the rate", 1993, time.Hour, 1993},
		{"one minute rounds down", 1993, time.Minute, 33},
		{"a month is exact", 1993, month, 1993 * 720},
		{"less than a minor unit", 1, time.Hour - time.Microsecond, 0},
		{"one microsecond more", 1, time.Hour, 1},
		{"nothing before the start", 1993, -time.Minute, 0},
		{"below a microsecond", 3_600_000_000, 1999 * time.Nanosecond, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Zero(t, model.Charge(minor(c.rate), c.time).Cmp(minor(c.want)), model.Charge(minor(c.rate), c.time))
		})
	}
	// Rounding each minute of that month down would lose 93.60; rounding it up would add 338.40.
	minutes := int64(month / time.Minute)
	exact := model.Charge(minor(1993), month).Int64()
	require.Equal(t, int64(9360), exact-minutes*model.Charge(minor(1993), time.Minute).Int64())
	require.Equal(t, int64(33840), minutes*34-exact)
}

func TestCharge_LargerThanInt64(t *testing.T) {
	rate := new(big.Int).Lsh(big.NewInt(1), 70)
	require.Zero(t, model.Charge(rate, 3*time.Hour).Cmp(new(big.Int).Mul(rate, big.NewInt(3))))
}

func TestSegments_PriceChanges(t *testing.T) {
	at := func(d time.Duration, rate int64) model.Price { return model.Price{From: after(d), Rate: minor(rate)} }
	day := 24 * time.Hour
	type part struct {
		from, to time.Duration
		rate     int64
	}
	for _, c := range []struct {
		name   string
		prices []model.Price
		end    time.Duration
		want   []part
	}{
		{"one price", []model.Price{at(-day, 100)}, day, []part{{0, day, 100}}},
		{"a lower price holds at once", []model.Price{at(-day, 100), at(day, 60)}, 2 * day,
			[]part{{0, day, 100}, {day, 2 * day, 60}}},
		{"a higher price holds after seven days", []model.Price{at(-day, 100), at(day, 150)}, 10 * day,
			[]part{{0, 8 * day, 100}, {8 * day, 10 * day, 150}}},
		{"an allocation that starts at the change", []model.Price{at(-day, 100), at(0, 150)}, day,
			[]part{{0, day, 150}}},
		{"two rises each wait", []model.Price{at(-day, 100), at(day, 150), at(2*day, 200)}, 12 * day,
			[]part{{0, 8 * day, 100}, {8 * day, 9 * day, 150}, {9 * day, 12 * day, 200}}},
		{"a rise that is taken back", []model.Price{at(-day, 100), at(day, 150), at(2*day, 80)}, 12 * day,
			[]part{{0, 2 * day, 100}, {2 * day, 12 * day, 80}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := model.Segments(c.prices, start, after(c.end), model.Keep)
			require.NoError(t, err)
			parts := make([]part, len(got))
			for i, s := range got {
				parts[i] = part{s.From.Sub(start), s.To.Sub(start), s.Rate.Int64()}
			}
			require.Equal(t, c.want, parts)
		})
	}
	_, err := model.Segments([]model.Price{at(time.Second, 100)}, start, after(day), model.Keep)
	require.ErrorIs(t, err, model.ErrNoPrice)
}

// Segments cover the time once and in order, and the cost grows with it. Rounding loses less than
// one minor unit a segment.
func TestSegments_CoverTheTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		prices := []model.Price{{From: start.Add(-time.Hour), Rate: minor(rapid.Int64Range(0, 1e6).Draw(r, "first"))}}
		for range rapid.IntRange(0, 5).Draw(r, "changes") {
			prices = append(prices, model.Price{
				From: after(time.Duration(rapid.Int64Range(0, int64(20*24*time.Hour/time.Microsecond)).Draw(r, "from")) * time.Microsecond),
				Rate: minor(rapid.Int64Range(0, 1e6).Draw(r, "rate")),
			})
		}
		end := after(time.Duration(rapid.Int64Range(1, int64(30*24*time.Hour/time.Microsecond)).Draw(r, "end")) * time.Microsecond)
		got, err := model.Segments(prices, start, end, model.Keep)
		require.NoError(r, err)
		at, exact := start, new(big.Rat)
		for _, s := range got {
			require.True(r, s.From.Equal(at) && s.To.After(s.From))
			at = s.To
			hours := big.NewRat(s.To.Sub(s.From).Microseconds(), time.Hour.Microseconds())
			exact.Add(exact, hours.Mul(hours, new(big.Rat).SetInt(s.Rate)))
		}
		require.True(r, at.Equal(end))
		cost := model.Cost(got, end)
		lost := exact.Sub(exact, new(big.Rat).SetInt(cost))
		require.True(r, lost.Sign() >= 0 && lost.Cmp(big.NewRat(int64(len(got)), 1)) < 0, "lost %s", lost)
		half := start.Add(end.Sub(start) / 2)
		require.LessOrEqual(r, model.Cost(got, half).Cmp(cost), 0)
	})
}

func TestEnd_EarliestCounts(t *testing.T) {
	limit := 5 * time.Minute
	end, ok := model.End(time.Time{}, limit, time.Time{})
	require.False(t, ok, end)
	end, ok = model.End(start, limit)
	require.True(t, ok)
	require.Equal(t, after(limit), end, "a release that nothing confirms is charged for five minutes")
	end, _ = model.End(start, limit, after(time.Minute), time.Time{})
	require.Equal(t, after(time.Minute), end)
	end, _ = model.End(start, limit, after(time.Hour))
	require.Equal(t, after(limit), end)
	require.Equal(t, after(10*time.Minute), model.NotBefore(start, after(time.Second)), "ten minutes are the least")
	require.Equal(t, after(11*time.Minute), model.NotBefore(start, after(11*time.Minute)))
	require.True(t, model.NotBefore(time.Time{}, time.Time{}).IsZero(), "it was never active")
}

func TestAccount_Episodes(t *testing.T) {
	a := model.NewAccount(model.Thresholds{Low: minor(1000), Depleted: minor(0), Rearm: minor(1200)})
	for _, c := range []struct {
		to          int64
		state       model.State
		notices     int
		depletions  int
		description string
	}{
		{1001, model.Healthy, 0, 0, "10.01"},
		{1000, model.Low, 1, 0, "10.00 is low"},
		{1200, model.Healthy, 1, 0, "12.00 does not re-arm"},
		{1000, model.Low, 1, 0, "no second notice"},
		{1, model.Low, 1, 0, "0.01"},
		{0, model.Depleted, 1, 1, "0.00 is depleted"},
		{-1, model.Depleted, 1, 1, "-0.01 is no second entry"},
		{500, model.Low, 1, 1, "above zero again"},
		{-1, model.Depleted, 1, 2, "a second entry in one episode"},
		{1201, model.Healthy, 1, 2, "12.01 re-arms"},
		{0, model.Depleted, 2, 3, "a new episode"},
	} {
		a.Post(new(big.Int).Sub(minor(c.to), a.Balance))
		require.Equal(t, c.state, a.Assess(), c.description)
		require.Equal(t, c.notices, a.Notices, c.description)
		require.Equal(t, c.depletions, a.Depletions, c.description)
	}
}
