package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/stack"
)

// machineLog is what happened to a simulated machine that the database does not say. The targets of
// all cases on the machine share it.
type machineLog struct {
	mu    sync.Mutex
	lines []happened
	keys  map[string][]byte // public keys by tenant
}

type happened struct {
	At   time.Time
	What string
}

// newMachineLog begins the log of a machine. It notes installations and erasures by itself.
func newMachineLog(m *simhw.Machine) *machineLog {
	l := &machineLog{keys: map[string][]byte{"a tenant of the simulator": []byte(simnode.TenantKey)}}
	m.Subscribe(func(e simhw.Event) {
		switch {
		case e.Kind == simhw.EventErased:
			l.add("every disk was erased from outside")
		case e.Kind == simhw.EventOSUp && e.FirstBoot:
			l.add("a new installation came up")
		}
	})
	return l
}

func (l *machineLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, happened{time.Now(), fmt.Sprintf(format, args...)})
}

// addKey notes the key of a tenant who may get the machine.
func (l *machineLog) addKey(who *stack.Tenant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[who.Project+"/"+who.Key.Name] = bytes.TrimSpace(ssh.MarshalAuthorizedKey(who.Signer.PublicKey()))
}

// historySQL is what the database says of a node.
const historySQL = `
SELECT at, what FROM (
    SELECT coalesce(a.access_given_at, a.provisioning_at) AS at,
        concat('tenant ', a.id, ' came, ', CASE WHEN s.tenant_root THEN 'root' ELSE 'not root' END) AS what
    FROM allocations a JOIN skus s ON s.id = a.sku_id WHERE a.node_id = $1
    UNION ALL
    SELECT a.node_released_at, concat('tenant ', a.id, ' left: ', a.status, ' ', a.outcome, ', access ', a.access, ', certificate ', a.certificate_id)
    FROM allocations a WHERE a.node_id = $1
    UNION ALL
    SELECT c.issued_at, concat('certificate ', c.id, ' of ', c.run_id, ': ', c.verdict) FROM certificates c WHERE c.node_id = $1
    UNION ALL
    SELECT k.finished_at, concat('task ', k.kind, ' of ', k.job_id, ': ', k.status) FROM node_tasks k WHERE k.node_id = $1
    UNION ALL
    SELECT j.created_at, concat('job ', j.id, ' was accepted: ', j.kind, ', now ', j.status) FROM jobs j WHERE j.node_id = $1
) h WHERE at IS NOT NULL`

// story is the history of the target's machine, one line for each thing that happened.
func (t *Target) story(ctx context.Context) string {
	rows, err := t.Store.DBTX().Query(ctx, historySQL, t.nodeID())
	var all []happened
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[happened])
	}
	t.log.mu.Lock()
	all = append(all, t.log.lines...)
	t.log.mu.Unlock()
	slices.SortStableFunc(all, func(a, b happened) int { return a.At.Compare(b.At) })
	var b strings.Builder
	fmt.Fprintf(&b, "\n  the history of machine %s, node %s:", t.Machine.Spec().ID, t.nodeID())
	if err != nil {
		fmt.Fprintf(&b, " %v", err)
	}
	for _, one := range all {
		fmt.Fprintf(&b, "\n    %s %s", one.At.UTC().Format("15:04:05.000"), one.What)
	}
	if n := t.node(); n != nil {
		erased, err := n.Erasures()
		fmt.Fprintf(&b, "\n    erasures by the agent so far: %v (%v)", erased, errOrNone(err))
	}
	return b.String()
}

func errOrNone(err error) string {
	if err == nil {
		return "all read"
	}
	return err.Error()
}

// traces lists the data of tenants in files and on disks. The firmware's boot menu is not among
// them: no release takes an entry of it away.
func (t *Target) traces() ([]simnode.Trace, error) {
	all, err := t.node().Traces()
	return slices.DeleteFunc(all, func(one simnode.Trace) bool { return !strings.HasPrefix(one.At, "/") }), err
}

// diskTraces lists the data of tenants on disks.
func (t *Target) diskTraces() ([]simnode.Trace, error) {
	disks := t.Machine.Spec().Disks
	all, err := t.traces()
	return slices.DeleteFunc(all, func(one simnode.Trace) bool {
		return !slices.ContainsFunc(disks, func(d simhw.Disk) bool { return one.At == "/dev/"+d.Name })
	}), err
}

// noTraces finds traces where none should be. It names their tenants and tells the machine's
// history.
func (f *findings) noTraces(ctx context.Context, t *Target, where string, traces []simnode.Trace, err error) {
	if err != nil || len(traces) > 0 {
		f.add(WrongEnd, "%s holds a tenant's data in %v (%v)%s", where, traces, errOrNone(err), t.story(ctx))
	}
}

