package runenv

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sample returns count of the rows, in their order, which the seed of the run chooses; in `make
// proof` it returns all of them. override is the variable of Scale, and group names the table: each
// table has a choice of its own.
func Sample[T any](t testing.TB, override, group string, rows []T, count int) []T {
	t.Helper()
	count = min(Scale(t, override, count, len(rows)), len(rows))
	seed, stream := Seed(t), fnv.New64a()
	_, _ = stream.Write([]byte(group))
	chosen := rand.New(rand.NewPCG(seed, stream.Sum64())).Perm(len(rows))[:count]
	slices.Sort(chosen)
	// A line by t.Log has the form of a failure, and a test whose last report is no missed deadline
	// is not run again.
	_, _ = fmt.Fprintf(t.Output(), "seed %d: rows %v of the %d of %s\n", seed, chosen, len(rows), group)
	out := make([]T, 0, count)
	for _, i := range chosen {
		out = append(out, rows[i])
	}
	return out
}
