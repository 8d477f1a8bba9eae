package db

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Node is the record of one machine.
type Node = gen.Node

// Labels are free key-value marks of a node.
type Labels = record.Labels

// NewNode is what is known of a node when it is accepted.
type NewNode struct {
	ID        string // "" makes one
	Hostname  string
	SiteID    string
	SKUID     *string
	ProfileID *string
	Serial    string
	Simulated bool
	Labels    Labels
	Actor     Actor
}

// CreateNode adds a node of lifecycle maas in its first state, with its audit
// row and event. A live node of the site with that hostname gives
// *ConflictError with its id.
func (tx *Tx) CreateNode(ctx context.Context, in NewNode) (Node, error) {
	m := lifecycle.NodeMAAS
	n := Node{
		ID: orNewID(in.ID, "node"), Lifecycle: m.Lifecycle, Status: m.Initial[0], Hostname: in.Hostname, SiteID: in.SiteID,
		SKUID: in.SKUID, ProfileID: in.ProfileID, Serial: spec.NormalSerial(in.Serial), Simulated: in.Simulated, Labels: in.Labels,
	}
	if n.Labels == nil {
		n.Labels = Labels{}
	}
	if err := tx.insertNode(ctx, n, in.Actor); err != nil {
		return Node{}, err
	}
	return tx.Node(ctx, n.ID)
}