// keyFiles lists the files of the node that an sshd may read and that hold a key of a tenant who
// had the machine. only names the tenants who count; none stands for all.
func (t *Target) keyFiles(only ...*stack.Tenant) ([]simnode.Trace, error) {
	t.log.mu.Lock()
	keys := maps.Clone(t.log.keys) // the machine's events do not wait for the walk
	t.log.mu.Unlock()
	root := t.node().Root()
	var out []simnode.Trace
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(path, "authorized_keys") {
			return nil //nolint:nilerr // files come and go on a node that runs
		}
		raw, err := os.ReadFile(path) //nolint:gosec // below the node's root
		for who, key := range keys {
			counts := len(only) == 0 || slices.ContainsFunc(only, func(o *stack.Tenant) bool { return who == o.Project+"/"+o.Key.Name })
			if err == nil && counts && bytes.Contains(raw, key) {
				out = append(out, simnode.Trace{At: strings.TrimPrefix(path, root), Tenant: who})
			}
		}
		return nil
	})
	return out, err
}

// unclean lists why the target's node is not one that a case may begin with. It asks everybody who
// can tell: the database, MAAS, and the simulated disks.
func (t *Target) unclean(ctx context.Context) ([]string, error) {
	n, err := t.Store.Node(ctx, t.nodeID())
	if err != nil {
		return nil, err
	}
	var why []string
	if n.AllocationID != nil {
		why = append(why, "it has allocation "+*n.AllocationID)
	}
	if n.Status == lifecycle.NodeActive && n.TenantLeftAt != nil {
		why = append(why, "a tenant left it at "+n.TenantLeftAt.UTC().Format(time.RFC3339Nano)+", and nothing proves it clean")
	}
	if n.MAASSystemID != nil {
		if mark := t.markOf(*n.MAASSystemID); mark != "" {
			why = append(why, "MAAS has its machine marked for "+mark)
		}
	}
	traces, err := t.traces()
	if len(traces) > 0 {
		why = append(why, fmt.Sprintf("it holds a tenant's data in %v", traces))
	}
	keys, kerr := t.keyFiles()
	if len(keys) > 0 {
		why = append(why, fmt.Sprintf("it holds a tenant's key in %v", keys))
	}
	return why, errors.Join(err, kerr)
}

// takeClean takes a kept node that is proven clean. A node that is not counts against the case that
// left it, and no case gets it. It returns nil when no node of the state is kept.
func (t *environment) takeClean(ctx context.Context, state lifecycle.NodeStatus) (*Target, error) {
	for {
		kept := t.take(state)
		if kept == nil {
			return nil, nil
		}
		why, err := kept.unclean(ctx)
		if err != nil {
			kept.leave()
			return nil, fmt.Errorf("look whether node %s is clean: %w", kept.NodeID, err)
		}
		if len(why) == 0 {
			return kept, nil
		}
		found := violation{kept.jobID(), kept.uncleanText(ctx, why)}
		t.mu.Lock()
		t.uncleanNodes = append(t.uncleanNodes, found)
		t.mu.Unlock()
		kept.leave()
	}
}

func (t *Target) uncleanText(ctx context.Context, why []string) string {
	return fmt.Sprintf("free_nodes_are_clean: node %s is not clean: %s%s", t.nodeID(), strings.Join(why, "; "), t.story(ctx))
}

// freeUnclean finds nodes that are free at the end of a run and not clean. Those that were found
// when they were handed out are among what it returns.
func (t *environment) freeUnclean(ctx context.Context) ([]violation, error) {
	last := map[*simhw.Machine]*Target{}
	t.targets.Range(func(_, v any) bool {
		if target, ok := v.(*Target); ok && target.Machine != nil && target.Booted == nil && target.nodeID() != "" && target.node() != nil {
			last[target.Machine] = target
		}
		return true
	})
	t.mu.Lock()
	out := slices.Clone(t.uncleanNodes)
	t.mu.Unlock()
	for _, target := range last {
		if slices.ContainsFunc(out, func(v violation) bool { return strings.Contains(v.text, target.nodeID()) }) {
			continue // it was taken out of the pool
		}
		n, err := t.store.Node(ctx, target.nodeID())
		if errors.Is(err, db.ErrNotFound) || err == nil && (n.Status != lifecycle.NodeActive || n.AllocationID != nil || n.TenantLeftAt != nil) {
			continue
		}
		if err != nil {
			return out, err
		}
		why, err := target.unclean(ctx)
		if err != nil {
			return out, fmt.Errorf("look whether node %s is clean: %w", n.ID, err)
		}
		if len(why) > 0 {
			out = append(out, violation{n.ID, target.uncleanText(ctx, why)})
		}
	}
	return out, nil
}
