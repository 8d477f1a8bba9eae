package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// pxeWorld is a stack with machines that boot from the network, the workflows
// that install and erase them, and an admin at the API.
type pxeWorld struct {
	*rotator
	disk, eraser string // ids of install workflows
}

// pxePatience is for what a busy machine may take, never for what is expected.
const pxePatience = 2 * time.Minute

// until waits for a condition, and says when it gives up how it is then.
func until(t *testing.T, now func() string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(runenv.Patience(pxePatience)); !ok(); {
		if time.Now().After(deadline) {
			require.FailNow(t, runenv.Deadline+now())
		}
		wait(t, 100*time.Millisecond)
	}
}

const (
	pxeUserData = `#cloud-config
autoinstall:
  version: 1
  early-commands:
    - {{ report "started" }}
  late-commands:
    - {{ report "progress" 90 }}
    - {{ report "complete" }}
  error-commands:
    - {{ report "failed" }}
  user-data:
    runcmd:
      - {{ install_agent }}
`
	pxeEraserData = `#cloud-config
runcmd:
  - {{ install_agent }}
`
)

func newPXEWorld(t *testing.T, on *world) *pxeWorld {
	t.Helper()
	w := &pxeWorld{rotator: newRotator(t, on)}
	image := []byte(strings.Repeat("a kernel, made up; ", 10_000))
	mirror := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Length", strconv.Itoa(len(image)))
		_, _ = out.Write(image)
	}))
	t.Cleanup(mirror.Close)
	sum := sha256.Sum256(image)
	kernel := client.BootImage{URL: mirror.URL + "/vmlinuz", Sha256: hex.EncodeToString(sum[:])}
	add := func(name, words, userData string) string {
		made, err := client.Value(w.api.CreateInstallWorkflow(t.Context(), client.InstallWorkflowRequest{Name: name, Spec: client.InstallWorkflowSpec{
			Kernel: kernel, Initrds: []client.BootImage{{URL: mirror.URL + "/initrd"}}, CommandLine: words + " ds=nocloud-net;s={{ .SeedURL }}",
			UserData: userData, Agent: client.InstallAgent{Simulated: true, HeartbeatSeconds: 1},
		}}))
		require.NoError(t, err)
		return made.ID
	}
	w.disk, w.eraser = add("disk-"+on.site.Name, "autoinstall", pxeUserData), add("eraser-"+on.site.Name, pxesim.LiveWord, pxeEraserData)
	return w
}

// deprovisioning asks for the erasure of a node.
func deprovisioning() client.StateTransition {
	return client.StateTransition{State: "deprovisioning", GraceSeconds: new(int64(1))}
}

func (w *pxeWorld) view(t *testing.T, id string) client.Node {
	t.Helper()
	v, err := client.Value(w.api.GetNode(t.Context(), id))
	require.NoError(t, err)
	return v
}

// set asks for a state and returns what the node is then.
func (w *pxeWorld) set(t *testing.T, id string, body client.StateTransition) client.Node {
	t.Helper()
	v, err := client.Value(w.api.SetNodeState(t.Context(), id, body, client.IfMatch("*")))
	require.NoError(t, err)
	return v
}

// discovered is the node that the machine was found as.
func (w *pxeWorld) discovered(t *testing.T, s *stack.PXEServer) string {
	t.Helper()
	var n db.Node
	until(t, func() string { return s.Hardware.Spec().ID + " is not discovered: " + s.Screen() }, func() bool {
		var err error
		n, err = w.App.Store.NodeOfMAC(t.Context(), s.MAC())
		return err == nil && n.Status == lifecycle.NodeDiscovered
	})
	return n.ID
}

