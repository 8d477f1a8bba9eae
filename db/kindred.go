package db

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// maxKindred bounds the records that are compared with one machine. Those that a tenant left come
// first.
const maxKindred = 1000

// machineKeys returns what a node's record says of its machine, as it is compared.
func machineKeys(n Node) spec.MachineKeys {
	return spec.MachineKeys{Serial: n.Serial, UUID: n.HardwareUUID, MACs: n.MACs}.Normal()
}

// bothOrders returns a system UUID in its two byte orders; nothing for one that identifies nothing.
func bothOrders(uuid string) []string {
	out := []string{}
	if u, ok := spec.NormalUUID(uuid); ok {
		out = append(out, u)
	}
	if u, ok := spec.SwappedUUID(uuid); ok {
		out = append(out, u)
	}
	return out
}

// untiedStates are the states of a node on its way out of service, in which its record loses its
// machine.
var untiedStates = []lifecycle.NodeStatus{lifecycle.NodeDraining, lifecycle.NodeRemoving, lifecycle.NodeRetired}

// isFormer reports whether a record that a tenant left is one of a machine that may come back as
// another node: the record is deleted, or is on its way out of service and is tied to no machine
// any more. A record in service is another machine's.
func isFormer(n Node) bool {
	isUntied := n.MAASSystemID == nil && n.Lifecycle == lifecycle.NodeMAAS.Lifecycle && slices.Contains(untiedStates, n.Status)
	return n.TenantLeftAt != nil && (n.Status == lifecycle.NodeDeleted || isUntied)
}

// kindred reads the records other than a node that have a key in common with a machine: those that
// a tenant left, and those that are tied to their machine.
func (s statements) kindred(ctx context.Context, nodeID string, k spec.MachineKeys) ([]Node, error) {
	k = k.Normal()
	ids, err := s.q.KindredNodes(ctx, gen.KindredNodesParams{NodeID: nodeID, Serial: k.Serial, Uuids: bothOrders(k.UUID), MACs: k.MACs, MaxRows: maxKindred})
	if err != nil || len(ids) == 0 {
		return nil, MapError("records like node "+nodeID, err)
	}
	return s.ListNodes(ctx, NodeFilter{IDs: ids}, "", maxKindred)
}

// provenClean reports whether a certificate since the tenant left a deleted record says that its
// machine is clean: one of the record, of the node that may be the same machine, or of a third
// record that is the same machine by two keys. A certificate of another serial number proves
// nothing.
func (s statements) provenClean(ctx context.Context, left, node Node) (bool, error) {
	k := machineKeys(left)
	ids, err := s.q.CleanProofs(ctx, gen.CleanProofsParams{
		Since: *left.TenantLeftAt, Ids: []string{left.ID, node.ID}, Serial: k.Serial, Uuids: bothOrders(k.UUID), MACs: k.MACs, MaxRows: maxKindred,
	})
	return s.proves(ctx, left, node, ids, err)
}

// ProvenErased reports whether a certificate since the tenant left a deleted record names the disks
// of its machine and says of each that it was erased. It is as provenClean, but for the rest of the
// machine: one that was erased from outside after a tenant who was root is not called clean. node
// is the node that is the same machine now.
func (s statements) ProvenErased(ctx context.Context, recordID, nodeID string) (bool, error) {
	left, err := s.Node(ctx, recordID)
	if err != nil || left.TenantLeftAt == nil {
		return err == nil, err
	}
	node, err := s.Node(ctx, nodeID)
	if err != nil {
		return false, err
	}
	k := machineKeys(left)
	ids, err := s.q.ErasureProofs(ctx, gen.ErasureProofsParams{
		Since: *left.TenantLeftAt, Ids: []string{left.ID, node.ID}, Serial: k.Serial, Uuids: bothOrders(k.UUID), MACs: k.MACs, MaxRows: maxKindred,
	})
	return s.proves(ctx, left, node, ids, err)
}

