package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// troubles are what may be wrong at a node when its tenant gives it back.
type troubles struct {
	lies    bool // the agent answers OK, and the node lets the tenant in as before
	stopped bool // the agent's process is stopped
	stuck   bool // a process of the tenant is in state D
	dead    bool // nobody reaches the BMC
}

func (w troubles) agent() bool { return w.lies || w.stopped || w.stuck }

func (w troubles) String() string {
	var out []string
	for name, is := range map[string]bool{"lies": w.lies, "stopped": w.stopped, "stuck": w.stuck, "dead BMC": w.dead} {
		if is {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// lent is a node that a tenant gives back in trouble.
type lent struct {
	troubles
	*tenant
	machine *simhw.Machine
	root    bool // the tenant
	id, job string
	at      *allocationdb.Connection
}

// admitted reports whether the node lets the tenant in. A node that says nothing does not.
func (l *lent) admitted(t *testing.T) bool {
	t.Helper()
	in, err := l.IsAdmitted(t.Context(), l.Sims.Nodes[l.machine.Spec().ID].SSHAddress(), l.at.User)
	return err == nil && in
}

// TestAllocation_AccessEndsOrIsUnconfirmed lets what ends a tenant's access fail, singly and
// together. The access is proven to have ended, or the release has failed, the access is
// unconfirmed and the node quarantined. No release is called revoked while the tenant's key opens
// the node.
func TestAllocation_AccessEndsOrIsUnconfirmed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("these releases take a minute")
	}
	cases := []*lent{
		{troubles: troubles{lies: true}}, {troubles: troubles{stopped: true}}, {troubles: troubles{stuck: true}}, {troubles: troubles{dead: true}},
		{troubles: troubles{lies: true, dead: true}}, {troubles: troubles{stopped: true, dead: true}}, {troubles: troubles{stuck: true, dead: true}},
		{troubles: troubles{lies: true, stopped: true, stuck: true, dead: true}}, {troubles: troubles{dead: true}, root: true},
	}
	w := newWorld(t, stack.Options{Count: len(cases)})
	w.lend(t, cases)
	for _, l := range cases {
		l.breakNode(t)
	}
	for _, l := range cases {
		l.job = l.release(t, l.id).Job.ID
	}
	givenUp := func(l *lent) bool { return l.dead && l.stopped && !l.lies }
	for _, l := range cases {
		if !l.dead {
			continue
		}
		l.failed(t)
		if givenUp(l) {
			l.removed(t)
			continue
		}
		l.machine.SetBMCDown(false)
		l.goesOn(t)
	}
	for _, l := range cases {
		if !givenUp(l) {
			l.ended(t)
		}
	}
}

// lend gives a node to the tenant of each case.
func (w *world) lend(t *testing.T, cases []*lent) {
	t.Helper()
	nodes := w.activeNodes(t)
	machines := map[string]*simhw.Machine{}
	for m, id := range nodes {
		machines[id] = m
	}
	root, err := w.App.Store.CreateSKU(t.Context(), w.sku.Name+"-root", w.SKUSpec())
	require.NoError(t, err)
	require.NoError(t, dbtest.SetTenantRootOf(t.Context(), w.App.Store, w.sku.ID, false))
	require.NoError(t, dbtest.SetNodeSKU(t.Context(), w.App.Store, slices.Sorted(maps.Values(nodes))[0], root.ID))
	jobs := map[*lent]string{}
	for _, l := range cases {
		sku := w.sku.ID
		if l.root {
			sku = root.ID
		}
		made, err := stack.NewTenant(t.Context(), w.App.Store, sku, w.profile.ID)
		require.NoError(t, err)
		l.tenant = &tenant{w, made}
		got := l.allocate(t)
		l.id, jobs[l] = got.Allocation.ID, got.Job.ID
	}
	for _, l := range cases {
		a := w.becomes(t, l.id, jobs[l], lifecycle.AllocationActive)
		l.at, l.machine = a.Connection, machines[*a.NodeID]
		require.True(t, l.admitted(t))
	}
}

func (l *lent) breakNode(t *testing.T) {
	t.Helper()
	n := l.Sims.Nodes[l.machine.Spec().ID]
	if l.stuck {
		require.NoError(t, n.HoldProcess(l.at.User))
	}
	if l.lies {
		f := n.Faults()
		f.SSHKeepsAccess = true
		require.NoError(t, n.SetFaults(f))
	}
	if l.stopped {
		require.NoError(t, n.StopAgent())
	}
	l.machine.SetBMCDown(l.dead)
}

// ended: the tenant is out, the node is certified and free.
func (l *lent) ended(t *testing.T) {
	t.Helper()
	a := l.becomes(t, l.id, l.job, lifecycle.AllocationReleased)
	require.Equal(t, lifecycle.OutcomeReleased, a.Outcome, "%s", l)
	require.Equal(t, lifecycle.AccessRevoked, a.Access, "%s", l)
	require.NotNil(t, a.CertificateID, "%s", l)
	require.False(t, l.admitted(t), "%s", l)
	installs := 1
	if l.agent() || l.root {
		installs = 2 // nobody asks the system that the tenant may have kept
	}
	require.Equal(t, installs, l.machine.Counters().Installs, "%s", l)
	n := l.node(t, *a.NodeID)
	require.Nil(t, n.TenantLeftAt, "%s", l)
	require.Nil(t, n.AllocationID, "%s", l)
}

// failed: nothing proves that the tenant is out, unless his keys were refused before somebody
// missed the BMC. He is not charged, and nobody else gets the node.
func (l *lent) failed(t *testing.T) {
	t.Helper()
	a := l.becomes(t, l.id, l.job, lifecycle.AllocationReleaseFailed)
	if !l.agent() && !l.root {
		require.Equal(t, lifecycle.AccessRevoked, a.Access, "%s", l)
		require.False(t, l.admitted(t), "%s", l)
		return
	}
	require.Equal(t, lifecycle.AccessUnconfirmed, a.Access, "%s", l)
	require.Nil(t, a.CertificateID, "%s", l)
	j := l.world.job(t, l.job)
	require.Equal(t, lifecycle.FailAccessUnconfirmed, j.FailureClass, "%s: %s", l, j.Message)
	require.Equal(t, l.lies || l.stopped, l.admitted(t), "%s", l)
	n := l.node(t, *a.NodeID)
	require.Equal(t, lifecycle.NodeQuarantined, n.Status, "%s", l)
	require.Equal(t, a.ID, *n.AllocationID, "%s", l)
}

// operate does what an operator can do about an allocation whose release has failed.
func (l *lent) operate(t *testing.T, action string) {
	t.Helper()
	token, err := op.CreateToken(t.Context(), l.App.Store, "olga", []string{"operator"}, time.Hour)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.Config.API.PublicURL+"/api/v1/admin/allocations/"+l.id+"/"+action,
		strings.NewReader(`{"reason": "the release has failed"}`))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "If-Match": fmt.Sprintf("%q", fmt.Sprint(l.allocation(t, l.id).Version)),
	} {
		req.Header.Set(name, value)
	}
	client := http.Client{Timeout: runenv.Patience(time.Minute)}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // read to the end
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	// On a busy machine the answer may come too late; the caller looks at what the action does.
	require.Contains(t, []int{http.StatusAccepted, http.StatusGatewayTimeout}, res.StatusCode, "%s: %s", l, text)
}

