package bench_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// rate does n pieces of work, so many at a time, and returns pieces a second.
func rate(b *testing.B, n, atOnce int, work func(ctx context.Context, i int) error) float64 {
	b.Helper()
	g, ctx := errgroup.WithContext(b.Context())
	var next atomic.Int64
	began := time.Now()
	for range atOnce {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := work(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	require.NoError(b, g.Wait())
	return float64(n) / time.Since(began).Seconds()
}

// contest measures its entrants by turns, a round at a time, so that a
// disturbance of the machine falls on all of them.
type contest struct {
	names   []string
	measure map[string]func() float64
	rates   map[string][]float64
}

func (c *contest) enter(name string, measure func() float64) {
	if c.measure == nil {
		c.measure, c.rates = map[string]func() float64{}, map[string][]float64{}
	}
	c.names, c.measure[name] = append(c.names, name), measure
}

// round measures each entrant once; who begins changes from round to round.
func (c *contest) round() {
	for _, name := range c.names {
		c.rates[name] = append(c.rates[name], c.measure[name]())
	}
	c.names = append(c.names[1:], c.names[0])
}

// of is the median rate of an entrant.
func (c *contest) of(name string) float64 { return median(c.rates[name]) }

// ratio is the median over the rounds of one entrant's rate to another's.
func (c *contest) ratio(name, to string) float64 {
	var ratios []float64
	for i, r := range c.rates[name] {
		ratios = append(ratios, r/c.rates[to][i])
	}
	return median(ratios)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// say prints a line for people, beside the metrics.
func say(format string, args ...any) { fmt.Printf("\n"+format+"\n", args...) }

func TestMedian(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	require.Zero(t, median(nil))
}

func TestAContestComparesWithinARound(t *testing.T) {
	t.Parallel()
	var c contest
	speed := 1.0 // of the machine: it halves from round to round
	c.enter("ours", func() float64 { return 8 * speed })
	c.enter("bare", func() float64 { return 10 * speed })
	for range 3 {
		c.round()
		speed /= 2
	}
	require.InDelta(t, 0.8, c.ratio("ours", "bare"), 1e-9)
	require.InDelta(t, 4, c.of("ours"), 1e-9)
}