// proves reports whether certificates of nodes are of the machine of a deleted record: of the
// record, of the node that may be the same machine, or of a third record that is the same machine
// by two keys.
func (s statements) proves(ctx context.Context, left, node Node, ids []string, err error) (bool, error) {
	if err != nil {
		return false, MapError("certificates of node "+left.ID, err)
	}
	if len(ids) == 0 || slices.Contains(ids, left.ID) || slices.Contains(ids, node.ID) {
		return len(ids) > 0, nil
	}
	others, err := s.ListNodes(ctx, NodeFilter{IDs: ids}, "", maxKindred)
	return slices.ContainsFunc(others, func(o Node) bool { return machineKeys(o).Compare(machineKeys(left)).SameMachine() }), err
}

// inheritTenantLeft marks a node whose machine was another node that a tenant left, where nothing
// has proven it clean since. Records that only may be the same machine are a conflict
// (IdentityConflict).
func (s statements) inheritTenantLeft(ctx context.Context, id string) error {
	n, err := s.Node(ctx, id)
	if err != nil || n.TenantLeftAt != nil || n.AllocationID != nil || n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return err
	}
	others, err := s.kindred(ctx, id, machineKeys(n))
	if err != nil {
		return err
	}
	at, byMachine := time.Time{}, true
	for _, o := range others {
		if !isFormer(o) || !machineKeys(n).Compare(machineKeys(o)).SameMachine() {
			continue
		}
		clean, err := s.provenClean(ctx, o, n)
		if err != nil {
			return err
		}
		if clean {
			continue
		}
		byMachine = byMachine && o.LeftByMachine
		if o.TenantLeftAt.After(at) {
			at = *o.TenantLeftAt
		}
	}
	if at.IsZero() {
		return nil
	}
	return s.q.InheritTenantLeft(ctx, gen.InheritTenantLeftParams{ID: id, LeftAt: at, LeftByMachine: byMachine})
}

// Conflict is another record that has a key in common with a node.
type Conflict struct {
	Other Node
	spec.Likeness
}

// IdentityConflict returns the first record by which a node may be given to nobody until an
// operator decides: a former one that a tenant left and that may be the same machine, or one that
// came before the node and is tied to a machine with the same serial number, UUID or MAC address.
// The record that came first is in no conflict, so that no newcomer takes it out of service. others
// are the records to compare with; nil is all. It returns nil for none.
func (s statements) IdentityConflict(ctx context.Context, n Node, others []Node) (*Conflict, error) {
	k := machineKeys(n)
	if others == nil {
		var err error
		if others, err = s.kindred(ctx, n.ID, k); err != nil {
			return nil, err
		}
	}
	for _, o := range others {
		like := k.Compare(machineKeys(o))
		left := isFormer(o)
		switch {
		case len(like.Same) == 0, o.ID == n.ID, !left && (o.ID > n.ID || o.Status == lifecycle.NodeDeleted), left && HoldsTenant(n):
			continue
		case left:
			clean, err := s.provenClean(ctx, o, n)
			if err != nil {
				return nil, err
			}
			if clean {
				continue
			}
		}
		return &Conflict{Other: o, Likeness: like}, nil
	}
	return nil, nil
}

// formerRecords returns the ids of the former records that are the machine with these keys. Where
// none is, it returns those with a key in common, and false: root can write the serial number that
// a BMC tells, so that they are worth a look, and nothing may be proven by them.
func (s statements) formerRecords(ctx context.Context, nodeID string, k spec.MachineKeys) (ids []string, same bool, err error) {
	others, err := s.kindred(ctx, nodeID, k)
	if err != nil {
		return nil, false, err
	}
	var like []string
	for _, o := range others {
		switch l := k.Compare(machineKeys(o)); {
		case !isFormer(o) || len(l.Same) == 0:
		case l.SameMachine():
			ids = append(ids, o.ID)
		default:
			like = append(like, o.ID)
		}
	}
	if len(ids) > 0 {
		return ids, true, nil
	}
	return EmptyIfNil(like), false, nil
}