// goesOn has the release tried again by the same job.
func (l *lent) goesOn(t *testing.T) {
	t.Helper()
	failed := l.world.job(t, l.job).Seq
	l.operate(t, "force-release")
	require.Eventually(t, func() bool {
		j := l.world.job(t, l.job)
		return j.Seq > failed && !j.Status.Parked()
	}, runenv.Patience(time.Minute), 50*time.Millisecond, "%s", l)
}

// removed: the node is taken from the allocation, the access stays unconfirmed, and nobody gets the
// node.
func (l *lent) removed(t *testing.T) {
	t.Helper()
	l.operate(t, "remove-assignment")
	require.Eventually(t, func() bool { return lifecycle.Job.Terminal(l.world.job(t, l.job).Status) }, runenv.Patience(time.Minute), 100*time.Millisecond)
	a := l.allocation(t, l.id)
	require.Equal(t, lifecycle.AllocationReleased, a.Status, "%s", l)
	require.Equal(t, lifecycle.OutcomeAssignmentRemoved, a.Outcome, "%s", l)
	require.Equal(t, lifecycle.AccessUnconfirmed, a.Access, "%s", l)
	n := l.node(t, *a.NodeID)
	require.Equal(t, lifecycle.NodeQuarantined, n.Status, "%s", l)
	require.NotNil(t, n.TenantLeftAt, "%s", l)
	require.Nil(t, n.AllocationID, "%s", l)
	require.True(t, l.admitted(t), "%s", l)
}
