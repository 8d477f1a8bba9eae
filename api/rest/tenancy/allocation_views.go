package tenancy

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Allocation is one node that a project has, or has asked for, as its members see it.
type Allocation struct {
	ID              string                        `json:"id"`
	ProjectID       string                        `json:"project_id"`
	Name            string                        `json:"name"`
	Tags            map[string]string             `json:"tags" nullable:"false"`
	SKUID           string                        `json:"sku_id"`
	SKU             string                        `json:"sku" doc:"The SKU's name"`
	Status          lifecycle.AllocationStatus    `json:"status" doc:"requested, provisioning, active, releasing, released, failed or release_failed (docs/states/allocation.md)"`
	Condition       lifecycle.AllocationCondition `json:"condition" doc:"ok, stopped, rebooting, reinstalling, degraded, maintenance_required or node_lost"`
	ConditionReason string                        `json:"condition_reason,omitempty"`
	ConditionSince  time.Time                     `json:"condition_since"`
	State           string                        `json:"state" doc:"Of status and condition: pending, running, stopping, stopped, starting, terminating, terminated, degraded or maintenance_required"`
	Connection      *AllocationConnection         `json:"connection,omitempty" doc:"Where to log in; absent before it is active, and for members with role billing"`
	Network         AllocationNetwork             `json:"network"`
	Image           *AllocationImage              `json:"image,omitempty" doc:"What is installed, from the record of the deployment; absent before it is active"`
	Topology        AllocationTopology            `json:"topology" doc:"Where the node is; empty before one is claimed"`
	SSHKeys         []AllocationKey               `json:"ssh_keys,omitempty" nullable:"false" doc:"The keys that may log in, and former ones; left out in lists"`
	Progress        *AllocationProgress           `json:"progress,omitempty" doc:"Of the job that is under way"`
	Cost            *AllocationCost               `json:"cost,omitempty" doc:"What it costs; left out where it has no usage record"`
	QueueDeadlineAt *time.Time                    `json:"queue_deadline_at,omitempty" doc:"Until when it waits for a node"`
	ExpiresAt       *time.Time                    `json:"expires_at,omitempty"`
	FailureCode     string                        `json:"failure_code,omitempty"`
	FailureMessage  string                        `json:"failure_message,omitempty"`
	Outcome         string                        `json:"outcome,omitempty" doc:"Of one that is released: released, cancelled or assignment_removed"`
	Access          string                        `json:"access,omitempty" doc:"Once it is releasing: revoked when the end of the access is proven, otherwise unconfirmed"`
	CertificateID   string                        `json:"certificate_id,omitempty" doc:"Of the proof that the node was cleaned"`
	AllowedActions  []string                      `json:"allowed_actions" nullable:"false" doc:"update, set_keys and release, where a member may ask for them now"`
	RequestedAt     time.Time                     `json:"requested_at"`
	StartTime       *time.Time                    `json:"start_time,omitempty" doc:"When the keys went in: what is charged begins here"`
	ReleasingAt     *time.Time                    `json:"releasing_at,omitempty"`
	ReleasedAt      *time.Time                    `json:"released_at,omitempty"`
	UpdatedAt       time.Time                     `json:"updated_at"`
	Version         int64                         `json:"version"`
}

// AllocationConnection is where and how to log in.
type AllocationConnection struct {
	Host          string    `json:"host"`
	Port          int       `json:"port"`
	User          string    `json:"user"`
	HostKey       string    `json:"host_key" doc:"The line of known_hosts for the node: the pattern of its host and port, and the public key that it must show"`
	HostKeySHA256 string    `json:"host_key_sha256"`
	Since         time.Time `json:"since"`
}

