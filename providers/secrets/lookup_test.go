package secrets

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nameServer counts its questions, and requires that each has a limit.
type nameServer struct {
	t     *testing.T
	asked int
	found []netip.Addr
	err   error
}

func (n *nameServer) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	n.asked++
	_, limited := ctx.Deadline()
	require.True(n.t, limited)
	return n.found, n.err
}

func TestLookup_KeepsTheLastGoodAnswer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &lookups{now: func() time.Time { return now }}
	first, second := netip.MustParseAddr("10.1.0.8"), netip.MustParseAddr("10.1.0.9")
	n := &nameServer{t: t, err: errors.New("it starts up")}
	look := func() []netip.Addr { return l.lookup(t.Context(), n, "db.example") }
	require.Empty(t, look())
	n.found, n.err = []netip.Addr{first}, nil
	require.Equal(t, []netip.Addr{first}, look(), "a name that was never resolved is asked for again")
	n.found, n.err = nil, errors.New("the name server is away")
	require.Equal(t, []netip.Addr{first}, look())
	require.Equal(t, 2, n.asked, "once a minute")

	now = now.Add(lookupTTL)
	require.Equal(t, []netip.Addr{first}, look(), "what protects the database outlives an outage of the name server")
	require.Equal(t, []netip.Addr{first}, look())
	require.Equal(t, 3, n.asked, "a failure is not repeated at once either")

	now = now.Add(lookupTTL)
	n.found, n.err = []netip.Addr{second}, nil
	require.Equal(t, []netip.Addr{second}, look())
}
