package bench_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

const (
	listPage   = 51 // what the API reads for a page of 50
	listsInRow = 10
	listRounds = 5
	attention  = 20_000
)

// list is a list that is read over a database of 100,000 nodes with 20,000 entries of attention.
type list struct {
	name, aim, limit string
	read             func(ctx context.Context, s *db.Store) (rows int, err error)
	empty            bool // it has no row
}

func ofNodes(f db.NodeFilter, after string) func(context.Context, *db.Store) (int, error) {
	return func(ctx context.Context, s *db.Store) (int, error) {
		rows, err := s.ListNodes(ctx, f, after, listPage)
		return len(rows), err
	}
}

func ofAttention(f db.AttentionFilter, last bool) func(context.Context, *db.Store) (int, error) {
	return func(ctx context.Context, s *db.Store) (int, error) {
		var after db.AttentionPlace
		if last {
			after = db.AttentionPlace{Since: inventoryEnd, ID: ""}
		}
		rows, err := s.Attention(ctx, f, after, listPage)
		return len(rows), err
	}
}

const (
	limitPage      = "the page"
	limitPosting   = "the lists of the index for the pieces of the text"
	limitWalk      = "nodes in the order of their ids until the page is full"
	limitAttention = "all entries are computed and sorted for each page"
)

// lists returns what BenchmarkLists reads.
func lists() []list {
	return []list{
		{name: "nodes, first page", aim: "2 ms", limit: limitPage, read: ofNodes(db.NodeFilter{}, "")},
		{name: "nodes, last page", aim: "2 ms", limit: limitPage, read: ofNodes(db.NodeFilter{}, "node_fleet-0099960")},
		{name: "nodes of a state", aim: "2 ms", limit: limitPage, read: ofNodes(db.NodeFilter{Statuses: []string{"quarantined"}}, "")},
		{name: "nodes of every state but one", aim: "2 ms", limit: limitPage, read: ofNodes(db.NodeFilter{ExceptStatus: "deleted"}, "")},
		{name: "nodes of a site", aim: "2 ms", limit: limitPage, read: ofNodes(db.NodeFilter{SiteID: "site_rare"}, "")},
		{name: "nodes of a lifecycle", aim: "2 ms", limit: limitWalk, read: ofNodes(db.NodeFilter{Lifecycle: "maas"}, "")},
		{name: "nodes of an SKU that no node has", aim: "50 ms", limit: limitWalk, read: ofNodes(db.NodeFilter{SKUID: "sku_none"}, ""), empty: true},
		{name: "nodes by id, 200 of them", aim: "5 ms", limit: limitPage, read: ofNodes(db.NodeFilter{IDs: fleetIDs(200)}, "")},
		{name: "node by hostname", aim: "5 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Hostname: "fleet-31415"}, "")},
		{name: "search, part of one hostname", aim: "5 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Q: "eet-31415"}, "")},
		{name: "search, part of every hostname", aim: "5 ms", limit: limitWalk, read: ofNodes(db.NodeFilter{Q: "fleet"}, "")},
		{name: "search, part of a serial", aim: "5 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Q: "sn-00031415"}, "")},
		{name: "search, MAC", aim: "5 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Q: "52:54:00:00:7a:b7"}, "")},
		{name: "search, no hit", aim: "20 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Q: "nowhere"}, ""), empty: true},
		{name: "search, no hit, known pieces", aim: "20 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Q: "fleet-fleet"}, ""), empty: true},
		{name: "search, no hit, two characters", aim: "20 ms", limit: limitPosting, read: ofNodes(db.NodeFilter{Q: "zq"}, ""), empty: true},
		{name: "attention, first page", aim: "50 ms", limit: limitAttention, read: ofAttention(db.AttentionFilter{}, false)},
		{name: "attention, last page", aim: "50 ms", limit: limitAttention, read: ofAttention(db.AttentionFilter{}, true)},
		{name: "attention, one kind", aim: "50 ms", limit: limitAttention, read: ofAttention(db.AttentionFilter{Kind: db.AttentionNodeQuarantined}, false)},
		{name: "attention, one site", aim: "50 ms", limit: limitAttention, read: ofAttention(db.AttentionFilter{SiteID: "site_rare"}, false)},
		{name: "attention, counts of all kinds", aim: "50 ms", limit: limitAttention, read: func(ctx context.Context, s *db.Store) (int, error) {
			t, err := s.Trouble(ctx)
			return int(t.Attention[db.AttentionParkedJob]), err
		}},
	}
}

func fleetIDs(n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("node_fleet-%07d", 1+i*317))
	}
	return ids
}

// BenchmarkLists measures pages of lists over 100,000 nodes, each against a bare page of nodes by
// their primary key in the same run.
func BenchmarkLists(b *testing.B) {
	dsn := dbtest.FreshDatabase(b)
	makeInventory(b, dsn)
	store := dbtest.Open(b, dsn)
	conn := dbtest.Owner(b, dsn)
	var c contest
	c.enter("bare", func() float64 {
		return rate(b, listsInRow, 1, func(ctx context.Context, _ int) error {
			rows, err := conn.Query(ctx, "SELECT * FROM nodes WHERE id > $1 ORDER BY id LIMIT $2", "node_fleet-0050000", listPage)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) ([]any, error) { return r.Values() })
			return err
		})
	})
	for _, l := range lists() {
		rows, err := l.read(b.Context(), store)
		require.NoError(b, err, l.name)
		require.Equal(b, l.empty, rows == 0, "%s has %d rows", l.name, rows)
		c.enter(l.name, func() float64 {
			return rate(b, listsInRow, 1, func(ctx context.Context, _ int) error {
				_, err := l.read(ctx, store)
				return err
			})
		})
	}
	for b.Loop() {
		for range listRounds {
			c.round()
		}
	}
	for _, l := range lists() {
		measure(b, l.name, c.ratio(l.name, "bare"), "%.1f ms; %.0f times a bare page", 1000/c.of(l.name), 1/c.ratio(l.name, "bare"))
	}
	b.ReportMetric(1000/c.of("search, no hit"), "ms/miss")
	b.ReportMetric(1000/c.of("attention, first page"), "ms/attention")
}