// AllocationCost is what an allocation costs.
type AllocationCost struct {
	Currency         string `json:"currency" doc:"Of the billing account that pays"`
	Exponent         int    `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	RateMinorPerHour *int64 `json:"rate_minor_per_hour,omitempty" doc:"The rate that it is or was charged at last; before it is active the price that is in force. Left out where it has neither"`
	CostMinor        *int64 `json:"cost_minor,omitempty" doc:"What was charged for it up to the last minute; for owners and members with role billing"`
}

// AllocationNetwork is the network that the node is in.
type AllocationNetwork struct {
	ID   string `json:"id" doc:"Of the network; of the site where all share one, and pending before a node is claimed"`
	Kind string `json:"kind" doc:"As the catalogue states the isolation of the SKU"`
	CIDR string `json:"cidr,omitempty" doc:"Left out where it is not known, and for members with role billing"`
}

// AllocationImage is what is installed.
type AllocationImage struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Version     string    `json:"version,omitempty"`
	SHA256      string    `json:"sha256,omitempty"`
	InstalledAt time.Time `json:"installed_at"`
}

// AllocationTopology says where a node is.
type AllocationTopology struct {
	SiteID string `json:"site_id,omitempty"`
	Site   string `json:"site,omitempty"`
	Rack   string `json:"rack,omitempty" doc:"The label rack of the node"`
	Group  string `json:"group,omitempty" doc:"The label group of the node"`
}

// AllocationKey is a key of an allocation.
type AllocationKey struct {
	Fingerprint string     `json:"fingerprint"`
	PublicKey   string     `json:"public_key"`
	AcceptedAt  *time.Time `json:"accepted_at,omitempty" doc:"When the node was first seen to accept it"`
	RefusedAt   *time.Time `json:"refused_at,omitempty" doc:"When the node was seen to refuse it, after the release or after it was withdrawn"`
	WithdrawnAt *time.Time `json:"withdrawn_at,omitempty" doc:"When it ended: its member or the SSH key was removed, or the keys were replaced. Without refused_at nothing proves yet that the node refuses it"`
}

// AllocationProgress is how far a job is.
type AllocationProgress struct {
	Stage      string              `json:"stage"`
	StagesDone int                 `json:"stages_done"`
	Stages     int                 `json:"stages"`
	Percent    int                 `json:"percent" doc:"How far it got"`
	ETA        *lifecycle.Estimate `json:"eta,omitempty" doc:"Working time to the end, from past jobs"`
}

// hideAddress removes the address of the node, its host key and its network. A member with role
// billing needs none of them.
func (a *Allocation) hideAddress() { a.Connection, a.Network.CIDR = nil, "" }

// reader reads what the role of customers does not see: a *db.Store or a *db.Tx. It is asked only
// about allocations that were found in the project of the request.
type reader interface {
	db.Conn
	ListNodes(ctx context.Context, f db.NodeFilter, after string, limit int) ([]db.Node, error)
	SKU(ctx context.Context, id string) (db.SKU, error)
	Site(ctx context.Context, id string) (db.Site, error)
	LiveJobsOfResources(ctx context.Context, kind string, ids []string) ([]db.Job, error)
	StagesDone(ctx context.Context, jobIDs []string) (map[string]int, error)
}

// show answers with one allocation of the project of the request.
func (s *allocationServer) show(ctx context.Context, id string) (*op.Versioned[Allocation], error) {
	row, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	var view Allocation
	err = s.api.Store().ReadTx(ctx, func(tx *db.Tx) error {
		views, err := s.views(ctx, tx, []allocationdb.Allocation{row})
		if err != nil {
			return err
		}
		view = views[0]
		keys, err := allocationdb.ListKeys(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, k := range keys {
			view.SSHKeys = append(view.SSHKeys, AllocationKey{k.Fingerprint, k.PublicKey, utc(k.AcceptedAt), utc(k.RefusedAt), utc(k.WithdrawnAt)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(view.Version, view), nil
}

// liveJob is the live job of an allocation and how far it is.
type liveJob struct {
	id       string
	status   lifecycle.JobStatus
	progress *AllocationProgress
}

// liveJobs returns the live jobs of allocations by the allocation's id.
func (s *allocationServer) liveJobs(ctx context.Context, r reader, rows []allocationdb.Allocation) (map[string]liveJob, error) {
	var ids []string
	for _, row := range rows {
		if row.Status.Live() {
			ids = append(ids, row.ID)
		}
	}
	out := map[string]liveJob{}
	if len(ids) == 0 {
		return out, nil
	}
	jobs, err := r.LiveJobsOfResources(ctx, allocationdb.Resource, ids)
	if err != nil || len(jobs) == 0 {
		return out, err
	}
	jobIDs := make([]string, len(jobs))
	for i, job := range jobs {
		jobIDs[i] = job.ID
	}
	done, err := r.StagesDone(ctx, jobIDs)
	if err != nil {
		return out, err
	}
	eta, err := s.eta.Estimates(ctx, r, jobs)
	for _, job := range jobs {
		p := &AllocationProgress{
			Stage: job.Stage, StagesDone: done[job.ID], Stages: len(contract.Stages(contract.JobKind(job.Kind))), Percent: job.ReachedPercent,
		}
		if e, ok := eta[job.ID]; ok {
			p.ETA = &e
		}
		out[job.ResourceID] = liveJob{job.ID, job.Status, p}
	}
	return out, err
}

// views shows allocations with the names of their SKUs, where their nodes are, and how far their
// jobs.
func (s *allocationServer) views(ctx context.Context, r reader, rows []allocationdb.Allocation) ([]Allocation, error) {
	n := newNames(r)
	if err := n.readNodes(ctx, rows); err != nil {
		return nil, err
	}
	jobs, err := s.liveJobs(ctx, r, rows)
	if err != nil {
		return nil, err
	}
	costs, err := costsOf(ctx, r, rows)
	if err != nil {
		return nil, err
	}
	out := make([]Allocation, 0, len(rows))
	for _, row := range rows {
		v, err := n.view(ctx, row)
		if err != nil {
			return nil, err
		}
		v.Progress, v.Cost = jobs[row.ID].progress, costs[row.ID]
		out = append(out, v)
	}
	return out, nil
}

// costsOf returns what allocations cost, by id. The cost so far is only for callers who may read
// money.
func costsOf(ctx context.Context, r reader, rows []allocationdb.Allocation) (map[string]*AllocationCost, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	costs, err := ledgerdb.ListCosts(ctx, r, ids)
	out := make(map[string]*AllocationCost, len(costs))
	for _, c := range costs {
		v := &AllocationCost{Currency: c.Currency, Exponent: int(c.Exponent)}
		if c.HasRate {
			v.RateMinorPerHour = &c.RateMinorPerHour
		}
		if op.ReadsMoney(ctx) {
			v.CostMinor = &c.CostMinor
		}
		out[c.AllocationID] = v
	}
	return out, err
}

// names keeps what several allocations of a list share.
type names struct {
	reader
	nodes                 map[string]db.Node
	skus, networks, sites map[string]string
}

func newNames(r reader) *names {
	return &names{reader: r, skus: map[string]string{}, networks: map[string]string{}, sites: map[string]string{}}
}

func (n *names) readNodes(ctx context.Context, rows []allocationdb.Allocation) error {
	var ids []string
	for _, row := range rows {
		if row.NodeID != nil {
			ids = append(ids, *row.NodeID)
		}
	}
	n.nodes = map[string]db.Node{}
	if len(ids) == 0 {
		return nil
	}
	found, err := n.ListNodes(ctx, db.NodeFilter{IDs: ids}, "", len(ids))
	for _, node := range found {
		n.nodes[node.ID] = node
	}
	return err
}

// name returns what read finds, once for each id; "" for what is gone.
func name(kept map[string]string, id string, read func() (string, error)) (string, error) {
	if got, ok := kept[id]; ok {
		return got, nil
	}
	got, err := read()
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return "", err
	}
	kept[id] = got
	return got, nil
}

func (n *names) sku(ctx context.Context, id string) (string, error) {
	return name(n.skus, id, func() (string, error) { r, err := n.SKU(ctx, id); return r.Name, err })
}

func (n *names) site(ctx context.Context, id string) (string, error) {
	return name(n.sites, id, func() (string, error) { r, err := n.Site(ctx, id); return r.Name, err })
}

// topology says where the node of an allocation is.
func (n *names) topology(ctx context.Context, a allocationdb.Allocation) (AllocationTopology, error) {
	var out AllocationTopology
	if a.SiteID != nil {
		site, err := n.site(ctx, *a.SiteID)
		if err != nil {
			return out, err
		}
		out.SiteID, out.Site = *a.SiteID, site
	}
	if a.NodeID != nil && a.NodeReleasedAt == nil { // then it is another tenant's
		node := n.nodes[*a.NodeID]
		out.Rack, out.Group = node.Labels["rack"], node.Labels["group"]
	}
	return out, nil
}

// network returns the network of an allocation. Where it has none of its own it is that of its
// site, with the isolation that the catalogue states.
func (n *names) network(ctx context.Context, a allocationdb.Allocation) (AllocationNetwork, error) {
	if a.Network != nil {
		return AllocationNetwork(*a.Network), nil
	}
	kind, err := name(n.networks, a.SKUID, func() (string, error) {
		offer, err := tenancydb.ReadOffer(ctx, n.reader, a.SKUID)
		return offer.Isolation, err
	})
	out := AllocationNetwork{ID: "pending", Kind: kind}
	if out.Kind == "" {
		out.Kind = "unknown" // the SKU is no longer offered
	}
	if a.NodeID != nil && a.SiteID != nil {
		out.ID = *a.SiteID
	}
	return out, err
}

func (n *names) view(ctx context.Context, a allocationdb.Allocation) (Allocation, error) {
	sku, err := n.sku(ctx, a.SKUID)
	if err != nil {
		return Allocation{}, err
	}
	at, err := n.topology(ctx, a)
	if err != nil {
		return Allocation{}, err
	}
	network, err := n.network(ctx, a)
	if err != nil {
		return Allocation{}, err
	}
	out := Allocation{
		ID: a.ID, ProjectID: a.ProjectID, Name: a.Name, Tags: a.Tags, SKUID: a.SKUID, SKU: sku, Status: a.Status, Condition: a.Condition,
		ConditionReason: a.ConditionReason, ConditionSince: a.ConditionSince.UTC(), State: lifecycle.AllocationState(a.Status, a.Condition),
		Network: network, Topology: at, QueueDeadlineAt: utc(a.QueueDeadlineAt), ExpiresAt: utc(a.ExpiresAt), FailureCode: a.FailureCode,
		FailureMessage: a.FailureMessage, Outcome: a.Outcome, Access: a.Access, AllowedActions: lifecycle.AllocationActions(a.Status), RequestedAt: a.RequestedAt.UTC(), StartTime: utc(a.StartTime),
		ReleasingAt: utc(a.ReleasingAt), ReleasedAt: utc(a.ReleasedAt), UpdatedAt: a.UpdatedAt.UTC(), Version: a.Version,
	}
	if a.CertificateID != nil {
		out.CertificateID = *a.CertificateID
	}
	if out.Tags == nil {
		out.Tags = map[string]string{}
	}
	if a.Connection != nil {
		c := AllocationConnection(*a.Connection)
		c.HostKey = lifecycle.KnownHostsLine(c.Host, c.Port, c.HostKey)
		out.Connection = &c
	}
	if a.Image != nil {
		i := AllocationImage(*a.Image)
		out.Image = &i
	}
	return out, nil
}