// insertNode writes a node of any lifecycle in its first state, with its audit
// row and event.
func (tx *Tx) insertNode(ctx context.Context, n Node, a Actor) error {
	st, err := a.Stamp(nil)
	if err != nil {
		return err
	}
	payload, err := nodePayload(n, "", "create")
	if err != nil {
		return err
	}
	_, err = tx.q.InsertNode(ctx, gen.InsertNodeParams{
		ID: n.ID, Lifecycle: n.Lifecycle, Status: n.Status, Hostname: n.Hostname, SiteID: n.SiteID, SKUID: n.SKUID, ProfileID: n.ProfileID,
		Serial: n.Serial, Simulated: n.Simulated, Labels: n.Labels, Payload: payload, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
		Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return tx.nodeConflict(ctx, n)
	}
	if err == nil {
		tx.moves = append(tx.moves, nodeMove{n, "", "create", a})
	}
	return MapError("node "+n.Hostname, err)
}

func (tx *Tx) nodeConflict(ctx context.Context, n Node) error {
	other, err := tx.LiveNodeOfHost(ctx, n.SiteID, n.Hostname)
	if errors.Is(err, ErrNotFound) {
		return &ConflictError{What: "node", Existing: n.ID, Message: "there is a node of this id already"}
	}
	if err != nil {
		return err
	}
	return conflictWith("nodes_live_hostname_unique", other.ID)
}

// Node reads one node, or ErrNotFound.
func (s statements) Node(ctx context.Context, id string) (Node, error) {
	n, err := s.q.Node(ctx, id)
	return n, MapError("node "+id, err)
}

// LockNode reads one node and keeps others from changing it until the
// transaction ends.
func (tx *Tx) LockNode(ctx context.Context, id string) (Node, error) {
	n, err := tx.q.LockNode(ctx, id)
	return n, MapError("node "+id, err)
}

// LiveNodeOfHost is the node of that hostname that is not deleted.
func (s statements) LiveNodeOfHost(ctx context.Context, siteID, hostname string) (Node, error) {
	n, err := s.q.LiveNodeOfHost(ctx, gen.LiveNodeOfHostParams{SiteID: siteID, Hostname: hostname})
	return n, MapError("live node "+hostname, err)
}

// LiveNodeOfMachine is the node that is this MAAS machine and not deleted.
func (s statements) LiveNodeOfMachine(ctx context.Context, siteID, systemID string) (Node, error) {
	n, err := s.q.LiveNodeOfMachine(ctx, gen.LiveNodeOfMachineParams{SiteID: siteID, MAASSystemID: systemID})
	return n, MapError("live node of MAAS machine "+systemID, err)
}

// NodeFilter narrows a list; empty fields match all. Status is one more of Statuses. Q is found in
// hostname or serial, or is the whole id, MAAS system id or MAC.
type NodeFilter struct {
	Status, ExceptStatus, Lifecycle, SiteID, SKUID, Hostname, Q string
	Statuses, IDs                                               []string // any of them; none means all
}

// ListNodes lists nodes by id, from the one after the id given ("" from the
// first). limit 0 means 50; at most 1000.
func (s statements) ListNodes(ctx context.Context, f NodeFilter, after string, limit int) ([]Node, error) {
	if f.Status != "" {
		f.Statuses = append([]string{f.Status}, f.Statuses...)
	}
	if f.Q == "" {
		f.Q = f.Hostname // the search finds it by the index
	}
	q := gen.New(freshPlans{s.dbtx})
	var rows []Node
	var err error
	if f.Q == "" {
		rows, err = q.ListNodes(ctx, gen.ListNodesParams{
			After: after, ExceptStatus: f.ExceptStatus, Lifecycle: f.Lifecycle, SiteID: f.SiteID, SKUID: f.SKUID,
			Statuses: EmptyIfNil(f.Statuses), Ids: EmptyIfNil(f.IDs), MaxRows: PageLimit(limit),
		})
	} else {
		rows, err = q.SearchNodes(ctx, gen.SearchNodesParams{
			After: after, ExceptStatus: f.ExceptStatus, Lifecycle: f.Lifecycle, SiteID: f.SiteID, SKUID: f.SKUID, Hostname: f.Hostname, Q: f.Q,
			Statuses: EmptyIfNil(f.Statuses), Ids: EmptyIfNil(f.IDs), MaxRows: PageLimit(limit),
		})
	}
	return rows, MapError("list nodes", err)
}

// NodePatch is what an operator may change of a node; nil leaves a field.
type NodePatch struct {
	Hostname, SKUID, ProfileID *string
	Labels                     Labels
}

// UpdateNode changes a node of the version given, or ErrStale.
func (tx *Tx) UpdateNode(ctx context.Context, id string, version int64, p NodePatch) (Node, error) {
	n, err := tx.LockNode(ctx, id)
	if err != nil {
		return Node{}, err
	}
	if p.Hostname != nil {
		n.Hostname = *p.Hostname
	}
	if p.SKUID != nil {
		n.SKUID = p.SKUID
	}
	if p.ProfileID != nil {
		n.ProfileID = p.ProfileID
	}
	if p.Labels != nil {
		n.Labels = p.Labels
	}
	n, err = tx.q.UpdateNode(ctx, gen.UpdateNodeParams{
		ID: id, Version: version, Hostname: n.Hostname, SKUID: n.SKUID, ProfileID: n.ProfileID, Labels: n.Labels,
	})
	return CheckUpdate("node "+id, n, err, func() error { return nil })
}

// NodeMachine is what MAAS and the BMC said of a node's machine; an empty
// field, or one that identifies nothing, leaves what is stored, but for the system id.
type NodeMachine struct {
	SystemID, Serial, HardwareUUID string
	MACs                           []string
}

// SetNodeMachine ties a node to its MAAS machine; an empty system id unties it. *ConflictError when
// another live node of the site is that machine. Data that a tenant left on the machine when it was
// another node is on this node. Repeatable.
func (s statements) SetNodeMachine(ctx context.Context, id string, m NodeMachine) error {
	macs := m.MACs
	if macs == nil {
		macs = []string{}
	}
	keys := spec.MachineKeys{Serial: m.Serial, UUID: m.HardwareUUID}.Normal()
	rows, err := s.q.SetNodeMachine(ctx, gen.SetNodeMachineParams{
		ID: id, MAASSystemID: optional(m.SystemID), Serial: keys.Serial, HardwareUUID: keys.UUID, MACs: macs,
	})
	if err == nil && rows > 0 {
		err = s.inheritTenantLeft(ctx, id)
	}
	return CheckRepeatable("node "+id, rows, err, s.nodeExists(ctx, id))
}

// SetMAASCreateIntent notes the job that is about to create the node's MAAS
// record ("" when done), so that a record found after a lost answer is known
// to be its own.
func (s statements) SetMAASCreateIntent(ctx context.Context, id, jobID string) error {
	rows, err := s.q.SetMAASCreateIntent(ctx, gen.SetMAASCreateIntentParams{ID: id, MAASCreateIntent: jobID})
	return CheckRepeatable("node "+id, rows, err, s.nodeExists(ctx, id))
}

// NodeAddresses are the addresses of a node, and who named them.
type NodeAddresses struct {
	Source lifecycle.AddressSource
	IPs    []string
	// SSH is where the node's sshd answers, host:port. "" keeps what is stored; where nothing is,
	// that is the port of the site at an address of the node.
	SSH string
}

// maxNodeAddresses bounds how many addresses a node has.
const maxNodeAddresses = 64

// SetNodeAddresses stores a node's addresses with their source and the present time. Texts that are
// no IP address are left out. It changes nothing when they are stored already, or when the agent
// names other addresses than MAAS or the installer did.
func (s statements) SetNodeAddresses(ctx context.Context, id string, a NodeAddresses) error {
	ips := make([]string, 0, len(a.IPs))
	for _, text := range a.IPs {
		if ip, err := netip.ParseAddr(text); err == nil && len(ips) < maxNodeAddresses && !slices.Contains(ips, ip.WithZone("").String()) {
			ips = append(ips, ip.WithZone("").String())
		}
	}
	if len(ips) == 0 {
		a.Source = ""
	}
	rows, err := s.q.SetNodeAddresses(ctx, gen.SetNodeAddressesParams{ID: id, IPAddresses: ips, Source: a.Source, SSHAddress: a.SSH})
	return CheckRepeatable("node "+id, rows, err, s.nodeExists(ctx, id))
}

// SetNodeHostKey stores the public SSH host key that the node was given, in
// authorized_keys form.
func (s statements) SetNodeHostKey(ctx context.Context, id, key string) error {
	rows, err := s.q.SetNodeHostKey(ctx, gen.SetNodeHostKeyParams{ID: id, SSHHostKey: key})
	return CheckRepeatable("node "+id, rows, err, s.nodeExists(ctx, id))
}

func (s statements) nodeExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.Node(ctx, id)
		return err
	}
}

// NodesOverdue lists ids of active nodes whose last heartbeat, or else their
// becoming active, is before the cutoff.
func (s statements) NodesOverdue(ctx context.Context, cutoff time.Time, limit int) ([]string, error) {
	ids, err := s.q.NodesOverdue(ctx, gen.NodesOverdueParams{Cutoff: cutoff, MaxRows: PageLimit(limit)})
	return ids, MapError("list overdue nodes", err)
}

// NodesBack lists ids of offline nodes that sent a heartbeat since the cutoff and report
// nothing unhealthy.
func (s statements) NodesBack(ctx context.Context, cutoff time.Time, limit int) ([]string, error) {
	ids, err := s.q.NodesBack(ctx, gen.NodesBackParams{Cutoff: cutoff, MaxRows: PageLimit(limit)})
	return ids, MapError("list nodes that are back", err)
}