// active brings machines into service: discovered, approved, installed, with an
// agent, and with the BMC that each has.
func (w *pxeWorld) active(t *testing.T, servers ...*stack.PXEServer) (nodes []string) {
	t.Helper()
	for _, s := range servers {
		s.Hardware.PowerOn("test")
	}
	for _, s := range servers {
		id := w.discovered(t, s)
		_, err := w.api.UpdateNode(t.Context(), id, client.NodePatch{
			InstallWorkflowID: &w.disk, EraseWorkflowID: &w.eraser, Labels: &map[string]*string{"rack": new("7")},
		}, client.IfMatch("*"))
		require.NoError(t, err)
		w.set(t, id, client.StateTransition{State: "pending"})
		nodes = append(nodes, id)
	}
	for i, id := range nodes {
		w.reaches(t, id, lifecycle.NodeInstalled)
		w.heard(t, id, servers[i])
		w.set(t, id, client.StateTransition{State: "active"})
		if servers[i].BMC != nil {
			w.rotator.bmc(t, servers[i].Hardware, &id)
		}
	}
	return nodes
}

func (w *pxeWorld) reaches(t *testing.T, id string, want lifecycle.NodeStatus) {
	t.Helper()
	var n db.Node
	until(t, func() string { return fmt.Sprintf("the node is %s, not %s: %s", n.Status, want, n.LastInstallError) }, func() bool {
		n = w.node(t, id)
		return n.Status == want
	})
}

// heard waits for a heartbeat of the machine's present boot.
func (w *pxeWorld) heard(t *testing.T, id string, s *stack.PXEServer) {
	t.Helper()
	until(t, func() string { return "no agent of node " + id + " is heard from " + s.Hardware.Spec().ID }, func() bool {
		last, err := w.App.Store.LatestHeartbeat(t.Context(), id)
		return err == nil && last.BootID != "" && last.BootID == s.Hardware.BootID() && last.Report != nil // a job begins with the drives of the report
	})
}

// begin asks for a state that a job owns and returns the job.
func (w *pxeWorld) begin(t *testing.T, id string, body client.StateTransition) string {
	t.Helper()
	v := w.set(t, id, body)
	require.Equal(t, body.State, v.Status)
	require.NotEmpty(t, v.Pxe.JobID)
	return v.Pxe.JobID
}

// completes waits until the job has completed. A worker that is killed before it has asked the
// agent is noticed only when the two minutes of its activity are over, and each kill may meet other
// jobs, too.
func (w *pxeWorld) completes(t *testing.T, job string, words ...any) {
	t.Helper()
	j := w.ends(t, job, 3*pxePatience)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%v %s: %s: %s", words, j.FailedStage, j.FailureClass, j.Message)
}

// power waits until the machine is on or off.
func power(t *testing.T, s *stack.PXEServer, want simhw.Power) {
	t.Helper()
	until(t, func() string { return fmt.Sprintf("the machine is %s, not %s", s.Hardware.Power(), want) }, func() bool { return s.Hardware.Power() == want })
}

// erased: nothing of a tenant or a system is on any disk.
func erased(t *testing.T, s *stack.PXEServer) {
	t.Helper()
	for _, d := range s.Hardware.Spec().Disks {
		for _, mark := range []string{simnode.TenantMark, simnode.SystemMark} {
			held, err := s.Disk.DiskHolds(d.Name, mark)
			require.NoError(t, err)
			require.False(t, held, "%s is still on %s", mark, d.Name)
		}
	}
}

func (w *pxeWorld) way(t *testing.T, id string) (states []string) {
	t.Helper()
	history, _, err := w.App.Store.NodeHistory(t.Context(), id, 100, 0)
	require.NoError(t, err)
	for i := range history {
		states = append(states, history[len(history)-1-i].ToState)
	}
	return states
}

// pinned approves the certificate of a BMC that the job has met for the first
// time, as an operator does who has compared it.
func (w *pxeWorld) pinned(t *testing.T, job, id string, s *stack.PXEServer) {
	t.Helper()
	j := w.ends(t, job, pxePatience)
	require.Equal(t, lifecycle.FailBMCPinMismatch, j.FailureClass, "%s %s: %s", j.Status, j.FailedStage, j.Message)
	b, err := w.App.Store.BMCOfNode(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, s.Hardware.Spec().BMCAddress, b.Address)
	_, err = w.api.ApproveBmcPin(t.Context(), b.ID, client.ApproveBmcPinRequest{PinSha256: b.PinPending})
	require.NoError(t, err)
	w.act(t, job, lifecycle.ActionRetryStage)
}
