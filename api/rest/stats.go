package rest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
)

// NodeCount is how many nodes of a site, lifecycle and state there are.
type NodeCount struct {
	SiteID    string `json:"site_id"`
	Lifecycle string `json:"lifecycle"`
	Status    string `json:"status"`
	Nodes     int64  `json:"nodes"`
	Fresh     int64  `json:"fresh" doc:"Nodes whose agent was heard within five minutes"`
	Stale     int64  `json:"stale" doc:"The other nodes"`
}

// NodeCounts are all nodes that are not deleted.
type NodeCounts struct {
	Total int64       `json:"total"`
	Data  []NodeCount `json:"data" nullable:"false"`
}

// FleetPoint is the fleet at one moment.
type FleetPoint struct {
	At     time.Time        `json:"at"`
	States map[string]int64 `json:"states" doc:"Nodes by state; a state without nodes is left out"`
}

// Fleet is the number of nodes in each state over time.
type Fleet struct {
	Since  time.Time    `json:"since"`
	Bucket int64        `json:"bucket_seconds" doc:"Time between two points"`
	Data   []FleetPoint `json:"data" nullable:"false" doc:"Oldest first; the last point is now"`
}

// StageStats is how long a stage took in the newest jobs that succeeded.
type StageStats struct {
	Kind  string  `json:"kind" doc:"Of job"`
	Stage string  `json:"stage"`
	Jobs  int64   `json:"jobs" doc:"How many jobs were measured"`
	P50   float64 `json:"p50_seconds"`
	P90   float64 `json:"p90_seconds"`
}

const (
	defaultWindow = 7 * 24 * time.Hour
	maxWindow     = 31 * 24 * time.Hour
	fleetPoints   = 168 // an hour each for a week
	minBucket     = time.Minute
)

func (s *server) registerStats() {
	tags := []string{"statistics"}
	op.Add(s.api, huma.Operation{
		OperationID: "count-nodes", Method: http.MethodGet, Path: "/nodes/counts", Tags: tags, Summary: "Count nodes by site, lifecycle and state",
	}, s.countNodes)
	op.Add(s.api, huma.Operation{
		OperationID: "fleet-history", Method: http.MethodGet, Path: "/stats/fleet", Tags: tags, Summary: "How many nodes were in each state over time",
		Description: "Computed from the transitions in the audit log, back from the nodes as they are now. Machines that were purged before they were ever accepted leave no transition; before their end they are not counted.",
	}, s.fleetHistory)
	op.Add(s.api, huma.Operation{
		OperationID: "stage-durations", Method: http.MethodGet, Path: "/stats/stages", Tags: tags, Summary: "How long the stages of each kind of job take",
		Description: "The median and the 90th percentile over the newest 500 jobs of each kind that succeeded in the window.",
	}, s.stageStats)
}

// Window is the time that statistics look at.
type Window struct {
	Since time.Time `query:"since" maxLength:"40" doc:"RFC 3339; the default is 7 days ago, at most 31 days ago"`
}

// start returns the beginning of the window.
func (w Window) start(now time.Time) (time.Time, error) {
	if w.Since.IsZero() {
		return now.Add(-defaultWindow), nil
	}
	if w.Since.After(now) || now.Sub(w.Since) > maxWindow {
		return w.Since, problem.NewInvalid(problem.Field{Location: "query.since", Message: "must lie in the past, at most 31 days ago"})
	}
	return w.Since, nil
}

func (s *server) countNodes(ctx context.Context, _ *struct{}) (*struct{ Body NodeCounts }, error) {
	rows, err := s.store.NodeCounts(ctx)
	if err != nil {
		return nil, err
	}
	out := &struct{ Body NodeCounts }{NodeCounts{Data: make([]NodeCount, 0, len(rows))}}
	for _, r := range rows {
		out.Body.Total += r.Nodes
		out.Body.Data = append(out.Body.Data, NodeCount{
			SiteID: r.SiteID, Lifecycle: r.Lifecycle, Status: string(r.Status), Nodes: r.Nodes, Fresh: r.Fresh, Stale: r.Nodes - r.Fresh,
		})
	}
	return out, nil
}

func (s *server) fleetHistory(ctx context.Context, in *struct{ Window }) (*struct{ Body Fleet }, error) {
	out := &struct{ Body Fleet }{}
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		since, err := in.start(now)
		if err != nil {
			return err
		}
		bucket := max(now.Sub(since)/fleetPoints, minBucket).Round(time.Second)
		counts, err := tx.NodeStatusCounts(ctx)
		if err != nil {
			return err
		}
		moves, err := tx.NodeMoves(ctx, since, bucket)
		out.Body = Fleet{Since: since.UTC(), Bucket: int64(bucket / time.Second), Data: fleetPointsOf(now, since, bucket, counts, moves)}
		return err
	})
	return out, err
}

// fleetPointsOf goes back from the present counts, bucket by bucket, and takes each change away.
func fleetPointsOf(now, since time.Time, bucket time.Duration, counts map[string]int64, moves []db.StateChange) []FleetPoint {
	size := int64(bucket / time.Second)
	points := []FleetPoint{{At: now.UTC(), States: statesOf(counts)}}
	for b, next := now.Unix()/size, len(moves)-1; ; b-- {
		for ; next >= 0 && moves[next].Bucket >= b; next-- {
			counts[moves[next].State] -= moves[next].Delta
		}
		at := time.Unix(b*size, 0)
		if at.Before(since) { // what came before the window in this bucket was not read
			break
		}
		points = append(points, FleetPoint{At: at.UTC(), States: statesOf(counts)})
	}
	slices.Reverse(points)
	return points
}

// statesOf copies the states that have nodes. A deleted node is in no state of the fleet.
func statesOf(counts map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for state, n := range counts {
		if n > 0 && state != "deleted" {
			out[state] = n
		}
	}
	return out
}

func (s *server) stageStats(ctx context.Context, in *struct {
	Window
	Kind string `query:"kind" maxLength:"200" doc:"Only this kind of job"`
}) (*struct {
	Body struct {
		Since time.Time    `json:"since"`
		Data  []StageStats `json:"data" nullable:"false"`
	}
}, error) {
	since, err := in.start(time.Now())
	if err != nil {
		return nil, err
	}
	kinds := []string{}
	for _, k := range contract.JobKinds() {
		if in.Kind == "" || in.Kind == string(k) {
			kinds = append(kinds, string(k))
		}
	}
	if len(kinds) == 0 {
		return nil, problem.NewInvalid(problem.Field{Location: "query.kind", Message: "is not a kind of job; there are " + kindsOfJob()})
	}
	rows, err := s.store.StageDurations(ctx, kinds, since)
	out := &struct {
		Body struct {
			Since time.Time    `json:"since"`
			Data  []StageStats `json:"data" nullable:"false"`
		}
	}{}
	out.Body.Since, out.Body.Data = since.UTC(), []StageStats{}
	for _, r := range rows {
		out.Body.Data = append(out.Body.Data, StageStats{Kind: r.Kind, Stage: r.Name, Jobs: r.Jobs, P50: r.P50, P90: r.P90})
	}
	return out, err
}
